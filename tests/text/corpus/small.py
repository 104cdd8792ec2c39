"""A small tokenizer and documents for tests, and functions to read a finished corpus."""

from __future__ import annotations

import functools
import hashlib
import random
from pathlib import Path
from typing import Any

from glassbert.text import FastTokenizer, WordPieceTokenizer
from glassbert.text.corpus import Corpus, Shard, build_corpus
from tests.text.sample_sentences import SENTENCES

NO_NEAR = {"near_duplicates": None}


@functools.cache
def tokenizer() -> FastTokenizer:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        WordPieceTokenizer.train(SENTENCES, 400, min_frequency=1).save(folder)
        return FastTokenizer.load(folder)


def story(seed: int, sentences: int = 8) -> str:
    """Paragraphs of two sentences, one per line."""
    rng = random.Random(seed)
    chosen = [rng.choice(SENTENCES) for _ in range(sentences)]
    return "\n".join(" ".join(chosen[i : i + 2]) for i in range(0, sentences, 2))


def stories(count: int, first: int = 0) -> list[str]:
    return [story(first + i) for i in range(count)]


def write(path: Path, documents: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def build(sources: list[Any], output: Path, **settings: Any) -> Corpus:
    return build_corpus(sources, output, tokenizer(), **{"workers": 1, **NO_NEAR, **settings})


def texts(corpus: Corpus, split: str) -> list[str]:
    """The decoded documents of a split, with sentences joined by |."""
    return [text for shard in corpus.split(split).shards for text in shard_texts(corpus, shard)]


def shard_texts(corpus: Corpus, shard: Shard) -> list[str]:
    found = []
    sentence = token = 0
    for end in shard.document_ends.tolist():
        parts = []
        for stop in shard.sentence_ends[sentence:end].tolist():
            parts.append(corpus.tokenizer.decode(shard.tokens[token:stop]))
            token = stop
        sentence = end
        found.append(" | ".join(parts))
    return found


def fingerprints(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
