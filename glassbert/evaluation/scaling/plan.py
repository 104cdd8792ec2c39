"""The plan of a study: sizes, tokens, seeds and shared settings, and the list of runs that follows from them.

A point of a study is an ordinary run. All points share the corpus, the order of the rows, the length and the batch, the
masks of the held-out rows and the shape of the schedule. Only the learning rate depends on the size, by the same rule
as in `pretrain`.

The N of the law is a number of parameters: `encoder` counts the blocks, `all` counts everything. With a large
vocabulary the blocks are a small part of a small model: from one size to the next they grow tenfold where the whole
model doubles. The report shows both.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from glassbert.errors import TrainingError
from glassbert.evaluation.scaling.law import MIN_SIZES
from glassbert.training.building import flops_per_token
from glassbert.training.data import TrainingData
from glassbert.training.planning.table import count_parameters
from glassbert.training.recipes import DEFAULTS, config_for, sized
from glassbert.training.settings import CONFIG_FIELDS, TrainingSettings
from glassbert.training.settings_base import Check, check_fields, check_known, is_between, is_integer, one_of

SHARED: dict[str, Any] = {"evaluation_rows": 256, "keep": 1}  # a point is measured at its end only
BY_SIZE = ("optimizer", "learning_rate")  # defaults that depend on the size
OF_THE_STUDY = (
    *("size", "steps", "tokens", "minutes", "patience", "seed", "data_seed", "start_from"),
    *sized(1),  # the fields that a size determines
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
    """The plan of a study.

    sizes     values of `pretrain --size`
    tokens    per point; several values make a grid of sizes and tokens
    minutes   for the whole study, instead of tokens
    match     "tokens": the same tokens for every size; "compute": the same FLOP for every size
    seeds     per point
    repeats   further seeds of the smallest (cheapest) point, to measure the noise of a loss
    predict   the size whose loss is predicted; default: one step beyond the largest
    count     the parameters that count as size: "encoder" (the blocks) or "all" (with embeddings and head)
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
        if len(self.sizes) < MIN_SIZES:
            raise TrainingError(
                f"a curve needs at least {MIN_SIZES} sizes, better four or more; got "
                f"{', '.join(f'{size:g}' for size in self.sizes) or 'none'}"
            )
        if bool(self.tokens) == (self.minutes is not None):
            raise TrainingError("a study has one budget: --tokens for every point, or --minutes for the whole study")
        if self.next_size in self.sizes:
            raise TrainingError(
                f"size {self.predict:g} is one of the trained sizes, so it cannot be predicted; give another --predict"
            )
        if self.match == "compute" and len(self.tokens) < 2:
            raise TrainingError(
                "with --match compute larger sizes see fewer tokens, and one curve cannot separate the two effects; "
                "give two or more token counts, as in --tokens 1M,2M,4M"
            )
        check_known(self.settings, _SETTINGS, "the study")
        self.shared()  # checks the settings

    @property
    def next_size(self) -> float:
        """The predicted size: `predict`, or the largest size plus the last step between sizes."""
        return 2 * self.sizes[-1] - self.sizes[-2] if self.predict is None else float(self.predict)

    def shared(self) -> dict[str, Any]:
        """The settings of all points; defaults are those of the smallest size."""
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
        """The fields that differ and make it another study; `predict` and `count` may differ."""
        mine, theirs = ({n: json.dumps(v, sort_keys=True) for n, v in plan.to_dict().items()} for plan in (self, other))
        return [name for name in mine if name not in ("predict", "count") and mine[name] != theirs[name]]


def _ordered(values: Iterable[Any], what: str) -> tuple[Any, ...]:
    values = tuple(values)
    twice = sorted({value for value in values if values.count(value) > 1})
    if twice:
        raise TrainingError(f"the {what} must differ, but {', '.join(f'{value:g}' for value in twice)} is given twice")
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


MIN_STEPS = 20  # a shorter run would be all warm-up


@dataclass(frozen=True)
class Shape:
    """The model of one size."""

    size: float
    layers: int
    width: int
    encoder: int  # parameters of the blocks
    all: int  # parameters of the whole model with its head
    flops: float  # per token in training

    def __str__(self) -> str:
        return f"{self.layers} × {self.width}"

    def count(self, what: str) -> int:
        """The parameters that count as size: "encoder" or "all"."""
        return self.encoder if what == "encoder" else self.all


def shape_of(size: float, plan: StudyPlan, data: TrainingData) -> Shape:
    settings = plan.settings_of(Point(size, 1, 0))
    config = config_for(settings, data.tokenizer.vocab_size, data.tokenizer.pad_id)
    blocks, parameters = count_parameters(config, settings.objective)
    flops = flops_per_token(config, settings)
    return Shape(size, config.num_hidden_layers, config.hidden_size, blocks, parameters, flops)


def shapes_of(plan: StudyPlan, data: TrainingData) -> dict[float, Shape]:
    """The models by size, the predicted one last. Two sizes with the same model are an error."""
    shapes = {size: shape_of(size, plan, data) for size in (*plan.sizes, plan.next_size)}
    seen: dict[tuple[int, int], Shape] = {}
    for shape in shapes.values():
        same = seen.setdefault((shape.encoder, shape.all), shape)
        if same is not shape:
            raise TrainingError(
                f"sizes {same.size:g} and {shape.size:g} are the same model ({shape}: layers × width); choose sizes "
                f"that are farther apart, in whole or half steps"
            )
    return shapes


def points_of(plan: StudyPlan, shapes: dict[float, Shape], data: TrainingData, sizes: Sequence[float]) -> list[Point]:
    """All runs of these sizes, the cheapest first. Too few tokens for MIN_STEPS steps are an error."""
    step = data.tokens_of(plan.settings_of(Point(plan.sizes[0], 1, 0)).length)
    largest_flops = shapes[plan.sizes[-1]].flops
    found = []
    for size in sizes:
        for number, given in enumerate(plan.tokens):
            tokens = given if plan.match == "tokens" else round(given * largest_flops / shapes[size].flops)
            if tokens < MIN_STEPS * step:
                raise TrainingError(
                    f"{tokens:,} tokens for size {size:g} are too few: a step takes {step:,}, and a run needs at least "
                    f"{MIN_STEPS} steps. Give at least {MIN_STEPS * step:,}, or lower --batch"
                )
            tokens = step * round(tokens / step)
            repeated = plan.repeats if size == plan.sizes[0] and number == 0 else 0
            found += [Point(size, tokens, seed) for seed in range(plan.seeds + repeated)]
    return sorted(found, key=lambda point: (point.tokens * shapes[point.size].flops, point.seed))
