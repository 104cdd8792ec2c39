"""Masking: choose the target tokens of masked language modelling and replace them in the input.

A row has n tokens that can be targets: all except special tokens. They are grouped into units: single tokens, whole
words, or spans of either. The units of a row are taken in random order until rate · n tokens are reached. The last
unit is taken with the probability that makes the expected number of targets exactly rate · n. A row without a target
takes its first unit, so every row has at least one target.

Each target is then replaced independently: with probability 0.8 by [MASK], with 0.1 by a random ordinary token
(possibly the same one), and otherwise it stays unchanged.

Every row has about the same share of targets. With independent draws per token it would vary between a tenth and a
fifth, and so would the cost of a step; gradients would be a little noisier.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import ConfigError, InputError
from glassbert.text.random_numbers import integers_below, random_bits, rehash, row_seeds, uniform_floats

IGNORED = -100  # the label of tokens that are not targets
LAST_KEY = np.uint32(0xFFFFFFFF)
# Indices for `rehash`: further random numbers of a token or row.
REPLACEMENT, SPAN, LAST_UNIT = 2, 3, 4


@dataclass(frozen=True)
class Masking:
    """How targets are chosen and replaced. `spans` = (mean length, longest), in words if `whole_words`.

    `ngrams` N makes spans of n = 1 to N units, each with a probability proportional to 1/n, as ALBERT does.
    """

    rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    whole_words: bool = False
    spans: tuple[float, int] | None = None
    ngrams: int | None = None

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if not (self.mask_share >= 0 and self.random_share >= 0 and self.mask_share + self.random_share <= 1 + 1e-9):
            raise ConfigError(
                f"mask_share ({self.mask_share}) and random_share ({self.random_share}) must not be negative and must "
                "add up to 1 at most; the rest of the targets stays unchanged"
            )
        if self.ngrams is not None and (self.spans is not None or not isinstance(self.ngrams, int) or self.ngrams < 1):
            raise ConfigError(f"ngrams must be a whole number of at least 1, without spans; got {self.ngrams!r}")
        match self.spans:
            case None:
                pass
            case (int() | float() as mean, int() as longest) if 1 <= mean <= longest:
                object.__setattr__(self, "spans", (float(mean), longest))  # settings files give a list
            case _:
                raise ConfigError(
                    f"spans must be (mean length, longest) with 1 <= mean <= longest and a whole number for longest; "
                    f"got {self.spans!r}"
                )

    @cached_property
    def end_probability(self) -> float:
        """The probability p that a span ends after a unit, such that min(geometric(p), longest) has the given mean.

        That mean is (1 - (1 - p)^longest) / p; bisection solves it for p.
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
        raise ConfigError(f"the masking rate (share of target tokens) must be above 0 and at most 1; got {rate}")


