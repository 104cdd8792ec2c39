"""Low-rank adaptation (LoRA): the encoder is frozen, and a change of low rank is trained for chosen matrices.

    W' = W + (alpha / rank) B A            A [rank, I] random, B [O, rank] zero: at first W' is W

A and B of every chosen matrix and the head are trained, about a hundredth of the parameters; optimizer state and
checkpoints are as small. A `LowRank` is a `Model` whose parameters are exactly these:

    model = LowRank(model, rank=8, alpha=16, targets=("query", "value"))
    step = TrainingStep(model, AdamW(model, 1e-3))      # and so on, as with any model
    model.save(folder); model.load_checkpoint(folder)   # only adapters and head, in the layout of `peft`
    plain = model.merge()                               # a model without adapters, with W' instead of W

W' is computed once per pass, at the cost of a few tokens, and the encoder computes with W' only. So merging does not
change a bit of the output. The gradients of A and B are computed from the same dy and x as that of W' would be, by
products no wider than the rank; the gradient of W' itself is never formed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.arrays import Array, Gradients, Layout, ThreadGradients, namespace
from glassbert.errors import CheckpointError, ConfigError
from glassbert.finetuning.low_rank.gradients import (
    Adapter,
    FlatLowRankGradients,
    LowRankGradients,
    ThreadLowRankGradients,
)
from glassbert.layers.scope import Parameter
from glassbert.models.model import Model
from glassbert.models.quantized import QuantizedModel
from glassbert.ops import QuantizedArray, low_rank

# target -> (matrix, index of its part, number of parts stacked in the matrix)
MATRICES = {
    "query": ("attention.qkv", 0, 3),
    "key": ("attention.qkv", 1, 3),
    "value": ("attention.qkv", 2, 3),
    "qkv": ("attention.qkv", 0, 1),
    "output": ("attention.output", 0, 1),
    "up": ("ffn.up", 0, 1),
    "down": ("ffn.down", 0, 1),
}
TARGETS = (*MATRICES, "ffn")  # "ffn" is short for "up" and "down"
FULLY_TRAINED = ("head.", "pooler.")  # prefixes of parameters that are trained without adapters


class LowRank(Model):
    """`model` with adapters. The model itself is shared and never changed; several `LowRank` may use it.

    rank      the rank of the change
    alpha     the change is scaled by alpha / rank, so that the same learning rate suits different ranks
    targets   "query", "key", "value", or "qkv" (all three by one pair A, B); "output" of the attention; "up", "down" or
              "ffn" (both)
    seed      of the random A
    """

    def __init__(
        self,
        model: Model,
        rank: int = 8,
        alpha: float = 16.0,
        targets: Iterable[str] = ("query", "value"),
        seed: int = 0,
    ):
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise ConfigError(f"the rank of adapters must be an integer of at least 1, got {rank!r}")
        if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < float("inf"):
            raise ConfigError(f"alpha must be a number above 0, got {alpha!r}")
        check_plain(model)
        layers = range(model.config.groups)  # layers that share their matrices share the adapters too
        chosen = check_targets(targets)
        self._attach(model, [adapter_of(model, i, target, rank, alpha / rank) for i in layers for target in chosen])
        rng = np.random.default_rng(seed)
        for adapter in self.all_adapters:
            inputs = self.layout.shapes[adapter.a][1]
            self.parameters[adapter.a] = self.engine.array(rng.uniform(-1, 1, (rank, inputs)) / inputs**0.5)

    def _attach(self, model: Model, adapters: list[Adapter]) -> None:
        """Initialise this model: these adapters with A and B zero, and a copy of the head of `model`."""
        self.base = model
        self.config, self.engine, self.head = model.config, model.engine, model.head
        self.training, self.checkpointing = model.training, model.checkpointing
        self.dropout_seed, self.carried_fields = model.dropout_seed, model.carried_fields
        self.adapters: dict[str, list[Adapter]] = {}
        self.specification = []
        for adapter in adapters:
            self.adapters.setdefault(adapter.weight, []).append(adapter)
            rows, inputs = adapter.rows.stop - adapter.rows.start, model.layout.shapes[adapter.weight][1]
            self.specification.append(Parameter(adapter.a, (adapter.rank, inputs), "weight"))
            self.specification.append(Parameter(adapter.b, (rows, adapter.rank), "zeros"))
        self.specification += [p for p in model.specification if p.name.startswith(FULLY_TRAINED)]
        self.layout = Layout({parameter.name: parameter.shape for parameter in self.specification})
        self.parameters = self.engine.parameters(self.layout)
        self.encoder = model.encoder
        self._prepare_sharing()
        for name in self.fully_trained:
            self.parameters[name] = self.engine.array(np.array(self.engine.to_numpy(model.parameters[name])))
        changing = {*self.fully_trained, *self.adapters}
        frozen = {name: value for name, value in model.parameters.items() if name not in changing}
        self._frozen = self.engine.for_computing(frozen)

    @property
    def all_adapters(self) -> list[Adapter]:
        return [adapter for adapters in self.adapters.values() for adapter in adapters]

    @property
    def fully_trained(self) -> list[str]:
        """The names of the parameters that are trained without adapters: those of the head."""
        return [name for name in self.layout.shapes if name.startswith(FULLY_TRAINED)]

    # ---- forward and backward ---------------------------------------------------------------------------------------

    def weights(self, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """The parameters that differ from the base model: the adapted matrices W' and the head."""
        changed = {name: parameters[name] for name in self.fully_trained}
        for name, adapters in self.adapters.items():
            weight, parts, done = self.base.parameters[name], [], 0
            if isinstance(weight, QuantizedArray):  # the codes stay as they are, and the product has one more term
                changes = [(one.rows, parameters[one.a], parameters[one.b], one.scale) for one in adapters]
                changed[name] = weight.with_changes(changes)
                continue
            for adapter in sorted(adapters, key=lambda one: one.rows.start):
                if adapter.rows.start > done:
                    parts.append(weight[done : adapter.rows.start])
                a, b = parameters[adapter.a], parameters[adapter.b]
                parts.append(low_rank(weight[adapter.rows], a, b, adapter.scale)[0])
                done = adapter.rows.stop
            if done < weight.shape[0]:
                parts.append(weight[done:])
            changed[name] = parts[0] if len(parts) == 1 else namespace(weight).concatenate(parts)
        return changed

    def computing(self, parameters: Mapping[str, Array]) -> Mapping[str, Array]:
        return {**self._frozen, **self.engine.for_computing({**parameters, **self.weights(parameters)})}

    def new_gradients(self) -> Gradients:
        if self.engine.compiles:
            return LowRankGradients(self.layout, self.adapters)
        return FlatLowRankGradients(self.layout, self.engine.dtype, self.adapters)

    def new_thread_gradients(self) -> ThreadGradients:
        own = {name: shape for name, shape in self.layout.shapes.items() if not name.startswith(FULLY_TRAINED)}
        return ThreadLowRankGradients(Layout(own), self.engine.dtype, self.adapters)

    # ---- without adapters, and in files -----------------------------------------------------------------------------

    def merge(self) -> Model:
        """A model without adapters, with its own copy of the weights. Its output is the same bit by bit.

        Over a quantised model it is one of floats, whose output is the same up to rounding.
        """
        plain = self.base.in_floats() if isinstance(self.base, QuantizedModel) else copy.copy(self.base)
        plain.parameters = self.engine.parameters(plain.layout)
        plain._prepare_sharing()
        plain.training, plain.checkpointing = self.training, self.checkpointing
        plain.dropout_seed, plain.carried_fields = self.dropout_seed, self.carried_fields
        for name, value in {**self.base.parameters, **self.weights(self.parameters)}.items():
            quantized = isinstance(value, QuantizedArray)
            plain.parameters[name] = self.engine.array(np.array(value)) if quantized else value
        return plain

    def save(self, folder: str | Path, **options: Any) -> None:
        """Write only adapters and head, in the layout of `peft`. `merge().save(folder)` writes the whole model."""
        from glassbert.finetuning.low_rank.files import save_adapters

        save_adapters(self, folder, **options)

    def load_checkpoint(self, folder: str | Path) -> None:
        """Load adapters and head that `save` wrote; if one does not fit, the model is unchanged."""
        from glassbert.finetuning.low_rank.files import load_adapters

        load_adapters(self, folder)

    @classmethod
    def load(cls, model: Model, folder: str | Path) -> LowRank:
        """`model` with the adapters of a folder that GlassBERT or `peft` wrote; they can be trained further."""
        from glassbert.finetuning.low_rank.files import open_adapters

        return open_adapters(model, folder)

    def to_huggingface(self, tensors: Mapping[str, Array] | None = None) -> dict[str, np.ndarray]:
        if tensors is not None:
            raise CheckpointError("adapters have names only in `peft`; save() writes them")
        return self.merge().to_huggingface()

    # ---- views ------------------------------------------------------------------------------------------------------

    @property
    def token_embeddings(self) -> Array:
        return self.base.token_embeddings

    @property
    def position_embeddings(self) -> Array | None:
        return self.base.position_embeddings

    def __repr__(self) -> str:
        targets = ", ".join(dict.fromkeys(adapter.target for adapter in self.all_adapters))
        trained = f"{self.get_parameter_count():,} of {self.base.get_parameter_count():,} parameters are trained"
        return f"LowRank({targets}; {trained}; {self.base!r})"


