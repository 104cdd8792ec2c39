"""The head of BERT's pretraining: masked words and sentence pairs on the same hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.errors import InputError
from glassbert.layers.scope import Parameter, Scope
from glassbert.models.config import EncoderConfig
from glassbert.models.heads.head import Head, HeadPart
from glassbert.models.heads.mlm import MaskedLanguageHead
from glassbert.models.heads.sequence import PairHead
from glassbert.models.inputs import as_array


class PretrainingHead(Head):
    """Predicts masked words, and whether two sentences belong together.

    The output maps the kind of each part to its scores, and the loss is the sum of the two losses. Weighted sums are
    computed part by part in training (`glassbert.training.objectives`).
    """

    kind = "pretraining"
    needs = ("labels", "pair_labels")
    pools = True
    decodes = True
    scored_share = MaskedLanguageHead.scored_share

    def __init__(
        self,
        config: EncoderConfig,
        num_labels: int = 0,
        loss: str | None = None,
        loss_options: Mapping[str, Any] | None = None,
    ):
        super().__init__(config, num_labels, loss, loss_options)
        self.parts = {"mlm": HeadPart(MaskedLanguageHead(config), ""), "pair": HeadPart(PairHead(config), "pair")}

    def parameters(self) -> list[Parameter]:
        return [parameter for part in self.parts.values() for parameter in part.parameters()]

    def prepare(self, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        if given.get("pair_labels") is None:
            raise InputError(
                "a pretraining head also needs pair_labels: 0 where the two sentences of a row belong together, else 1"
            )
        return self.prepare_labels(given, shape)

    def prepare_labels(self, labels: Any, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        prepared = {}
        for head, name_of_part in self.parts.values():
            (need,) = head.needs
            for name, array in head.prepare_labels(as_array(need, labels[need]), shape).items():
                prepared[f"{name_of_part}.{name}" if name_of_part else name] = array
        return prepared

    @classmethod
    def flops(
        cls, config: EncoderConfig, batch: int, length: int, num_labels: int = 0, scored_rows: int | None = None
    ) -> dict[str, int]:
        words = MaskedLanguageHead.flops(config, batch, length, scored_rows=scored_rows)
        pairs = {name.replace("head.", "head.pair."): n for name, n in PairHead.flops(config, batch, length, 2).items()}
        return {**words, **pairs}

    def forward(self, hidden: Array, batch: Any, scope: Scope, rows: Array | None = None) -> Any:
        return {
            kind: part.head.forward(hidden, batch, scope.inside(part.name), rows if kind == "mlm" else None)
            for kind, part in self.parts.items()
        }

    def backward(self, doutput: Any, scope: Scope) -> Array:
        first, second = (p.head.backward(doutput[kind], scope.inside(p.name)) for kind, p in self.parts.items())
        return first + second.reshape(first.shape)
