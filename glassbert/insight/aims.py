"""The score of one answer of a model, and its gradient at the hidden states.

    a masked word      log P(word)                     at one position
    a class            log P(class)
    a binary label     log P(yes) or log P(no)
    a rank             log P(rank)
    a number           the number itself, in the units of the labels

Scores are in nats: a difference of scores is the logarithm of a ratio of probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from glassbert.arrays import Array, Gradients
from glassbert.errors import InputError
from glassbert.layers.registry import ATTENTIONS
from glassbert.layers.scope import Cache, Scope
from glassbert.models.encoder import Batch
from glassbert.models.heads.head import HeadPart
from glassbert.models.heads.losses import LossOptions
from glassbert.models.model import Model
from glassbert.ops.losses import sigmoid, softplus


@dataclass(frozen=True)
class Aim:
    """The answer to explain. `position` is that of the masked word; None for answers about the whole text.

    `target` is the index of a word, class, rank or label; `yes` is the answer for a binary label. Outputs are divided
    by `temperature` before the probabilities are computed.
    """

    target: int
    position: int | None = None
    yes: bool = True
    temperature: float = 1.0


Scored = tuple[np.ndarray, np.ndarray]  # scores [B] and their gradient at the outputs [B, outputs]


def _class(z: np.ndarray, aim: Aim, options: LossOptions) -> Scored:
    shifted = z - z.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    slope = -np.exp(log_p)
    slope[:, aim.target] += 1
    return log_p[:, aim.target], slope


def _label(z: np.ndarray, aim: Aim, options: LossOptions) -> Scored:
    sign = 1.0 if aim.yes else -1.0
    slope = np.zeros_like(z)
    slope[:, aim.target] = sign * sigmoid(-sign * z[:, aim.target])
    return -softplus(-sign * z[:, aim.target]), slope


def _rank(z: np.ndarray, aim: Aim, options: LossOptions) -> Scored:
    """log P(rank) = Σ_{k < rank} log σ(z_k) + log(1 - σ(z_rank)), without the last term for the last rank."""
    step = np.arange(z.shape[1])
    used, passed = step <= aim.target, (step < aim.target).astype(z.dtype)
    return (used * (passed * z - softplus(z))).sum(-1), used * (passed - sigmoid(z))


def _number(z: np.ndarray, aim: Aim, options: LossOptions) -> Scored:
    scale = 1.0 if options.target_scale is None else options.target_scale[aim.target]
    mean = 0.0 if options.target_mean is None else options.target_mean[aim.target]
    slope = np.zeros_like(z)
    slope[:, aim.target] = scale
    return z[:, aim.target] * scale + mean, slope


SCORES: dict[str, Callable[[np.ndarray, Aim, LossOptions], Scored]] = {
    "cross_entropy": _class,
    "binary_cross_entropy": _label,
    "ordinal": _rank,
    "mean_squared_error": _number,
}


def explained_head(model: Model) -> HeadPart:
    """The part of the model's head whose answers can be explained; raises `InputError` if there is none."""
    parts = {} if model.head is None else model.head.parts
    if "mlm" in parts and ATTENTIONS[model.config.attention].inputs_for_missing(np.zeros((1, 1), np.bool_)):
        raise InputError(
            "this model predicts missing words by a query stream, which begins at a position and not at a token, so no "
            "token can be credited; explain a classifier of it, or ask it with glassbert fill-mask"
        )
    for kind in ("mlm", "causal", "sequence"):
        if kind in parts:
            return parts[kind]
    found = "no head" if model.head is None else f"a head of type {model.head.kind}"
    raise InputError(
        f"this model has {found}, so there is no masked word and no class to explain; for its attention, geometry and "
        f"gradients use: glassbert inspect RUN --pictures DIR"
    )


class Scorer:
    """Computes the scores of an aim from hidden states [B, T, H], and their gradient."""

    def __init__(self, model: Model, aim: Aim):
        self.model, self.aim = model, aim
        self.part = explained_head(model)
        self.cache = Cache()

    def outputs(self, hidden: Array) -> np.ndarray:
        """The head's raw outputs at the aim, [B, outputs] float64."""
        rows = None
        if self.aim.position is not None:
            batch, length = hidden.shape[:2]
            rows = self.model.engine.integers(np.arange(batch) * length + self.aim.position)
        no_padding = Batch(self.model.engine.integers(np.arange(hidden.shape[1])[None]))
        return self._float64(self.part.head.forward(hidden, no_padding, self._scope(), rows))

    def _scope(self, gradients: Gradients | None = None) -> Scope:
        model = self.model
        scope = Scope(model.engine.ops, model.computing(model.parameters), self.cache, gradients, prefix="head.")
        return scope.inside(self.part.name)

    def score(self, hidden: Array) -> np.ndarray:
        """The scores [B] float64. Saves what `gradient` needs."""
        head, temperature = self.part.head, self.aim.temperature
        outputs = self.outputs(hidden) / temperature
        scores, slope = SCORES[head.loss_name](outputs, self.aim, head.loss_options)
        self._slope = slope / temperature
        return scores

    def gradient(self, shape: tuple[int, ...]) -> Array:
        """The gradient of the sum of the last scores at the hidden states of this shape."""
        doutput = self.model.engine.array(self._slope)
        return self.part.head.backward(doutput, self._scope(NoGradients())).reshape(shape)

    def _float64(self, array: Array) -> np.ndarray:
        return np.asarray(self.model.engine.to_numpy(array), np.float64)


class NoGradients(Gradients):
    """Ignores all gradients of parameters, for a backward pass to the embeddings."""

    def __init__(self) -> None:
        super().__init__({})

    def needs(self, name: str) -> bool:
        return name == "embeddings.token"

    def add(self, name: str, value: Array | None) -> None:
        pass

    def add_rows(self, name: str, index: Array, rows: Array) -> None:
        pass
