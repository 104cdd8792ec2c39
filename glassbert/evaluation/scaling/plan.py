"""The plan of a study: which sizes see how many tokens with which seeds, and what they all share.

A point of a study is an ordinary run. Whatever could make two points differ for another reason than their size is the
same for all: the corpus, the rows in their order, the length and the batch, the masks of the held-out rows, the shape
of the schedule. Only the learning rate follows the size, by the rule that every run follows.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from glassbert.errors import TrainingError
from glassbert.evaluation.scaling.law import FEWEST_SIZES
from glassbert.models.model import BertWithHead
from glassbert.training.building import flops_per_token
from glassbert.training.data import TrainingData
from glassbert.training.objectives import Objectives
from glassbert.training.recipes import DEFAULTS, config_for, sized
from glassbert.training.settings import CONFIG_FIELDS, TrainingSettings
from glassbert.training.settings_base import Check, check_fields, check_known, is_between, is_integer, one_of

SHARED: dict[str, Any] = {"evaluation_rows": 256, "keep": 1}  # a point is measured at its end, not on the way
BY_SIZE = ("optimizer", "learning_rate")  # defaults that a point may have of its own
OF_THE_STUDY = (
    *("size", "steps", "tokens", "minutes", "patience", "seed", "data_seed", "start_from"),
    *sized(1),  # what the dial decides about a model
)
MATCHES = ("tokens", "compute")
COUNTS = ("encoder", "all")


@dataclass(frozen=True)
class Point:
    """One run of a study."""

    size: float
    tokens: int
    seed: int

    @property
    def name(self) -> str:
        return f"size-{self.size:g}-tokens-{self.tokens}-seed-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What a study trains.

    sizes     places on the dial of `pretrain --size`
    tokens    of a point; several make a grid of sizes and tokens
    minutes   for everything together, instead of tokens
    match     "tokens": every size sees as many; "compute": every size costs as much as the largest
    seeds     of every point
    repeats   further seeds of the smallest point, where they are cheap: they show how much of a loss is chance
    predict   the size whose loss is predicted; without it one step beyond the largest
    count     what of a model counts as its size: "encoder" (its blocks) or "all" (embeddings and head as well)
    settings  fields of TrainingSettings and of the model's config that all points share
    """

    sizes: tuple[float, ...]
    tokens: tuple[int, ...] = ()
    minutes: float | None = None
    match: str = "tokens"
    seeds: int = 1
    repeats: int = 2
    predict: float | None = None
    count: str = "encoder"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("sizes", "tokens"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        check_fields(self, CHECKS, {"minutes", "predict"})
        object.__setattr__(self, "sizes", _ordered(map(float, self.sizes), "sizes"))
        object.__setattr__(self, "tokens", _ordered(self.tokens, "token counts"))
        if len(self.sizes) < FEWEST_SIZES:
            raise TrainingError(
                f"a curve needs at least {FEWEST_SIZES} sizes, better four or more; got "
                f"{', '.join(f'{size:g}' for size in self.sizes) or 'none'}"
            )
        if bool(self.tokens) == (self.minutes is not None):
            raise TrainingError("a study has one budget: --tokens for every point, or --minutes for all of it together")
        if self.next_size in self.sizes:
            raise TrainingError(f"size {self.predict:g} is trained, so there is nothing to predict; name another one")
        if self.match == "compute" and len(self.tokens) < 2:
            raise TrainingError(
                "where every size costs the same, larger ones see fewer tokens, and a single curve cannot tell one "
                "effect from the other; give two or more token counts, as in --tokens 1M,2M,4M"
            )
        check_known(self.settings, _SETTINGS, "the study")
        self.shared()  # says what is wrong with them

    @property
    def next_size(self) -> float:
        """The size that is predicted: the one asked for, or as far beyond the largest as that is from its neighbour."""
        return 2 * self.sizes[-1] - self.sizes[-2] if self.predict is None else float(self.predict)

    def shared(self) -> dict[str, Any]:
        """The fields that all points have in common; where nobody chose, those of the smallest size."""
        smallest = TrainingSettings.from_dict({**self.settings, "size": self.sizes[0]})
        by_recipe = {name for defaults in DEFAULTS.values() for name in defaults if name not in BY_SIZE}
        return {**{name: getattr(smallest, name) for name in by_recipe}, **SHARED, **self.settings}

    def settings_of(self, point: Point) -> TrainingSettings:
        own = {"size": point.size, "tokens": point.tokens, "seed": point.seed, "data_seed": point.seed}
        return TrainingSettings.from_dict({**self.shared(), **own})

    def replace(self, **changes: Any) -> Self:
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "sizes": list(self.sizes), "tokens": list(self.tokens),
                "settings": dict(self.settings)}  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        check_known(values, {f.name: f for f in dataclasses.fields(cls)}, "the study")
        return cls(**values)

    def differences(self, other: StudyPlan) -> list[str]:
        """The fields that make another study; what is predicted from the points, and how, may change."""
        mine, theirs = ({n: json.dumps(v, sort_keys=True) for n, v in plan.to_dict().items()} for plan in (self, other))
        return [name for name in mine if name not in ("predict", "count") and mine[name] != theirs[name]]