def check_plain(model: Model) -> None:
    if isinstance(model, LowRank):
        raise ConfigError("this model already has adapters; merge() them first")


def check_targets(targets: Iterable[str]) -> list[str]:
    """The checked list of targets, with "ffn" expanded; a matrix may occur only once."""
    named = [targets] if isinstance(targets, str) else list(targets)
    for target in named:
        if target not in TARGETS:
            raise ConfigError(f"there is no matrix {target!r} to adapt; choose among {', '.join(TARGETS)}")
    chosen = [one for target in named for one in (("up", "down") if target == "ffn" else (target,))]
    if not chosen:
        raise ConfigError(f"targets is empty; choose among {', '.join(TARGETS)}")
    if len(set(chosen)) < len(chosen) or ("qkv" in chosen and {"query", "key", "value"} & set(chosen)):
        raise ConfigError(f"the targets {', '.join(named)} name a matrix twice")
    return chosen


def adapter_of(model: Model, layer: int, target: str, rank: int, scale: float) -> Adapter:
    matrix, part, parts = MATRICES[target]
    weight = f"layers.{layer}.{matrix}.weight"
    rows = model.layout.shapes[weight][0] // parts
    name = f"layers.{layer}.low_rank.{target}"
    return Adapter(target, weight, slice(part * rows, (part + 1) * rows), rank, scale, f"{name}.a", f"{name}.b")
