"""Cases of the losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.engines.kernels import backward
from glassbert.proof.cases import Fixture, away_from_zero, case
from glassbert.proof.op_cases import Rng, one_input


def loss_fixture(
    loss: str, outputs: np.ndarray, targets: np.ndarray, method: str = "central", **options: Any
) -> Fixture:
    """The loss of these outputs and targets; `options` go to the forward."""

    def run(engine, x):
        return getattr(engine.ops, loss)(x, on_engine(engine, targets), **options)

    return one_input(outputs, run, method=method)


def on_engine(engine: Any, targets: np.ndarray) -> Any:
    return (engine.integers if targets.dtype.kind in "iu" else engine.array)(targets)


@case("op", "cross_entropy", "ignored rows, repeated targets")
def _(rng):
    return loss_fixture("cross_entropy", 2.0 * rng.standard_normal((6, 5)), np.array([4, -100, 0, 4, -100, 4]))


@case("op", "cross_entropy", "complex step")
def _(rng):
    return loss_fixture("cross_entropy", rng.standard_normal((3, 4)), np.array([1, 3, -100]), "complex")


@case("op", "cross_entropy", "all rows ignored")
def _(rng):
    return loss_fixture("cross_entropy", rng.standard_normal((3, 5)), np.full(3, -100))


@case("op", "cross_entropy", "one row, logits around 1000")
def _(rng):
    return loss_fixture("cross_entropy", 1000.0 + rng.standard_normal((1, 7)), np.array([6]))


@case("op", "binary_cross_entropy", "many labels, some ignored, some soft")
def _(rng):
    targets = rng.integers(0, 2, (4, 3)).astype(np.float64)
    targets[1, 2] = targets[3, 0] = -100
    targets[0, 0] = 0.3
    return loss_fixture("binary_cross_entropy", away_from_zero(3.0 * rng.standard_normal((4, 3)), 0.01), targets)


@case("op", "binary_cross_entropy", "one column, all ignored")
def _(rng):
    return loss_fixture("binary_cross_entropy", rng.standard_normal((3, 1)), np.full((3, 1), -100.0))


@case("op", "mean_squared_error", "some ignored")
def _(rng):
    targets = rng.standard_normal((4, 3))
    targets[0, 1] = targets[2, 2] = -100
    return loss_fixture("mean_squared_error", rng.standard_normal((4, 3)), targets)


@case("op", "mean_squared_error", "complex step")
def _(rng):
    return loss_fixture("mean_squared_error", rng.standard_normal((5, 1)), rng.standard_normal((5, 1)), "complex")


# ---- weights, smoothing, focal loss ----------------------------------------------------------------------------------

SOME_IGNORED = np.array([4, -100, 0, 4, -100, 1])
WEIGHTS = (0.3, 2.0, 1.0, 0.7, 3.0)


@case("op", "cross_entropy", "class weights, ignored rows")
def _(rng):
    return loss_fixture("cross_entropy", 2.0 * rng.standard_normal((6, 5)), SOME_IGNORED, weights=WEIGHTS)


@case("op", "cross_entropy", "label smoothing")
def _(rng):
    return loss_fixture("cross_entropy", 2.0 * rng.standard_normal((6, 5)), SOME_IGNORED, smoothing=0.2)


@case("op", "cross_entropy", "class weights and label smoothing, complex step")
def _(rng):
    logits = rng.standard_normal((6, 5))
    return loss_fixture("cross_entropy", logits, SOME_IGNORED, "complex", weights=WEIGHTS, smoothing=0.1)


def yes_or_no(rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Scores away from 0, where max and |z| have no derivative; some targets are soft, some ignored."""
    targets = rng.integers(0, 2, (4, 3)).astype(np.float64)
    targets[1, 2] = targets[3, 0] = -100
    targets[0, 0] = 0.3
    return away_from_zero(3.0 * rng.standard_normal((4, 3)), 0.01), targets


