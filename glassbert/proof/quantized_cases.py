"""Cases of quantised weights: the operations, and models with adapters over frozen codes.

Codes are constants. The offsets enter in floats, so that the gradient of every row of a table can be compared with
finite differences: with groups of two columns, the gradient of an offset is the sum of two gradients of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from glassbert.arrays import Array, scatter_rows
from glassbert.engines.kernels import backward
from glassbert.finetuning.low_rank import LowRank
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model
from glassbert.models.quantized import QuantizedModel, on_engine
from glassbert.ops.quantized import QuantizedArray
from glassbert.proof.cases import Fixture, case
from glassbert.proof.layer_cases import DROPOUT, TINY_BERT, TINY_MODERN, random_parameters
from glassbert.proof.low_rank_cases import SCALE
from glassbert.proof.model_cases import MLM_LABELS, PADDED, TINY_MINI, TOKEN_LABELS, ModelSetup, Rng, model_fixture


def random_codes(
    rng: Rng, rows: int, width: int, bits: int, groups: int, symmetric: bool, dtype: Any = np.float64
) -> QuantizedArray:
    """A matrix of random codes on NumPy."""
    if bits == 8:
        codes = rng.integers(-127, 128, (rows, width)).astype(np.int8)
    else:
        codes = rng.integers(0, 256, (rows, (width + 1) // 2)).astype(np.uint8)
    scales = rng.uniform(0.5, 1.5, (rows, groups)) / (50 if bits == 8 else 5)
    offsets = None if symmetric else rng.standard_normal((rows, groups))
    zero = (0 if bits == 8 else 8) if symmetric else 0
    return QuantizedArray(codes, scales.astype(np.float32), offsets, bits, (rows, width), zero, np.dtype(dtype))


def linear_fixture(
    rng: Rng,
    shape: tuple[int, ...],
    outputs: int,
    bits: int,
    groups: int = 1,
    symmetric: bool = True,
    bias: bool = True,
    changed: slice | None = None,
) -> Fixture:
    codes = random_codes(rng, outputs, shape[-1], bits, groups, symmetric)
    inputs = {"x": rng.standard_normal(shape)}
    if bias:
        inputs["bias"] = rng.standard_normal(outputs)
    a, b = rng.standard_normal((2, shape[-1])), rng.standard_normal((outputs, 2))

    def function(engine: Any, given: Mapping[str, Array]) -> Any:
        weight = on_engine(codes, engine)
        if changed is not None:
            weight = weight.with_changes([(changed, engine.array(a), engine.array(b[changed]), SCALE)])
        y, state = engine.ops.quantized_linear(given["x"], weight, given.get("bias"))

        def gradients(dy: Array) -> dict[str, Array]:
            dx, _, dbias = backward(dy, state)
            return {"x": dx, **({"bias": dbias} if bias else {})}

        return y, gradients

    return Fixture(inputs, function)


case("op", "quantized_linear", "8 bits, a scale for each row, bias")(lambda rng: linear_fixture(rng, (2, 3, 5), 7, 8))
case("op", "quantized_linear", "4 bits, odd width, no bias")(
    lambda rng: linear_fixture(rng, (4, 5), 3, 4, symmetric=False, bias=False)
)
case("op", "quantized_linear", "4 bits, groups with offsets, rows of 64")(
    lambda rng: linear_fixture(rng, (3, 64), 8, 4, 2, False)
)
case("op", "quantized_linear", "8 bits, groups, square")(lambda rng: linear_fixture(rng, (2, 32), 32, 8, 4, False))
case("op", "quantized_linear", "4 bits, a change of low rank in the middle rows")(
    lambda rng: linear_fixture(rng, (2, 3, 6), 9, 4, 3, False, changed=slice(3, 6))
)
case("op", "quantized_linear", "8 bits, a change of low rank in all rows")(
    lambda rng: linear_fixture(rng, (5, 32), 4, 8, changed=slice(0, 4))
)


def embedding_fixture(rng: Rng, ids: Any, bits: int, padding_id: int | None = None) -> Fixture:
    table, ids = random_codes(rng, 7, 6, bits, 3, False), np.asarray(ids)
    frozen = (np.arange(7) == padding_id)[:, None]  # the gradient of the padding row is zero by definition

    def function(engine: Any, given: Mapping[str, Array]) -> Any:
        weight = on_engine(table, engine)
        trained = engine.xp.where(engine.xp.array(frozen), engine.array(np.asarray(table.offsets)), given["offsets"])
        y, state = engine.ops.quantized_embedding(replace(weight, offsets=trained), engine.integers(ids), padding_id)

        def gradients(dy: Array) -> dict[str, Array]:
            index, rows = backward(dy, state)
            full = scatter_rows(engine.xp.zeros((7, 6), dtype=rows.dtype), index, rows)
            return {"offsets": full.reshape(7, 3, 2).sum(-1)}

        return y, gradients

    return Fixture({"offsets": np.asarray(table.offsets)}, function)


case("op", "quantized_embedding", "8 bits, repeated ids")(lambda rng: embedding_fixture(rng, [[1, 3, 1], [6, 0, 3]], 8))
case("op", "quantized_embedding", "4 bits, padding")(
    lambda rng: embedding_fixture(rng, [[2, 5, 4], [2, 4, 4]], 4, padding_id=4)
)


@dataclass
class Quantised(ModelSetup):
    """A setup whose matrices are codes, over which adapters are trained."""

    targets: tuple[str, ...] = ("query", "value")
    bits: int = 8

    def model(self, engine: Any) -> Model:
        base, rng = super().model(engine), np.random.default_rng(5)
        for name, values in random_parameters(rng, base.specification).items():
            base.parameters[name] = engine.array(values)
        found = {}
        for parameter in base.specification:
            name, shape = parameter.name, parameter.shape
            head = name.startswith(("head.", "pooler.")) and name != "head.decoder.weight"
            if len(shape) == 2 and not head and name.endswith((".weight", "embeddings.token")):
                codes = random_codes(rng, shape[0], shape[1], self.bits, 1, self.bits == 8, np.float32)
                found[name] = on_engine(codes, engine)
        return LowRank(QuantizedModel(base, found), rank=2, alpha=2 * SCALE, targets=self.targets)


def register(situation: str, config: EncoderConfig, head: str, **options: Any) -> None:
    threads = options.pop("threads", 1)
    setup = Quantised(config, head, inputs=PADDED, **options)
    case("model", "quantized", situation)(lambda rng: model_fixture(rng, setup, threads=threads))


register("mini, mlm, adapters over 4 bits, two threads", TINY_MINI, "mlm", labels=MLM_LABELS, bits=4, threads=2,
         targets=("up", "output"))  # fmt: skip
register("bert, adapters over 8 bits, dropout, two threads", TINY_BERT.replace(**DROPOUT), "token", num_labels=3,
         labels=TOKEN_LABELS, training=True, threads=2, targets=("query", "value", "output", "ffn"))  # fmt: skip
register("modernbert, adapters over 4 bits, checkpointing", TINY_MODERN, "sequence", num_labels=3, labels=[2, 0, 1],
         bits=4, checkpointing=True, targets=("qkv", "down"))  # fmt: skip
