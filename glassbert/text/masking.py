"""Masking: which tokens a model is asked for, and what it sees in their place.

A row has n tokens that may be asked for: all but the special ones. They are grouped into units: single tokens, whole
words, or spans of either. The units of a row are put in random order and taken one after the other until rate · n
tokens are reached; the unit in which that point falls is taken with the probability that makes the expected number
exactly rate · n. A row whose lot would be nothing gives up its first unit: every row asks for something.

Each token taken is then treated by itself: with probability 0.8 it becomes [MASK], with 0.1 a random ordinary token
(the right one by chance among them), and else it stays as it is and is asked for all the same.

That every row loses about the same share, where independent coins would give one row a fifth and another a tenth,
makes steps alike in cost and gradients a little less noisy.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import ConfigError, InputError
from glassbert.text.random_numbers import below, fractions, row_starts, scrambled, streams

NOT_ASKED = -100
LAST_KEY = np.uint32(0xFFFFFFFF)
# Beside its own number, a token or row draws further ones for other decisions.
REPLACEMENT, SPAN, LAST_UNIT = 2, 3, 4


@dataclass(frozen=True)
class Masking:
    """How tokens are chosen and hidden. `spans` = (mean length, longest), counted in words where `whole_words`."""

    rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    whole_words: bool = False
    spans: tuple[float, int] | None = None

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if not (self.mask_share >= 0 and self.random_share >= 0 and self.mask_share + self.random_share <= 1 + 1e-9):
            raise ConfigError(
                f"the shares replaced by [MASK] ({self.mask_share}) and at random ({self.random_share}) must not be "
                "negative and may add up to 1 at most; what is left stays as it is"
            )
        match self.spans:
            case None:
                pass
            case (int() | float() as mean, int() as longest) if 1 <= mean <= longest:
                object.__setattr__(
                    self, "spans", (float(mean), longest)
                )  # a list, from a settings file, becomes a pair
            case _:
                raise ConfigError(
                    f"spans are (mean length, longest) with 1 <= mean <= longest, a whole number; got {self.spans!r}"
                )

    @cached_property
    def end_probability(self) -> float:
        """The chance p that a span ends after a unit, so that min(geometric(p), longest) has the mean asked for.

        That mean is (1 - (1 - p)^longest) / p.
        """
        assert self.spans is not None
        mean, longest = self.spans
        low, high = 1e-9, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if (1 - (1 - middle) ** longest) / middle > mean else (low, middle)
        return high


def check_rate(rate: float) -> None:
    if not 0 < rate <= 1:
        raise ConfigError(f"the masking rate is the share of tokens to ask for, above 0 and at most 1; got {rate}")


class Masker:
    """Masks rows of one vocabulary: `masker(ids, starts)` gives what the model sees and the labels.

    `starts` are the rows' 64-bit starts of `random_numbers.row_starts`; the same start gives the same mask.
    """

    def __init__(
        self,
        masking: Masking,
        vocab_size: int,
        mask_id: int,
        special_ids: Collection[int],
        continues_word: np.ndarray | None = None,
    ):
        special = np.zeros(vocab_size, np.bool_)
        for token in (mask_id, *special_ids):
            if not 0 <= token < vocab_size:
                raise InputError(f"the special token {token} is outside the vocabulary (0 to {vocab_size - 1})")
            special[token] = True
        if special.all():
            raise InputError(f"all {vocab_size} entries of the vocabulary are special: there is nothing to mask")
        if masking.whole_words and continues_word is None:
            raise InputError("whole words can be masked only with continues_word: which tokens continue a word")
        if continues_word is not None and continues_word.shape != (vocab_size,):
            raise InputError(f"continues_word must have one entry a token, {vocab_size}, got {continues_word.shape}")
        self.masking = masking
        self.mask_id = mask_id
        self.maskable = ~special
        self.ordinary = np.flatnonzero(self.maskable).astype(np.int32)
        self.continues_word = continues_word if masking.whole_words else None

    def __call__(self, ids: np.ndarray, starts: np.ndarray, rate: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """ids [B, T] int32 -> what the model sees [B, T], labels [B, T] with -100 where nothing is asked."""
        numbers = streams(starts, ids.shape[1])  # the lower half chooses, the upper half says what becomes of the token
        chosen = self.choose(ids, numbers, starts, self.masking.rate if rate is None else rate)
        labels = np.where(chosen, ids, np.int32(NOT_ASKED))
        seen = ids.copy()
        at = np.flatnonzero(chosen)
        numbers = numbers.reshape(-1)[at]
        fate = (numbers >> np.uint64(32)).astype(np.float64) * 2.0**-32
        hidden = fate < self.masking.mask_share
        flat = seen.reshape(-1)
        flat[at[hidden]] = self.mask_id
        swapped = (fate < self.masking.mask_share + self.masking.random_share) & ~hidden
        flat[at[swapped]] = self.ordinary[below(len(self.ordinary), scrambled(numbers[swapped], REPLACEMENT))]
        return seen, labels

    def choose(self, ids: np.ndarray, numbers: np.ndarray, starts: np.ndarray, rate: float) -> np.ndarray:
        """[B, T] which tokens are asked for."""
        check_rate(rate)
        maskable = self.maskable.take(ids)
        keys = numbers.astype(np.uint32)  # the lower half
        first = self._unit_starts(ids, maskable, numbers)
        if first is not None:  # all tokens of a unit share the key of its first one
            index = np.where(first, np.arange(ids.shape[1], dtype=np.int32), np.int32(0))
            keys = np.take_along_axis(keys, np.maximum.accumulate(index, axis=1), axis=1)
        keys[~maskable] = LAST_KEY
        available = maskable.sum(1)
        wanted = rate * available
        reached = np.minimum(wanted.astype(np.int64), np.maximum(available - 1, 0))
        last = np.take_along_axis(np.sort(keys, axis=1), reached[:, None], axis=1)  # [B, 1] key of the last unit
        before = keys < last
        taken = before.sum(1)
        there = keys == last
        size = there.sum(1)
        take_last = (fractions(scrambled(starts, LAST_UNIT)) * size < wanted - taken) | (taken == 0)
        before |= there & take_last[:, None]
        before &= maskable
        return before

    def _unit_starts(self, ids: np.ndarray, maskable: np.ndarray, numbers: np.ndarray) -> np.ndarray | None:
        """[B, T] True where a unit begins, or None where every token is one."""
        if self.continues_word is None and self.masking.spans is None:
            return None
        after_special = np.ones(ids.shape, np.bool_)
        after_special[:, 1:] = ~maskable[:, :-1]
        words = after_special.copy()
        words |= True if self.continues_word is None else ~self.continues_word.take(ids)
        if self.masking.spans is None:
            return words
        # Ending after every unit with one probability gives geometric lengths. They have no memory, so cutting
        # what is too long leaves independent lengths: min(geometric, longest).
        ends = fractions(scrambled(numbers, SPAN)) < self.masking.end_probability
        spans = after_special | (words & ends)
        count = np.cumsum(words, axis=1, dtype=np.int32)
        since = count - np.maximum.accumulate(np.where(spans, count, np.int32(0)), axis=1)
        return words & (since % self.masking.spans[1] == 0)


class MaskedTokens(NamedTuple):
    input_ids: np.ndarray  # what the model sees
    targets: np.ndarray  # the right tokens where one is asked for, -100 elsewhere
    positions: np.ndarray  # where: [n] for one row of ids, [n, 2] (row, position) for several


def mask_tokens(
    input_ids: Any,
    mask_token_id: int,
    vocab_size: int,
    mask_prob: float = 0.15,
    *,
    special_ids: Collection[int] = (0, 1, 2, 3, 4),
    seed: int | np.random.Generator = 0,
    continues_word: np.ndarray | None = None,
    masking: Masking | None = None,
) -> MaskedTokens:
    """Mask a row [T] or rows [B, T] of token ids.

    `special_ids` are never asked for nor put in as random tokens; they default to [PAD] [UNK] [CLS] [SEP] [MASK] as our
    tokenizers number them. A seed gives the same masks every time, a `numpy.random.Generator` fresh ones. `masking`
    chooses other shares, whole words (with the tokenizer's `continues_word`) or spans; its rate is `mask_prob`.
    """
    ids = np.asarray(input_ids)
    if ids.ndim not in (1, 2) or (ids.size and ids.dtype.kind not in "iu"):
        raise InputError(
            f"input_ids must be integers of the shape [length] or [rows, length], got {ids.dtype} {ids.shape}"
        )
    if ids.size and (ids.min() < 0 or ids.max() >= vocab_size):
        raise InputError(
            f"input_ids go from {ids.min()} to {ids.max()}, outside the vocabulary (0 to {vocab_size - 1})"
        )
    rows = np.atleast_2d(ids).astype(np.int32)
    masker = Masker(masking or Masking(), vocab_size, mask_token_id, special_ids, continues_word)
    if isinstance(seed, np.random.Generator):
        starts = seed.integers(0, 1 << 64, len(rows), dtype=np.uint64)
    else:
        starts = row_starts(seed, "mask_tokens", 0, np.arange(len(rows)))
    if ids.size == 0:
        return MaskedTokens(
            ids.astype(np.int32), ids.astype(np.int32), np.zeros((0,) if ids.ndim == 1 else (0, 2), int)
        )
    seen, labels = masker(rows, starts, mask_prob)
    positions = np.argwhere(labels.reshape(ids.shape) != NOT_ASKED)
    return MaskedTokens(
        seen.reshape(ids.shape), labels.reshape(ids.shape), positions[:, 0] if ids.ndim == 1 else positions
    )
