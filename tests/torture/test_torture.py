"""A small part of `make torture` with fixed seeds: bit flips and fuzzing of the files that GlassBERT writes itself."""

import json
from collections import Counter
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from tests.torture import kills, parquet
from tests.torture.flips import flip_bits
from tests.torture.fuzz import SEEDS, fuzz_files, limited, mutated
from tests.torture.pool import Task, run_tasks
from tests.torture.soak import judge, soak
from tests.torture.strings import hostile_strings
from tests.torture.subjects import Subject, make_fuzzed, make_subjects
from tests.torture.table import Line, as_markdown


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    return make_subjects(tmp_path_factory.mktemp("flips"))


def test_flipped_bits_are_noticed(subjects):
    lines = flip_bits(subjects, 100, seed=1)
    assert sum(line.tried for line in lines) == 100
    assert not [line.examples for line in lines if line.failed]


def test_fuzzed_files_end_in_a_sentence(tmp_path):
    own = [subject for subject in make_fuzzed(tmp_path) if not subject.name.startswith("task file")]
    lines = fuzz_files(own, 25, seed=3)
    assert all(line.tried == 25 for line in lines)
    assert not [line.examples for line in lines if line.failed]


def test_kept_seeds_end_in_a_sentence(subjects):
    """Content that failed once, in the place of every JSON file."""
    from glassbert.errors import GlassBertError

    for subject in subjects:
        for name in (name for name in subject.files if name.endswith(".json")):
            path = subject.folder / name
            original = path.read_bytes()
            for seed in sorted(SEEDS.iterdir()):
                path.write_bytes(seed.read_bytes())
                try:
                    with limited(10):
                        subject.use(subject.folder)
                except GlassBertError:
                    pass
                finally:
                    path.write_bytes(original)


def test_hostile_strings_are_encoded_alike():
    (line,) = hostile_strings(500, seed=1)
    assert line.tried == 500 and not line.examples


def test_the_bench_notices_a_silent_change_and_a_traceback(tmp_path):
    """The bench itself is checked: a reader that trusts everything, and one that fails."""
    (tmp_path / "file.json").write_text('{"a": 1}')
    trusting = Subject("trusting", tmp_path, ["file.json"], lambda folder: (folder / "file.json").read_bytes().hex())
    (line,) = flip_bits([trusting], 20, seed=0)
    assert line.failed == 20 and "was not noticed" in line.examples[0]

    def fail(folder: Path) -> str:
        raise KeyError("x")

    (line,) = fuzz_files([Subject("failing", tmp_path, ["file.json"], fail)], 5, seed=0)
    assert line.failed == 5 and "KeyError" in line.examples[0]


def test_damaged_parquet_files_end_in_a_sentence(tmp_path):
    pytest.importorskip("pyarrow")
    subject = Subject("task file .parquet", tmp_path, parquet.write_file(tmp_path), parquet.use, "pyarrow")
    (line,) = fuzz_files([subject], 60, seed=4)
    assert line.tried == 60 and line.counts["refused"] and not line.examples


def test_a_part_whose_package_is_missing_is_left_out_with_a_sentence(tmp_path):
    (line,) = fuzz_files([Subject("own", tmp_path, [], parquet.use, "no_such_package")], 5, seed=0)
    assert line.tried == 0 and line.note == "left out: it needs no_such_package"


def test_killed_commands_go_on(tmp_path):
    """Two commands of the twenty: one that is continued, one that is given again."""
    for job in ("finetune", "predict"):
        (line,) = kills.kill_jobs(job, 1, seed=1)
        assert line.tried >= 1 and not line.examples


def test_the_bench_notices_a_job_that_differs_and_one_that_cannot_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(kills, "content_of", lambda job, folder: {"answers.csv": str(folder)})
    (line,) = kills.kill_jobs("predict", 1, seed=3)
    assert line.failed and "differences: ['answers.csv']" in line.examples[0]
    monkeypatch.setattr(kills, "finish", lambda job, folder: "it ended with 2: no")
    (line,) = kills.kill_jobs("predict", 1, seed=3)
    assert "could not go on: it ended with 2" in line.examples[0]


def test_growing_memory_is_noticed():
    flat, leaking = Line("soak", "memory"), Line("soak", "memory")
    noise = [0.3, -0.2, 0.1, 0.0] * 25
    judge(flat, [240 + x for x in noise])
    judge(leaking, [240 + x + 0.1 * number for number, x in enumerate(noise)])
    assert not flat.failed and leaking.failed == 1 and "fitted growth +6" in leaking.said


def test_a_short_soak(tmp_path):
    lines = {line.subject: line for line in soak(20, 4, 2, tmp_path, rounds=4)}
    assert [lines[name].tried for name in ("predict", "training steps", "evaluations")] == [20, 4, 2]
    assert len((tmp_path / "soak.csv").read_text().splitlines()) == 4


def test_a_broken_task_does_not_end_the_bench(tmp_path, capsys):
    def broken(count, seed, number):
        raise ValueError("x")

    def lacking(count, seed, number):
        raise ModuleNotFoundError("no", name="pyarrow")

    def not_installed(count, seed, number):
        raise PackageNotFoundError("glassbert")  # it runs from its source folder

    tasks = [Task("a", broken, (1, 0, 0)), Task("b", lacking, (1, 0, 0)), Task("c", hostile_strings, (10, 0, 0)),
             Task("d", not_installed, (1, 0, 0))]  # fmt: skip
    lines = run_tasks(tasks, 1, tmp_path)
    assert [(line.tried, line.failed) for line in lines] == [(1, 1), (0, 0), (10, 0), (1, 1)]
    assert "it needs pyarrow" in (tmp_path / "table.md").read_text()
    assert json.loads((tmp_path / "table.json").read_text())[2]["tried"] == 10
    assert "c 100 %" in capsys.readouterr().out


def test_mutations_depend_on_the_seed_alone():
    import random

    content = b'{"a": [1, 2, {"b": null}]}'
    first, second = ([mutated(content, random.Random(5), "x.json") for _ in range(3)] for _ in range(2))
    assert first == second


def test_the_table():
    line = Line("bit flips", "model", tried=1_000, counts=Counter(noticed=1_000))
    assert "| bit flips | model | 1,000 | 0 | 1,000 noticed |" in as_markdown([line])
