"""A real cluster of Ray on this machine: two workers, one of which is killed, and the same bytes as without it."""

import json
import os
import shutil
import signal
import socket
import urllib.error
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from glassbert.bulk.job import DONE, JOB, here, run_job
from glassbert.bulk.storage import Storage
from glassbert.errors import InputError
from glassbert.finetuning.embedding import embedder
from glassbert.text.corpus import build_corpus

pytestmark = pytest.mark.parity
ray = pytest.importorskip("ray")

from glassbert.on_ray.cluster import check_answers, connected  # noqa: E402
from glassbert.on_ray.corpus import parts_on_cluster  # noqa: E402
from glassbert.on_ray.deployment import build  # noqa: E402
from glassbert.on_ray.pieces import on_cluster  # noqa: E402

FILES, ROWS, PER_PART = 3, 250, 32


@pytest.fixture(scope="module")
def cluster():
    """Two CPUs for all tests of this file. On a busy machine a process of Ray Serve needs more than the usual 5 s."""
    with pytest.MonkeyPatch.context() as patch:
        for check in ("READY", "HEALTH"):
            patch.setenv(f"RAY_SERVE_PROXY_{check}_CHECK_TIMEOUT_S", "60")
        with connected("local", workers=2) as found:
            yield found


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """Parquet files whose row groups do not fit the pieces, one of them without rows."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(FILES):
        words = [f"text {number} {row}: {'the river was wide ' * (row % 7)}and cold" for row in range(ROWS)]
        table = pyarrow.table({"id": [f"{number}-{row}" for row in range(ROWS)], "text": words})
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet", row_group_size=70)
    pyarrow.parquet.write_table(table.slice(0, 0), folder / "empty.parquet")
    return folder


def workers_of_this_process() -> list[int]:
    """The processes in which Ray Data runs our class, below the raylet that this process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                title = (entry / "cmdline").read_bytes()
                raylet = (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                driver = Path("/proc", raylet, "stat").read_text().rsplit(")", 1)[1].split()[1]
            except OSError:
                continue
            if title.startswith(b"ray::MapWorker") and int(driver) == os.getpid():
                found.append(int(entry.name))
    return found


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_killed_worker_loses_no_row_and_doubles_none(cluster, texts, tmp_path):
    killed = []

    def kill_one(done: int, total: int) -> None:
        if not killed:
            workers = workers_of_this_process()
            assert len(workers) == 2
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])

    settings = {"rows": PER_PART, "threads": 1}
    run_job("embed", "mini", texts, tmp_path / "alone", **settings)
    done = run_job("embed", "mini", texts, tmp_path / "ray", executor=on_cluster(), progress=kill_one, **settings)
    assert killed
    assert (done.rows, done.made_rows) == (FILES * ROWS, FILES * ROWS)
    assert files_of(tmp_path / "ray") == files_of(tmp_path / "alone")
    table = pyarrow.parquet.read_table(tmp_path / "ray").to_pydict()
    names = list(zip(table["source_file"], table["source_row"], strict=True))
    assert names == [(f"{file}.parquet", row) for file in range(FILES) for row in range(1, ROWS + 1)]


def test_a_job_that_was_begun_here_goes_on_there(cluster, texts, tmp_path):
    settings = {"rows": PER_PART, "threads": 1}
    run_job("embed", "mini", texts, tmp_path / "job", **settings)
    whole = files_of(tmp_path / "job")
    (tmp_path / "job" / DONE).unlink()
    (tmp_path / "job" / "part-000003.parquet").unlink()
    (tmp_path / "job" / "part-000005.parquet").write_bytes(b"PAR1 cut")
    done = run_job("embed", "mini", texts, tmp_path / "job", executor=on_cluster(), **settings)
    assert done.made_rows == 2 * PER_PART
    assert files_of(tmp_path / "job") == whole
    assert JOB in whole


def test_an_error_of_a_worker_is_the_sentence_of_one_process(cluster, texts, tmp_path):
    messages = []
    for place in (here, on_cluster()):
        folder = tmp_path / "texts"
        shutil.copytree(texts, folder, dirs_exist_ok=True)

        def without_a_file(work, predictor, place=place, folder=folder):
            (folder / "1.parquet").write_bytes(b"no Parquet")  # after the files were looked at
            return place(work, predictor)

        with pytest.raises(InputError) as caught:
            run_job("embed", "mini", folder, tmp_path / place.__name__, rows=200, executor=without_a_file)
        messages.append(str(caught.value))
    assert "1.parquet cannot be read as Parquet" in messages[0]
    assert messages[0] == messages[1]


def test_a_piece_that_ends_its_worker_ends_the_job(cluster, texts, tmp_path):
    driver = os.getpid()

    @dataclass(frozen=True)
    class Poison(Storage):
        """A folder with a file that ends the worker which reads it."""

        def __reduce__(self):
            return Poison, (self.place,)

        def open(self, name):
            if name == "1.parquet" and os.getpid() != driver:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().open(name)

    def with_poison(work, predictor):
        inputs = replace(work.inputs, storage=Poison(work.inputs.storage.place))
        return on_cluster()(replace(work, inputs=inputs), predictor)

    with pytest.raises(InputError, match=r"1\.parquet, rows 1 to 250: the worker died 4 times"):
        run_job("embed", "mini", texts, tmp_path / "out", rows=ROWS, threads=1, executor=with_poison)
    assert (tmp_path / "out" / JOB).exists()
    assert not (tmp_path / "out" / DONE).exists()


def test_a_corpus_has_the_same_bytes(cluster, tmp_path):
    (tmp_path / "texts").mkdir()
    for number in range(3):
        lines = [
            f"Paragraph {number} {line}: the miller crossed the river {line * 7919 % 1009}." for line in range(20_000)
        ]
        (tmp_path / "texts" / f"{number}.txt").write_text("\n\n".join(lines), encoding="utf-8")
    settings = {"vocab_size": 300, "near_duplicates": None}
    alone = build_corpus([tmp_path / "texts"], tmp_path / "alone", workers=1, **settings)
    there = build_corpus([tmp_path / "texts"], tmp_path / "there", make_parts=parts_on_cluster(), **settings)
    assert there.manifest == alone.manifest
    assert files_of(tmp_path / "there") == files_of(tmp_path / "alone")


def test_another_server_is_no_cluster(monkeypatch):
    monkeypatch.setattr("glassbert.on_ray.cluster.TIMEOUT", 6)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(InputError, match="it is no Ray cluster"):
        check_answers(f"127.0.0.1:{server.getsockname()[1]}")


def test_serve_answers_with_the_numbers_of_the_predictor(cluster):
    """The application of `serve run glassbert.on_ray.deployment:build model=mini kind=embed`."""
    from ray import serve

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve.start(http_options={"port": port, "host": "127.0.0.1"})
    try:
        serve.run(build({"model": "mini", "kind": "embed"}), name="glassbert")

        def ask(body: bytes) -> tuple[int, dict]:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/", data=body)
            try:
                with urllib.request.urlopen(request, timeout=60) as reply:
                    return reply.status, json.load(reply)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        status, found = ask(b'{"texts": ["A river.", "A hill."]}')
        expected = embedder("mini", threads=1).predict(["A river.", "A hill."]).vectors
        assert status == 200
        assert np.abs(np.array([one["prediction"] for one in found["predictions"]]) - expected).max() < 1e-6
        assert ask(b"[")[0] == 400
        assert ask(json.dumps({"texts": ["a"] * 257}).encode())[0] == 413
        assert ask(b'{"texts": [{"other": "column"}]}')[0] == 422
    finally:
        serve.shutdown()
