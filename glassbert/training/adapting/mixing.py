"""The weights that an adaptation keeps: a mean of the start and of the trained weights, so that little is forgotten.

    weights = (1 - share) · start + share · trained         the rows of new pieces stay as trained

Both losses change with the share: general text falls back faster than the domain does. The largest share is kept with
which general text rises by at most a limit (nats per word, masked as a whole), its standard error added. It is chosen
on one half of the held-out rows of general text; the other half is reported. Checkpoints hold the trained weights, so a
run that is killed here chooses again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glassbert.errors import TrainingError
from glassbert.models.model import Model
from glassbert.training.adapting import outcome
from glassbert.training.adapting.extension import load_masked, rows_of_tokens
from glassbert.training.adapting.paired import GENERAL, Measured, measured, parts_of

if TYPE_CHECKING:
    from glassbert.training.trainer import Trainer

LIMIT = 0.05
STEPS = 20  # shares are multiples of 1 / STEPS
TRIALS = 1 + math.ceil(math.log2(STEPS + 1))  # evaluations of the choice, at most


class Rise(NamedTuple):
    """A share, and the rise of general text with it, in nats per word, masked as a whole; with its standard error."""

    share: float
    rise: float
    error: float

    def keeps(self, limit: float) -> bool:
        return self.rise + self.error <= limit


def check_limit(limit: Any) -> float:
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 0:
        raise TrainingError(f"general_limit must be a number of at least 0, or inf for no limit; got {limit!r}")
    return float(limit)


def rise_of(share: float, before: Measured, after: Measured) -> Rise:
    """The rise from before to after; the error is that of the mean over groups of rows."""
    each = (after.nats - before.nats) / before.words
    error = float(each.std(ddof=1)) / math.sqrt(len(each)) if len(each) > 1 else 0.0
    return Rise(share, after.per_word - before.per_word, error)


def choose_share(measure: Callable[[float], Rise], limit: float) -> tuple[Rise, list[Rise]]:
    """The largest share that keeps the limit, by bisection, and all that were tried.

    Where none does, it is the one with the lowest rise.
    """
    tried = [measure(1.0)]
    low, high = -1, STEPS
    while not tried[0].keeps(limit) and high - low > 1:
        middle = (low + high) // 2
        tried.append(measure(middle / STEPS))
        low, high = (middle, high) if tried[-1].keeps(limit) else (low, middle)
    kept = [one for one in tried if one.keeps(limit)]
    return (max(kept) if kept else min(tried, key=lambda one: one.rise)), tried


class MixedWeights:
    """The weights of a model, to be set to any share of their change since the start."""

    def __init__(self, model: Model, start: Mapping[str, np.ndarray]):
        """Weights that the start does not have, as those of a further head, stay as they are."""
        self.model, self.start = model, start
        self.trained = {name: np.array(model.engine.to_numpy(model.parameters[name])) for name in start}

    def set(self, share: float) -> None:
        for name, trained in self.trained.items():
            mixed = (1 - share) * self.start[name] + share * trained  # exact at 0 and at 1
            self.model.parameters[name] = self.model.engine.array(mixed.astype(trained.dtype))


def start_weights(model: Model, folder: str, vocabulary: int) -> dict[str, np.ndarray]:
    """The weights before the first step that the trained model has as well.

    The rows of new pieces, those from `vocabulary` on, are the trained ones: they had no place in the model before.
    """
    start = load_masked(folder, engine="numpy")
    weights = {n: np.array(a) for n, a in start.parameters.items() if model.layout.shapes.get(n) == a.shape}
    for name in rows_of_tokens(start):
        if name in weights:
            weights[name][vocabulary:] = model.engine.to_numpy(model.parameters[name])[vocabulary:]
    return weights


def keep_general(trainer: Trainer) -> float | None:
    """Mix the weights of an adaptation that has general text and a limit; add the losses after to its outcome.

    Returns the share of the change that was kept; None where nothing was chosen.
    """
    content = outcome.read(trainer.run)
    if content is None or "rows" not in content:  # no adaptation, or one of an earlier version
        return None
    model, parts, share = trainer.model, parts_of(trainer, content), None
    if "choice" in content:
        general, limit = parts[GENERAL], content["general_limit"]
        before = Measured(*map(np.array, content["choice"]["before"]))
        vocabulary = content["vocabulary"] - len(content["pieces"])
        mixed = MixedWeights(model, start_weights(model, trainer.settings.start_from, vocabulary))

        def measure(share: float) -> Rise:
            mixed.set(share)
            return rise_of(share, before, general.rows.whole_words(model, "new", general.choice))

        found, tried = choose_share(measure, limit)
        share = found.share
        content["choice"] |= {
            "share": share,
            "kept": found.keeps(limit),
            "tried": [one._asdict() for one in tried],
        }
        if share != 1:
            mixed.set(1.0)
            for name, part in parts.items():
                if "per_word" in content["parts"][name]["before"]:
                    per_word = part.rows.whole_words(model, "new", part.report).per_word
                    content["parts"][name]["trained"] = {"per_word": per_word}
        mixed.set(share)
    for name, part in parts.items():
        content["parts"][name]["after"] = measured(part, model, "new", content["parts"][name])
    outcome.write(trainer.run, content)
    return share
