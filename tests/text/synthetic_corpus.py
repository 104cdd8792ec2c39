"""Small in-memory corpora of artificial token ids, and a minimal tokenizer for batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from glassbert.text.corpus.reader import Corpus, Shard, Split

PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL = range(5)
VOCABULARY = 200
CONTINUES = np.arange(VOCABULARY) % 3 == 0  # every third entry continues a word
CONTINUES[:5] = False


def tokenizer(fingerprint: str = "a" * 64) -> Any:
    return SimpleNamespace(
        vocab_size=VOCABULARY, pad_id=PAD, cls_id=CLS, sep_id=SEP, mask_id=MASK, special_ids=tuple(SPECIAL),
        continues_word=CONTINUES, fingerprint=fingerprint,
    )  # fmt: skip


def shard(documents: Sequence[Sequence[int]], first: int = 0, sources: int = 2) -> Shard:
    """A shard whose documents have sentences of these lengths. Its tokens are first, first + 1, ..., so that a token
    gives its position; see `numbered`.
    """
    lengths = [length for document in documents for length in document]
    tokens = first + np.arange(sum(lengths))
    document_ends = np.cumsum([len(document) for document in documents])
    columns = np.stack([document_ends, np.arange(len(documents)) % sources], axis=1)
    return Shard("made-up", tokens.astype(np.uint32), np.cumsum(lengths).astype(np.uint32), columns.astype(np.uint32))


def numbered(shards: Sequence[Sequence[Sequence[int]]]) -> Split:
    """A split whose tokens are 0, 1, 2, ... through all shards."""
    made: list[Shard] = []
    for documents in shards:
        made.append(shard(documents, sum(len(one.tokens) for one in made)))
    return split("train", made)


def split(name: str, shards: list[Shard]) -> Split:
    return Split(
        name, sum(len(one.document_ends) for one in shards), sum(len(one.sentence_ends) for one in shards),
        sum(len(one.tokens) for one in shards), shards,
    )  # fmt: skip


def corpus(folder: Path = Path("nowhere"), documents: int = 40, seed: int = 0) -> Corpus:
    """Two sources, two training shards, one held-out shard, with random ordinary ids."""
    draw = np.random.default_rng(seed)
    splits = {}
    for name, shards in (("train", 2), ("validation", 1)):
        made = []
        for _ in range(shards):
            one = shard([draw.integers(1, 30, draw.integers(1, 12)).tolist() for _ in range(documents)])
            tokens = draw.integers(len(SPECIAL), VOCABULARY, len(one.tokens)).astype(np.uint16)
            made.append(Shard(one.name, tokens, one.sentence_ends, one._documents))
        splits[name] = split(name, made)
    manifest = {
        "tokenizer": {"fingerprint": "a" * 64, "vocab_size": VOCABULARY},
        "sources": [{"name": "texts/novels.txt.xz"}, {"name": "texts/letters.txt"}],
        "splits": {name: {"tokens": one.tokens, "seed": seed} for name, one in splits.items()},
    }
    return Corpus(folder, manifest, splits)
