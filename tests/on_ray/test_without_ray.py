"""What can be tested of Ray without a cluster, and a plain install without the package."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from glassbert.bulk.inputs import InputFile, Inputs
from glassbert.bulk.job import Part
from glassbert.bulk.storage import Storage
from glassbert.cli import main
from glassbert.errors import InputError
from glassbert.finetuning.embedding import embedder
from glassbert.on_ray.cluster import RETRIES, Cluster, check_answers, explain_lost_workers
from glassbert.on_ray.corpus import parts_on_cluster
from glassbert.on_ray.deployment import MOST_BYTES, MOST_TEXTS, TooLarge, answer, build, texts_of
from glassbert.on_ray.pieces import RayWorker, Tries, on_cluster
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.workers import Job


@pytest.fixture
def no_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)


@pytest.mark.parametrize(
    "command",
    [
        ["embed", "texts.txt", "-o", "out", "--on", "ray"],
        ["predict", "mini", "--file", "texts.txt", "-o", "out", "--on", "ray"],
        ["corpus", "build", "texts.txt", "-o", "out", "--on", "ray"],
    ],
)
def test_a_plain_install_names_the_package(command, no_ray, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("one text\n")
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 2
    assert '--on ray needs ray: pip install "ray[data,serve]"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--on", "moon"], "--on must be one of here, ray"),
        (["--workers", "2"], "--workers is for a cluster; add --on ray"),
        (["--address", "auto"], "--address is for a cluster; add --on ray"),
    ],
)
def test_options_of_a_cluster(options, sentence, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("one text\n")
    with pytest.raises(SystemExit):
        main(["embed", str(tmp_path / "texts.txt"), "-o", str(tmp_path / "v.npy"), *options])
    assert sentence in capsys.readouterr().err


def test_a_text_of_the_command_line_is_no_work_for_a_cluster(capsys):
    with pytest.raises(SystemExit):
        main(["predict", "mini", "A text.", "--on", "ray"])
    assert "--on ray is for files" in capsys.readouterr().err


def test_a_cluster_is_asked_before_any_work():
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="no Ray cluster answers"):
        on_cluster("127.0.0.1:9")(SimpleNamespace(threads=1), None).__enter__()


def test_an_address_where_nobody_is():
    with pytest.raises(InputError, match=r"no Ray cluster answers at 127\.0\.0\.1:9 .*start one with: ray start"):
        check_answers("127.0.0.1:9")
    with pytest.raises(InputError, match="no Ray cluster answers at ray:"):
        check_answers("ray://127.0.0.1:9")
    with pytest.raises(InputError, match="must be host:port"):
        check_answers("somewhere:else")


# ---- requests of Ray Serve -------------------------------------------------------------------------------------------


def body(content) -> bytes:
    return json.dumps(content).encode()


def test_requests_are_texts_pairs_or_rows():
    assert texts_of(body({"text": "one"})) == ["one"]
    assert texts_of(body({"texts": ["one", "two"]})) == ["one", "two"]
    assert texts_of(body({"text": ["one", "other"]})) == [("one", "other")]
    assert texts_of(body({"texts": [{"Sex": "female"}]})) == [{"Sex": "female"}]


BODIES = [
    *(
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b'{"texts": []}',
        b'{"texts": [1]}',
        b'{"texts": ["a", {}]}',
        b'"text"',
    ),
    *(b'"text"', b'{"texts": [["a", 2]]}', b'{"texts": [[]]}', b'{"text": null}', b'{"texts": 3}', b'{"text": true}'),
]


@pytest.mark.parametrize("content", BODIES)
def test_other_bodies_are_a_sentence(content):
    with pytest.raises(InputError):
        texts_of(content)


def test_limits_of_a_request():
    with pytest.raises(TooLarge, match="at most 256 texts"):
        texts_of(body({"texts": ["a"] * (MOST_TEXTS + 1)}))
    with pytest.raises(TooLarge, match="bytes"):
        texts_of(body({"text": "a" * MOST_BYTES}))


def test_a_bad_request_does_not_spoil_the_batch():
    predictor = embedder("mini", threads=1)
    found = answer(predictor, [["A river."], [{"other": "column"}], ["A hill.", "A lake."]])
    assert [status for status, _ in found] == [200, 422, 200]
    assert [len(content.get("predictions", ())) for _, content in found] == [1, 0, 2]
    assert found[0][1]["predictions"][0]["text"] == "A river."


def test_objects_of_a_batch_do_not_change_each_other():
    predictor = embedder("mini", threads=1)
    requests = [[{"text": "A river."}], [{"other": "column"}], [{"text": "1,5"}], [{"text": "1,234"}], ["A hill."]]
    alone = [answer(predictor, [texts])[0] for texts in requests]
    assert answer(predictor, requests) == alone
    assert [status for status, _ in alone] == [200, 422, 200, 200, 200]


class Lost(Exception):
    """In the place of ray.exceptions.RayError."""


class FakeRay:
    """In the place of Ray: `remote` and `put` keep what they get."""

    exceptions = SimpleNamespace(RayError=Lost, RayTaskError=type("RayTaskError", (Lost,), {}))

    def __init__(self):
        self.jobs = []

    def remote(self, **_):
        return lambda function: type("Task", (), {"remote": staticmethod(lambda unit, digest, job: unit)})

    def put(self, job):
        self.jobs.append(job)

    def wait(self, waiting):
        return waiting[:1], waiting[1:]

    def get(self, done):
        return done


def test_a_worker_that_always_dies_ends_the_work(tmp_path, monkeypatch):
    ray = FakeRay()

    def lose(*_):
        raise Lost

    ray.get = lose
    monkeypatch.setattr("glassbert.on_ray.corpus.connected", lambda *_: nullcontext(Cluster(ray, 1, 1)))
    job = Job(tmp_path, tmp_path, "f", Settings(), (1, 1))
    with pytest.raises(InputError, match=r"a worker of the cluster died too often \(Lost\)"):
        list(parts_on_cluster()([(3, "digest")], job, 1))
    with pytest.raises(ray.exceptions.RayTaskError), explain_lost_workers(ray):
        raise ray.exceptions.RayTaskError


def test_a_piece_whose_worker_always_dies_ends_the_job(tmp_path, monkeypatch):
    made = []
    maker = SimpleNamespace(make=lambda piece: made.append(piece) or Part(piece.number, piece.rows, 0))
    monkeypatch.setattr("glassbert.on_ray.pieces.Worker", lambda work: maker)
    inputs = Inputs(Storage(str(tmp_path)), "parquet", (InputFile("a.parquet", 1, 9),), None, {})
    worker = RayWorker(SimpleNamespace(inputs=inputs), Tries().begin)
    first, second = inputs.pieces(5)
    problems = [worker.make(second)["problem"] for _ in range(RETRIES + 2)]
    assert problems[:-1] == [""] * (RETRIES + 1)
    assert problems[-1].startswith("a.parquet, rows 6 to 9: the worker died 4 times, probably because memory ran out")
    assert len(made) == RETRIES + 1
    assert worker.make(first) == {"number": 0, "rows": 5, "empty": 0, "cut": 0, "problem": ""}


def test_paths_of_a_corpus_and_a_deployment_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ray = FakeRay()
    monkeypatch.setattr("glassbert.on_ray.corpus.connected", lambda *_: nullcontext(Cluster(ray, 1, 1)))
    job = Job(Path("corpus/parts"), Path("corpus/tokenizer"), "f", Settings(), (1, 1))
    assert list(parts_on_cluster()([(3, "digest")], job, 1)) == [3]
    assert (ray.jobs[0].folder, ray.jobs[0].tokenizer) == (tmp_path / "corpus/parts", tmp_path / "corpus/tokenizer")
    serve = pytest.importorskip("ray.serve")
    (tmp_path / "run").mkdir()
    bound = []
    chosen = type("Deployment", (), {"bind": staticmethod(lambda *given: bound.append(given))})
    monkeypatch.setattr(serve, "deployment", lambda **_: lambda replica: chosen)
    build({"model": "run"})
    assert bound[0][1] == str(tmp_path / "run")


@pytest.mark.parametrize(
    "options",
    [{}, {"model": "mini", "replica": "2"}, {"model": "mini", "replicas": "none"}, {"model": "m", "kind": "x"}],
)
def test_options_of_the_deployment(options):
    with pytest.raises(InputError):
        build(options)
