"""Our own CUDA kernels, for operations that take too many passes over memory, or too many launches, in MLX.

launch.py       kernels from source, and whether there is a CUDA device
activations.py  GELU and GeGLU
multi_head.py   rotary positions; queries, keys and values side by side; the keys around blocks of a window
norms.py        layer norm
losses.py       cross-entropy
tables.py       rows of a table, sums into rows of one, and sums of columns

`*_fits` says whether a kernel can take an array; `engines/mlx_kernels.py` asks before each use.
"""
