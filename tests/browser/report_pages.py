"""One page of every kind of report, quick to make, with awkward content: long labels, pairs, tables, a perfect score.

python -m tests.browser.report_pages FOLDER           writes all pages, to be looked at
"""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from glassbert.evaluation import Options, evaluate
from glassbert.evaluation.page import evaluation_page
from glassbert.finetuning.baseline import Baseline
from glassbert.finetuning.calibration import calibrate
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.report import write_report
from glassbert.finetuning.scoring import compute_scores
from glassbert.forecasting import ForecastSettings, forecast_run
from glassbert.tasks import Finding, TaskData
from glassbert.text.corpus.health import examine, health_page
from glassbert.text.corpus.reader import Corpus
from glassbert.training.report import write_report as write_run_report
from glassbert.training.run_folder import RunFolder
from tests.evaluation.subjects import subject
from tests.training.toy import make_corpus, make_trainer, texts

N = 240
LABELS = {
    "binary": ("refused", "accepted"),
    "multiclass": ("Customer support: refunds, returns and complaints about delivery", "Short",
                   "Öffentlichkeitsarbeit und Unternehmenskommunikation", "a_label_without_any_spaces_in_it_at_all"),
    "ordinal": ("1 star", "2 stars", "3 stars", "4 stars", "5 stars"),
    "multilabel": ("joy", "anger", "a very long emotion that nobody has ever named before"),
    "token": ("O", "B-person", "I-person", "B-location", "I-location"),
}  # fmt: skip
WORDS = [
    "the",
    "film",
    "begins",
    "slowly",
    "and",
    "ends",
    "in",
    "a",
    "storm",
    "of",
    "colour",
    "that",
    "nobody",
    "expected",
    "from",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
]


def data_of(card: TaskCard) -> TaskData:
    generator = np.random.default_rng(1)
    rows = [
        {"text": " ".join(generator.choice(WORDS, 14)), "other": " ".join(generator.choice(WORDS, 9))} for _ in range(N)
    ]
    return TaskData.of(rows, text="text", **({"pair": "other"} if card.pair else {}))


def outcome_of(head: str, noise: float, seed: int, pair: bool = False) -> Outcome:
    """A synthetic outcome; less noise is a better model, and none a perfect one."""
    truths, generator = np.random.default_rng(9), np.random.default_rng(seed)
    card = TaskCard(title=f"reviews, {head}", head=head, labels=LABELS.get(head, ()), text="text", target="verdict",
                    pair="other" if pair else None, examples={"train": 2160, "choice": 200, "reported": N},
                    chosen_on="other")  # fmt: skip
    data = data_of(card)
    labels = len(card.labels)
    truth: object
    outputs: object
    if head == "binary":
        truth = truths.integers(0, 2, N)
        outputs = 3.0 * (2 * truth - 1) * (1 if not noise else generator.random(N)) + noise * generator.normal(size=N)
    elif head == "multiclass":
        truth = truths.choice(labels, N, p=[0.6, 0.2, 0.15, 0.05])
        outputs = 3 * np.eye(labels)[truth] + noise * generator.normal(size=(N, labels))
    elif head == "ordinal":
        truth = truths.integers(0, labels, N)
        outputs = 3.0 * (truth[:, None] - np.arange(labels - 1) - 0.5) + noise * generator.normal(size=(N, labels - 1))
    elif head == "multilabel":
        truth = (truths.random((N, labels)) < [0.5, 0.2, 0.1]).astype(np.float32)
        outputs = 4 * truth - 2 + noise * generator.normal(size=(N, labels))
    elif head == "token":
        words = [text.split() for text in data.texts]
        data = TaskData(data.texts, data.table, words=words)
        truth = [truths.choice(labels, len(one), p=[0.8, 0.07, 0.05, 0.05, 0.03]) for one in words]
        outputs = [3 * np.eye(labels)[tags] + noise * generator.normal(size=(len(tags), labels)) for tags in truth]
    else:
        truth = truths.gamma(2.0, 30.0, N)
        outputs = truth + 20 * noise * generator.normal(size=N)
    return Outcome(card, data, truth, outputs, compute_scores(outputs, truth, card, resamples=60))


def tuned(head: str, noise: float = 1.2, pair: bool = False) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        ours, again = (outcome_of(head, factor * noise, seed, pair) for factor, seed in ((1.0, 0), (1.2, 1)))
        theirs = outcome_of(head, 2.0, 2, pair)
        fields = {field.name: getattr(theirs, field.name) for field in dataclasses.fields(Outcome)}
        calibration = calibrate(ours, resamples=20)
        finished = dataclasses.replace(ours, card=calibration.apply_to(ours.card))
        return write_report(
            folder / "report.html",
            settings={"model": "runs/a-model-with-a-rather-long-name", "epochs": 2},
            outcome=finished,
            outcomes={0: ours, 1: again},
            baseline=Baseline(**fields, name="TF-IDF of words and letters + logistic regression"),
            calibration=calibration,
            findings=[Finding("warning", "12 texts are in both parts.", "“the film begins”", "Remove the copies.")],
            notes=["2,160 training examples"],
        )

    return write


def pretraining(folder: Path) -> Path:
    run = folder / "run"
    make_trainer(make_corpus(folder / "corpus"), run, steps=40, evaluate_every=8).train()
    return write_run_report(RunFolder(run))


def corpus_report(folder: Path) -> Path:
    return health_page(examine(Corpus.open(make_corpus(folder / "corpus")))).write(folder / "health.html")


def forecast_report(folder: Path) -> Path:
    generator = np.random.default_rng(3)
    values = 20 + 4 * np.sin(2 * np.pi * np.arange(120) / 6) + 0.6 * generator.standard_normal(120)
    file = folder / "sales.csv"
    with open(file, "w", newline="", encoding="utf-8") as opened:
        dates = [f"{2010 + i // 12}-{i % 12 + 1:02d}" for i in range(120)]
        csv.writer(opened).writerows([("Month", "Sales"), *zip(dates, values, strict=True)])
    settings = ForecastSettings(series=str(file), horizon=6, hidden_size=8, num_hidden_layers=1, steps=24,
                                evaluate_every=4, seeds=2, engine="numpy", frame="standard",
                                shortcut="learned")  # fmt: skip
    return forecast_run(settings, folder / "run")[1].report


def evaluation_of(*names: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        text = folder / "text.txt"
        text.write_text("\n\n".join(texts()), encoding="utf-8")
        subjects = [dataclasses.replace(subject(seed=seed), name=name) for seed, name in enumerate(names)]
        options = Options(quick=True, resamples=60, text=text)
        found = evaluate(subjects, ["language", "cost"], options=options)
        return evaluation_page(found).write(folder / "evaluation.html")

    return write


PAGES: dict[str, Callable[[Path], Path]] = {
    "binary": tuned("binary"),
    "perfect": tuned("binary", 0.0),
    "multiclass": tuned("multiclass"),
    "ordinal": tuned("ordinal"),
    "multilabel": tuned("multilabel"),
    "regression": tuned("regression"),
    "pairs": tuned("regression", pair=True),
    "tokens": tuned("token"),
    "pretraining": pretraining,
    "corpus": corpus_report,
    "forecast": forecast_report,
    "evaluation": evaluation_of("mini"),
    "comparison": evaluation_of("runs/a-model-with-a-rather-long-name", "runs/another-model-with-a-long-name"),
}


if __name__ == "__main__":
    for name in sys.argv[2:] or PAGES:
        place = Path(sys.argv[1]).resolve() / name
        place.mkdir(parents=True, exist_ok=True)
        print(name, PAGES[name](place))