@case("op", "binary_cross_entropy", "positive weights, some ignored, some soft")
def _(rng):
    return loss_fixture("binary_cross_entropy", *yes_or_no(rng), positive_weights=(0.5, 4.0, 1.0))


@case("op", "focal_loss", "ignored rows")
def _(rng):
    logits = 2.0 * rng.standard_normal((6, 5))
    return loss_fixture("focal_loss", logits, SOME_IGNORED, gamma=2.0)


@case("op", "focal_loss", "class weights, gamma below 1")
def _(rng):
    logits = 2.0 * rng.standard_normal((6, 5))
    return loss_fixture("focal_loss", logits, SOME_IGNORED, gamma=0.5, weights=WEIGHTS)


@case("op", "focal_loss", "gamma 0, all rows ignored")
def _(rng):
    return loss_fixture("focal_loss", rng.standard_normal((3, 5)), np.full(3, -100), gamma=0.0)


@case("op", "focal_loss", "nearly certain, right and wrong")
def _(rng):
    logits = rng.standard_normal((2, 3)) + np.array([[9.0, 0, 0], [9.0, 0, 0]])
    return loss_fixture("focal_loss", logits, np.array([0, 1]), gamma=2.0)


@case("op", "binary_focal_loss", "some ignored, some soft")
def _(rng):
    return loss_fixture("binary_focal_loss", *yes_or_no(rng), gamma=2.0)


@case("op", "binary_focal_loss", "positive weights, gamma below 1")
def _(rng):
    weights = (0.5, 4.0, 1.0)
    return loss_fixture("binary_focal_loss", *yes_or_no(rng), gamma=0.7, positive_weights=weights)


# ---- ranks ---------------------------------------------------------------------------------------------------------


@case("op", "ordinal_loss", "every rank, ignored rows")
def _(rng):
    logits = away_from_zero(2.0 * rng.standard_normal((7, 3)), 0.01)
    return loss_fixture("ordinal_loss", logits, np.array([0, 3, -100, 1, 2, 3, -100]))


@case("op", "ordinal_loss", "two ranks, one row")
def _(rng):
    return loss_fixture("ordinal_loss", away_from_zero(rng.standard_normal((1, 1)), 0.01), np.array([1]))


@case("op", "ordinal_loss", "all rows ignored")
def _(rng):
    return loss_fixture("ordinal_loss", rng.standard_normal((3, 4)), np.full(3, -100))


# ---- pairs of vectors ----------------------------------------------------------------------------------------------


@case("op", "unit_length", "complex step")
def _(rng):
    return one_input(rng.standard_normal((4, 5)), lambda engine, x: engine.ops.unit_length(x), method="complex")


def pair_fixture(loss: str, rng: Rng, targets: Any, method: str = "central", **options: Any) -> Fixture:
    targets = np.array(targets, np.float64)
    shape = (len(targets), 5)

    def function(engine, inputs):
        forward = getattr(engine.ops, loss)
        value, state = forward(inputs["first"], inputs["second"], on_engine(engine, targets), **options)
        return value, lambda dloss: dict(zip(inputs, backward(dloss, state), strict=True))

    return Fixture({"first": rng.standard_normal(shape), "second": rng.standard_normal(shape)}, function, method=method)


