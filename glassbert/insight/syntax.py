"""Do heads follow grammar? For every relation of a CoNLL-U file, the head whose strongest look finds the partner.

A dependent looks at its syntactic head, or a syntactic head at its dependent: for each direction, attention head and
relation the accuracy is the share of pairs in which the word looked at most is the right one. Attention between words
is that between their pieces: summed over the pieces looked at, averaged over those that look (after Clark et al. 2019).

Many relations mostly hold between words at one distance, and a head that always looks two words on would seem to know
them. So every accuracy stands beside that of the best fixed offset. Both are chosen on every other sentence and
measured on the rest, for the best of many heads is the luckiest one too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.insight.attention import attention_maps
from glassbert.insight.inputs import Opened, rows_of
from glassbert.metrics import Difference, paired_difference
from glassbert.tasks.alignment import align_words

OFFSETS = tuple(offset for offset in range(-8, 9) if offset)
DIRECTIONS = ("dependent to head", "head to dependent")
LEAST = 30  # pairs of a relation, in each half
ROWS = 16


@dataclass(frozen=True)
class Relation:
    """The head that knows a relation best. `gain` is its accuracy over the baseline's, with an interval."""

    name: str
    pairs: int  # it was measured on
    layer: int
    head: int
    direction: str
    accuracy: float
    offset: int
    baseline: float
    gain: Difference

    @property
    def is_known(self) -> bool:
        """Better than any fixed distance, by more than chance."""
        return self.gain.low > 0


@dataclass(frozen=True)
class Syntax:
    """Relations, the commonest first, and what could not be used."""

    relations: list[Relation]
    sentences: int
    too_long: int  # sentences that do not fit into the model
    too_rare: dict[str, int] = field(default_factory=dict)  # relations with too few pairs, and how many they have

    def specialists(self) -> dict[tuple[int, int], Relation]:
        """For every head that knows relations, the one it is best at."""
        found: dict[tuple[int, int], Relation] = {}
        for relation in sorted(self.relations, key=lambda one: one.gain.value):
            if relation.is_known:
                found[relation.layer, relation.head] = relation
        return found


def syntactic_heads(
    opened: Opened, annotated: Any, most: int | None = None, told: Callable[[], object] = lambda: None
) -> Syntax:
    """`annotated` is the table of a CoNLL-U file, as `read_conllu` gives it; `most` sentences of it are used."""
    sentences, heads, names = (annotated.column(name)[:most] for name in ("words", "head", "deprel"))
    model = opened.model
    hits: dict[str, list[tuple[int, np.ndarray]]] = {}  # by relation: (sentence, right or wrong of everybody)
    too_long = 0
    for number, words in _word_attention(opened, sentences, told):
        if words is None:
            too_long += 1
            continue
        looked = _looked_at(words)  # [layers, heads, words]
        for dependent, (head, name) in enumerate(zip(heads[number], names[number], strict=True)):
            if head:
                hits.setdefault(name.split(":")[0], []).append((number, _hits(looked, dependent, head - 1)))
    if not hits:
        raise InputError(f"none of the {len(sentences)} sentences has a relation between words that the model can read")
    shape = (model.config.num_hidden_layers, model.config.num_attention_heads)
    relations, too_rare = [], {}
    for name, found in sorted(hits.items(), key=lambda item: -len(item[1])):
        first = np.array([number % 2 == 0 for number, _ in found])
        table = np.stack([row for _, row in found])
        if min(first.sum(), (~first).sum()) < LEAST:
            too_rare[name] = len(found)
        else:
            relations.append(_judge(name, table[first], table[~first], shape))
    return Syntax(relations, len(sentences) - too_long, too_long, too_rare)


def _hits(looked: np.ndarray, dependent: int, head: int) -> np.ndarray:
    """Who finds the partner: all heads from the dependent, all heads from the syntactic head, offsets, offsets back."""
    from_dependent = looked[..., dependent].ravel() == head
    from_head = looked[..., head].ravel() == dependent
    distance = head - dependent
    return np.concatenate(
        [from_dependent, from_head, [o == distance for o in OFFSETS], [o == -distance for o in OFFSETS]]
    )


def _judge(name: str, chosen_on: np.ndarray, measured_on: np.ndarray, shape: tuple[int, int]) -> Relation:
    heads = 2 * shape[0] * shape[1]
    best = int(chosen_on[:, :heads].mean(0).argmax())
    direction, place = divmod(best, shape[0] * shape[1])
    # A fixed offset says the same from either end, up to its sign: the baseline looks in the head's direction.
    offsets = slice(heads + direction * len(OFFSETS), heads + (direction + 1) * len(OFFSETS))
    offset = int(chosen_on[:, offsets].mean(0).argmax())
    ours, theirs = measured_on[:, best], measured_on[:, offsets][:, offset]
    gain = paired_difference(_share_right, np.ones(len(ours), bool), ours, theirs, resamples=500)
    layer, head = divmod(place, shape[1])
    return Relation(
        name, len(ours), layer, head, DIRECTIONS[direction], float(ours.mean()), OFFSETS[offset], float(theirs.mean()),
        gain,
    )  # fmt: skip


def _share_right(truth: np.ndarray, right: np.ndarray, weights: np.ndarray | None = None) -> Any:
    return right.mean() if weights is None else (weights @ right) / weights.sum(-1)


def _looked_at(words: np.ndarray) -> np.ndarray:
    """The other word that every word looks at most: [..., words, words] -> [..., words]."""
    others = words.copy()
    others[..., np.arange(words.shape[-1]), np.arange(words.shape[-1])] = -1
    return others.argmax(-1)


def _word_attention(
    opened: Opened, sentences: Sequence[Sequence[str]], told: Callable[[], object]
) -> Iterator[tuple[int, np.ndarray | None]]:
    """For every sentence the attention between its words, [layers, heads, words, words]; None where it is too long."""
    for begin in range(0, len(sentences), ROWS):
        aligned = align_words(opened.tokenizer, sentences[begin : begin + ROWS], length=opened.longest)
        windows = aligned.windows
        whole = np.flatnonzero(windows.counts[windows.owners] == 1)  # windows that hold a sentence from end to end
        between: dict[int, np.ndarray] = {}
        if len(whole):
            rows = rows_of(opened.tokenizer, [windows.encodings[window] for window in whole])
            maps = attention_maps(opened.model, rows.ids, rows.mask)  # [layers, B, heads, T, T]
            for row, window in enumerate(whole):
                owner, length = int(windows.owners[window]), len(windows.encodings[window])
                between[owner] = pieces_to_words(
                    maps[:, row], aligned.firsts[window], int(aligned.words[owner]), length
                )
        yield from ((begin + place, between.get(place)) for place in range(len(aligned.words)))
        told()


def pieces_to_words(maps: np.ndarray, firsts: np.ndarray, words: int, length: int) -> np.ndarray:
    """[..., T, T] between pieces -> [..., words, words]: summed over pieces looked at, averaged over those that look.

    `firsts` are rows of (word, first piece) and `length` the tokens of the text, of which the last is [SEP].
    """
    belongs = np.zeros((maps.shape[-1], words), maps.dtype)  # [T, words]
    ends = [*firsts[1:, 1], length - 1]
    for (word, piece), end in zip(firsts, ends, strict=True):
        belongs[piece:end, word] = 1
    looks = belongs / np.maximum(belongs.sum(0), 1)
    return looks.T @ maps @ belongs
