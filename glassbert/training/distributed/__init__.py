"""Training over several processes and machines: MPI for the NumPy engine, MLX's own backends for MLX.

launch.py       who started this process, and how many others, as the environment says
choosing.py     the workers that fit the launcher and the engine, or a sentence why none do
requests.py     sums under way, looked after while this process computes
mpi_workers.py  processes and machines with mpi4py
mlx_workers.py  GPUs and Macs with mx.distributed
"""

from glassbert.training.distributed.choosing import find_workers
from glassbert.training.distributed.launch import Launch, find_launch

__all__ = ["Launch", "find_launch", "find_workers"]
