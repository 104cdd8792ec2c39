"""A corpus that an attempt left in the folder of a run: the next attempt uses it only for the same texts."""

import pytest

from glassbert.errors import TrainingError
from glassbert.training.display import NoDisplay
from glassbert.training.trainer import Trainer

TEXT = "the old king sees a red bird and the small green tree falls in a river of stones. "
SETTINGS = {"steps": 1, "length": 16, "batch": 8, "engine": "numpy", "vocab_size": 70, "threads": 1}


def attempt(path, run, **changes):
    return Trainer(None, run, display=NoDisplay(), corpus=str(path), **{**SETTINGS, **changes})


@pytest.fixture
def texts(tmp_path):
    for name in ("one", "two"):
        documents = [f"{name} {number}: {TEXT * (number + 1)}" for number in range(9)]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(documents))
    return tmp_path


@pytest.mark.filterwarnings("ignore:the text is small")
def test_other_texts_are_not_replaced_by_those_of_the_attempt_before(texts):
    first = attempt(texts / "one.txt", texts / "run")
    made = texts / "run" / "corpus" / "manifest.json"
    stamp = made.stat().st_mtime_ns
    assert attempt(texts / "one.txt", texts / "run").data.fingerprint == first.data.fingerprint
    assert made.stat().st_mtime_ns == stamp  # not built again
    with pytest.raises(TrainingError, match=r"left by another attempt.*it has other sources; choose another folder"):
        attempt(texts / "two.txt", texts / "run")
    with pytest.raises(TrainingError, match=r"its tokenizer was not trained with these settings.*or remove .*corpus"):
        attempt(texts / "one.txt", texts / "run", vocab_size=64)


@pytest.mark.filterwarnings("ignore:the text is small")
def test_a_run_is_resumed_without_its_texts(texts):
    trainer = attempt(texts / "one.txt", texts / "run", steps=9)
    with trainer.prepared():
        pass
    (texts / "one.txt").unlink()
    assert Trainer.resume(texts / "run", display=NoDisplay()).data.fingerprint == trainer.data.fingerprint
