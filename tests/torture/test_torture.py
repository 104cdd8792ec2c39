"""A small part of `make torture` with fixed seeds: bit flips and fuzzing of the files that GlassBERT writes itself."""

from pathlib import Path

import pytest

from tests.torture.flips import flip_bits
from tests.torture.fuzz import SEEDS, fuzz_files, limited, mutated
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
    lines = fuzz_files(own, 1e6, seed=3, count=25)
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

    (line,) = fuzz_files([Subject("failing", tmp_path, ["file.json"], fail)], 60, seed=0, count=5)
    assert line.failed == 5 and "KeyError" in line.examples[0]


def test_mutations_depend_on_the_seed_alone():
    import random

    content = b'{"a": [1, 2, {"b": null}]}'
    first, second = ([mutated(content, random.Random(5), "x.json") for _ in range(3)] for _ in range(2))
    assert first == second


def test_the_table():
    line = Line("bit flips", "model", tried=1_000, note="all noticed")
    assert "| bit flips | model | 1,000 | 0 | all noticed |" in as_markdown([line])
