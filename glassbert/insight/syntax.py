"""Attention heads and syntax: for every dependency relation, the head whose strongest attention finds the other word.

A dependent may attend to its syntactic head, or the syntactic head to its dependent. For each direction, attention head
and relation, the accuracy is the share of word pairs in which the most attended word is the right one. Attention
between words is summed over attended pieces and averaged over attending pieces (Clark et al. 2019).

Many relations mostly hold at one distance, so a head that always attends two words to the right would look as if it
followed the relation. The baseline is therefore the best fixed offset. Head and offset are chosen on the even sentences
and measured on the odd ones, because the best of many heads is also the luckiest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.insight.attention import attention_maps
from glassbert.insight.inputs import BATCH_ROWS, LoadedModel, pad_rows
from glassbert.metrics import Difference, paired_difference
from glassbert.tasks.alignment import align_words

OFFSETS = tuple(offset for offset in range(-8, 9) if offset)
DIRECTIONS = ("dependent to head", "head to dependent")
MIN_PAIRS = 30  # of a relation, in each half of the sentences


@dataclass(frozen=True)
class Relation:
    """The best attention head for a relation. `gain` is its accuracy minus the baseline's, with an interval."""

    name: str
    pairs: int  # in the measured half
    layer: int
    head: int
    direction: str
    accuracy: float
    offset: int
    baseline: float
    gain: Difference

    @property
    def is_significant(self) -> bool:
        """Better than the best fixed offset: the interval of `gain` is above 0."""
        return self.gain.low > 0


@dataclass(frozen=True)
class Syntax:
    """Relations, the most frequent first, and what was skipped."""

    relations: list[Relation]
    sentences: int
    too_long: int  # sentences longer than the model's input
    too_rare: dict[str, int] = field(default_factory=dict)  # relations with too few pairs, and their number of pairs


def syntactic_heads(
    loaded: LoadedModel, annotated: Any, limit: int | None = None, on_progress: Callable[[], object] = lambda: None
) -> Syntax:
    """The best head for every relation. `annotated` is a table of `read_conllu`; `limit` sentences of it are used."""
    sentences, heads, names = (annotated.column(name)[:limit] for name in ("words", "head", "deprel"))
    model = loaded.model
    hits: dict[str, list[tuple[int, np.ndarray]]] = {}  # by relation: (sentence, which candidates are right)
    too_long = 0
    for number, words in _word_attention(loaded, sentences, on_progress):
        if words is None:
            too_long += 1
            continue
        targets = _most_attended(words)  # [layers, heads, words]
        for dependent, (head, name) in enumerate(zip(heads[number], names[number], strict=True)):
            if head:
                hits.setdefault(name.split(":")[0], []).append((number, _hits(targets, dependent, head - 1)))
    if not hits:
        raise InputError(f"none of the {len(sentences)} sentences has a dependency relation and fits into the model")
    shape = (model.config.num_hidden_layers, model.config.num_attention_heads)
    relations, too_rare = [], {}
    for name, found in sorted(hits.items(), key=lambda item: -len(item[1])):
        first = np.array([number % 2 == 0 for number, _ in found])
        table = np.stack([row for _, row in found])
        if min(first.sum(), (~first).sum()) < MIN_PAIRS:
            too_rare[name] = len(found)
        else:
            relations.append(_best_head(name, table[first], table[~first], shape))
    return Syntax(relations, len(sentences) - too_long, too_long, too_rare)


def _hits(targets: np.ndarray, dependent: int, head: int) -> np.ndarray:
    """Which candidates find the other word: heads from the dependent, heads from the head, offsets, offsets back."""
    from_dependent = targets[..., dependent].ravel() == head
    from_head = targets[..., head].ravel() == dependent
    distance = head - dependent
    return np.concatenate(
        [from_dependent, from_head, [o == distance for o in OFFSETS], [o == -distance for o in OFFSETS]]
    )


def _best_head(name: str, chosen_on: np.ndarray, measured_on: np.ndarray, shape: tuple[int, int]) -> Relation:
    heads = 2 * shape[0] * shape[1]
    best = int(chosen_on[:, :heads].mean(0).argmax())
    direction, index = divmod(best, shape[0] * shape[1])
    # An offset is right from both ends, up to its sign: the baseline uses the direction of the head.
    offsets = slice(heads + direction * len(OFFSETS), heads + (direction + 1) * len(OFFSETS))
    offset = int(chosen_on[:, offsets].mean(0).argmax())
    ours, theirs = measured_on[:, best], measured_on[:, offsets][:, offset]
    gain = paired_difference(_share_right, np.ones(len(ours), bool), ours, theirs, resamples=500)
    layer, head = divmod(index, shape[1])
    return Relation(
        name, len(ours), layer, head, DIRECTIONS[direction], float(ours.mean()), OFFSETS[offset], float(theirs.mean()),
        gain,
    )  # fmt: skip


def _share_right(truth: np.ndarray, right: np.ndarray, weights: np.ndarray | None = None) -> Any:
    return right.mean() if weights is None else (weights @ right) / weights.sum(-1)


def _most_attended(words: np.ndarray) -> np.ndarray:
    """The other word that every word attends to most: [..., words, words] -> [..., words]."""
    others = words.copy()
    others[..., np.arange(words.shape[-1]), np.arange(words.shape[-1])] = -1
    return others.argmax(-1)


def _word_attention(
    loaded: LoadedModel, sentences: Sequence[Sequence[str]], on_progress: Callable[[], object]
) -> Iterator[tuple[int, np.ndarray | None]]:
    """Number of each sentence and attention between its words, [layers, heads, words, words]; None if too long."""
    for begin in range(0, len(sentences), BATCH_ROWS):
        aligned = align_words(loaded.tokenizer, sentences[begin : begin + BATCH_ROWS], length=loaded.max_length)
        windows = aligned.windows
        whole = np.flatnonzero(windows.counts[windows.owners] == 1)  # windows with a complete sentence
        between: dict[int, np.ndarray] = {}
        if len(whole):
            batch = pad_rows(loaded.tokenizer, [windows.encodings[window] for window in whole])
            maps = attention_maps(loaded.model, batch.ids, batch.mask)  # [layers, B, heads, T, T]
            for row, window in enumerate(whole):
                owner, length = int(windows.owners[window]), len(windows.encodings[window])
                between[owner] = pieces_to_words(
                    maps[:, row], aligned.firsts[window], int(aligned.words[owner]), length
                )
        yield from ((begin + index, between.get(index)) for index in range(len(aligned.words)))
        on_progress()


def pieces_to_words(maps: np.ndarray, firsts: np.ndarray, words: int, length: int) -> np.ndarray:
    """[..., T, T] between pieces -> [..., words, words]: summed over attended, averaged over attending pieces.

    `firsts` has rows (word, first piece). `length` is the number of tokens of the text; the last one is [SEP].
    """
    belongs = np.zeros((maps.shape[-1], words), maps.dtype)  # [T, words]
    ends = [*firsts[1:, 1], length - 1]
    for (word, piece), end in zip(firsts, ends, strict=True):
        belongs[piece:end, word] = 1
    queries = belongs / np.maximum(belongs.sum(0), 1)
    return queries.T @ maps @ belongs
