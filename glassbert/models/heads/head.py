"""The base class of heads, the transform of many heads, heads made of several parts, and the checks of labels."""

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
from glassbert.ops import IGNORED

SMALLEST_MULTIPLE = 64
PADDING_BITS = 5  # rows are padded by at most 1/32, or to a multiple of SMALLEST_MULTIPLE


class Head(ABC):
    """Computes an output from hidden states, and the gradient at the hidden states from that of the output.

    A custom head overrides `parameters`, `prepare_labels`, `forward` and `backward`.
    """

    kind: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("labels",)  # the targets that a batch must have
    pools: ClassVar[bool] = False  # whether it uses the pooler, if the config has one
    labelled: ClassVar[bool] = False  # whether `num_labels` is given by the user
    own_labels: ClassVar[int] = 0  # `num_labels` otherwise
    losses: ClassVar[tuple[str, ...]] = ("cross_entropy",)  # possible losses, the default first
    takes_loss_options: ClassVar[bool] = False
    flattens: ClassVar[bool] = False  # whether it may use all tokens concatenated instead of pooling
    default_pooling: ClassVar[str | None] = None  # pooling of a new head; None: no pooling, or that of the config
    uses_mask_decoder: ClassVar[bool] = False  # whether a mask decoder computes the hidden states, where there is one
    decodes: ClassVar[bool] = False  # whether it scores the vocabulary, with a decoder that may be tied
    scored_share: ClassVar[float] = 1.0  # of the tokens that a decoder scores in training
    fits: ClassVar[Mapping[str, Any]] = {}  # fields of the config that an encoder under it must have
    reads_segments: ClassVar[bool] = False  # whether it needs segment_ids
    pairs: ClassVar[bool] = False  # whether the loss treats consecutive rows as pairs
    task: ClassVar[str] = ""  # the kind of prediction of a head of an extension: "multiclass", "regression", ...
    donates_output: ClassVar[bool] = False  # whether the loss may overwrite the output
    scores_tokens: ClassVar[bool] = False  # whether it has a transform and one score for every token
    head_of_generator: ClassVar[str] = ""  # of a model (`config.generator()`) that is trained inside

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
        self.parts: dict[str, HeadPart] = {self.kind: HeadPart(self, "")}  # one part, unless a subclass replaces it

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
        """Checked targets as arrays; `given` maps "labels" and "pair_labels" to the caller's arrays, or None."""
        for name, labels in given.items():
            if labels is not None and name not in self.needs:
                raise InputError(f"a {self.kind} head takes {' and '.join(self.needs)}, so leave {name} out")
        return self.prepare_labels(as_array("labels", given["labels"]), shape)

    @abstractmethod
    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        """Checked labels as arrays: "targets", and "rows" if only some rows are scored."""

    @abstractmethod
    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Array:
        """The output. `batch` has the mask and other inputs; `rows` selects the rows to score.

        hidden is [B, T, H]; where `rows_read` names tokens, it may be [M, H], these tokens alone.
        """

    @abstractmethod
    def backward(self, doutput: Array, scope: Scope) -> Array:
        """The gradient at the hidden states."""

    def rows_read(self, batch: Any, rows: Array | None) -> Array | None:
        """The tokens whose hidden states `forward` reads, as indices into [B · T], ascending; None: all of them.

        A subclass with a `forward` of its own may read others, so heads answer for their own `forward` alone.
        """
        return None

    @classmethod
    def tokens_read(cls, config: EncoderConfig, batch: int, length: int, scored_rows: int | None) -> int:
        """The number of tokens that `rows_read` names, where `scored_rows` tokens have a target (None: all)."""
        return batch * length

    @classmethod
    def flops(
        cls, config: EncoderConfig, batch: int, length: int, num_labels: int = 0, scored_rows: int | None = None
    ) -> dict[str, int]:
        """Operations of its matrix products in a forward, by name (`glassbert.models.flops`)."""
        return {}

    # ---- heads that hold more than a head (`glassbert.models.heads.rtd`) -----------------------------------------

    encoder_aliases: ClassVar[Mapping[str, str]] = {}  # names of the encoder's parameters -> those in their place

    def encoder_parameters(self) -> list[Parameter]:
        """Parameters that the head adds to the encoder."""
        return []

    def encoders(self) -> list[Any]:
        """Encoders inside the head."""
        return []

    def computing(self, parameters: Mapping[str, Array]) -> Mapping[str, Array]:
        """The parameters that a pass computes with."""
        return parameters

    def finished(self, model: Any) -> dict[str, Any]:
        """What is kept of a trained model: models by the name of their folder, "" for the main one.

        The projection to the width of a teacher is not: it only served the training.
        """
        if model.config.teacher_size is None:
            return {"": model}
        return {"": model.with_config(model.config.replace(teacher_size=None))}

    def join_pairs(self, first: Array, second: Array) -> Array:
        """The gradients of the rows, from those of the first and second rows of all pairs."""
        return namespace(first).stack([first, second], 1)

    def decode(self, output: np.ndarray) -> np.ndarray:
        """The output as probabilities, or as values in the units of the labels."""
        return DECODERS[self.loss_name](np.asarray(output, np.float64), self.loss_options)


