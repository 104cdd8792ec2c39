"""The kinds of prediction that can be explained: a word at a [MASK], the next word, an answer about the whole text.

All classes hold token ids and the answers with their probabilities, and give for each answer the `Aim` that
`saliency` explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.insight.aims import Aim, explained_head
from glassbert.insight.inputs import LoadedModel
from glassbert.insight.states import Lens, logit_lens
from glassbert.training.evaluate import evaluation_mode
from glassbert.training.fill_mask import MASK, encode_masked, readable


class Answer(NamedTuple):
    """A word or label with its probability; for regression `chance` is None."""

    name: str
    chance: float | None
    number: int  # id in the vocabulary, or index of the label


class LayerAnswers(NamedTuple):
    """The output of the head after one layer: the best answers, and rank and probability of the explained one."""

    name: str
    answers: list[Answer]
    rank: int
    chance: float


class MaskedText:
    """A text with one or more [MASK]; mask number `mask` (from 1) is explained."""

    def __init__(self, loaded: LoadedModel, text: str, mask: int):
        self.loaded = loaded
        masks = text.count(MASK)
        if not masks:
            raise InputError(f"the text must contain {MASK}, as in 'Paris is the {MASK} of France.'")
        if not 1 <= mask <= masks:
            raise InputError(f"mask is {mask} and the text has {masks} {MASK}; give a number from 1 to {masks}")
        self.ids = encode_masked(loaded.tokenizer, text)
        _check_length(loaded, self.ids)
        positions = [int(i) for i in np.flatnonzero(self.ids[0] == loaded.tokenizer.mask_id)]
        self.position: int | None = positions[mask - 1]
        self.other_positions = [position for position in positions if position != self.position]
        self._allow_words()

    def _allow_words(self) -> None:
        """Special tokens are no answers, nor are padded rows of the table beyond the tokenizer's vocabulary."""
        self.allowed = np.ones(self.loaded.model.config.vocab_size, bool)
        self.allowed[list(self.loaded.tokenizer.special_ids)] = False
        self.allowed[self.loaded.tokenizer.vocab_size :] = False
        self._lenses: dict[int, Lens] = {}

    def lens(self, position: int) -> Lens:
        if position not in self._lenses:
            self._lenses[position] = logit_lens(self.loaded.model, self.ids, position)
        return self._lenses[position]

    def answers(self, position: int | None, layer: int = -1, count: int = 20) -> list[Answer]:
        """The `count` most probable words at a position."""
        assert position is not None
        lens = self.lens(position)
        return [self._answer(lens, i, layer) for i in lens.best(layer, count, self.allowed)]

    def find_answer(self, word: str) -> Answer:
        """The answer with this word, or an error if the word is not one token."""
        assert self.position is not None
        tokenizer = self.loaded.tokenizer
        pieces = tokenizer.encode(word, special_tokens=False)
        if len(pieces) != 1 or not self.allowed[pieces.ids[0]]:
            raise InputError(
                f"{word!r} is not a single token of this vocabulary (it becomes {' '.join(pieces.tokens) or 'empty'}) "
                f"and {MASK} stands for one token; choose another answer"
            )
        return self._answer(self.lens(self.position), pieces.ids[0])

    def aim(self, answer: Answer) -> Aim:
        return Aim(answer.number, self.position)

    def score_description(self, answer: Answer) -> str:
        return f"the log-probability of “{answer.name}” at this position"

    def layers(self, answer: Answer) -> list[LayerAnswers]:
        """The logit lens at the explained mask, layer by layer."""
        assert self.position is not None
        lens = self.lens(self.position)
        ranks = lens.rank(answer.number, self.allowed)
        return [
            LayerAnswers(
                name, self.answers(self.position, i, 4), ranks[i], self._answer(lens, answer.number, i).chance or 0.0
            )
            for i, name in enumerate(lens.names)
        ]

    def _answer(self, lens: Lens, index: int, layer: int = -1) -> Answer:
        name = readable(self.loaded.tokenizer.id_to_token(index))
        return Answer(name, float(np.exp(lens.log_probabilities[layer, index])), index)


class NextWord(MaskedText):
    """A text whose next word is explained: the text itself, or what is before its first [MASK]."""

    def __init__(self, loaded: LoadedModel, text: str):
        beginning = text.partition(MASK)[0]
        if not beginning.strip():
            raise InputError("the text is empty before its end; give the words after which the next one is predicted")
        self.loaded = loaded
        self.ids = encode_masked(loaded.tokenizer, beginning)[:, :-1]
        _check_length(loaded, self.ids)
        self.position, self.other_positions = self.ids.shape[1] - 1, []
        self._allow_words()

    def score_description(self, answer: Answer) -> str:
        return f"the log-probability of “{answer.name}” as the next word"


class WholeText:
    """A text with the answer of a classification, regression or ordinal head."""

    position = None
    other_positions: Sequence[int] = ()

    def __init__(self, loaded: LoadedModel, text: str):
        self.loaded = loaded
        if not text.strip():
            raise InputError("the text is empty; there is no text to explain an answer about")
        self.head: Any = explained_head(loaded.model).head
        self.ids = np.array([loaded.tokenizer.encode(text).ids])
        _check_length(loaded, self.ids)
        with evaluation_mode(loaded.model):
            output = loaded.model.engine.to_numpy(loaded.model.predict(self.ids))
        # A regression output is no probability, so the temperature does not apply to it.
        self.temperature = 1.0 if self.head.loss_name == "mean_squared_error" else loaded.temperature
        self.decoded = self.head.decode(output / self.temperature)[0]

    def answers(self, position: int | None) -> list[Answer]:
        """All labels, the most probable first; for regression the predicted numbers."""
        values = self.decoded
        if self.head.loss_name == "mean_squared_error":
            names = [f"{value:.4g}" for value in values]
            return [Answer(name, None, i) for i, name in enumerate(names)]
        if self.head.loss_name == "binary_cross_entropy" and len(values) == 1:
            values = np.array([1 - values[0], values[0]])
        found = [Answer(self._label(i), float(chance), i) for i, chance in enumerate(values)]
        return sorted(found, key=lambda one: -(one.chance or 0.0))

    def find_answer(self, name: str) -> Answer:
        """The answer with this label."""
        known = {one.name: one for one in self.answers(None)}
        if name not in known or self.head.loss_name == "mean_squared_error":
            raise InputError(f"{name!r} is not an answer of this model; its answers are {', '.join(known)}")
        return known[name]

    def aim(self, answer: Answer) -> Aim:
        if self.head.loss_name == "binary_cross_entropy" and len(self.decoded) == 1:
            return Aim(0, yes=answer.number == 1, temperature=self.temperature)
        return Aim(answer.number, temperature=self.temperature)

    def score_description(self, answer: Answer) -> str:
        if answer.chance is None:
            return "the predicted number"
        return f"the log-probability of “{answer.name}”"

    def layers(self, answer: Answer) -> list[LayerAnswers]:
        return []  # the pooled input of a classifier was trained on the last layer only

    def _label(self, index: int) -> str:
        labels = self.loaded.labels
        return labels[index] if index < len(labels) else f"label {index}"


def _check_length(loaded: LoadedModel, ids: np.ndarray) -> None:
    if ids.shape[1] > loaded.max_length:
        raise InputError(
            f"the text has {ids.shape[1]} tokens and the model reads {loaded.max_length} at most; shorten the text"
        )
