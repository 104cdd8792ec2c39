"""The base class of heads, the transform that many heads begin with, and heads made of several parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.errors import ConfigError, InputError
from glassbert.layers.scope import Parameter, Scope, linear_parameters, norm_parameters, with_prefix
from glassbert.models.config import EncoderConfig
from glassbert.models.heads.losses import DECODERS, LossOptions, criterion
from glassbert.models.inputs import as_array


class Head(ABC):
    """From hidden states to an output, and from the gradient of the output back to the hidden states.

    A head of one's own overrides `parameters`, `prepare_labels`, `forward` and `backward`.
    """

    kind: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("labels",)  # the targets that a batch must have
    pools: ClassVar[bool] = False  # whether it uses the pooler, where the config has one
    labelled: ClassVar[bool] = False  # whether the user gives the number of labels
    own_labels: ClassVar[int] = 0  # the number of labels where the user does not
    losses: ClassVar[tuple[str, ...]] = ("cross_entropy",)  # the losses it can be trained with, the default first
    takes_loss_options: ClassVar[bool] = False
    flattens: ClassVar[bool] = False  # whether it may read all tokens side by side instead of one pooled vector
    default_pooling: ClassVar[str | None] = None  # of a new head, where it has one
    pairs: ClassVar[bool] = False  # whether the loss takes two consecutive rows as a pair
    donates_output: ClassVar[bool] = False  # whether the loss may overwrite the output

    def __init__(
        self,
        config: EncoderConfig,
        num_labels: int = 0,
        loss: str | None = None,
        loss_options: Mapping[str, Any] | None = None,
    ):
        self.config = config
        self.num_labels = num_labels
        self.loss_name = loss or self.default_loss
        if self.loss_name not in self.losses:
            raise ConfigError(f"unknown loss {loss!r} of a {self.kind} head; choose one of {', '.join(self.losses)}")
        if loss_options and not self.takes_loss_options:
            raise ConfigError(f"the loss of a {self.kind} head has no options, so leave {', '.join(loss_options)} out")
        self.loss_options = LossOptions.of(loss_options or {}, self.loss_name, self.outputs)
        self.criterion = criterion(self.loss_name, self.loss_options)
        self.parts: dict[str, HeadPart] = {self.kind: HeadPart(self, "")}  # most heads are one part

    @property
    def default_loss(self) -> str:
        return self.losses[0]

    @property
    def outputs(self) -> int:
        """The number of outputs for each token or sequence."""
        return self.num_labels

    @abstractmethod
    def parameters(self) -> list[Parameter]: ...

    def prepare(self, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        """Checked targets as arrays; `given` maps each kind of labels to what the caller gave, or None."""
        for name, labels in given.items():
            if labels is not None and name not in self.needs:
                raise InputError(f"a {self.kind} head takes {' and '.join(self.needs)}, so leave {name} out")
        return self.prepare_labels(as_array("labels", given["labels"]), shape)

    @abstractmethod
    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        """Checked labels as arrays: "targets", and "rows" where only some rows are scored."""

    @abstractmethod
    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        """The output. `batch` has the mask and other inputs; `rows` chooses the rows to score."""

    @abstractmethod
    def backward(self, doutput: Array, scope: Scope) -> Array:
        """The gradient at the hidden states."""

    @staticmethod
    def join_pairs(first: Array, second: Array) -> Array:
        """The gradients of the two rows of every pair, side by side as the rows were."""
        return namespace(first).stack([first, second], 1)

    def decode(self, output: np.ndarray) -> np.ndarray:
        """The output as probabilities, or as values in the units of the labels."""
        return DECODERS[self.loss_name](np.asarray(output, np.float64), self.loss_options)


class HeadPart(NamedTuple):
    """A head inside a head; `name` is the part of its names that the others have not, "" for none."""

    head: Head
    name: str

    def parameters(self) -> list[Parameter]:
        return with_prefix(self.name, self.head.parameters()) if self.name else self.head.parameters()

    def own(self, targets: Mapping[str, Any]) -> dict[str, Any]:
        """The targets that were prepared for this part, under the names that the part uses."""
        start = f"{self.name}." if self.name else ""
        mine = [name for name in targets if name.startswith(start) and ("." in name) == bool(start)]
        return {name.removeprefix(start): targets[name] for name in mine}


class TransformedHead(Head):
    """Heads that begin with dense, activation and norm: BERT's MLM head and all heads of ModernBERT."""

    @property
    def transformed(self) -> bool:
        return self.config.classifier_transform

    @property
    def transform_size(self) -> int:
        return self.config.hidden_size

    def transform_parameters(self) -> list[Parameter]:
        if not self.transformed:
            return []
        return [
            *linear_parameters("transform", self.config.hidden_size, self.transform_size, self.config.head_bias),
            *norm_parameters("norm", self.transform_size, self.config.norm_bias),
        ]

    def transform(self, x: Array, scope: Scope) -> Array:
        if not self.transformed:
            return x
        hidden = scope.record("transform.hidden", scope.linear(x, "transform"), ())
        activated = scope.run(self.config.activation, "transform.activation", hidden)
        return scope.norm(activated, "norm", self.config.layer_norm_eps)

    def transform_backward(self, dx: Array, scope: Scope) -> Array:
        if not self.transformed:
            return dx
        dx = scope.run_backward("transform.activation", scope.norm_backward(dx, "norm"))
        return scope.linear_backward(dx, "transform")
