"""Heads: from hidden states to an answer, and from the answer's error back to the hidden states.

A head is a small class with four methods over plain arrays: `forward`, `backward`, `loss`, `loss_backward`. The masked
language model scores only the rows that were masked, which is most of what makes training fast. A head may have parts
that answer different questions about the same hidden states: BERT was pretrained on masked words and sentence pairs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from glassbert.engines.namespace import Array
from glassbert.errors import ConfigError, InputError
from glassbert.layers.basics import dense, dense_backward, drop, drop_backward, norm, norm_backward
from glassbert.layers.parameters import Parameter, inside, linear_parameters, norm_parameters
from glassbert.layers.scope import Scope
from glassbert.models.config import EncoderConfig
from glassbert.models.inputs import as_array
from glassbert.ops import (
    ACTIVATIONS,
    IGNORED,
    binary_cross_entropy,
    binary_cross_entropy_backward,
    cls_pool,
    cls_pool_backward,
    cross_entropy,
    cross_entropy_backward,
    linear,
    linear_backward,
    mean_pool,
    mean_pool_backward,
    mean_squared_error,
    mean_squared_error_backward,
    take_rows,
    take_rows_backward,
    tanh,
    tanh_backward,
)

LOSSES = {
    "cross_entropy": (cross_entropy, cross_entropy_backward),
    "binary_cross_entropy": (binary_cross_entropy, binary_cross_entropy_backward),
    "mean_squared_error": (mean_squared_error, mean_squared_error_backward),
}
POOLINGS = {"cls": (cls_pool, cls_pool_backward), "mean": (mean_pool, mean_pool_backward)}
MASKED_ROWS_MULTIPLE = 64  # a compiled step is compiled once for each number of rows: few numbers, few compilations


class Head(ABC):
    """What every head can do; `scope` carries parameters, cache and gradients under the name `head`."""

    kind: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("labels",)  # what a batch must bring besides its tokens
    pools: ClassVar[bool] = False  # whether it looks through the pooler, where the config has one
    loss_name = "cross_entropy"

    def __init__(self, config: EncoderConfig, num_labels: int = 0):
        self.config = config
        self.num_labels = num_labels

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
        forward = LOSSES[self.loss_name][0]
        if self.loss_name == "cross_entropy":
            loss, cache = forward(output.reshape(-1, output.shape[-1]), targets, overwrite=not at.cache.trace)
        else:
            loss, cache = forward(output, targets)
        at.keep("loss.cache", cache)
        at.keep("loss.shape", output.shape)
        return at.note("loss", loss)

    def loss_backward(self, dloss: Array, at: Scope) -> Array:
        doutput = LOSSES[self.loss_name][1](dloss, at["loss.cache"])
        return doutput.reshape(at["loss.shape"])

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


class TransformedHead(Head):
    """Heads that begin with dense, activation and norm: BERT's MLM head and all heads of ModernBERT."""

    transformed = True

    def transform_parameters(self) -> list[Parameter]:
        size = self.config.hidden_size
        if not self.transformed:
            return []
        return [
            *linear_parameters("transform", size, size, self.config.head_bias),
            *norm_parameters("norm", size, self.config.norm_bias),
        ]

    def transform(self, x: Array, at: Scope) -> Array:
        if not self.transformed:
            return x
        at.keep("transform.x", x)
        hidden = at.keep("transform.hidden", dense(x, at, "transform"))
        activated, cache = ACTIVATIONS[self.config.activation][0](hidden)
        at.keep("transform.cache", cache)
        return norm(activated, at, "norm", self.config.layer_norm_eps)

    def transform_backward(self, dx: Array, at: Scope) -> Array:
        if not self.transformed:
            return dx
        dx = norm_backward(dx, at, "norm")
        dx = ACTIVATIONS[self.config.activation][1](dx, at["transform.hidden"], at["transform.cache"])
        return dense_backward(dx, at["transform.x"], at, "transform")


