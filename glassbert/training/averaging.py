"""`average`: a model whose weights are the mean of those of several models.

    weights = Σₘ shareₘ · weightsₘ          the shares have the sum 1

Models that were trained from the same start often average well: the mean of a model and its continuation on other texts
keeps most of what each of them is good at. Weights of unrelated trainings do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glassbert.checkpoints import load
from glassbert.checkpoints.locate import open_checkpoint
from glassbert.errors import TrainingError
from glassbert.files import new_folder
from glassbert.models.model import Model
from glassbert.models.quantized import quantized_parameters
from glassbert.text.loading import find_tokenizer

TASK = "task.json"  # of a fine-tuned model
FAR = 0.5  # of two models with random weights that know nothing of each other it is 0.7


@dataclass(frozen=True)
class Averaged:
    """What `average` has written: the shares of the models, and how far each is from the mean."""

    folder: Path
    models: tuple[str, ...]
    shares: tuple[float, ...]
    distances: tuple[float, ...]  # |weights - mean| / |weights|

    @property
    def unrelated(self) -> bool:
        return max(self.distances) > FAR


def average(
    models: Sequence[str], folder: str | Path, shares: Sequence[float] | None = None, dtype: str = "float32"
) -> Averaged:
    """Write the mean of models of one config and one vocabulary into a new folder.

    models  runs, folders of models, hub ids or "mini"
    shares  of each in the mean, by default all alike; they are divided by their sum
    dtype   of the numbers in the file, "float32" or "float16"
    """
    if len(models) < 2:
        raise TrainingError(f"a mean needs at least two models, got {len(models)}")
    weights = check_shares(shares, len(models))
    with new_folder(Path(folder), TrainingError) as new:
        opened = [_open(name) for name in models]
        _check_alike(models, opened)
        mean = opened[0]
        values = [np.array(model.parameters.flat, np.float64) for model in opened]
        total = np.average(values, axis=0, weights=weights)
        lengths = [float(np.linalg.norm(value)) or 1.0 for value in values]
        distances = [float(np.linalg.norm(v - total)) / length for v, length in zip(values, lengths, strict=True)]
        mean.parameters.flat[...] = total
        mean.save(new, tokenizer=find_tokenizer(open_checkpoint(models[0]).config_path.parent), dtype=dtype)
    return Averaged(Path(folder), tuple(models), tuple(weights), tuple(distances))


def check_shares(shares: Sequence[float] | None, count: int) -> list[float]:
    """Shares of the sum 1."""
    if shares is None:
        return [1.0 / count] * count
    if len(shares) != count:
        raise TrainingError(f"{count} models need {count} shares, got {len(shares)}")
    if not all(math.isfinite(share) and share >= 0 for share in shares) or not sum(shares) > 0:
        raise TrainingError(f"shares are numbers of at least 0, not all 0; got {', '.join(map(str, shares))}")
    return [share / sum(shares) for share in shares]


def _open(name: str) -> Model:
    folder = open_checkpoint(name).config_path.parent
    if (folder / TASK).exists():
        raise TrainingError(
            f"{name} is fine-tuned, and its calibration belongs to its own weights; to average several seeds of a "
            f"fine-tuning: glassbert finetune --seeds 3 --soup"
        )
    model = load(folder, engine="numpy")
    if quantized_parameters(model):
        raise TrainingError(f"{name} has weights of few bits, which have no mean; average the models it was made from")
    return model


def _check_alike(names: Sequence[str], models: Sequence[Model]) -> None:
    first = models[0]
    tokenizers = [find_tokenizer(open_checkpoint(name).config_path.parent) for name in names]
    for name, model, tokenizer in zip(names[1:], models[1:], tokenizers[1:], strict=True):
        mine, theirs = first.config.to_dict(), model.config.to_dict()
        other = [key for key in mine if mine[key] != theirs.get(key)]
        if type(first.config) is not type(model.config) or other:
            what = f"another {other[0]} ({mine[other[0]]} and {theirs.get(other[0])})" if other else "another family"
            raise TrainingError(f"{name} has {what} than {names[0]}; only models of one config have a mean")
        if first.layout.shapes != model.layout.shapes:
            kinds = [one.head.kind if one.head else "none" for one in (first, model)]
            raise TrainingError(f"{names[0]} and {name} have different heads: {kinds[0]} and {kinds[1]}")
        if tokenizer.vocabulary != tokenizers[0].vocabulary:
            raise TrainingError(f"{names[0]} and {name} have different vocabularies, so their rows are other tokens")
