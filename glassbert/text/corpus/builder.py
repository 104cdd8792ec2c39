"""`CorpusBuilder`: the steps of a build, from sources to a finished corpus folder.

The main process reads the sources and cuts them into units. Worker processes turn each unit into a part file. When all
parts exist, one pass over a small table of all documents decides which are kept, and the parts are merged into shards.
A part depends on its input alone, so the number of workers and interruptions do not change the result.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from glassbert.errors import DifferentCorpusError, TextError
from glassbert.files import sha256
from glassbert.reading.streams import ByteCounter
from glassbert.text.corpus.blocks import Block, read_blocks
from glassbert.text.corpus.build_folder import BuildFolder
from glassbert.text.corpus.documents import sample_paragraphs
from glassbert.text.corpus.duplicates import bands_for
from glassbert.text.corpus.merging import MergeResult, merge_parts
from glassbert.text.corpus.parts import Part, Unit, gather_units, part_path
from glassbert.text.corpus.reader import Corpus
from glassbert.text.corpus.settings import DEFAULTS, Settings
from glassbert.text.corpus.sources import Source
from glassbert.text.corpus.storage import FORMAT, VERSION, token_type
from glassbert.text.corpus.workers import Job, MakeParts, make_all
from glassbert.text.vocabulary_training import SMALL_TEXT, small_vocabulary_note

if TYPE_CHECKING:
    from glassbert.text.tokenizer import Tokenizer


@dataclass
class Progress:
    """The progress of a build. `done` and `total` are bytes of the sources, or parts in the stage "writing"."""

    stage: str  # "vocabulary", "reading" or "writing"
    done: int = 0
    total: int = 0
    text: int = 0  # bytes of text read
    resumed: int = 0  # bytes of text whose parts exist from an earlier run


class CorpusBuilder:
    """One build in one folder."""

    def __init__(
        self,
        folder: BuildFolder,
        sources: list[Source],
        settings: Settings,
        tokenizer: Tokenizer | None,
        vocab_size: int,
        lowercase: bool,
        on_progress: Callable[[Progress], None],
        texts: list[str] | None = None,
        kind: str = "wordpiece",
    ) -> None:
        self.folder, self.sources, self.settings, self.texts = folder, sources, settings, texts
        self.tokenizer, self.vocab_size, self.lowercase, self.kind = tokenizer, vocab_size, lowercase, kind
        self.on_progress = on_progress
        self.counters = [ByteCounter() for _ in sources]
        self.units = 0
        self.progress = Progress("reading", total=sum(source.size for source in sources))

    def run(self, workers: int, make_parts: MakeParts = make_all) -> Corpus:
        finished = self._finished_corpus()
        if finished:
            self.folder.remove_build_files()
            return finished
        bands = (0, 0) if self.settings.near_duplicates is None else bands_for(self.settings.near_duplicates)
        plan = self._plan()
        resumed = self.folder.can_resume(plan)
        tokenizer = self._tokenizer(resumed)
        self.folder.begin({**plan, "fingerprint": tokenizer.fingerprint})
        job = Job(self.folder.parts, self.folder.tokenizer, tokenizer.fingerprint, self.settings, bands)
        self.on_progress(self.progress)
        for _ in make_parts(self._missing_units(), job, workers):
            self.on_progress(self.progress)
        merged = self._merge(tokenizer)
        self.folder.install(self._manifest(merged, tokenizer))
        return Corpus.open(self.folder.output)

    # ---- a finished corpus in the folder ----

    def _plan(self) -> dict[str, Any]:
        """Everything that determines the result; stored in plan.json to check whether a build can be resumed."""
        tokenizer: dict[str, Any] = {"vocab_size": self.vocab_size, "lowercase": self.lowercase}
        if self.kind != "wordpiece":
            tokenizer["kind"] = self.kind
        if self.tokenizer is not None:
            tokenizer = {"fingerprint": self.tokenizer.fingerprint}
        from glassbert import __version__

        return {
            "made_by": f"glassbert {__version__}",
            "settings": self.settings.as_dict(),
            "sources": [{"name": source.name, "kind": source.kind, "bytes": source.size} for source in self.sources],
            "tokenizer": tokenizer,
        }

    def _finished_corpus(self) -> Corpus | None:
        """The finished corpus in the folder, if this build would give the same. A different one raises TextError."""
        manifest = self.folder.finished()
        if manifest is None or self.folder.overwrite:
            return None
        difference = self._difference(manifest)
        if not difference:
            return Corpus.open(self.folder.output)
        raise DifferentCorpusError(
            f"{self.folder.output} contains a finished corpus that differs from this one: {difference}; "
            "use another folder, or --overwrite to replace it",
            difference,
        )

    def _difference(self, manifest: dict[str, Any]) -> str:
        for name, value in self.settings.as_dict().items():
            there = manifest["settings"].get(name, DEFAULTS.get(name))  # an older corpus has fewer settings
            if there != value:
                return f"{name} is {there} there and {value} here"
        if self.tokenizer is not None and manifest["tokenizer"]["fingerprint"] != self.tokenizer.fingerprint:
            return "it has a different tokenizer"
        if self.tokenizer is None and manifest["tokenizer"].get("trained") != self._plan()["tokenizer"]:
            return "its tokenizer was not trained with these settings"
        names = [source["name"] for source in manifest["sources"]]
        if names != [source.name for source in self.sources]:
            return "it has other sources"
        for source, facts in zip(self.sources, manifest["sources"], strict=True):
            if source.kind == "given" or (source.path and sha256(source.path) != facts["sha256"]):
                return f"{source.name} has changed since"
        return ""

    # ---- the tokenizer ----

    def _tokenizer(self, resumed: bool) -> Tokenizer:
        from glassbert.text.fast import load_tokenizer

        if resumed:
            kept = load_tokenizer(self.folder.tokenizer)
            if kept.fingerprint == (self.folder.earlier_plan() or {}).get("fingerprint"):
                return kept
            if not self.folder.overwrite:
                raise TextError(
                    f"{self.folder.tokenizer} changed after the build started; use --overwrite to start again"
                )
            self.folder.clear()
        if self.tokenizer is None:
            self._train_tokenizer().save(self.folder.tokenizer)
            return load_tokenizer(self.folder.tokenizer)
        self.tokenizer.save(self.folder.tokenizer)
        tokenizer = load_tokenizer(self.folder.tokenizer)
        if tokenizer.fingerprint != self.tokenizer.fingerprint:
            raise TextError("the tokenizer changes when it is saved and loaded again; it cannot be used for a corpus")
        return tokenizer

    def _train_tokenizer(self) -> Tokenizer:
        from glassbert.text.kinds import train_tokenizer

        def on_bytes_read(done: int) -> None:
            self.on_progress(Progress("vocabulary", done))

        paragraphs = sample_paragraphs(self.sources, self.settings, on_bytes_read)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=SMALL_TEXT)  # it is in the notes of the manifest
            return train_tokenizer(self.kind, paragraphs, self.vocab_size, self.lowercase)

    # ---- parts ----

    def _blocks(self) -> Iterator[Block]:
        if self.texts is not None:
            for text in self.texts:
                self.counters[0].add(text.encode("utf-8", "surrogatepass") + b"\0")
            yield Block(0, "documents", "given", self.texts)
            return
        for number, source in enumerate(self.sources):
            before = self.progress.done
            for block in read_blocks(number, source, self.settings, self.counters[number]):
                self.progress.done = before + self.counters[number].bytes
                yield block

    def _missing_units(self) -> Iterator[tuple[Unit, str]]:
        """The units without a part file, each with its digest."""
        for unit in gather_units(self._blocks()):
            self.units += 1
            digest = unit.digest()
            self.progress.text += unit.size
            if self._part_exists(unit, digest):
                self.progress.resumed += unit.size
                self.on_progress(self.progress)
            else:
                yield unit, digest

    def _part_exists(self, unit: Unit, digest: str) -> bool:
        path = part_path(self.folder.parts, unit.number)
        if not path.exists():
            return False
        part = Part(path)
        same = part.about()["input"] == digest
        part.close()
        if not same and not self.folder.overwrite:
            names = ", ".join(dict.fromkeys(block.name for block in unit.blocks))
            raise TextError(f"{names} changed since this build started; use --overwrite to continue with the new text")
        return bool(same)

    # ---- shards ----

    def _merge(self, tokenizer: Tokenizer) -> MergeResult:
        def on_part(done: int, total: int) -> None:
            self.on_progress(Progress("writing", done, total))

        shutil.rmtree(self.folder.ready, ignore_errors=True)
        self.folder.ready.mkdir()
        dtype = token_type(tokenizer.vocab_size)
        return merge_parts(self.folder.parts, self.units, self.folder.ready, dtype, self.settings, on_part)

    def _manifest(self, merged: MergeResult, tokenizer: Tokenizer) -> dict[str, Any]:
        shards = {path.name for path in self.folder.ready.iterdir()}
        tokenizer.save(self.folder.ready)
        plan = self._plan()
        return {
            "format": FORMAT,
            "version": VERSION,
            "made_by": plan["made_by"],
            "sources": [
                {
                    "name": source.name,
                    "kind": source.kind,
                    "bytes": self.counters[number].bytes,
                    "sha256": self.counters[number].digest.hexdigest(),
                    "documents": merged.read[number],
                    "kept": merged.kept[number],
                }
                for number, source in enumerate(self.sources)
            ],
            "tokenizer": {
                "fingerprint": tokenizer.fingerprint,
                "vocab_size": tokenizer.vocab_size,
                "trained": plan["tokenizer"] if self.tokenizer is None else None,
                "files": {
                    path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)}
                    for path in sorted(self.folder.ready.iterdir())
                    if path.name not in shards
                },
            },
            "settings": self.settings.as_dict(),
            "counts": merged.counts,
            "cleaning": merged.cleaning,
            "examples": merged.examples,
            "splits": merged.splits,
            "notes": [*self._notes(tokenizer.vocab_size), *merged.notes],
        }

    def _notes(self, vocab_size: int) -> list[str]:
        """What the user should know: encodings that were recognised, and a vocabulary that is smaller than wanted."""
        read = zip(self.sources, self.counters, strict=True)
        notes = [f"{source.name} was read as {counter.encoding}" for source, counter in read if counter.encoding]
        if self.tokenizer is None and vocab_size < self.vocab_size:
            notes.append(small_vocabulary_note(self.vocab_size, vocab_size))
        return notes
