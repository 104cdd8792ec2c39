"""What the sizes of a study are: their layers, parameters and the arithmetic of a token.

The N of a scaling law is a count of parameters, but of which? The blocks alone do the arithmetic, and beside a large
vocabulary they are a small part of a small model: from one size to the next they grow tenfold where the whole model
only doubles. `encoder` counts the blocks, `all` counts everything; the report says which of the two the points prefer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from glassbert.errors import TrainingError
from glassbert.evaluation.scaling.plan import Point, StudyPlan
from glassbert.families.bert import BertWithHead
from glassbert.training.building import flops_per_token
from glassbert.training.data import TrainingData
from glassbert.training.objectives import Objectives
from glassbert.training.recipes import config_for

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
