"""Detects the launcher (mpirun, srun, mlx.launch) from the environment and returns the workers that fit the engine.

If a process started by a launcher trained alone, all processes would write into the same folder. So an error is raised
if the workers do not match what the launcher started.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from glassbert.engines.machine import recommended_engine
from glassbert.errors import TrainingError, needs
from glassbert.training.workers import SingleWorker, Workers


class Launch(NamedTuple):
    """How this process was started. `kind` is "mpi" or "mlx"; `size` is None if only the backend knows it."""

    launcher: str
    kind: str
    rank: int
    size: int | None
    backend: str = "mpi"


# Name, variable with the rank, variable with the number of processes. SLURM_NTASKS is not used: a batch script, which
# is one process, has it too. SLURM_STEP_NUM_TASKS is only set by srun.
MPI_LAUNCHERS = (
    ("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("mpirun", "PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, srun --mpi=pmi2
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
MLX_BACKENDS = (  # a variable that mlx.launch sets for this backend only
    ("nccl", "NCCL_HOST_IP"),
    ("jaccl", "MLX_IBV_DEVICES"),
    ("ring", "MLX_HOSTFILE"),
)


def find_workers(
    engine: str = "auto", *, precision: str = "float32", environment: Mapping[str, str] = os.environ
) -> Workers:
    """The workers of this process: `SingleWorker` without a launcher, else those of the launcher and the engine."""
    launch = find_launch(environment)
    if launch is None:
        return SingleWorker()
    if engine == "auto":
        engine = "numpy" if precision == "float64" else recommended_engine()
    if engine == "mlx":
        return _mlx_workers(launch)
    if launch.kind == "mlx":
        raise TrainingError(
            f"{launch.launcher} started this process for MLX, but the run uses the NumPy engine; start it with "
            f"mpirun -n 2 glassbert ..., or choose --engine mlx"
        )
    return _mpi_workers(launch)


def find_launch(environment: Mapping[str, str]) -> Launch | None:
    """How this process was started together with others; None if it is the only one."""
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


def _mpi_workers(launch: Launch) -> Workers:
    problem = f"{launch.launcher} started {launch.size} processes, and each of them would train a separate model: "
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise TrainingError(problem + needs("training together", "mpi4py")) from error
    except RuntimeError as error:  # mpi4py is installed without an MPI library
        raise TrainingError(
            f"{problem}mpi4py finds no MPI library; pip install mpich, or load the MPI of your cluster"
        ) from error
    if launch.size != MPI.COMM_WORLD.size:
        library = MPI.Get_library_version().split(",")[0].split("\n")[0].replace("\t", " ").strip("\0 ")
        raise TrainingError(
            f"{problem}mpi4py uses {library}, which is not connected to them. Start with the mpirun of that library, "
            f"or under Slurm with srun --mpi=pmix (or pmi2)"
        )
    from glassbert.training.distributed.mpi_workers import MpiWorkers

    return MpiWorkers()


def _mlx_workers(launch: Launch) -> Workers:
    from glassbert.training.distributed.mlx_workers import MlxWorkers

    workers = MlxWorkers(launch.backend)
    if workers.size == 1 or (launch.size or workers.size) != workers.size:
        raise TrainingError(
            f"{launch.launcher} started {launch.size or 'several'} processes, but MLX's backend {launch.backend} "
            f"connects {workers.size}; each would train a separate model"
        )
    return workers


def _number(environment: Mapping[str, str], name: str) -> int:
    try:
        return int(environment[name])
    except ValueError:
        raise TrainingError(f"the environment variable {name} must be a number, but is {environment[name]!r}") from None