case("op", "cosine_loss", "some ignored")(lambda rng: pair_fixture("cosine_loss", rng, [0.9, -100, -0.5, 0.0]))
case("op", "cosine_loss", "complex step")(lambda rng: pair_fixture("cosine_loss", rng, [0.9, -1.0], "complex"))
case("op", "cosine_loss", "all ignored")(lambda rng: pair_fixture("cosine_loss", rng, [-100, -100]))
case("op", "contrastive_loss", "all pairs valid")(
    lambda rng: pair_fixture("contrastive_loss", rng, [1, 1, 1, 1], temperature=0.3)
)
case("op", "contrastive_loss", "pairs ignored")(
    lambda rng: pair_fixture("contrastive_loss", rng, [1, -100, 1, 1, -100], temperature=0.1)
)
case("op", "contrastive_loss", "one pair")(lambda rng: pair_fixture("contrastive_loss", rng, [1], temperature=1.0))
case("op", "ranking_loss", "equal targets")(
    lambda rng: pair_fixture("ranking_loss", rng, [0.2, 0.9, 0.2, -0.5, 0.9], temperature=0.3)
)
case("op", "ranking_loss", "pairs ignored")(
    lambda rng: pair_fixture("ranking_loss", rng, [1, -100, 0.3, -0.2, -100], temperature=0.1)
)
case("op", "ranking_loss", "nothing to compare")(
    lambda rng: pair_fixture("ranking_loss", rng, [0.5, -100, 0.5], temperature=0.1)
)
case("op", "ranking_loss", "one pair")(lambda rng: pair_fixture("ranking_loss", rng, [1], temperature=1.0))


# ---- distillation --------------------------------------------------------------------------------------------------


def taught_fixture(
    loss: str, rng: Rng, targets: Any, method: str = "central", scale: float = 2.0, **options: Any
) -> Fixture:
    """A loss against the values of a teacher, which have no gradient."""
    targets = np.array(targets)
    wanted = scale * rng.standard_normal((len(targets), 5))

    def run(engine, x):
        return getattr(engine.ops, loss)(x, engine.array(wanted), engine.integers(targets), **options)

    return one_input(scale * rng.standard_normal((len(targets), 5)), run, method=method)


@case("op", "soft_target_loss", "temperature 3, ignored rows")
def _(rng):
    return taught_fixture("soft_target_loss", rng, [4, -100, 0, 1, -100], temperature=3.0)


@case("op", "soft_target_loss", "temperature 1, complex step")
def _(rng):
    return taught_fixture("soft_target_loss", rng, [4, -100, 0], "complex")


@case("op", "soft_target_loss", "logits around 1000, temperature below 1")
def _(rng):
    targets, wanted = np.array([0, 3]), 1000.0 + rng.standard_normal((2, 5))

    def run(engine, x):
        return engine.ops.soft_target_loss(x, engine.array(wanted), engine.integers(targets), temperature=0.5)

    return one_input(-1000.0 + rng.standard_normal((2, 5)), run)


@case("op", "soft_target_loss", "all rows ignored")
def _(rng):
    return taught_fixture("soft_target_loss", rng, [-100, -100], temperature=2.0)


case("op", "cosine_distance_loss", "ignored rows")(
    lambda rng: taught_fixture("cosine_distance_loss", rng, [0, -100, 0, 0, -100])
)
case("op", "cosine_distance_loss", "complex step")(
    lambda rng: taught_fixture("cosine_distance_loss", rng, [0, 0, -100], "complex")
)
case("op", "cosine_distance_loss", "all rows ignored")(
    lambda rng: taught_fixture("cosine_distance_loss", rng, [-100, -100])
)


def relation_fixture(rng: Rng, real: Any, method: str = "central", **options: Any) -> Fixture:
    """Relations of 6 columns against those of a teacher of 8."""
    real = np.array(real)
    wanted = rng.standard_normal((*real.shape, 8))

    def run(engine, x):
        return engine.ops.relation_loss(x, engine.array(wanted), engine.integers(real), **options)

    return one_input(rng.standard_normal((*real.shape, 6)), run, method=method)


RAGGED = [[1, 1, 1, 1], [1, 1, 0, 0]]
case("op", "relation_loss", "two heads, padding")(lambda rng: relation_fixture(rng, RAGGED, heads=2))
case("op", "relation_loss", "one head, complex step")(lambda rng: relation_fixture(rng, RAGGED, "complex"))
case("op", "relation_loss", "a row of padding")(lambda rng: relation_fixture(rng, [[1, 1, 1], [0, 0, 0]], heads=2))
case("op", "relation_loss", "nothing but padding")(lambda rng: relation_fixture(rng, [[0, 0, 0]]))