class HeadPart(NamedTuple):
    """A head inside a head; `name` is the prefix of its parameters and targets, or ""."""

    head: Head
    name: str

    def parameters(self) -> list[Parameter]:
        return with_prefix(self.name, self.head.parameters()) if self.name else self.head.parameters()

    def select_targets(self, targets: Mapping[str, Any]) -> dict[str, Any]:
        """The targets of this part, without its prefix."""
        prefix = f"{self.name}." if self.name else ""
        names = [name for name in targets if name.startswith(prefix) and ("." in name) == bool(prefix)]
        return {name.removeprefix(prefix): targets[name] for name in names}


class TransformedHead(Head):
    """A head that starts with dense, activation and norm: BERT's MLM head and all heads of ModernBERT."""

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


# ---- checks of labels ------------------------------------------------------------------------------------------------


def integer_labels(labels: np.ndarray, shape: tuple[int, ...], limit: int, of_what: str) -> np.ndarray:
    """Check integers of this shape, from 0 to `limit` - 1 or -100; `of_what` names the range in the error."""
    labels = np.asarray(labels)
    if labels.shape != shape:
        raise InputError(f"labels must have the shape {shape}, got {labels.shape}")
    if labels.dtype.kind not in "iu":
        raise InputError(f"labels must be integers, got {labels.dtype}")
    wrong = (labels != IGNORED) & ((labels < 0) | (labels >= limit))
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InputError(
            f"label {int(labels[index])} at {index} is outside {of_what} (0 to {limit - 1}; -100 means ignored)"
        )
    return labels


def number_labels(labels: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Check finite numbers [rows, columns] and return float64; a single column may be given as [rows]."""
    labels = np.asarray(labels)
    if labels.shape == (rows,) and columns == 1:
        labels = labels[:, None]
    if labels.shape != (rows, columns):
        raise InputError(f"labels must have the shape {(rows, columns)}, got {labels.shape}")
    if labels.dtype.kind not in "biuf":
        raise InputError(f"labels must be numbers, got {labels.dtype}")
    numbers = labels.astype(np.float64)
    if not np.isfinite(numbers).all():
        row = int(np.argwhere(~np.isfinite(numbers))[0][0])
        raise InputError(f"the label of row {row} is not a finite number")
    return numbers


def pad_rows(prepared: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Pad the scored rows with ignored ones to a multiple of a power of two.

    A step is compiled once for each number of rows. The multiple grows with the number of rows, so that a changing
    masking rate causes few compilations.
    """
    if "rows" not in prepared:
        return prepared
    count = len(prepared["rows"])
    multiple = max(SMALLEST_MULTIPLE, 1 << max(0, (count - 1).bit_length() - 1 - PADDING_BITS))
    wanted = max(1, -(-count // multiple)) * multiple
    rows = np.zeros(wanted, prepared["rows"].dtype)
    targets = np.full(wanted, IGNORED, prepared["targets"].dtype)
    rows[:count], targets[:count] = prepared["rows"], prepared["targets"]
    return {**prepared, "rows": rows, "targets": targets}
