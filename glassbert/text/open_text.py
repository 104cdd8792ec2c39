"""A corpus from whatever the user has: an open one, its folder, or a plain text file."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from glassbert.text.corpus.reader import Corpus, Shard, Split
from glassbert.text.tokenizer import Tokenizer


def open_corpus(data_path: str | Path | Corpus, tokenizer: Tokenizer) -> Corpus:
    if isinstance(data_path, Corpus):
        return data_path
    path = Path(data_path)
    return _of_text(path, tokenizer) if path.is_file() else Corpus.open(path)


def _of_text(path: Path, tokenizer: Tokenizer) -> Corpus:
    """A text file cleaned, split and tokenised as `glassbert corpus build` would, kept in memory alone."""
    from glassbert.text.corpus import build_corpus

    with tempfile.TemporaryDirectory(prefix="glassbert-") as folder:
        corpus = build_corpus([path], Path(folder) / "corpus", tokenizer, workers=1, near_duplicates=None)
        splits = {name: _in_memory(split) for name, split in corpus.splits.items()}
        return replace(corpus, splits=splits)


def _in_memory(split: Split) -> Split:
    shards = [
        Shard(shard.name, *(np.array(array) for array in (shard.tokens, shard.sentence_ends, shard._documents)))
        for shard in split.shards
    ]
    return replace(split, shards=shards)
