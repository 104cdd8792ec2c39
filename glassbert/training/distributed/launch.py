"""Who started this process, and how many others beside it? Every launcher leaves its mark in the environment.

A batch script under Slurm has SLURM_NTASKS although it is one process, so tasks are counted by what only `srun` sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from glassbert.errors import TrainingError


class Launch(NamedTuple):
    """`kind` is "mpi" or "mlx"; `size` None where only the backend knows it."""

    launcher: str
    kind: str
    rank: int
    size: int | None
    backend: str = "mpi"


MPI_LAUNCHERS = (  # name, variable of the rank, variable of the number of processes
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("mpirun", "PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, srun --mpi=pmi2
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
MLX_BACKENDS = (  # a variable that only this backend of mlx.launch sets
    ("nccl", "NCCL_HOST_IP"),
    ("jaccl", "MLX_IBV_DEVICES"),
    ("ring", "MLX_HOSTFILE"),
)


def find_launch(environment: Mapping[str, str]) -> Launch | None:
    """How this process was started together with others, or None if it is alone."""
    if "MLX_RANK" in environment:
        for backend, variable in MLX_BACKENDS:
            if environment.get(variable):
                size = _number(environment, "MLX_WORLD_SIZE") if "MLX_WORLD_SIZE" in environment else None
                return Launch("mlx.launch", "mlx", _number(environment, "MLX_RANK"), size, backend)
    for name, rank, size_name in MPI_LAUNCHERS:
        if rank in environment and size_name in environment:
            size = _number(environment, size_name)
            return Launch(name, "mpi", _number(environment, rank), size) if size > 1 else None
    return None


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise TrainingError(
            f"the environment variable {name} should be a number, and is {environment[name]!r}"
        ) from None