class Masker:
    """Masks rows of token ids: `masker(ids, seeds)` returns the masked ids and the labels.

    `seeds` are the rows' 64-bit seeds from `random_numbers.row_seeds`; the same seed gives the same mask.
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
            raise InputError(f"all {vocab_size} entries of the vocabulary are special tokens: nothing can be masked")
        if masking.whole_words and continues_word is None:
            raise InputError("whole_words needs continues_word: which tokens of the vocabulary continue a word")
        if continues_word is not None and continues_word.shape != (vocab_size,):
            raise InputError(f"continues_word must have the shape ({vocab_size},), got {continues_word.shape}")
        self.masking = masking
        self.mask_id = mask_id
        self.maskable = ~special
        self.ordinary = np.flatnonzero(self.maskable).astype(np.int32)
        self.continues_word = continues_word if masking.whole_words else None

    def __call__(self, ids: np.ndarray, seeds: np.ndarray, rate: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        """ids [B, T] int32 -> masked ids [B, T], labels [B, T] with -100 where there is no target."""
        numbers = random_bits(seeds, ids.shape[1])  # the lower half chooses the targets, the upper half the replacement
        chosen = self.choose(ids, numbers, seeds, self.masking.rate if rate is None else rate)
        labels = np.where(chosen, ids, np.int32(IGNORED))
        masked_ids = ids.copy()
        targets = np.flatnonzero(chosen)
        numbers = numbers.reshape(-1)[targets]
        draws = (numbers >> np.uint64(32)).astype(np.float64) * 2.0**-32
        masked = draws < self.masking.mask_share
        flat = masked_ids.reshape(-1)
        flat[targets[masked]] = self.mask_id
        swapped = (draws < self.masking.mask_share + self.masking.random_share) & ~masked
        new_tokens = integers_below(len(self.ordinary), rehash(numbers[swapped], REPLACEMENT))
        flat[targets[swapped]] = self.ordinary[new_tokens]
        return masked_ids, labels

    def choose(self, ids: np.ndarray, numbers: np.ndarray, seeds: np.ndarray, rate: float) -> np.ndarray:
        """bool [B, T]: which tokens are targets."""
        check_rate(rate)
        maskable = self.maskable.take(ids)
        keys = numbers.astype(np.uint32)  # the lower half
        first = self._unit_starts(ids, maskable, numbers)
        if first is not None:  # all tokens of a unit get the key of its first token
            index = np.where(first, np.arange(ids.shape[1], dtype=np.int32), np.int32(0))
            keys = np.take_along_axis(keys, np.maximum.accumulate(index, axis=1), axis=1)
        keys[~maskable] = LAST_KEY
        available = maskable.sum(1)
        wanted = rate * available
        reached = np.minimum(wanted.astype(np.int64), np.maximum(available - 1, 0))
        last = np.take_along_axis(np.sort(keys, axis=1), reached[:, None], axis=1)  # [B, 1] key of the last unit
        before = keys < last
        taken = before.sum(1)
        in_last = keys == last
        size = in_last.sum(1)
        take_last = (uniform_floats(rehash(seeds, LAST_UNIT)) * size < wanted - taken) | (taken == 0)
        before |= in_last & take_last[:, None]
        before &= maskable
        return before

    def _unit_starts(self, ids: np.ndarray, maskable: np.ndarray, numbers: np.ndarray) -> np.ndarray | None:
        """bool [B, T]: True at the first token of each unit; None if every token is a unit."""
        if self.continues_word is None and self.masking.spans is None and self.masking.ngrams is None:
            return None
        after_special = np.ones(ids.shape, np.bool_)
        after_special[:, 1:] = ~maskable[:, :-1]
        words = after_special.copy()
        words |= True if self.continues_word is None else ~self.continues_word.take(ids)
        if self.masking.ngrams is not None:
            return ngram_starts(words, after_special, uniform_floats(rehash(numbers, SPAN)), self.masking.ngrams)
        if self.masking.spans is None:
            return words
        # A constant probability of ending after each word gives geometric lengths. These are memoryless, so
        # splitting long spans leaves independent lengths: min(geometric, longest).
        ends = uniform_floats(rehash(numbers, SPAN)) < self.masking.end_probability
        spans = after_special | (words & ends)
        count = np.cumsum(words, axis=1, dtype=np.int32)
        since = count - np.maximum.accumulate(np.where(spans, count, np.int32(0)), axis=1)
        return words & (since % self.masking.spans[1] == 0)


def ngram_starts(words: np.ndarray, after_special: np.ndarray, draws: np.ndarray, longest: int) -> np.ndarray:
    """bool [B, T]: where spans of n words begin, P(n) = (1/n) / Σ_k (1/k) for n = 1 to `longest`.

    `words` has the first token of every word, `after_special` the tokens that begin a span in any case, and `draws`
    random numbers in [0, 1).
    """
    shares = 1.0 / np.arange(1, longest + 1)
    lengths = 1 + np.searchsorted(np.cumsum(shares / shares.sum())[:-1], draws, side="right")  # [B, T]
    starts = np.zeros(words.shape, np.bool_)
    left = np.zeros(len(words), np.int64)  # words of the span of each row that are still to come
    for t in range(words.shape[1]):
        begins = words[:, t] & ((left == 0) | after_special[:, t])
        left = np.where(begins, lengths[:, t] - 1, left - (words[:, t] & ~begins))
        starts[:, t] = begins
    return starts


class MaskedTokens(NamedTuple):
    input_ids: np.ndarray  # the masked ids
    targets: np.ndarray  # the original tokens at the targets, -100 elsewhere
    positions: np.ndarray  # of the targets: [n] for one row of ids, [n, 2] (row, position) for several


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

    `special_ids` are never targets and never random replacements; the default is [PAD] [UNK] [CLS] [SEP] [MASK] in
    GlassBERT's tokenizers. An integer `seed` gives the same masks every time, a `numpy.random.Generator` new ones.
    `masking` sets other shares, whole words (with the tokenizer's `continues_word`) or spans; its rate is replaced by
    `mask_prob`.
    """
    ids = np.asarray(input_ids)
    if ids.ndim not in (1, 2) or (ids.size and ids.dtype.kind not in "iu"):
        raise InputError(f"input_ids must be integers of shape [length] or [rows, length], got {ids.dtype} {ids.shape}")
    if ids.size and (ids.min() < 0 or ids.max() >= vocab_size):
        raise InputError(
            f"input_ids range from {ids.min()} to {ids.max()}, outside the vocabulary (0 to {vocab_size - 1})"
        )
    rows = np.atleast_2d(ids).astype(np.int32)
    masker = Masker(masking or Masking(), vocab_size, mask_token_id, special_ids, continues_word)
    if isinstance(seed, np.random.Generator):
        seeds = seed.integers(0, 1 << 64, len(rows), dtype=np.uint64)
    else:
        seeds = row_seeds(seed, "mask_tokens", 0, np.arange(len(rows)))
    if ids.size == 0:
        return MaskedTokens(
            ids.astype(np.int32), ids.astype(np.int32), np.zeros((0,) if ids.ndim == 1 else (0, 2), int)
        )
    masked_ids, labels = masker(rows, seeds, mask_prob)
    positions = np.argwhere(labels.reshape(ids.shape) != IGNORED)
    return MaskedTokens(
        masked_ids.reshape(ids.shape), labels.reshape(ids.shape), positions[:, 0] if ids.ndim == 1 else positions
    )
