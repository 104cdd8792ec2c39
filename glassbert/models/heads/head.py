"""What every head can do, and heads made of several parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from glassbert.engines.namespace import Array
from glassbert.errors import ConfigError, InputError
from glassbert.layers.parameters import Parameter, inside
from glassbert.layers.scope import Scope
from glassbert.models.config import EncoderConfig
from glassbert.models.heads.decoding import DECODERS
from glassbert.models.heads.losses import LossOptions, criterion
from glassbert.models.inputs import as_array


class Head(ABC):
    """What every head can do; `scope` carries parameters, cache and gradients under the name `head`."""

    kind: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("labels",)  # what a batch must bring besides its tokens
    told: ClassVar[str] = "mask"  # what it is given besides hidden states: "mask", which tokens are real, or "windows"
    pools: ClassVar[bool] = False  # whether it looks through the pooler, where the config has one
    labelled: ClassVar[bool] = False  # whether the user says how many labels there are
    own_labels: ClassVar[int] = 0  # how many there are where the user does not
    losses: ClassVar[tuple[str, ...]] = ("cross_entropy",)  # what it can be trained with, the usual one first
    takes_loss_options: ClassVar[bool] = False
    flattens: ClassVar[bool] = False  # whether it may read all tokens side by side instead of one pooled vector
    default_pooling: ClassVar[str | None] = None  # of a fresh head, where it prefers one

    def __init__(
        self,
        config: EncoderConfig,
        num_labels: int = 0,
        loss: str | None = None,
        loss_options: Mapping[str, Any] | None = None,
    ):
        self.config = config
        self.num_labels = num_labels
        self.loss_name = loss or self.usual_loss
        if self.loss_name not in self.losses:
            raise ConfigError(f"unknown loss {loss!r} of a {self.kind} head; choose one of {', '.join(self.losses)}")
        if loss_options and not self.takes_loss_options:
            raise ConfigError(f"the loss of a {self.kind} head has no options, so leave {', '.join(loss_options)} out")
        self.loss_options = LossOptions.of(loss_options or {}, self.loss_name, self.outputs)
        self.criterion = criterion(self.loss_name, self.loss_options)

    @property
    def usual_loss(self) -> str:
        return self.losses[0]

    @property
    def outputs(self) -> int:
        """How many numbers the head gives for each thing that it answers about."""
        return self.num_labels

    @property
    def parts(self) -> dict[str, HeadPart]:
        """The heads that answer, by their kind, each with its place in the names; most heads are one part."""
        return {self.kind: HeadPart(self, "")}

    @abstractmethod
    def parameters(self) -> list[Parameter]: ...

    def prepare(self, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        """Checked answers as the arrays that `answer` takes; `given` holds what the caller brought, or None."""
        for name, labels in given.items():
            if labels is not None and name not in self.needs:
                raise InputError(f"a {self.kind} head takes {' and '.join(self.needs)}, so leave {name} out")
        return self.prepare_labels(as_array("labels", given["labels"]), shape)

    @abstractmethod
    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        """Checked labels as the arrays that `loss` takes."""

    @abstractmethod
    def forward(
        self, hidden: Array, mask: Array | None, at: Scope, source: Any, rows: Array | None = None
    ) -> Array: ...

    @abstractmethod
    def backward(self, doutput: Array, at: Scope) -> Array: ...

    def loss(self, output: Array, targets: Array, at: Scope) -> Array:
        rows = output.reshape(-1, output.shape[-1]) if self.loss_name == "cross_entropy" else output
        overwrite = {"overwrite": not at.cache.trace} if self.criterion.overwrites else {}
        loss, cache = self.criterion.forward(rows, targets, **overwrite)
        at.keep("loss.cache", cache)
        at.keep("loss.shape", output.shape)
        return at.note("loss", loss)

    def loss_backward(self, dloss: Array, at: Scope) -> Array:
        doutput = self.criterion.backward(dloss, at["loss.cache"])
        return doutput.reshape(at["loss.shape"])

    def decode(self, output: np.ndarray) -> np.ndarray:
        """The output in the user's terms: probabilities, or values in the units of the labels."""
        return DECODERS[self.loss_name](np.asarray(output, np.float64), self.loss_options)

    def answer(
        self,
        hidden: Array,
        mask: Array | None,
        answers: Mapping[str, Array],
        at: Scope,
        source: Any = None,
        before_loss: Callable[[Array, Array], Array] | None = None,
    ) -> Array:
        """From hidden states straight to the loss.

        `before_loss` sees the output and the targets, and returns the targets that count.
        """
        output, targets = self.forward(hidden, mask, at, source, answers.get("rows")), answers["targets"]
        at.keep("dtype", output.dtype)
        return self.loss(output, targets if before_loss is None else before_loss(output, targets), at)

    def answer_backward(self, dloss: Array, at: Scope) -> Array:
        """The gradient at the hidden states, with the loss weighted by `dloss`."""
        doutput, dtype = self.loss_backward(dloss, at), at["dtype"]
        return self.backward(doutput if doutput.dtype == dtype else doutput.astype(dtype), at)


class HeadPart(NamedTuple):
    """A head inside a head; `place` is the part of its names that the others have not, "" for none."""

    head: Head
    place: str

    def parameters(self) -> list[Parameter]:
        return inside(self.place, self.head.parameters()) if self.place else self.head.parameters()

    def scope(self, at: Scope) -> Scope:
        return at.inside(self.place) if self.place else at

    def own(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        """What `PretrainingHead.prepare` made for this part, under the names that the part knows."""
        start = f"{self.place}." if self.place else ""
        mine = [name for name in answers if name.startswith(start) and ("." in name) == bool(start)]
        return {name.removeprefix(start): answers[name] for name in mine}
