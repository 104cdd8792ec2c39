"""Which tokens made the model answer as it did? Gradient x input and integrated gradients, by our own backward.

    gradient x input         e_t · ∂s/∂e_t                              e [T, H] is `embeddings.sum`, s the score
    integrated gradients     (e_t - e'_t) · ∫₀¹ ∂s/∂e_t(e' + α (e - e')) dα

The first says what a small change of a token would do; the second follows the score on the straight way from a baseline
e' to the text, and shares the whole difference out among the tokens: its sum is s(e) - s(e'), which is checked. The
baseline is the same text with every word hidden, so a token is measured by what knowing it changed; [CLS], [SEP] and
[MASK] are the same in both and get nothing.

The encoder can begin at any e: its parameters are handed to it with e as the table of tokens and no other embeddings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.insight.aims import Aim, NoGradients, Scorer
from glassbert.models.encoder import Batch
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.models.passes import Pass

POSITIONS_AT_ONCE = 2_048
TOLERANCE = 0.01  # of the difference of the scores, or of one nat where that is less
FIRST_STRETCHES, NODES = 8, 4  # stretches of the way to begin with, and points inside each
MOST_POINTS = 4_096
ROUNDING = 2e-5  # nats: what a score in float32 leaves open


@dataclass(frozen=True)
class ForwardBackward:
    """One pass forward and back: the score, its gradient at `embeddings.sum` [B, T, H], and every value by name."""

    scores: np.ndarray
    gradient: np.ndarray
    cache: Pass


@dataclass(frozen=True)
class Integrated:
    """Integrated gradients [T], the two scores, and by how much the sum misses their difference."""

    attributions: np.ndarray
    score: float
    baseline_score: float
    points: int  # on the way at which the gradient was taken

    @property
    def difference(self) -> float:
        return self.score - self.baseline_score

    @property
    def error(self) -> float:
        return float(self.attributions.sum() - self.difference)


def embedding_sums(model: Model, input_ids: Any) -> np.ndarray:
    """What the first block sees of every token before the norm, `embeddings.sum` [B, T, H] float64."""
    run = model.run(check_inputs(model.config, input_ids), inference=True, keep=["embeddings.sum"])
    run.encode()
    return np.asarray(model.engine.to_numpy(run["embeddings.sum"]), np.float64)


def forward_backward(model: Model, sums: np.ndarray, aim: Aim) -> ForwardBackward:
    """From embeddings [B, T, H] to the scores of an aim, and back to the gradient at the embeddings."""
    scorer = Scorer(model, aim)
    run = _pass_from(model, sums, trace=True, kernels=model.engine.kernels)
    found = scorer.score(run.encode())
    run.encode_backward(scorer.gradient(run.shape), NoGradients())
    return ForwardBackward(found, np.asarray(model.engine.to_numpy(run["embeddings.d_sum"]), np.float64), run)


def scores(model: Model, sums: np.ndarray, aim: Aim) -> np.ndarray:
    """The scores [B] alone."""
    return Scorer(model, aim).score(_pass_from(model, sums, inference=True).encode())


def _pass_from(model: Model, sums: np.ndarray, **options: Any) -> Pass:
    """A pass of the encoder that begins at `sums`: they take the place of the table of tokens, without dropout."""
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
    batch: Batch = model.batch_of({**given, "types": None, "mask": None, "segments": None})
    parameters = {**model.computing(model.parameters), **engine.for_computing(tables)}
    return Pass(model.network, batch, parameters, **options)


def gradient_x_input(model: Model, input_ids: Any, aim: Aim) -> np.ndarray:
    """[T]: for every token the change of the score, to first order, if its embedding grew by its own length."""
    sums = _one(model, input_ids)
    return (sums * forward_backward(model, sums, aim).gradient)[0].sum(-1)


def baseline_ids(input_ids: Any, mask_id: int, special_ids: Any) -> np.ndarray:
    """The same text with every word hidden."""
    ids = np.asarray(input_ids)
    return np.where(np.isin(ids, np.asarray(special_ids)), ids, mask_id)


def integrated_gradients(
    model: Model, input_ids: Any, baseline: Any, aim: Aim, on_progress: Callable[[], object] = lambda: None
) -> Integrated:
    """Attributions [T] that add up to the difference of the scores of `input_ids` and `baseline`, both [1, T].

    Where attention is sharp the score falls down a step somewhere on the way, and evenly spaced points would miss it.
    But the integral over any stretch is known: the difference of the scores at its ends. So the way is cut into
    stretches, and those whose integral misses by too much are halved, until the whole is right to a hundredth.
    """
    text, start = _one(model, input_ids), _one(model, baseline)
    if text.shape != start.shape:
        raise InputError(f"the text has {text.shape[1]} tokens and its baseline {start.shape[1]}; they must agree")
    way = IntegrationPath(model, start, text - start, aim, on_progress)
    ends = way.scores(np.array([1.0, 0.0]))
    allowed = TOLERANCE * max(abs(float(ends[0] - ends[1])), 1.0)
    done = np.zeros(text.shape[1])
    cuts = np.linspace(0, 1, FIRST_STRETCHES + 1)
    waiting = np.stack([cuts[:-1], cuts[1:]], 1)  # [stretches, 2]
    while len(waiting):
        shares, errors = way.integrals(waiting)
        permitted = np.maximum(allowed * (waiting[:, 1] - waiting[:, 0]), ROUNDING)
        fine = (np.abs(errors) <= permitted) | (way.points >= MOST_POINTS)
        done += shares[fine].sum(0)
        middle = waiting[~fine].mean(1)
        waiting = np.stack([waiting[~fine, 0], middle, middle, waiting[~fine, 1]], 1).reshape(-1, 2)
    return Integrated(done, float(ends[0]), float(ends[1]), way.points)


class IntegrationPath:
    """The straight way from a baseline to a text, and the gradients met on it."""

    def __init__(self, model: Model, start: np.ndarray, whole: np.ndarray, aim: Aim, on_progress: Callable[[], object]):
        self.model, self.start, self.whole, self.aim, self.on_progress = model, start, whole, aim, on_progress
        self.points = 0
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        self.nodes, self.weights = (nodes + 1) / 2, weights / 2

    def scores(self, alphas: np.ndarray) -> np.ndarray:
        return self._look(alphas)[0]

    def integrals(self, stretches: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For every stretch the share of each token [stretches, T], and by how much their sum is wrong [stretches]."""
        begins, ends = stretches.T
        widths = ends - begins
        inside = begins[:, None] + widths[:, None] * self.nodes  # [stretches, nodes]
        scores, shares = self._look(np.concatenate([inside.ravel(), begins, ends]))
        along = shares[: inside.size].reshape(*inside.shape, -1)
        integrals = widths[:, None] * np.einsum("n,snt->st", self.weights, along)
        at_begin, at_end = scores[inside.size :].reshape(2, -1)
        return integrals, integrals.sum(1) - (at_end - at_begin)

    def _look(self, alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores [points] and, for every token, the slope of the score along the way [points, T]."""
        self.points += len(alphas)
        at_once = max(1, POSITIONS_AT_ONCE // self.start.shape[1])
        found = []
        for begin in range(0, len(alphas), at_once):
            sums = self.start + alphas[begin : begin + at_once, None, None] * self.whole
            reference = forward_backward(self.model, sums, self.aim)
            found.append((reference.scores, (self.whole * reference.gradient).sum(-1)))
            self.on_progress()
        scores, slopes = zip(*found, strict=True)
        return np.concatenate(scores), np.concatenate(slopes)


def _one(model: Model, input_ids: Any) -> np.ndarray:
    sums = embedding_sums(model, input_ids)
    if len(sums) != 1:
        raise InputError(f"saliency is asked about one text at a time, got {len(sums)}")
    return sums
