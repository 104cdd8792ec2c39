"""A head of two parts that answer different questions about the same hidden states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from glassbert.engines.namespace import Array
from glassbert.errors import InputError
from glassbert.layers.parameters import Parameter
from glassbert.layers.scope import Scope
from glassbert.models.config import EncoderConfig
from glassbert.models.heads.head import Head, HeadPart
from glassbert.models.heads.mlm import MaskedLanguageHead
from glassbert.models.heads.sequence import PairHead
from glassbert.models.inputs import as_array


class PretrainingHead(Head):
    """Both questions of BERT's pretraining at once: the masked words, and whether two sentences belong together.

    Its output is a mapping from the part's kind to that part's scores, and its loss the sum of the two losses. Training
    with weights asks the parts one by one (`glassbert.training.objectives`).
    """

    kind = "pretraining"
    needs = ("labels", "pair_labels")
    pools = True

    def __init__(
        self,
        config: EncoderConfig,
        num_labels: int = 0,
        loss: str | None = None,
        loss_options: Mapping[str, Any] | None = None,
    ):
        super().__init__(config, num_labels, loss, loss_options)
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
