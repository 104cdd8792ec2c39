"""Attribution of a model's answer to its input tokens: gradient x input and integrated gradients.

    gradient x input         e_t · ∂s/∂e_t                              e [T, H] is `embeddings.sum`, s the score
    integrated gradients     (e_t - e'_t) · ∫₀¹ ∂s/∂e_t(e' + α (e - e')) dα

The first is the effect of a small change of a token, to first order. The second integrates along the straight line from
a baseline e' to the text and distributes the difference of the scores among the tokens: the sum over the tokens is
s(e) - s(e'), which is checked. The baseline is the same text with [MASK] for every word. [CLS], [SEP] and [MASK] are
the same in both and get 0.

A pass can start at any e: the encoder runs with e as the table of token embeddings, and zeros as the other embeddings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.insight.aims import Aim, NoGradients, Scorer
from glassbert.layers.registry import ATTENTIONS
from glassbert.models.encoder import Batch
from glassbert.models.model import Model
from glassbert.models.passes import Pass

POSITIONS_AT_ONCE = 2_048
TOLERANCE = 0.01  # relative to the difference of the scores, or to one nat if it is smaller
FIRST_INTERVALS, NODES = 8, 4  # initial intervals of the path, and quadrature points in each
MAX_POINTS = 4_096
ROUNDING = 2e-5  # nats: rounding error of a score in float32


@dataclass(frozen=True)
class ForwardBackward:
    """The scores [B] of a pass, their gradient at `embeddings.sum` [B, T, H], and all values by name."""

    scores: np.ndarray
    gradient: np.ndarray
    cache: Pass


@dataclass(frozen=True)
class Integrated:
    """Integrated gradients [T], the scores of the text and of the baseline, and the error of their sum."""

    attributions: np.ndarray
    score: float
    baseline_score: float
    points: int  # on the path, where the gradient was computed

    @property
    def difference(self) -> float:
        return self.score - self.baseline_score

    @property
    def error(self) -> float:
        return float(self.attributions.sum() - self.difference)


def embedding_sums(model: Model, input_ids: Any) -> np.ndarray:
    """The sum of the embeddings of every token before the norm, `embeddings.sum` [B, T, H] float64."""
    run = model.run(model.check(input_ids), inference=True, keep=["embeddings.sum"])
    run.encode()
    return np.asarray(model.engine.to_numpy(run["embeddings.sum"]), np.float64)


def forward_backward(model: Model, sums: np.ndarray, aim: Aim) -> ForwardBackward:
    """The scores of an aim for embeddings [B, T, H], and their gradient at the embeddings."""
    scorer = Scorer(model, aim)
    run = _pass_from(model, sums, trace=True, kernels=model.engine.kernels)
    found = scorer.score(run.encode())
    run.encode_backward(scorer.gradient(run.shape), NoGradients())
    return ForwardBackward(found, np.asarray(model.engine.to_numpy(run["embeddings.d_sum"]), np.float64), run)


def scores(model: Model, sums: np.ndarray, aim: Aim) -> np.ndarray:
    """The scores [B], without gradient."""
    return Scorer(model, aim).score(_pass_from(model, sums, inference=True).encode())


def _pass_from(model: Model, sums: np.ndarray, **options: Any) -> Pass:
    """A pass of the encoder with `sums` as its embeddings, without dropout."""
    engine = model.engine
    size, length, width = sums.shape
    tables = {"embeddings.token": engine.array(sums.reshape(-1, width))}
    for name in ("embeddings.position", "embeddings.token_type"):
        if name in model.parameters:
            tables[name] = engine.array(np.zeros(model.layout.shapes[name]))
    given: dict[str, Any] = {
        "ids": np.arange(size * length).reshape(size, length),
        "positions": np.arange(length)[None],
    }
    given |= {"types": None, "mask": None, "segments": None}
    head = None if model.head is None else model.head.kind
    given |= ATTENTIONS[model.config.attention].more_inputs(model.config, head, {}, given)
    batch: Batch = model.batch_of(given)
    parameters = {**model.computing(model.parameters), **engine.for_computing(tables)}
    return Pass(model.network, batch, parameters, **options)


def gradient_x_input(model: Model, input_ids: Any, aim: Aim) -> np.ndarray:
    """[T]: for every token e · ∂s/∂e, the change of the score, to first order, if its embedding is doubled."""
    sums = _single_text(model, input_ids)
    return (sums * forward_backward(model, sums, aim).gradient)[0].sum(-1)


def baseline_ids(input_ids: Any, mask_id: int, special_ids: Any) -> np.ndarray:
    """The same text with [MASK] for every token that is not special."""
    ids = np.asarray(input_ids)
    return np.where(np.isin(ids, np.asarray(special_ids)), ids, mask_id)


def integrated_gradients(
    model: Model, input_ids: Any, baseline: Any, aim: Aim, on_progress: Callable[[], object] = lambda: None
) -> Integrated:
    """Attributions [T] whose sum is the difference of the scores of `input_ids` and `baseline`, both [1, T].

    With sharp attention the score changes abruptly somewhere on the path, and evenly spaced points would miss it. But
    the integral over any interval is known: the difference of the scores at its ends. So the path is cut into
    intervals, and those with too large an error are halved, until the total error is below 1 %. `on_progress` is
    called after every pass.
    """
    text, start = _single_text(model, input_ids), _single_text(model, baseline)
    if text.shape != start.shape:
        raise InputError(f"the text has {text.shape[1]} tokens and its baseline {start.shape[1]}; they must agree")
    path = IntegrationPath(model, start, text - start, aim, on_progress)
    ends = path.scores(np.array([1.0, 0.0]))
    allowed = TOLERANCE * max(abs(float(ends[0] - ends[1])), 1.0)
    attributions = np.zeros(text.shape[1])
    cuts = np.linspace(0, 1, FIRST_INTERVALS + 1)
    pending = np.stack([cuts[:-1], cuts[1:]], 1)  # [intervals, 2]
    while len(pending):
        shares, errors = path.integrals(pending)
        permitted = np.maximum(allowed * (pending[:, 1] - pending[:, 0]), ROUNDING)
        accurate = (np.abs(errors) <= permitted) | (path.points >= MAX_POINTS)
        attributions += shares[accurate].sum(0)
        middle = pending[~accurate].mean(1)
        pending = np.stack([pending[~accurate, 0], middle, middle, pending[~accurate, 1]], 1).reshape(-1, 2)
    return Integrated(attributions, float(ends[0]), float(ends[1]), path.points)


class IntegrationPath:
    """The straight line from a baseline to a text, with the scores and gradients on it."""

    def __init__(
        self, model: Model, start: np.ndarray, difference: np.ndarray, aim: Aim, on_progress: Callable[[], object]
    ):
        self.model, self.start, self.difference, self.aim, self.on_progress = model, start, difference, aim, on_progress
        self.points = 0
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        self.nodes, self.weights = (nodes + 1) / 2, weights / 2

    def scores(self, alphas: np.ndarray) -> np.ndarray:
        return self._evaluate(alphas)[0]

    def integrals(self, intervals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For every interval the integral for each token [intervals, T], and the error of their sum [intervals]."""
        begins, ends = intervals.T
        widths = ends - begins
        inside = begins[:, None] + widths[:, None] * self.nodes  # [intervals, nodes]
        scores, shares = self._evaluate(np.concatenate([inside.ravel(), begins, ends]))
        along = shares[: inside.size].reshape(*inside.shape, -1)
        integrals = widths[:, None] * np.einsum("n,snt->st", self.weights, along)
        at_begin, at_end = scores[inside.size :].reshape(2, -1)
        return integrals, integrals.sum(1) - (at_end - at_begin)

    def _evaluate(self, alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores [points] and, for every token, the slope of the score along the path [points, T]."""
        self.points += len(alphas)
        at_once = max(1, POSITIONS_AT_ONCE // self.start.shape[1])
        found = []
        for begin in range(0, len(alphas), at_once):
            sums = self.start + alphas[begin : begin + at_once, None, None] * self.difference
            result = forward_backward(self.model, sums, self.aim)
            found.append((result.scores, (self.difference * result.gradient).sum(-1)))
            self.on_progress()
        scores, slopes = zip(*found, strict=True)
        return np.concatenate(scores), np.concatenate(slopes)


def _single_text(model: Model, input_ids: Any) -> np.ndarray:
    sums = embedding_sums(model, input_ids)
    if len(sums) != 1:
        raise InputError(f"saliency takes one text at a time, got {len(sums)}")
    return sums
