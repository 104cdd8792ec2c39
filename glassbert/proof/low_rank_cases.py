"""Cases of low-rank adaptation: the operation, and models of which only adapters and head are trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.engines.kernels import backward as run_backward
from glassbert.finetuning.low_rank import LowRank
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model
from glassbert.proof.cases import Fixture, case
from glassbert.proof.layer_cases import DROPOUT, TINY_BERT, TINY_MODERN, random_parameters
from glassbert.proof.model_cases import MLM_LABELS, PADDED, TINY_MINI, TOKEN_LABELS, ModelSetup, Rng, model_fixture

SCALE = 1.75  # not 1, so that a missing factor is detected


def low_rank_fixture(rng: Rng, outputs: int, inputs: int, rank: int) -> Fixture:
    """The product with an adapted matrix: y = x W'ᵀ."""
    weight, x = rng.standard_normal((outputs, inputs)), rng.standard_normal((3, inputs))
    values = {"a": rng.standard_normal((rank, inputs)), "b": rng.standard_normal((outputs, rank))}

    def function(engine: Any, given: Mapping[str, Array]) -> Any:
        rows = engine.array(x)
        changed, state = engine.ops.low_rank(engine.array(weight), given["a"], given["b"], SCALE)

        def backward(dy: Array) -> dict[str, Array]:
            da, db = run_backward((dy, rows), state)
            return {"a": da, "b": db}

        return rows @ changed.T, backward

    return Fixture(values, function)


case("op", "low_rank", "odd sizes")(lambda rng: low_rank_fixture(rng, 7, 5, 2))
case("op", "low_rank", "all sizes equal")(lambda rng: low_rank_fixture(rng, 4, 4, 4))


@dataclass
class Adapted(ModelSetup):
    """A setup whose encoder is frozen and has adapters."""

    targets: tuple[str, ...] = ("query", "value")

    def model(self, engine: Any) -> Model:
        base = super().model(engine)
        for name, values in random_parameters(np.random.default_rng(5), base.specification).items():
            base.parameters[name] = engine.array(values)
        return LowRank(base, rank=2, alpha=2 * SCALE, targets=self.targets)


def register(situation: str, config: EncoderConfig, head: str, **options: Any) -> None:
    threads = options.pop("threads", 1)
    setup = Adapted(config, head, inputs=PADDED, **options)
    case("model", "low rank", situation)(lambda rng: model_fixture(rng, setup, threads=threads))


register("bert, queries and values, pooler", TINY_BERT, "sequence", num_labels=3, labels=[2, -100, 0])
register("bert, every matrix, dropout, two threads", TINY_BERT.replace(**DROPOUT), "token", num_labels=3,
         labels=TOKEN_LABELS, training=True, threads=2, targets=("query", "key", "value", "output", "ffn"))  # fmt: skip
register("modernbert, queries, keys and values as one, checkpointing", TINY_MODERN, "sequence", num_labels=3,
         labels=[2, 0, 1], checkpointing=True, targets=("qkv", "down"))  # fmt: skip
register("modernbert, keys alone, three threads", TINY_MODERN, "token", num_labels=3, labels=TOKEN_LABELS,
         threads=3, targets=("key",))  # fmt: skip
register("mini, mlm, gates of no kind", TINY_MINI, "mlm", labels=MLM_LABELS, targets=("up", "output"))
