"""The logit lens: what would the head say if the encoder stopped after this layer?

Every layer adds to one residual stream, so the head can read it at any height. Early readings are rough: the head has
learned to read the last layer only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from glassbert.engines.threads import using_threads
from glassbert.insight.aims import Aim, Scorer
from glassbert.insight.states import hidden_states
from glassbert.models.model import Model


@dataclass(frozen=True)
class Lens:
    """By layer, the embeddings first: log-probabilities [layers + 1, vocabulary] of the words at one place."""

    names: list[str]
    log_probabilities: np.ndarray

    def best(self, layer: int, count: int, among: np.ndarray) -> list[int]:
        """The likeliest words of a layer among those marked in `among` [vocabulary]."""
        chances = np.where(among, self.log_probabilities[layer], -np.inf)
        return [int(i) for i in np.argsort(-chances)[:count]]

    def rank(self, word: int, among: np.ndarray) -> list[int]:
        """For every layer, the how-manieth best answer the word is, from 1."""
        own = self.log_probabilities[:, [word]]
        return [int(count) + 1 for count in ((self.log_probabilities > own) & among).sum(1)]


def logit_lens(model: Model, input_ids: Any, place: int) -> Lens:
    """What a masked language model would answer at `place` of one text [1, T] after every layer."""
    states = hidden_states(model, input_ids, normed=True)
    found = []
    with using_threads(model.engine.threads):
        for state in states.values():
            logits = Scorer(model, Aim(0, place)).outputs(model.engine.array(state))[0]
            shifted = logits - logits.max()
            found.append(shifted - np.log(np.exp(shifted).sum()))
    return Lens(list(states), np.stack(found))