class MaskedLanguageHead(TransformedHead):
    """Which word was here? A score for every entry of the vocabulary, by a table that may be the embeddings' own."""

    kind = "mlm"

    @property
    def transformed(self) -> bool:  # type: ignore[override]
        return self.config.head_transform

    @property
    def table(self) -> str:
        return "embeddings.token" if self.config.tie_word_embeddings else "head.decoder.weight"

    def parameters(self) -> list[Parameter]:
        config = self.config
        parameters = self.transform_parameters()
        if not config.tie_word_embeddings:
            parameters.append(Parameter("decoder.weight", (config.vocab_size, config.hidden_size), "weight"))
        if config.decoder_bias:
            parameters.append(Parameter("decoder.bias", (config.vocab_size,), "zeros"))
        return parameters

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        labels = _integer_labels(labels, shape, self.config.vocab_size, "the vocabulary")
        rows = np.flatnonzero(labels.reshape(-1) != IGNORED)
        return {"rows": rows, "targets": labels.reshape(-1)[rows]}

    def forward(self, hidden: Array, mask: Array | None, at: Scope, source: Any, rows: Array | None = None) -> Array:
        at.keep("rows", rows)
        at.keep("shape", hidden.shape)
        x = hidden if rows is None else take_rows(hidden, rows)  # [B, T, H] or [M, H]
        x = at.keep("decoder.x", self.transform(x, at))
        return at.note("logits", linear(x, at.parameters[self.table], at.optional("decoder.bias")))

    def backward(self, doutput: Array, at: Scope) -> Array:
        assert at.gradients is not None
        at.note("d_logits", doutput)
        has_bias = at.optional("decoder.bias") is not None
        places = (at.gradients.place(self.table), at.place("decoder.bias") if has_bias else None)
        dx, dtable, dbias = linear_backward(doutput, at["decoder.x"], at.parameters[self.table], has_bias, places)
        at.gradients.add(self.table, dtable)
        at.add("decoder.bias", dbias)
        dx = self.transform_backward(dx, at)
        return dx if at["rows"] is None else take_rows_backward(dx, at["rows"], at["shape"])


class TokenHead(TransformedHead):
    """A label for every token."""

    kind = "token"

    @property
    def transformed(self) -> bool:  # type: ignore[override]
        return self.config.family == "modernbert"

    def parameters(self) -> list[Parameter]:
        classifier = linear_parameters("classifier", self.config.hidden_size, self.num_labels, True)
        return [*self.transform_parameters(), *classifier]

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        return {"targets": _integer_labels(labels, shape, self.num_labels, "the labels").reshape(-1)}

    def forward(self, hidden: Array, mask: Array | None, at: Scope, source: Any, rows: Array | None = None) -> Array:
        x = drop(self.transform(hidden, at), at, "dropout", self.config.classifier_dropout, source)
        at.keep("classifier.x", x)
        return at.note("logits", dense(x, at, "classifier"))

    def backward(self, doutput: Array, at: Scope) -> Array:
        at.note("d_logits", doutput)
        dx = dense_backward(doutput, at["classifier.x"], at, "classifier")
        return self.transform_backward(drop_backward(dx, at, "dropout", self.config.classifier_dropout), at)


