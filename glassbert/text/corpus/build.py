"""The two doors to a new corpus: `build_corpus` for files of any size, `write_corpus` for documents at hand."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassbert.engines.threads import usable_cores
from glassbert.errors import TextError
from glassbert.files import atomic_write
from glassbert.text.corpus.construction import Construction, Progress
from glassbert.text.corpus.folder import workshop
from glassbert.text.corpus.reader import Corpus
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.sources import STANDARD_INPUT, Source, find_sources

if TYPE_CHECKING:
    from glassbert.text.tokenizer import Tokenizer


def build_corpus(
    sources: Sequence[str | Path],
    output: str | Path,
    tokenizer: Tokenizer | str | Path | None = None,
    *,
    vocab_size: int = 8192,
    lowercase: bool = True,
    workers: int | None = None,
    force: bool = False,
    progress: Callable[[Progress], None] | None = None,
    **settings: Any,
) -> Corpus:
    """Build the corpus of `sources` in the folder `output` and open it.

    Without a tokenizer, one of `vocab_size` entries is trained on the sources first. `settings` are the fields of
    `Settings`. A build that was interrupted goes on where it stopped; a corpus that is there already is opened if it is
    the one asked for, and replaced only with `force`. In a script, call this below `if __name__ == "__main__":`: the
    workers are processes that import the script.
    """
    chosen = _settings(settings)
    if workers is not None and workers < 1:
        raise TextError(f"workers must be at least 1, got {workers}")
    given = _open_tokenizer(tokenizer)
    with workshop(Path(output), force) as place:
        if any(str(source) == STANDARD_INPUT for source in sources):
            _spool(place.spool)
        found = find_sources(sources, chosen, place.spool)
        build = Construction(place, found, chosen, given, vocab_size, lowercase, progress or (lambda _: None))
        return build.run(workers or usable_cores())


def write_corpus(
    output: str | Path, tokenizer: Tokenizer, documents: Iterable[str | Sequence[str]], **settings: Any
) -> Corpus:
    """A small corpus from documents at hand, each a text or a list of paragraphs. Nothing is removed unless asked for.

    A text's lines are its paragraphs. The way is that of `build_corpus`, with one worker.
    """
    as_asked = {"exact_duplicates": False, "near_duplicates": None, "clean": False, "min_characters": 0, **settings}
    chosen = _settings(as_asked)
    texts = [document if isinstance(document, str) else "\n".join(document) for document in documents]
    with workshop(Path(output), force=False) as place:
        source = Source("documents", "given")
        build = Construction(place, [source], chosen, _open_tokenizer(tokenizer), 0, True, lambda _: None, texts)
        return build.run(workers=1)


def _settings(values: dict[str, Any]) -> Settings:
    try:
        return Settings(**values)
    except TypeError:
        unknown = sorted(set(values) - set(Settings.__dataclass_fields__))
        known = ", ".join(Settings.__dataclass_fields__)
        raise TextError(f"a build has no setting {unknown[0]!r}; it has {known}") from None


def _open_tokenizer(tokenizer: Tokenizer | str | Path | None) -> Tokenizer | None:
    if not isinstance(tokenizer, str | Path):
        return tokenizer
    from glassbert.text.fast import load_tokenizer

    return load_tokenizer(tokenizer)


def _spool(path: Path) -> None:
    """Standard input can be read only once, and a build reads its sources again when it goes on."""
    with atomic_write(path, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
    if not path.stat().st_size:
        raise TextError("standard input is empty")
