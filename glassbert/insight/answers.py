"""What can be asked: which word belongs in the place of [MASK], or what a classifier says about the whole text.

Both have ids, answers with their chances, and for every answer the aim that `saliency` explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.insight.aims import Aim, answering_head
from glassbert.insight.inputs import Opened
from glassbert.insight.states import Lens, logit_lens
from glassbert.training.evaluate import quietly
from glassbert.training.fill_mask import MASK, question, readable


class Answer(NamedTuple):
    """A word or label with its chance; a number has none."""

    name: str
    chance: float | None
    number: int  # in the vocabulary, or among the labels


class LayerSeen(NamedTuple):
    """What the head would say after a layer: the best answers, and the rank and chance of the final one."""

    name: str
    answers: list[Answer]
    rank: int
    chance: float


class MaskedText:
    """A text with one [MASK] or more, of which one is explained."""

    def __init__(self, opened: Opened, text: str, mask: int):
        self.opened = opened
        masks = text.count(MASK)
        if not masks:
            raise InputError(f"the text must contain {MASK}, as in 'Paris is the {MASK} of France.'")
        if not 1 <= mask <= masks:
            raise InputError(f"mask {mask} cannot be explained: the text has {masks} of them, counted from 1")
        self.ids = question(opened.tokenizer, text)
        _check_length(opened, self.ids)
        places = [int(i) for i in np.flatnonzero(self.ids[0] == opened.tokenizer.mask_id)]
        self.place: int | None = places[mask - 1]
        self.others = [place for place in places if place != self.place]
        # [UNK] and [SEP] are answers to another question.
        self.among = np.ones(opened.model.config.vocab_size, bool)
        self.among[list(opened.tokenizer.special_ids)] = False
        self.among[opened.tokenizer.vocab_size :] = False  # rows of a table that was made larger than the vocabulary
        self._lenses: dict[int, Lens] = {}

    def lens(self, place: int) -> Lens:
        if place not in self._lenses:
            self._lenses[place] = logit_lens(self.opened.model, self.ids, place)
        return self._lenses[place]

    def answers(self, place: int | None, layer: int = -1, count: int = 20) -> list[Answer]:
        assert place is not None
        lens = self.lens(place)
        return [self._answer(lens, i, layer) for i in lens.best(layer, count, self.among)]

    def named(self, word: str) -> Answer:
        assert self.place is not None
        tokenizer = self.opened.tokenizer
        pieces = tokenizer.encode(word, special_tokens=False)
        if len(pieces) != 1 or not self.among[pieces.ids[0]]:
            raise InputError(
                f"{word!r} is no single word of this vocabulary (it is {' '.join(pieces.tokens) or 'nothing'}), and "
                f"{MASK} stands for one; choose another answer"
            )
        return self._answer(self.lens(self.place), pieces.ids[0])

    def aim(self, answer: Answer) -> Aim:
        return Aim(answer.number, self.place)

    def score_in_words(self, answer: Answer) -> str:
        return f"the log-probability of “{answer.name}” at this place"

    def layers(self, answer: Answer) -> list[LayerSeen]:
        assert self.place is not None
        lens = self.lens(self.place)
        ranks = lens.rank(answer.number, self.among)
        return [
            LayerSeen(
                name, self.answers(self.place, i, 4), ranks[i], self._answer(lens, answer.number, i).chance or 0.0
            )
            for i, name in enumerate(lens.names)
        ]

    def _answer(self, lens: Lens, index: int, layer: int = -1) -> Answer:
        name = readable(self.opened.tokenizer.id_to_token(index))
        return Answer(name, float(np.exp(lens.log_probabilities[layer, index])), index)


class WholeText:
    """A text about which a classifier, a regression or a rank answers as a whole."""

    place = None
    others: Sequence[int] = ()

    def __init__(self, opened: Opened, text: str):
        self.opened = opened
        if not text.strip():
            raise InputError("there is no text to answer about")
        self.head: Any = answering_head(opened.model).head
        self.ids = np.array([opened.tokenizer.encode(text).ids])
        _check_length(opened, self.ids)
        with quietly(opened.model):
            output = opened.model.engine.to_numpy(opened.model.predict(self.ids))
        # A number is no chance, so there is nothing about it that a temperature could make honest.
        self.temperature = 1.0 if self.head.loss_name == "mean_squared_error" else opened.temperature
        self.decoded = self.head.decode(output / self.temperature)[0]

    def answers(self, place: int | None) -> list[Answer]:
        values = self.decoded
        if self.head.loss_name == "mean_squared_error":
            names = [f"{value:.4g}" for value in values]
            return [Answer(name, None, i) for i, name in enumerate(names)]
        if self.head.loss_name == "binary_cross_entropy" and len(values) == 1:
            values = np.array([1 - values[0], values[0]])
        found = [Answer(self._label(i), float(chance), i) for i, chance in enumerate(values)]
        return sorted(found, key=lambda one: -(one.chance or 0.0))

    def named(self, name: str) -> Answer:
        known = {one.name: one for one in self.answers(None)}
        if name not in known or self.head.loss_name == "mean_squared_error":
            raise InputError(f"{name!r} is no answer of this model; it answers {', '.join(known)}")
        return known[name]

    def aim(self, answer: Answer) -> Aim:
        if self.head.loss_name == "binary_cross_entropy" and len(self.decoded) == 1:
            return Aim(0, yes=answer.number == 1, temperature=self.temperature)
        return Aim(answer.number, temperature=self.temperature)

    def score_in_words(self, answer: Answer) -> str:
        if answer.chance is None:
            return "the number that the model gives"
        return f"the log-probability of “{answer.name}”"

    def layers(self, answer: Answer) -> list[LayerSeen]:
        return []  # a classifier reads one token or a mean of them: no other layer has learned to be read so

    def _label(self, index: int) -> str:
        labels = self.opened.labels
        return labels[index] if index < len(labels) else f"label {index}"


def _check_length(opened: Opened, ids: np.ndarray) -> None:
    if ids.shape[1] > opened.longest:
        raise InputError(f"the text has {ids.shape[1]} tokens, and the model reads {opened.longest}; shorten it")
