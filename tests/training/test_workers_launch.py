"""Detection of launchers, the choice of workers, and errors for combinations that do not work."""

import sys

import pytest

from glassbert.errors import TrainingError
from glassbert.training.distributed import find_launch, find_workers
from glassbert.training.workers import Alone

OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
RING = {"MLX_RANK": "1", "MLX_HOSTFILE": "hosts.json"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (OPEN_MPI, ("mpi", 1, 4, "mpi")),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, ("mpi", 0, 2, "mpi")),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8"}, ("mpi", 3, 8, "mpi")),
        (RING, ("mlx", 1, None, "ring")),
        ({"MLX_RANK": "0", "MLX_WORLD_SIZE": "8", "NCCL_HOST_IP": "10.0.0.1"}, ("mlx", 0, 8, "nccl")),
    ],
)
def test_launchers_are_detected(environment, expected):
    launch = find_launch(environment)
    assert launch is not None
    assert (launch.kind, launch.rank, launch.size, launch.backend) == expected


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"},  # the batch script itself is one process
        {"MLX_RANK": "0", "MLX_HOSTFILE": ""},
    ],
)
def test_a_single_process_has_no_other_workers(environment):
    assert find_launch(environment) is None
    assert isinstance(find_workers("numpy", environment=environment), Alone)


def test_numpy_under_mlx_launch_is_refused():
    with pytest.raises(TrainingError, match=r"started this process for MLX.*mpirun.*--engine mlx"):
        find_workers("numpy", environment=RING)


def test_mpi_ranks_without_mpi4py_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(TrainingError, match=r"4 processes.*separate model.*glassbert\[mpi\]"):
        find_workers("numpy", environment=OPEN_MPI)


def test_an_invalid_number_of_processes_is_named():
    with pytest.raises(TrainingError, match=r"PMI_SIZE must be a number, but is 'two'"):
        find_launch({"PMI_RANK": "0", "PMI_SIZE": "two"})
