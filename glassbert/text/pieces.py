"""From documents to pieces: contiguous runs of tokens of one document, short enough to stand in a row.

A piece becomes [CLS] piece [SEP], so it has at most length - 2 tokens. Two ways of cutting:

    sentences   as many whole sentences as fit; only a sentence longer than a row is cut, between words
    tokens      exact slices wherever they end; only the last piece of a document is shorter

Everything here works on one shard, whose sentence and document ends are enough: no text is read except where a long
sentence must be cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glassbert.text.corpus.reader import Shard

LONGEST_WORD = 32  # a word of more tokens than this may be cut


@dataclass(frozen=True)
class Pieces:
    """starts [n] int64 in the shard's tokens, lengths [n] int64."""

    starts: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class Runs:
    """The longest runs of sentences that fit: run i has the sentences run_starts[i] to run_starts[i + 1] - 1."""

    starts: np.ndarray  # [sentences] int64 in the shard's tokens
    lengths: np.ndarray  # [sentences] int64
    run_starts: np.ndarray  # [runs] int64 in the sentences

    def pieces(self, dissolved: np.ndarray) -> Pieces:
        """The runs, but those marked in `dissolved` [runs] fall apart into their sentences."""
        sizes = np.diff(self.run_starts, append=len(self.starts))
        begins = np.repeat(dissolved, sizes)
        begins[self.run_starts] = True
        at = np.flatnonzero(begins)
        return Pieces(self.starts[at], np.add.reduceat(self.lengths, at) if len(at) else self.lengths)


def token_slices(shard: Shard, documents: np.ndarray, longest: int) -> Pieces:
    """Documents cut every `longest` tokens; `documents` [documents] says which ones are wanted."""
    ends = document_token_ends(shard)
    starts = np.concatenate([[0], ends])[:-1][documents]
    ends = ends[documents]
    counts = -(-(ends - starts) // longest)
    first = np.cumsum(counts) - counts
    slices = np.repeat(starts, counts) + longest * (np.arange(counts.sum()) - np.repeat(first, counts))
    return Pieces(slices, np.minimum(longest, np.repeat(ends, counts) - slices))


def sentence_runs(shard: Shard, documents: np.ndarray, longest: int, continues_word: np.ndarray | None) -> Runs:
    """Documents cut greedily into the longest runs of whole sentences that fit."""
    ends = _without_long_sentences(shard, longest, continues_word)
    starts = np.concatenate([[0], ends])[:-1]
    document_ends = document_token_ends(shard)
    last = np.searchsorted(ends, document_ends)  # the last sentence of each document
    document = np.searchsorted(document_ends, starts, side="right")
    reach = np.minimum(np.searchsorted(ends, starts + longest, side="right"), last[document] + 1)
    following = reach.tolist()  # where the next run begins, if one begins here: a chain to follow
    run_starts = []
    here = 0
    while here < len(following):
        run_starts.append(here)
        here = following[here]
    chosen = documents[document]
    kept = np.flatnonzero(chosen)
    begins = np.zeros(len(ends), np.bool_)
    begins[run_starts] = True
    return Runs(starts[kept], (ends - starts)[kept], np.flatnonzero(begins[kept]))


def _without_long_sentences(shard: Shard, longest: int, continues_word: np.ndarray | None) -> np.ndarray:
    """[sentences] int64 where sentences end, those longer than `longest` being cut in several; none is empty."""
    ends = shard.sentence_ends.astype(np.int64)
    starts = np.concatenate([[0], ends])[:-1]
    tokens = np.asarray(shard.tokens)
    extra = [ends]
    long = np.flatnonzero(ends - starts > longest)
    starts, long_ends = starts[long], ends[long]
    back = np.arange(min(LONGEST_WORD, longest))
    while len(starts):  # one cut in every sentence that is still too long
        cuts = starts + longest
        if continues_word is not None:
            inside_word = continues_word[tokens[cuts[:, None] - back]]  # [cuts, back]
            cuts -= np.where(inside_word.all(1), 0, np.argmin(inside_word, axis=1))
        extra.append(cuts)
        left = long_ends - cuts > longest
        starts, long_ends = cuts[left], long_ends[left]
    ends = np.unique(np.concatenate(extra))
    return ends[ends > 0]


def document_token_ends(shard: Shard) -> np.ndarray:
    """[documents] int64 in the tokens; a document without sentences ends where the one before it does."""
    ends = np.concatenate([[0], shard.sentence_ends.astype(np.int64)])
    return ends[shard.document_ends.astype(np.int64)]
