"""Real jobs under mpirun: the same losses as one process, and an error message when a worker is lost."""

import json

import numpy as np
import pytest

from tests.training.jobs import RUN, Job, launcher
from tests.training.toy import make_corpus

MPIRUN = launcher("mpirun")
TROUBLES = {"raise": "600", "die": "600", "hang": "2", "drift": "600"}  # kind of failure, and GLASSBERT_WORKER_TIMEOUT
OVERLAP = ["--bucket", "1000"]  # bytes: a toy model is smaller than one bucket of a real one
OTHER = '{"hidden_dropout": 0.1, "tie_word_embeddings": true}'
VARIANTS = {
    "plain": [],
    "overlap": OVERLAP,
    "overlap, threads": [*OVERLAP, "--threads", "2"],
    "overlap, pieces, dropout, tied": [*OVERLAP, "--physical-batch", "3", "--config", OTHER],
}


def usable() -> str:
    """Why jobs cannot be run here; "" if they can."""
    try:
        from mpi4py import MPI  # noqa: F401
    except (ImportError, RuntimeError) as error:
        return f"mpi4py cannot be used: {str(error).splitlines()[0]}"
    return "" if MPIRUN else "there is no mpirun"


pytestmark = pytest.mark.skipif(bool(usable()), reason=usable() or "-")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jobs")
    make_corpus(folder / "corpus")
    return folder


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_ranks_train_like_one_process(folder, variant):
    options, corpus = VARIANTS[variant], folder / "corpus"
    jobs = [Job(launch, corpus, folder / f"{i}.json", *options) for i, launch in enumerate([[], [MPIRUN, "-n", "2"]])]
    one, two = (job.result() for job in jobs)
    assert (one["size"], two["size"]) == (1, 2)
    np.testing.assert_allclose(two["losses"], one["losses"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(two["norms"], one["norms"], rtol=1e-5)
    assert two["shared"] == ["from 0: é", [[0.1], [True]]]


def test_a_run_with_two_workers_equals_one_process_and_one_worker_writes(folder):
    launches = {"one": [], "two": [MPIRUN, "-n", "2"]}
    jobs = {name: Job(launch, folder / "corpus", folder / name, script=RUN) for name, launch in launches.items()}
    results = {}
    for name, job in jobs.items():
        status, printed = job.end()
        assert status == 0, printed
        results[name] = json.loads((folder / name / "result.json").read_text())
    assert results["two"]["steps"] == results["one"]["steps"] == 12
    assert results["two"]["loss"] == pytest.approx(results["one"]["loss"], abs=1e-5)
    steps = [line["step"] for line in map(json.loads, (folder / "two" / "log.jsonl").open()) if line["kind"] == "train"]
    assert steps == sorted(set(steps))


@pytest.fixture(scope="module")
def troubled(folder):
    """Exit status and output of jobs in which worker 1 fails."""
    jobs = {
        kind: Job(
            [MPIRUN, "-n", "2"],
            folder / "corpus",
            folder / f"{kind}.json",
            "--trouble",
            kind,
            GLASSBERT_WORKER_TIMEOUT=seconds,
        )
        for kind, seconds in TROUBLES.items()
    }
    return {kind: (*job.end(), job.output.exists()) for kind, job in jobs.items()}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("raise", "a batch that cannot be used"),
        ("raise", "worker 1 on "),
        ("die", "signal 9"),  # from the launcher
        ("hang", "has waited 2 seconds for the other 1"),
        ("drift", "worker 1 has other weights than worker 0 at step 5"),
    ],
)
def test_a_lost_worker_ends_the_job_with_a_message(troubled, kind, message):
    status, printed, finished = troubled[kind]
    assert status != 0
    assert message in printed
    assert not finished


def test_the_gradient_of_an_unused_parameter_is_summed_as_zero():
    from glassbert.arrays import FlatGradients, Layout
    from glassbert.training.distributed.mpi_workers import _zero_unused

    gradients = FlatGradients(Layout({"embeddings.token": (16,), "head.bias": (16,)}), np.dtype("float32"))
    gradients.add("head.bias", np.ones(16, np.float32))
    gradients.clear()
    _zero_unused(gradients, 16, 32)
    assert not gradients.flat[16:].any()
