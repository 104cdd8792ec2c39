"""A vocabulary for a corpus, trained on a sample of its own sources.

The sample takes every n-th block of the cleaned text, from the first source to the last, so that large collections need
no more time and memory than small ones. The trainer is GlassBERT's own, which gives the same vocabulary on every run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from glassbert.text.corpus.blocks import read_blocks
from glassbert.text.corpus.cleaning import clean
from glassbert.text.corpus.documents import open_block
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.sources import Source
from glassbert.text.corpus.streams import SUFFIXES, Tally
from glassbert.text.wordpiece_tokenizer import WordPieceTokenizer

SAMPLE = 64 << 20  # bytes of text
COMPRESSED = 4  # how much larger text is than its compressed file, roughly


def train_tokenizer(
    sources: Sequence[Source],
    settings: Settings,
    vocab_size: int,
    lowercase: bool,
    progress: Callable[[int, int], None],
) -> WordPieceTokenizer:
    return WordPieceTokenizer.train(sample(sources, settings, progress), vocab_size, lowercase)


def sample(sources: Sequence[Source], settings: Settings, progress: Callable[[int, int], None]) -> Iterator[str]:
    """Paragraphs of about SAMPLE bytes of documents, spread evenly over the sources."""
    total = sum(source.size * (COMPRESSED if _compressed(source.path) else 1) for source in sources)
    every = max(1, -(-total // SAMPLE))
    read = taken = number = 0
    for source_number, source in enumerate(sources):
        tally = Tally()
        for block in read_blocks(source_number, source, settings, tally):
            number += 1
            if number % every == 0 or every == 1:
                taken += block.size
                for text in open_block(block, settings).texts:
                    yield from clean(text, Counter())[0]
            progress(read + tally.bytes, 0)
            if taken >= 2 * SAMPLE:  # sources whose size was not known
                return
        read += tally.bytes


def _compressed(path: Path | None) -> bool:
    return path is not None and path.suffix.lower() in SUFFIXES
