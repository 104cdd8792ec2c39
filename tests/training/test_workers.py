"""Workers: collective operations, training with shares of a batch, and their choice by launcher and engine."""

import sys

import numpy as np
import pytest

from glassbert.errors import TrainingError
from glassbert.families.bert import MINI_BERT_CONFIG, BertWithHead
from glassbert.training.distributed import find_launch, find_workers
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep
from glassbert.training.workers import SingleWorker, Workers
from tests.training.workers_in_threads import together

ROWS, LENGTH, VOCABULARY = 8, 12, 40
CONFIG = MINI_BERT_CONFIG.replace(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=VOCABULARY,
    max_position_embeddings=LENGTH, hidden_dropout=0.1,
)  # fmt: skip


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The first rows have many targets and the last row none, so the shares have very different weights."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(count):
        ids = rng.integers(5, VOCABULARY, (ROWS, LENGTH))
        masked = rng.random(ids.shape) < np.linspace(0.9, 0.02, ROWS)[:, None]
        masked[-1] = False
        found.append((ids, np.where(masked, ids, -100)))
    return found


def make_model(dtype: str = "float64") -> BertWithHead:
    model = BertWithHead(CONFIG, "mlm", engine="numpy", dtype=dtype, threads=1, seed=1)
    model.set_training(True)
    return model


def train(workers: Workers) -> tuple[list[float], np.ndarray]:
    model = make_model()
    step = TrainingStep(model, AdamW(model, 1e-2), workers=workers)
    share = ROWS // workers.size
    rows = slice(workers.rank * share, (workers.rank + 1) * share)
    losses = [float(step(ids[rows], labels[rows]).loss) for ids, labels in batches(4)]
    return losses, model.parameters.flat.copy()


@pytest.mark.parametrize("size", [2, 4])
def test_shares_of_different_weight_give_the_gradient_of_the_batch(size):
    losses, weights = train(SingleWorker())
    for found in together(size, train):
        np.testing.assert_allclose(found[0], losses, rtol=1e-12)
        np.testing.assert_allclose(found[1], weights, rtol=0, atol=1e-12)


def test_broadcast_gives_everyone_the_leaders_text():
    assert together(3, lambda workers: workers.broadcast(f"runs/mini-{workers.rank} é")) == ["runs/mini-0 é"] * 3
    assert together(2, lambda workers: workers.broadcast("")) == ["", ""]
    assert SingleWorker().broadcast("runs/mini") == "runs/mini"


def test_decide_returns_the_leaders_exact_values_and_any_flag():
    decided = together(3, lambda w: w.decide([0.1 + w.rank, -1e300], [w.rank == 2, False]))
    assert decided == [([0.1, -1e300], [True, False])] * 3
    assert SingleWorker().decide([1 / 3], [True]) == ([1 / 3], [True])


def test_the_leader_works_first():
    order: list[int] = []
    assert together(3, lambda w: w.leader_first(lambda: order.append(w.rank) or w.rank)) == [0, 1, 2]
    assert order[0] == 0


def test_gather_keeps_the_order_of_ranks():
    assert together(3, lambda w: w.gather(bytes([w.rank, 255]))) == [[b"\0\xff", b"\1\xff", b"\2\xff"]] * 3


def test_different_weights_are_detected():
    def drift(workers: Workers) -> None:
        model = make_model("float32")
        workers.check_weights(model, "at the start")
        if workers.rank:
            model.parameters["final_norm.weight"][3] += 1e-7
        workers.check_weights(model, "at step 7")

    for error in together(3, drift):
        assert isinstance(error, TrainingError)
        assert str(error).startswith("workers 1, 2 have other weights than worker 0 at step 7")


def test_a_single_process():
    with SingleWorker() as workers:
        assert workers.leads and workers.size == 1
        workers.wait_for_all()
        workers.check_weights(make_model(), "now")


# ---- launchers -----------------------------------------------------------------------------------------------------

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
    assert isinstance(find_workers("numpy", environment=environment), SingleWorker)


def test_numpy_under_mlx_launch_is_refused():
    with pytest.raises(TrainingError, match=r"started this process for MLX.*mpirun.*--engine mlx"):
        find_workers("numpy", environment=RING)


def test_mpi_ranks_without_mpi4py_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(TrainingError, match=r"4 processes.*separate model.*pip install mpi4py"):
        find_workers("numpy", environment=OPEN_MPI)


def test_an_invalid_number_of_processes_is_named():
    with pytest.raises(TrainingError, match=r"PMI_SIZE must be a number, but is 'two'"):
        find_launch({"PMI_RANK": "0", "PMI_SIZE": "two"})
