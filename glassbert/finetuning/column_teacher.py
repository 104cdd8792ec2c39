"""Simple models of the columns of a table as a teacher: what they answer for rows that they were not fitted on.

    given = teach(train, card, copies=1, seed=0)
    given.answers         for the training rows, in the form of the outputs of the head
    given.mixed           copies of the rows with some cells of other rows, and `given.mixed_answers`

Few rows with noisy labels teach an encoder little about which columns count. Boosted trees and a linear model find that
out from few rows, and the encoder learns their answers besides the labels. They are not part of the finished model.

A model that has seen a row repeats its label. So the rows are split into parts, and each part is answered for by models
that were fitted on the others; copies of a row are in its part. The outputs of each model are multiplied by the factor
with the lowest loss on these rows, because trees are too sure of themselves, and the two models are mixed in the
proportion with the lowest loss. A run stores the answers, so that it goes on with the same ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from glassbert.errors import ConfigError, needs
from glassbert.files import atomic_write
from glassbert.finetuning.baseline.features import Transform
from glassbert.finetuning.baseline.fitting import FEATURES, Candidate, column_candidates, output_loss, select_candidate
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.examples import truth_of
from glassbert.tasks import TaskData
from glassbert.tasks.splits import fold_numbers

HEADS = ("binary", "multiclass", "ordinal", "regression")
BY_DEFAULT = ("binary", "multiclass", "regression")  # ranks gained no kappa from it
PARTS = 5
LEAST, MOST = 100, 3_000  # training rows, for the default weight
WEIGHT = 0.8  # of the answers, by default
COPIES = ((3_000, 2), (30_000, 1))  # up to so many rows: mixed copies of each, by default
SWAPPED = 0.3  # share of the cells of a mixed row that are those of other rows
FACTORS = tuple(np.geomspace(0.25, 1.5, 15).tolist())
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
MOST_SURE = 8.0  # logits
MISSING = needs("the column teacher", "scikit-learn")


@dataclass(frozen=True)
class Answers:
    """The answers for the training rows and for copies of them with mixed cells; `share` is that of the trees."""

    answers: np.ndarray
    mixed: list[TaskData]
    mixed_answers: list[np.ndarray]
    share: float

    @property
    def note(self) -> str:
        """A sentence for the user."""
        models = {0.0: "a linear model", 1.0: "boosted trees"}
        named = models.get(self.share, f"boosted trees ({self.share:.0%}) and a linear model")
        return f"Besides the labels, the answers of simple models of the columns are learned: {named}."


def default_weight(card: TaskCard, examples: int) -> tuple[float, str]:
    """The weight of the answers if none is given, and a note if they are missing for lack of a package."""
    if not card.reads_numbers or card.head not in BY_DEFAULT or not LEAST <= examples <= MOST:
        return 0.0, ""
    if find_spec("sklearn") is None:
        return 0.0, "The labels alone are learned; with scikit-learn, simple models of the columns would help to teach."
    return WEIGHT, ""


def default_copies(examples: int) -> int:
    """The number of mixed copies of each row if none is given."""
    return next((copies for most, copies in COPIES if examples <= most), 0)


def check(card: TaskCard) -> None:
    """Raise if a weight was given and there is nothing to fit, or nothing to fit it with."""
    if not card.reads_numbers or card.head not in HEADS:
        raise ConfigError(
            f"--column-teacher is for tables with numbers and the heads {', '.join(HEADS)}; remove it for this task"
        )
    if find_spec("sklearn") is None:
        raise ConfigError(MISSING)


def teach(train: TaskData, card: TaskCard, copies: int, seed: int, folder: Path | None = None) -> Answers:
    """The answers of the models for the training rows and for copies with mixed cells; stored in `folder`."""
    card = card.uncalibrated
    mixed = [mix_rows(train, [seed, copy]) for copy in range(copies)]
    path = None if folder is None else folder / f"columns-{_key(train, card, copies, seed)}.safetensors"
    found = None if path is None else _read(path)
    if found is None:
        found = _fit(train, mixed, card, seed)
        if path is not None:
            with atomic_write(path, "wb") as file:
                file.write(save(found))
    answers, share = found["answers"].astype(np.float64), float(found["share"][0])
    return Answers(answers[0], mixed, list(answers[1:]), share)


def _fit(train: TaskData, mixed: Sequence[TaskData], card: TaskCard, seed: int) -> dict[str, np.ndarray]:
    """The answers [1 + copies, rows, ...], and the share of the trees in them."""
    truth = truth_of(train, card)
    learners: dict[str, list[Candidate]] = {}
    for candidate in column_candidates(card):
        learners.setdefault("trees" if not candidate.tuned else "linear", []).append(candidate)
    fitted = []
    for group in learners.values():
        candidate, strength = group[0], 1.0
        if candidate.tuned:
            candidate, strength = select_candidate(group, train, card)
        outputs = _cross_fitted(candidate, strength, train, mixed, truth, card, seed)
        fitted.append(_scaled(np.stack(outputs), truth, card))
    linear, trees = fitted
    share = min(SHARES, key=lambda share: output_loss((linear + share * (trees - linear))[0], truth, card))
    answers = (linear + share * (trees - linear)).astype(np.float32)
    return {"answers": np.ascontiguousarray(answers), "share": np.array([share])}


def mix_rows(train: TaskData, seed: Sequence[int]) -> TaskData:
    """The training rows, without targets, with `SWAPPED` of their cells from other rows of the same column."""
    random = np.random.default_rng(seed)
    count, rows = len(train), np.arange(len(train))
    assert train.template is not None
    columns = {}
    for name, cells in train.table.columns.items():
        taken = np.where(random.random(count) < SWAPPED, random.integers(0, count, count), rows)
        columns[name] = [cells[row] for row in taken]
    table = replace(train.table, columns=columns)
    return replace(train, table=table, texts=train.template.apply(table), targets=None)


def _cross_fitted(
    candidate: Candidate,
    strength: float,
    train: TaskData,
    mixed: Sequence[TaskData],
    truth: np.ndarray,
    card: TaskCard,
    seed: int,
) -> list[np.ndarray]:
    """The outputs for the rows and their mixed copies, of models that were fitted without the row."""
    parts = fold_numbers(train, PARTS, seed)
    outputs: list[Any] = [None] * (1 + len(mixed))
    for part in range(PARTS):
        left, held = np.flatnonzero(parts != part), np.flatnonzero(parts == part)
        rows = train.select(left)
        transform: Transform = FEATURES[candidate.features](rows)
        predict = candidate.learn(transform(rows), truth[left], strength, max(2, len(card.labels)))
        for number, data in enumerate([train, *mixed]):
            found = np.asarray(predict(transform(data.select(held))), np.float64)
            if outputs[number] is None:
                outputs[number] = np.zeros((len(train), *found.shape[1:]))
            outputs[number][held] = found
    return outputs


def _scaled(outputs: np.ndarray, truth: np.ndarray, card: TaskCard) -> np.ndarray:
    """Logits [1 + copies, rows, ...] times the factor with the lowest loss on the rows; values stay as they are."""
    if card.head == "regression":
        return outputs
    outputs = np.clip(outputs, -MOST_SURE, MOST_SURE)
    return min(FACTORS, key=lambda factor: output_loss(factor * outputs[0], truth, card)) * outputs


def _key(train: TaskData, card: TaskCard, copies: int, seed: int) -> str:
    """A name made from everything that the answers depend on."""
    content = [card.head, list(card.labels), card.metric, train.table.columns, train.targets, copies, seed]
    return hashlib.blake2b(json.dumps(content, default=str).encode(), digest_size=16).hexdigest()


def _read(path: Path) -> dict[str, np.ndarray] | None:
    """Stored answers, or None if there are none or they are damaged."""
    try:
        return load_file(path)
    except (OSError, SafetensorError):
        return None
