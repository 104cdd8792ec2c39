"""Cut documents into segments: contiguous runs of tokens of one document that fit into a row.

A segment becomes [CLS] segment [SEP], so it has at most length - 2 tokens. There are two methods:

    sentences   as many whole sentences as fit; only a sentence longer than a row is cut, between words
    tokens      slices of exact length; only the last segment of a document is shorter

All functions work on one shard. They need its sentence and document ends; tokens are read only to cut long sentences.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from glassbert.text.corpus.reader import Shard

LONGEST_WORD = 32  # a word of more tokens than this may be cut


@dataclass(frozen=True)
class Segments:
    """starts [n] int64 in the shard's tokens, lengths [n] int64."""

    starts: np.ndarray
    lengths: np.ndarray


@dataclass(frozen=True)
class SentenceRuns:
    """The longest runs of sentences that fit. Run i has the sentences run_starts[i] to run_starts[i + 1] - 1."""

    starts: np.ndarray  # [sentences] int64 in the shard's tokens
    lengths: np.ndarray  # [sentences] int64
    run_starts: np.ndarray  # [runs] int64 in the sentences

    def segments(self, split: np.ndarray) -> Segments:
        """One segment per run; runs marked in `split` [runs] give one segment per sentence."""
        sizes = np.diff(self.run_starts, append=len(self.starts))
        is_first = np.repeat(split, sizes)
        is_first[self.run_starts] = True
        first = np.flatnonzero(is_first)
        return Segments(self.starts[first], np.add.reduceat(self.lengths, first) if len(first) else self.lengths)


def select_documents(shard: Shard, sources: Collection[int] | None) -> np.ndarray:
    """bool [documents]: the documents of the given source numbers; all documents if `sources` is None."""
    if sources is None:
        return np.ones(len(shard.document_ends), np.bool_)
    return np.isin(shard.document_sources, list(sources))


def token_slices(shard: Shard, documents: np.ndarray, longest: int) -> Segments:
    """Cut documents every `longest` tokens; `documents` (bool [documents]) selects them."""
    ends = shard.document_token_ends
    starts = np.concatenate([[0], ends])[:-1][documents]
    ends = ends[documents]
    counts = -(-(ends - starts) // longest)
    first = np.cumsum(counts) - counts
    slices = np.repeat(starts, counts) + longest * (np.arange(counts.sum()) - np.repeat(first, counts))
    return Segments(slices, np.minimum(longest, np.repeat(ends, counts) - slices))


def sentence_runs(shard: Shard, documents: np.ndarray, longest: int, continues_word: np.ndarray | None) -> SentenceRuns:
    """Cut documents greedily into the longest runs of whole sentences; `documents` (bool [documents]) selects them."""
    ends = _without_long_sentences(shard, longest, continues_word)
    starts = np.concatenate([[0], ends])[:-1]
    document_ends = shard.document_token_ends
    last = np.searchsorted(ends, document_ends)  # the last sentence of each document
    document = np.searchsorted(document_ends, starts, side="right")
    run_ends = np.minimum(np.searchsorted(ends, starts + longest, side="right"), last[document] + 1)
    next_start = run_ends.tolist()  # next_start[s]: the start of the next run, if a run starts at sentence s
    run_starts = []
    sentence = 0
    while sentence < len(next_start):
        run_starts.append(sentence)
        sentence = next_start[sentence]
    kept = np.flatnonzero(documents[document])
    is_first = np.zeros(len(ends), np.bool_)
    is_first[run_starts] = True
    return SentenceRuns(starts[kept], (ends - starts)[kept], np.flatnonzero(is_first[kept]))


def _without_long_sentences(shard: Shard, longest: int, continues_word: np.ndarray | None) -> np.ndarray:
    """[sentences] int64: sentence ends, after cutting sentences longer than `longest`; no sentence is empty."""
    ends = shard.sentence_ends.astype(np.int64)
    starts = np.concatenate([[0], ends])[:-1]
    tokens = np.asarray(shard.tokens)
    extra = [ends]
    long = np.flatnonzero(ends - starts > longest)
    starts, long_ends = starts[long], ends[long]
    back = np.arange(min(LONGEST_WORD, longest))
    while len(starts):  # each pass cuts every sentence that is still too long once
        cuts = starts + longest
        if continues_word is not None:
            inside_word = continues_word[tokens[cuts[:, None] - back]]  # [cuts, back]
            cuts -= np.where(inside_word.all(1), 0, np.argmin(inside_word, axis=1))
        extra.append(cuts)
        left = long_ends - cuts > longest
        starts, long_ends = cuts[left], long_ends[left]
    ends = np.unique(np.concatenate(extra))
    return ends[ends > 0]
