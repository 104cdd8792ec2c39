"""Low-rank adaptation (LoRA): the encoder stands still, and chosen matrices learn a change of low rank.

    W' = W + (alpha / rank) B A            A [rank, I] random, B [O, rank] zero: at first W' is W

What learns is A and B of every chosen matrix, and the head. So an optimizer remembers, and a checkpoint holds, a
hundredth of the model. A `LowRank` is a model like any other, whose parameters are exactly those:

    model = LowRank(model, rank=8, alpha=16, targets=("query", "value"))
    step = TrainingStep(model, AdamW(model, 1e-3))      # and so on, as with any model
    model.save(folder); model.load_checkpoint(folder)   # adapters and head alone, in the layout of `peft`
    plain = model.merge()                               # W' in the place of W: a model without adapters

W' is formed once a pass, which costs as much as a few tokens do, and the encoder computes with it as it is: no thin
products beside every W, and merging changes no bit of what is computed. On the way back A and B learn from the same dy
and x as W' would, by products no wider than the rank; the gradient of W' itself is never formed.
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
from glassbert.ops import low_rank

# target -> (the matrix, which part of how many that are stacked in it)
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
FULLY_TRAINED = ("head.", "pooler.")


class LowRank(Model):
    """`model` with adapters; it is shared, never changed, and may carry several of these.

    rank      how many directions a matrix may learn
    alpha     the change counts alpha / rank: with another rank the same learning rate fits
    targets   "query", "key", "value", or "qkv": all three by one pair A, B; "output" of the attention; "up", "down" or
              "ffn", both of them
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
            raise ConfigError(f"the rank of adapters must be a whole number of at least 1, got {rank!r}")
        if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 0 < alpha < float("inf"):
            raise ConfigError(f"alpha must be a number above 0, got {alpha!r}")
        check_plain(model)
        layers = range(model.config.num_hidden_layers)
        self._attach(model, [adapter_of(model, i, t, rank, alpha / rank) for i in layers for t in checked(targets)])
        rng = np.random.default_rng(seed)
        for adapter in self.all_adapters:
            inputs = self.layout.shapes[adapter.a][1]
            self.parameters[adapter.a] = self.engine.array(rng.uniform(-1, 1, (rank, inputs)) / inputs**0.5)

    def _attach(self, model: Model, adapters: list[Adapter]) -> None:
        """Become a model of these adapters, A and B zero, and of the head of `model`."""
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
        still = {name: value for name, value in model.parameters.items() if name not in changing}
        self._still = self.engine.for_computing(still)

    @property
    def all_adapters(self) -> list[Adapter]:
        return [adapter for adapters in self.adapters.values() for adapter in adapters]

    @property
    def fully_trained(self) -> list[str]:
        """The parameters of the model itself that learn: those of its head."""
        return [name for name in self.layout.shapes if name.startswith(FULLY_TRAINED)]

    # ---- forward and backward ---------------------------------------------------------------------------------------

    def weights(self, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """What differs from the model underneath: the changed matrices, by their names, and the head."""
        changed = {name: parameters[name] for name in self.fully_trained}
        for name, adapters in self.adapters.items():
            weight, parts, done = self.base.parameters[name], [], 0
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
        return {**self._still, **self.engine.for_computing({**parameters, **self.weights(parameters)})}

    def new_gradients(self) -> Gradients:
        if self.engine.compiles:
            return LowRankGradients(self.layout, self.adapters)
        return FlatLowRankGradients(self.layout, self.engine.dtype, self.adapters)

    def new_thread_gradients(self) -> ThreadGradients:
        own = {name: shape for name, shape in self.layout.shapes.items() if not name.startswith(FULLY_TRAINED)}
        return ThreadLowRankGradients(Layout(own), self.engine.dtype, self.adapters)

    # ---- without adapters, and in files -----------------------------------------------------------------------------

    def merge(self) -> Model:
        """A plain model of its own memory that computes what this one does, to the last bit."""
        plain = copy.copy(self.base)
        plain.parameters = self.engine.parameters(plain.layout)
        plain._prepare_sharing()
        plain.training, plain.checkpointing = self.training, self.checkpointing
        plain.dropout_seed, plain.carried_fields = self.dropout_seed, self.carried_fields
        for name, value in {**self.base.parameters, **self.weights(self.parameters)}.items():
            plain.parameters[name] = value
        return plain

    def save(self, folder: str | Path, **options: Any) -> None:
        """Write adapters and head alone, as `peft` does. `merge().save(folder)` writes a whole model."""
        from glassbert.finetuning.low_rank.files import save_adapters

        save_adapters(self, folder, **options)

    def load_checkpoint(self, folder: str | Path) -> None:
        """Take adapters and head that `save` wrote; nothing changes unless all of them fit."""
        from glassbert.finetuning.low_rank.files import load_adapters

        load_adapters(self, folder)

    @classmethod
    def load(cls, model: Model, folder: str | Path) -> LowRank:
        """`model` with the adapters of a folder, written here or by `peft`; they may go on learning."""
        from glassbert.finetuning.low_rank.files import open_adapters

        return open_adapters(model, folder)

    def to_huggingface(self, tensors: Mapping[str, Array] | None = None) -> dict[str, np.ndarray]:
        if tensors is not None:
            raise CheckpointError("adapters have names in `peft` only; save() writes them")
        return self.merge().to_huggingface()

    # ---- looking ----------------------------------------------------------------------------------------------------

    @property
    def token_embeddings(self) -> Array:
        return self.base.token_embeddings

    @property
    def position_embeddings(self) -> Array | None:
        return self.base.position_embeddings

    def __repr__(self) -> str:
        targets = ", ".join(dict.fromkeys(adapter.target for adapter in self.all_adapters))
        learns = f"{self.get_parameter_count():,} of {self.base.get_parameter_count():,} parameters learn"
        return f"LowRank({targets}; {learns}; {self.base!r})"


def check_plain(model: Model) -> None:
    if isinstance(model, LowRank):
        raise ConfigError("this model has adapters already; merge() them first")


def checked(targets: Iterable[str]) -> list[str]:
    """The targets one by one, each matrix once."""
    named = [targets] if isinstance(targets, str) else list(targets)
    for target in named:
        if target not in TARGETS:
            raise ConfigError(f"there is no matrix {target!r} to adapt; choose among {', '.join(TARGETS)}")
    chosen = [one for target in named for one in (("up", "down") if target == "ffn" else (target,))]
    if not chosen:
        raise ConfigError(f"no matrix to adapt was named; choose among {', '.join(TARGETS)}")
    if len(set(chosen)) < len(chosen) or ("qkv" in chosen and {"query", "key", "value"} & set(chosen)):
        raise ConfigError(f"the targets {', '.join(named)} name a matrix twice")
    return chosen


def adapter_of(model: Model, layer: int, target: str, rank: int, scale: float) -> Adapter:
    matrix, part, parts = MATRICES[target]
    weight = f"layers.{layer}.{matrix}.weight"
    rows = model.layout.shapes[weight][0] // parts
    place = f"layers.{layer}.low_rank.{target}"
    return Adapter(target, weight, slice(part * rows, (part + 1) * rows), rank, scale, f"{place}.a", f"{place}.b")