class SequenceHead(TransformedHead):
    """A label, several labels or a number for the whole sequence."""

    kind = "sequence"
    pools = True

    def __init__(self, config: EncoderConfig, num_labels: int, loss: str | None = None):
        super().__init__(config, num_labels)
        self.loss_name = loss or ("mean_squared_error" if num_labels == 1 else "cross_entropy")
        if self.loss_name not in LOSSES:
            raise ConfigError(f"unknown loss {loss!r}; choose one of {', '.join(LOSSES)}")

    @property
    def transformed(self) -> bool:  # type: ignore[override]
        return self.config.family == "modernbert"

    @property
    def pooling(self) -> str:
        return self.config.classifier_pooling

    @property
    def dropout(self) -> float:
        return self.config.classifier_dropout

    def parameters(self) -> list[Parameter]:
        classifier = linear_parameters("classifier", self.config.hidden_size, self.num_labels, True)
        return [*self.transform_parameters(), *classifier]

    def prepare_labels(self, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        labels = np.asarray(labels)
        if self.loss_name == "cross_entropy":
            return {"targets": _integer_labels(labels, (shape[0],), self.num_labels, "the labels")}
        wanted = (shape[0], self.num_labels)
        if labels.shape == (shape[0],) and self.num_labels == 1:
            labels = labels[:, None]
        if labels.shape != wanted:
            raise InputError(f"labels must have the shape {wanted}, got {labels.shape}")
        if labels.dtype.kind not in "biuf":
            raise InputError(f"labels must be numbers, got {labels.dtype}")
        if not np.isfinite(labels.astype(np.float64)).all():
            row = int(np.argwhere(~np.isfinite(labels.astype(np.float64)))[0][0])
            raise InputError(f"the label of row {row} is not a finite number")
        if self.loss_name == "binary_cross_entropy":
            known = labels[labels != IGNORED]
            if known.size and (known.min() < 0 or known.max() > 1):
                raise InputError("labels of a binary or multi-label head must lie in [0, 1] (or be -100, ignored)")
        return {"targets": labels.astype(np.float64)}

    def forward(self, hidden: Array, mask: Array | None, at: Scope, source: Any, rows: Array | None = None) -> Array:
        at.keep("shape", hidden.shape)
        pooled, pool_cache = POOLINGS[self.pooling][0](hidden, mask)  # [B, H]
        at.keep("pool.cache", pool_cache)
        at.note("pooled", pooled)
        if self.config.pooler:
            pooled = pooler(pooled, at.outermost())
        x = drop(self.transform(pooled, at), at, "dropout", self.dropout, source)
        at.keep("classifier.x", x)
        return at.note("logits", dense(x, at, "classifier"))  # [B, labels]

    def backward(self, doutput: Array, at: Scope) -> Array:
        at.note("d_logits", doutput)
        dx = dense_backward(doutput, at["classifier.x"], at, "classifier")
        dx = self.transform_backward(drop_backward(dx, at, "dropout", self.dropout), at)
        if self.config.pooler:
            dx = pooler_backward(dx, at.outermost())
        at.note("d_pooled", dx)
        return POOLINGS[self.pooling][1](dx, at["shape"], at["pool.cache"])


class PairHead(SequenceHead):
    """Do these two sentences belong together? BERT's second question: [CLS] through the pooler, and two scores.

    Label 0 means that they do: the second follows the first, and (for sentence order) in this order.
    """

    kind = "pair"
    needs = ("pair_labels",)
    pooling = "cls"
    dropout = 0.0

    def __init__(self, config: EncoderConfig):
        super().__init__(config, 2, "cross_entropy")


class PretrainingHead(Head):
    """Both questions of BERT's pretraining at once: the masked words, and whether two sentences belong together.

    Its output is a mapping from the part's kind to that part's scores, and its loss the sum of the two losses. Training
    with weights asks the parts one by one (`glassbert.training.objectives`).
    """

    kind = "pretraining"
    needs = ("labels", "pair_labels")
    pools = True

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        self._parts = {"mlm": HeadPart(MaskedLanguageHead(config), ""), "pair": HeadPart(PairHead(config), "pair")}

    @property
    def parts(self) -> dict[str, HeadPart]:
        return self._parts

    def parameters(self) -> list[Parameter]:
        return [parameter for part in self._parts.values() for parameter in part.parameters()]

    def prepare(self, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        if given.get("pair_labels") is None:
            raise InputError(
                "a pretraining head also needs pair_labels: 0 where the two sentences of a row belong together, else 1"
            )
        return self.prepare_labels(given, shape)

    def prepare_labels(self, labels: Any, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        prepared = {}
        for head, place in self._parts.values():
            (need,) = head.needs
            for name, array in head.prepare_labels(as_array(need, labels[need]), shape).items():
                prepared[f"{place}.{name}" if place else name] = array
        return prepared

    def forward(self, hidden: Array, mask: Array | None, at: Scope, source: Any, rows: Array | None = None) -> Any:
        return {
            kind: part.head.forward(hidden, mask, part.scope(at), source, rows if kind == "mlm" else None)
            for kind, part in self._parts.items()
        }

    def backward(self, doutput: Any, at: Scope) -> Array:
        return _sum([part.head.backward(doutput[kind], part.scope(at)) for kind, part in self._parts.items()])

    def answer(
        self,
        hidden: Array,
        mask: Array | None,
        answers: Mapping[str, Array],
        at: Scope,
        source: Any = None,
        before_loss: Callable[[Array, Array], Array] | None = None,
    ) -> Array:
        parts = self._parts.values()
        return _sum([p.head.answer(hidden, mask, p.own(answers), p.scope(at), source, before_loss) for p in parts])

    def answer_backward(self, dloss: Array, at: Scope) -> Array:
        return _sum([part.head.answer_backward(dloss, part.scope(at)) for part in self._parts.values()])


def _sum(terms: list[Array]) -> Array:
    total = terms[0]
    for term in terms[1:]:
        total = total + term.reshape(total.shape)
    return total


def pooler(x: Array, at: Scope) -> Array:
    """BERT's own last step before a classifier: tanh(x Wᵀ + b)."""
    at.keep("pooler.x", x)
    hidden = at.keep("pooler.hidden", dense(x, at, "pooler"))
    output, cache = tanh(hidden)
    at.keep("pooler.cache", cache)
    return at.note("pooler.output", output)


def pooler_backward(dy: Array, at: Scope) -> Array:
    at.note("pooler.d_output", dy)
    return dense_backward(tanh_backward(dy, at["pooler.hidden"], at["pooler.cache"]), at["pooler.x"], at, "pooler")


def pooler_parameters(config: EncoderConfig) -> list[Parameter]:
    return linear_parameters("pooler", config.hidden_size, config.hidden_size, True)


HEADS: dict[str, type[Head]] = {
    head.kind: head for head in (MaskedLanguageHead, TokenHead, SequenceHead, PretrainingHead)
}


def make_head(kind: str, config: EncoderConfig, num_labels: int = 0, loss: str | None = None) -> Head:
    if kind not in HEADS:
        raise ConfigError(f"unknown head {kind!r}; choose one of {', '.join(HEADS)}")
    if kind == "mlm":
        return MaskedLanguageHead(config)
    if kind == "pretraining":
        return PretrainingHead(config)
    if not isinstance(num_labels, int) or num_labels < 1:
        raise ConfigError(f"a {kind} head needs num_labels of at least 1, got {num_labels!r}")
    if kind == "sequence":
        return SequenceHead(config, num_labels, loss)
    return TokenHead(config, num_labels)


def pad_rows(prepared: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Chosen rows filled up to a round number with ignored ones, so that a compiled step fits many batches."""
    if "rows" not in prepared:
        return prepared
    count = len(prepared["rows"])
    wanted = max(1, -(-count // MASKED_ROWS_MULTIPLE)) * MASKED_ROWS_MULTIPLE
    rows = np.zeros(wanted, prepared["rows"].dtype)
    targets = np.full(wanted, IGNORED, prepared["targets"].dtype)
    rows[:count], targets[:count] = prepared["rows"], prepared["targets"]
    return {**prepared, "rows": rows, "targets": targets}


def _integer_labels(labels: np.ndarray, shape: tuple[int, ...], limit: int, of_what: str) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.shape != shape:
        raise InputError(f"labels must have the shape {shape}, got {labels.shape}")
    if labels.dtype.kind not in "iu":
        raise InputError(f"labels must be integers, got {labels.dtype}")
    wrong = (labels != IGNORED) & ((labels < 0) | (labels >= limit))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise InputError(
            f"label {int(labels[place])} at {place} is outside {of_what} (0 to {limit - 1}; -100 means ignored)"
        )
    return labels
