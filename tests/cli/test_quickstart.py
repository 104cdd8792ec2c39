"""`glassbert quickstart` with a smaller text and a smaller model."""

import pytest

from glassbert.cli import main
from glassbert.text.corpus import Corpus
from glassbert.training.run_folder import RunFolder
from glassbert.training.trainer import Trainer
from tests.training.toy import TINY, make_corpus


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The toy corpus in place of the built-in texts, and a tiny model in place of Mini-BERT."""
    corpus = Corpus.open(make_corpus(tmp_path / "toy"))
    monkeypatch.setattr("glassbert.training.data.open_or_build", lambda settings, run, **options: (corpus, 0.0))
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    prepare = Trainer.__init__

    def tiny(self, settings=None, run=None, **options):
        small = {"length": 16, "batch": 8, "evaluation_rows": 16, "final_evaluation_rows": 16}
        prepare(self, settings, run, **{**options, **TINY, "max_position_embeddings": 64, **small})

    monkeypatch.setattr(Trainer, "__init__", tiny)


def test_quickstart_trains_and_fills_masks(small, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["quickstart", "--steps", "5", "--engine", "numpy", "--run", str(tmp_path / "run")])
    assert ended.value.code in (0, None)
    shown = capsys.readouterr().out
    assert "tokens of 57 documents to train on" in shown
    assert "Held-out loss" in shown and "report.html" in shown
    assert shown.rstrip().splitlines()[-1].lstrip().startswith("Raise an exception if the ")
    assert (tmp_path / "run" / "report.html").exists()
    settings = RunFolder(tmp_path / "run").read_settings()["settings"]
    assert settings["recipe"] == "small-best-1" and settings["model"]["tie_word_embeddings"]


def test_a_sentence_without_a_mask_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["quickstart", "--sentence", "Paris is the capital of France."])
    assert ended.value.code == 2
    assert "[MASK] exactly once" in capsys.readouterr().err
