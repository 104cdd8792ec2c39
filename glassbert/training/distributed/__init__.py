"""Training over several processes and machines: MPI for the NumPy engine, MLX's own backends for MLX.

launch.py       detects the launcher from the environment and returns the workers that fit it and the engine
mpi_workers.py  processes and machines with mpi4py
mlx_workers.py  GPUs and Macs with mx.distributed
"""

from glassbert.training.distributed.launch import Launch, find_launch, find_workers

__all__ = ["Launch", "find_launch", "find_workers"]