def _ordered(values: Iterable[Any], what: str) -> tuple[Any, ...]:
    values = tuple(values)
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise TrainingError(f"the {what} must differ, but {', '.join(f'{value:g}' for value in twice)} is there twice")
    return tuple(sorted(values))


_FIELDS = {**{field.name: field for field in dataclasses.fields(TrainingSettings)}, **CONFIG_FIELDS}
_SETTINGS = {name: field for name, field in _FIELDS.items() if name not in OF_THE_STUDY}
_IS_SIZE = is_between(0.5, 100)
CHECKS: dict[str, Check] = {
    "sizes": (lambda sizes: all(map(_IS_SIZE, sizes)), "numbers between 1 and 100 (3 is Mini, 6 Larger)"),
    "tokens": (lambda tokens: all(map(is_integer(1), tokens)), "whole numbers of at least 1"),
    "minutes": (is_between(0, float("inf")), "a number above 0"),
    "match": one_of(*MATCHES),
    "seeds": (is_integer(1), "a whole number of at least 1"),
    "repeats": (is_integer(0), "a whole number of at least 0"),
    "predict": (_IS_SIZE, "a size between 1 and 100"),
    "count": one_of(*COUNTS),
}


LEAST_STEPS = 20  # fewer, and a run is all warm-up


@dataclass(frozen=True)
class Shape:
    """A size of the dial as a model."""

    size: float
    layers: int
    width: int
    encoder: int  # parameters of the blocks
    all: int  # parameters of the whole model with its head
    flops: float  # of training on one token

    def __str__(self) -> str:
        return f"{self.layers} × {self.width}"

    def count(self, what: str) -> int:
        return self.encoder if what == "encoder" else self.all


def shape_of(size: float, plan: StudyPlan, data: TrainingData) -> Shape:
    settings = plan.settings_of(Point(size, 1, 0))
    config = config_for(settings, data.tokenizer.vocab_size, data.tokenizer.pad_id)
    head = Objectives.parse(settings.objective).head_type
    model = BertWithHead(config, head, engine="numpy", initialize=False)
    counts = {name: math.prod(shape) for name, shape in model.layout.shapes.items()}
    blocks = sum(count for name, count in counts.items() if name.startswith("layers."))
    flops = flops_per_token(config, settings)
    return Shape(size, config.num_hidden_layers, config.hidden_size, blocks, sum(counts.values()), flops)


def shapes_of(plan: StudyPlan, data: TrainingData) -> dict[float, Shape]:
    """By size, the predicted one last; an error where two sizes are one model, or the model has no size."""
    shapes = {size: shape_of(size, plan, data) for size in (*plan.sizes, plan.next_size)}
    seen: dict[tuple[int, int], Shape] = {}
    for shape in shapes.values():
        same = seen.setdefault((shape.encoder, shape.all), shape)
        if same is not shape:
            raise TrainingError(
                f"sizes {same.size:g} and {shape.size:g} are the same model ({shape}: layers × width); choose sizes "
                f"that lie farther apart, whole or half steps of the dial"
            )
    return shapes


def points_of(plan: StudyPlan, shapes: dict[float, Shape], data: TrainingData, sizes: Sequence[float]) -> list[Point]:
    """Every run of these sizes, cheap ones first; an error where the tokens are too few for some of them."""
    step = data.tokens_of(plan.settings_of(Point(plan.sizes[0], 1, 0)).length)
    dearest = shapes[plan.sizes[-1]].flops
    found = []
    for size in sizes:
        for number, given in enumerate(plan.tokens):
            tokens = given if plan.match == "tokens" else round(given * dearest / shapes[size].flops)
            if tokens < LEAST_STEPS * step:
                raise TrainingError(
                    f"{tokens:,} tokens for size {size:g} are too few: a step takes {step:,}, and a run less than "
                    f"{LEAST_STEPS} steps teaches nothing. Give at least {LEAST_STEPS * step:,}, or lower --batch"
                )
            tokens = step * round(tokens / step)
            repeated = plan.repeats if size == plan.sizes[0] and number == 0 else 0
            found += [Point(size, tokens, seed) for seed in range(plan.seeds + repeated)]
    return sorted(found, key=lambda point: (point.tokens * shapes[point.size].flops, point.seed))
