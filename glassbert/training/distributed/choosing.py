"""The workers that fit the launcher and the engine.

A process that was started among others and trains alone would write into the same folder as they do. So whatever the
launcher promised must come true, or nothing is trained.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from glassbert.engines.machine import recommended_engine
from glassbert.errors import TrainingError
from glassbert.training.distributed.launch import Launch, find_launch
from glassbert.training.workers import Alone, Workers


def find_workers(
    engine: str = "auto", *, precision: str = "float32", environment: Mapping[str, str] = os.environ
) -> Workers:
    """Who trains together with this process: found out from the launcher, checked against the engine of the run."""
    launch = find_launch(environment)
    if launch is None:
        return Alone()
    if engine == "auto":
        engine = "numpy" if precision == "float64" else recommended_engine()
    if engine == "mlx":
        return _mlx(launch)
    if launch.kind == "mlx":
        raise TrainingError(
            f"{launch.launcher} started this process for MLX, and the run uses the NumPy engine; start it with "
            f"mpirun -n 2 glassbert ..., or choose --engine mlx"
        )
    return _mpi(launch)


def _mpi(launch: Launch) -> Workers:
    alone = f"{launch.launcher} started {launch.size} processes, and each of them would train a model of its own: "
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise TrainingError(f'{alone}mpi4py is missing; pip install "glassbert[mpi]"') from error
    except RuntimeError as error:  # mpi4py is there, and no MPI library
        raise TrainingError(
            f"{alone}mpi4py finds no MPI library; pip install mpich, or load your cluster's MPI"
        ) from error
    if launch.size != MPI.COMM_WORLD.size:
        library = MPI.Get_library_version().split(",")[0].split("\n")[0].replace("\t", " ").strip("\0 ")
        raise TrainingError(
            f"{alone}mpi4py uses {library}, which knows nothing of them. Start with the mpirun of that library, or "
            f"under Slurm with srun --mpi=pmix (or pmi2)"
        )
    from glassbert.training.distributed.mpi_workers import MpiWorkers

    return MpiWorkers()


def _mlx(launch: Launch) -> Workers:
    from glassbert.training.distributed.mlx_workers import MlxWorkers

    workers = MlxWorkers(launch.backend)
    if workers.size == 1 or (launch.size or workers.size) != workers.size:
        raise TrainingError(
            f"{launch.launcher} started {launch.size or 'several'} processes, and MLX's backend {launch.backend} "
            f"connects {workers.size}; each would train a model of its own"
        )
    return workers
