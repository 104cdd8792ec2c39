"""Make or open a corpus: `build_corpus` for files, `write_corpus` for texts in memory, `open_corpus` for either."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.engines.machine import usable_cores
from glassbert.errors import TextError
from glassbert.files import atomic_write
from glassbert.text.corpus.build_folder import open_build_folder
from glassbert.text.corpus.builder import CorpusBuilder, Progress
from glassbert.text.corpus.reader import Corpus, Shard, Split
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.sources import STANDARD_INPUT, Source, find_sources
from glassbert.text.corpus.workers import MakeParts, make_all

if TYPE_CHECKING:
    from glassbert.text.tokenizer import Tokenizer


def build_corpus(
    sources: Sequence[str | Path],
    output: str | Path,
    tokenizer: Tokenizer | str | Path | None = None,
    *,
    vocab_size: int = 8192,
    lowercase: bool = True,
    kind: str = "wordpiece",
    workers: int | None = None,
    make_parts: MakeParts | None = None,
    overwrite: bool = False,
    progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Corpus:
    """Build the corpus of `sources` in the folder `output` and open it.

    Without a tokenizer, one of this `kind` (wordpiece, bpe, unigram) with `vocab_size` entries is trained on the
    sources first. `settings` are the fields of
    `Settings`. An interrupted build continues where it stopped. A finished corpus in `output` is opened if it has the
    same sources and settings, and replaced only with `overwrite`. In a script, call this below
    `if __name__ == "__main__":`, because the worker processes import the script. `make_parts` makes the parts elsewhere
    than in processes of this machine (`glassbert.on_ray.corpus`).
    """
    build_settings = Settings.from_dict(settings)
    if workers is not None and workers < 1:
        raise TextError(f"workers must be at least 1, got {workers}")
    loaded = _load_tokenizer(tokenizer)
    if loaded is None:
        from glassbert.text.kinds import check_kind

        check_kind(kind)
    with open_build_folder(Path(output), overwrite) as folder:
        if any(str(source) == STANDARD_INPUT for source in sources):
            _store_standard_input(folder.standard_input)
        found = find_sources(sources, build_settings, folder.standard_input)
        on_progress = progress or (lambda _: None)
        builder = CorpusBuilder(folder, found, build_settings, loaded, vocab_size, lowercase, on_progress, kind=kind)
        return builder.run(workers or usable_cores(), make_parts or make_all)


def write_corpus(
    output: str | Path, tokenizer: Tokenizer, documents: Iterable[str | Sequence[str]], **settings: Any
) -> Corpus:
    """Build a small corpus from documents in memory, with one worker. Each is a text or a list of paragraphs.

    The lines of a text are its paragraphs. By default nothing is cleaned or removed.
    """
    defaults = {"exact_duplicates": False, "near_duplicates": None, "clean": False, "min_characters": 0}
    build_settings = Settings.from_dict({**defaults, **settings})
    texts = [document if isinstance(document, str) else "\n".join(document) for document in documents]
    with open_build_folder(Path(output), overwrite=False) as folder:
        sources = [Source("documents", "given")]
        loaded = _load_tokenizer(tokenizer)
        builder = CorpusBuilder(folder, sources, build_settings, loaded, 0, True, lambda _: None, texts)
        return builder.run(workers=1)


def open_corpus(data_path: str | Path | Corpus, tokenizer: Tokenizer) -> Corpus:
    """The corpus of an open `Corpus`, of a corpus folder, or of a text file."""
    if isinstance(data_path, Corpus):
        return data_path
    path = Path(data_path)
    return _corpus_of_file(path, tokenizer) if path.is_file() else Corpus.open(path)


def _corpus_of_file(path: Path, tokenizer: Tokenizer) -> Corpus:
    """Build the corpus of one text file in memory, as `glassbert corpus build` would."""
    with tempfile.TemporaryDirectory(prefix="glassbert-") as folder:
        corpus = build_corpus([path], Path(folder) / "corpus", tokenizer, workers=1, near_duplicates=None)
        splits = {name: _in_memory(split) for name, split in corpus.splits.items()}
        return replace(corpus, splits=splits)


def _in_memory(split: Split) -> Split:
    shards = [
        Shard(shard.name, np.array(shard.tokens), np.array(shard.sentence_ends), np.array(shard._documents))
        for shard in split.shards
    ]
    return replace(split, shards=shards)


def _load_tokenizer(tokenizer: Tokenizer | str | Path | None) -> Tokenizer | None:
    if not isinstance(tokenizer, str | Path):
        return tokenizer
    from glassbert.text.fast import load_tokenizer

    return load_tokenizer(tokenizer)


def _store_standard_input(path: Path) -> None:
    """Copy standard input to a file, because a build that continues reads its sources again."""
    with atomic_write(path, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
    if not path.stat().st_size:
        raise TextError("standard input is empty")
