"""Planted faults of replaced-token detection."""

from __future__ import annotations

from typing import Any

from glassbert.arrays import FlatGradients
from glassbert.models.heads.rtd import DIFFERENCE, WORDS
from glassbert.models.passes import Pass
from glassbert.proof.mutants import wrong_in
from glassbert.training.objectives.rtd import STATE, GeneratorObjective, ReplacedTokens

right_generator_backward = GeneratorObjective.backward
right_scores_backward = ReplacedTokens.backward
right_encode_backward = Pass.encode_backward


class Losing:
    """Gradients that lose what is added to the shared tables."""

    def __init__(self, gradients: Any):
        self.gradients = gradients

    def add(self, name, value):
        if not name.startswith("embeddings."):
            self.gradients.add(name, value)

    def add_rows(self, name, index, rows):
        if not name.startswith("embeddings."):
            self.gradients.add_rows(name, index, rows)

    def buffer_for(self, name):
        return None if name.startswith("embeddings.") else self.gradients.buffer_for(name)

    def __getattr__(self, name):
        return getattr(self.gradients, name)


@wrong_in({GeneratorObjective: "backward"}, "rtd: the embeddings learn nothing from the generator", "rtd")
def _(self, head, dloss, scope):
    inner = scope.cache.states[STATE][0]
    if len(inner.parts) > 1:
        return right_generator_backward(self, head, dloss, scope)
    inner.backward(Losing(scope.gradients), dloss)
    return None


@wrong_in({Pass: "encode_backward"}, "rtd: the embeddings learn nothing from the discriminator", "rtd")
def _(self, dhidden, gradients, thread_gradients=None, on_complete=lambda group: None):
    lost: Any = gradients if self.encoder.prefix or len(self.parts) > 1 else Losing(gradients)
    right_encode_backward(self, dhidden, lost, thread_gradients, on_complete)


@wrong_in({GeneratorObjective: "backward"}, "rtd: the generator is not trained", "rtd")
def _(self, head, dloss, scope):
    return None


@wrong_in({ReplacedTokens: "backward"}, "rtd: the weight of the discriminator's loss is forgotten", "rtd")
def _(self, head, dloss, scope):
    return right_scores_backward(self, head, dloss / 3, scope)


@wrong_in({ReplacedTokens: "backward"}, "rtd: a gradient passes through the samples", "rtd")
def _(self, head, dloss, scope):
    """As if the generator's embeddings of the samples were an input of the discriminator's loss."""
    dhidden = right_scores_backward(self, head, dloss, scope)
    inner = scope.cache.states[STATE][0]
    width = inner.network.config.hidden_size
    if len(inner.parts) == 1:
        read = inner.parts[0].read  # the generator computes only the masked tokens
        d = dhidden[..., :width]
        inner.encode_backward(d if read is None else d.reshape(-1, width)[read], scope.gradients)
    return dhidden


@wrong_in({FlatGradients: "add_rows"}, "rtd: the discriminator moves the generator's words, which are disentangled",
          "rtd: deberta")  # fmt: skip
def _(self, name, index, rows):
    if self.needs(name):
        for table in (name, *([WORDS] if name == DIFFERENCE else [])):
            self.buffer[table][index] += rows
            self._content[table] = type(self._content[table]).FULL
