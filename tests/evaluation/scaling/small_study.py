"""A small study for tests: toy sentences, three small sizes, twenty steps per point."""

from pathlib import Path

from glassbert.evaluation.scaling import Study, StudyPlan
from glassbert.files import read_json, write_json
from glassbert.text import FastTokenizer
from glassbert.text.corpus import write_corpus
from glassbert.training.display import NoDisplay
from tests.training.toy import texts

SHARED = {
    "batch": 2, "length": 16, "engine": "numpy", "threads": 1, "evaluation_rows": 16, "final_evaluation_rows": 32,
    "sentence": "the [MASK] sings.",
}  # fmt: skip
LEAST = 20 * 2 * 16  # tokens


def make_plan(corpus: Path, **changes) -> StudyPlan:
    given = {"sizes": (1, 1.5, 2), "tokens": (LEAST,), "repeats": 1, "settings": {**SHARED, "corpus": str(corpus)}}
    return StudyPlan(**{**given, **changes})


def make_study(folder: Path, plan: StudyPlan | None = None, **options) -> Study:
    return Study(folder, plan, display=NoDisplay, **options)


def plant(folder: Path, losses: dict[str, float]) -> None:
    """Overwrite the losses of finished runs, selected by the start of their names."""
    for start, loss in losses.items():
        (file,) = (folder / "runs").glob(f"{start}*/result.json")
        write_json(file, {**read_json(file), "loss": loss}, sealed=True)


def make_corpus(folder: Path) -> Path:
    """Toy sentences; the held-out half fills more than one batch."""
    documents = texts(90)
    write_corpus(folder, FastTokenizer.train(documents, vocab_size=64, min_frequency=1), documents, validation=0.5)
    return folder
