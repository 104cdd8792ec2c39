"""Cases of the comparison of two texts: the operation, the head with every loss, and whole models."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.engines.kernels import backward
from glassbert.models.config import EncoderConfig
from glassbert.models.encoder import Batch
from glassbert.models.heads import make_head
from glassbert.models.passes import head_loss, head_loss_backward
from glassbert.proof.cases import Fixture, away_from_zero, case
from glassbert.proof.head_cases import parameters_of
from glassbert.proof.layer_cases import DROPOUT, MASK, TINY_BERT, TINY_MODERN, Rng, layer_fixture
from glassbert.proof.model_cases import register

# Texts of different lengths, one with a single token; a row of padding; a row whose second text is empty.
TEXTS = [[1, 1, 2, 2, 2], [0, 0, 0, 0, 0], [1, 2, 0, 0, 0], [1, 1, 1, 0, 0]]


@case("op", "compare", "both signs")
def _(rng):
    a = rng.standard_normal((3, 4, 5))
    inputs = {"x": a + away_from_zero(rng.standard_normal((3, 4, 5)), 0.05), "a": a}

    def function(engine, inputs):
        y, state = engine.ops.compare(inputs["x"], inputs["a"])
        return y, lambda dy: dict(zip(("x", "a"), backward(dy, state), strict=True))

    return Fixture(inputs, function)


def aligned_fixture(
    rng: Rng, config: EncoderConfig, labels: int, loss: str, targets: Any, options: Any = None, dropout: bool = False
) -> Fixture:
    """From hidden states to the loss of a pair, and back."""
    head = make_head("aligned", config, labels, loss, options)
    prepared = head.prepare_labels(np.asarray(targets), (len(TEXTS), 5))["targets"]

    def batch(engine: Any) -> Batch:
        return Batch(engine.integers(np.arange(5)[None]), segments=engine.integers(np.array(TEXTS)))

    def forward(engine, x, scope):
        given = (engine.array if prepared.dtype.kind == "f" else engine.integers)(prepared)
        return head_loss(head, x, batch(engine), {"targets": given}, scope.inside("head"))

    def backward_of(engine, dloss, scope):
        return head_loss_backward(head, dloss, scope.inside("head"))

    shape = (len(TEXTS), 5, config.hidden_size)
    return layer_fixture(rng, parameters_of(head), forward, backward_of, shape, dropout=dropout)


def enter(name: str, loss: str, labels: int, targets: Any, options: Any) -> None:
    case("layer", "aligned", name)(lambda rng: aligned_fixture(rng, TINY_BERT, labels, loss, targets, options))


for name, (loss, labels, targets, options) in {
    "classes": ("cross_entropy", 3, [2, -100, 0, 1], None),
    "several labels": ("binary_cross_entropy", 2, [[1, 0], [0, 0], [1, -100], [0, 1]], None),
    "a number": ("mean_squared_error", 1, [0.7, -100.0, -1.5, 0.2], {"target_mean": [0.4], "target_scale": [2.0]}),
    "ranks": ("ordinal", 4, [3, -100, 0, 1], None),
}.items():
    enter(name, loss, labels, targets, options)
case("layer", "aligned", "dropout, rotary family")(
    lambda rng: aligned_fixture(rng, TINY_MODERN.replace(**DROPOUT), 3, "cross_entropy", [2, 0, 1, 1], dropout=True)
)
register("bert", "aligned pairs, a number, two threads", TINY_BERT, "aligned", num_labels=1,
         labels=[0.7, -100.0, -1.5], inputs={"segment_ids": TEXTS[:3]}, threads=2)  # fmt: skip
register("modernbert", "aligned pairs, classes, dropout, checkpointing", TINY_MODERN.replace(**DROPOUT), "aligned",
         num_labels=3, labels=[2, -100, 0], inputs={"segment_ids": TEXTS[:3], "attention_mask": MASK}, training=True,
         checkpointing=True)  # fmt: skip
register("modernbert", "aligned pairs, padding skipped", TINY_MODERN, "aligned", num_labels=3, labels=[2, -100, 0],
         inputs={"segment_ids": TEXTS[:3], "attention_mask": MASK, "skip_padding": True}, on_mlx=False)  # fmt: skip
