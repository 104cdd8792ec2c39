"""The data of a run: training batches for each row length of the curriculum, and held-out batches."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import DifferentCorpusError, TextError, TrainingError
from glassbert.training.feed import Source
from glassbert.training.settings import TrainingSettings

HELD_OUT_BATCH = 64  # rows of the full length
MAX_SOURCES = 16  # evaluated separately, if there are no more
ADAPTATION = "adaptation.json"  # a run folder with this file is an adaptation (`glassbert.training.adapting`)
MASKINGS: dict[str, dict[str, Any]] = {
    "tokens": {},
    "words": {"whole_words": True},
    "spans": {"spans": (3.8, 10)},
    "ngrams": {"whole_words": True, "ngrams": 3},
}


@dataclass
class TrainingData:
    """Training and held-out batches by row length, and their description for settings.json.

    Held-out rows are counted in rows of the full length.
    """

    tokenizer: Any
    sources: Mapping[int, Source]  # by row length; the longest is `settings.length`
    rows: Mapping[int, int]  # rows of a logical batch, by row length
    validation: Mapping[int, Source]  # by row length; batches of short rows have as many tokens as batches of long rows
    fingerprint: str
    description: dict[str, Any] = field(default_factory=dict)
    short_share: float = 0.0
    validation_rows: int = HELD_OUT_BATCH
    seconds_to_build: float = 0.0
    validation_by_source: Mapping[str, Source] = field(default_factory=dict)
    corpora: tuple[Any, ...] = ()  # whose checksums a run compares when it begins
    rows_at_end: int = 0  # held-out rows that an adaptation evaluates beside

    def length_at(self, progress: float) -> int:
        """The row length at this progress: short rows first, where there is a curriculum."""
        return min(self.sources) if progress < self.short_share else max(self.sources)

    def tokens_of(self, length: int) -> int:
        """The number of positions of a logical batch, with padding."""
        return self.rows[length] * length

    def rows_for(self, workers: Any) -> dict[int, slice | None]:
        """The rows of every batch that this worker computes, by row length; None means all."""
        if workers is None or workers.size == 1:
            return dict.fromkeys(self.sources)
        shares: dict[int, slice | None] = {}
        for length, rows in self.rows.items():
            if rows % workers.size:
                raise TrainingError(
                    f"{workers.size} workers cannot share a batch of {rows} rows evenly; choose --batch as a multiple"
                )
            share = rows // workers.size
            shares[length] = slice(workers.rank * share, (workers.rank + 1) * share)
        return shares

    def held_out(self, rows: int, source: str | None = None, length: int | None = None) -> Iterator[Any]:
        """The first `rows` held-out rows of all sources or of one, in batches; the masks are always the same."""
        validation = self._held_out_source(source, length)
        whole, rest = divmod(rows, self.validation_rows)
        for index in range(min(whole, len(validation))):
            yield validation.batch(0, index)
        if rest and whole < len(validation):
            longest = max(self.validation)
            yield validation.batch(0, whole, rows=slice(rest * longest // (length or longest)))

    def held_out_rows(self, source: str | None = None) -> int:
        """The number of held-out rows, in whole batches."""
        return len(self._held_out_source(source)) * self.validation_rows

    def _held_out_source(self, source: str | None = None, length: int | None = None) -> Source:
        return self.validation[length or max(self.validation)] if source is None else self.validation_by_source[source]


def open_data(settings: TrainingSettings, run: Path, *, new: bool = False) -> TrainingData:
    """The training data of a run; builds the corpus if the settings name text files.

    `new`: a corpus that an earlier attempt left in the folder is compared with these texts and settings.
    """
    data = _open(settings, run, new)
    with suppress(OSError, ValueError):  # no adaptation
        rows = json.loads((run / ADAPTATION).read_text(encoding="utf-8")).get("rows_at_end", 0)
        by_source = {} if settings.general else data.validation_by_source  # it measures the two texts itself
        return dataclasses.replace(data, validation_by_source=by_source, rows_at_end=rows)
    return data


def _open(settings: TrainingSettings, run: Path, new: bool = False) -> TrainingData:
    from glassbert.text.masking import Masking

    corpus, seconds = open_or_build(settings, run, new=new)
    if settings.general:
        return open_mixture(settings, run, corpus, seconds, new)
    masking = Masking(settings.mask_rate, **MASKINGS[settings.masking])
    lengths = [settings.length] if settings.short_length is None else [settings.short_length, settings.length]
    rows = {length: settings.batch * settings.length // length for length in lengths}
    batches_of = partial(generator_for(settings), corpus, corpus.tokenizer)
    return TrainingData(
        corpus.tokenizer,
        {length: batches_of(length, rows[length], seed=settings.data_seed, masking=masking) for length in lengths},
        rows,
        # Held-out rows have default masks whatever the settings are, so that runs can be compared.
        {
            length: batches_of(length, HELD_OUT_BATCH * settings.length // length, split="validation")
            for length in lengths
        },
        fingerprint=fingerprint_of(corpus),
        description=describe(corpus),
        short_share=settings.short_share if settings.short_length is not None else 0.0,
        seconds_to_build=seconds,
        validation_by_source=batches_by_source(corpus, partial(batches_of, settings.length, HELD_OUT_BATCH)),
        corpora=(corpus,),
    )


def open_mixture(settings: TrainingSettings, run: Path, corpus: Any, seconds: float, new: bool = False) -> TrainingData:
    """The data of a run on two corpora: a share of the rows of every batch is general text.

    Held-out rows are those of the first corpus; at the end both are evaluated, under the names "domain" and "general".
    """
    share = round(settings.general_share * settings.batch)
    if not 0 < share < settings.batch:
        raise TrainingError(
            f"a general share of {settings.general_share:g} gives {share} of {settings.batch} rows of a batch; both "
            f"texts need at least one: change --general-share or --batch"
        )
    second, more = open_or_build(settings.replace(corpus=settings.general), run, "general", corpus, new)
    second.check_tokenizer(corpus.tokenizer)
    plain = settings.replace(general=())
    domain = _open(plain.replace(corpus=str(corpus.folder), batch=settings.batch - share), run)
    general = _open(plain.replace(corpus=str(second.folder), batch=share), run)
    lengths = list(domain.sources)
    return dataclasses.replace(
        domain,
        sources={length: Mixture(domain.sources[length], general.sources[length]) for length in lengths},
        rows={length: domain.rows[length] + general.rows[length] for length in lengths},
        fingerprint=hashlib.sha256((domain.fingerprint + general.fingerprint).encode()).hexdigest(),
        description={**domain.description, "general": general.description, "general_share": settings.general_share},
        seconds_to_build=seconds + more,
        validation_by_source={
            "domain": domain.validation[settings.length],
            "general": general.validation[settings.length],
        },
        corpora=(*domain.corpora, *general.corpora),
    )


class Mixture:
    """Batches of two sources: first the rows of one, then those of the other. An epoch is one of the first source."""

    def __init__(self, first: Source, second: Source):
        self.first, self.second = first, second

    def __len__(self) -> int:
        return len(self.first)

    def batch(self, epoch: int, index: int, *, rows: slice | None = None, mask_rate: float | None = None) -> Any:
        again, place = divmod(epoch * len(self) + index, len(self.second))
        parts = [
            self.first.batch(epoch, index, mask_rate=mask_rate),
            self.second.batch(again, place, mask_rate=mask_rate),
        ]
        names = [field.name for field in dataclasses.fields(parts[0])]
        arrays = {name: [getattr(part, name) for part in parts] for name in names}
        whole = dataclasses.replace(
            parts[0],
            **{name: np.concatenate(both) for name, both in arrays.items() if both[0] is not None},
        )
        return whole if rows is None else whole.rows(rows)


def batches_by_source(corpus: Any, batches_of: Callable[..., Source]) -> dict[str, Source]:
    """Held-out batches of each source, if there are 2 to 16; sources without held-out documents are left out."""
    names = [Path(source["name"]).name for source in corpus.manifest.get("sources", [])]
    found = {}
    for number, name in enumerate(names if 1 < len(names) <= MAX_SOURCES else ()):
        with suppress(TextError):  # no held-out document in this source
            found[name] = batches_of(split="validation", sources=[number])
    return found


def generator_for(settings: TrainingSettings) -> Callable[..., Source]:
    """The class of batches whose rows have the targets of every objective: the first in `ROWS` that does."""
    from glassbert.training.objectives import Objectives

    objectives = [objective for objective, _ in Objectives.parse(settings.objective).terms]
    for given, make in ROWS.items():
        if all(objective.rows in given for objective in objectives):
            return make(settings)
    for objective in objectives:
        if objective.rows == "labelled":
            raise TrainingError(
                f"the objective {objective.name!r} learns from labelled examples, and a corpus has none; choose "
                f"another --objective, such as mlm, or train on a data file with glassbert finetune"
            )
    names = " and ".join(objective.name for objective in objectives)
    raise TrainingError(
        f"the objective {settings.objective!r} contains {names}, which need different rows; choose one of them"
    )


def masked_rows(settings: TrainingSettings) -> Callable[..., Source]:
    from glassbert.text.generator import MLMDataGenerator

    return partial(MLMDataGenerator, packing=settings.packing)


def next_token_rows(settings: TrainingSettings) -> Callable[..., Source]:
    from glassbert.text.generator import NextTokenGenerator

    return partial(NextTokenGenerator, packing=settings.packing)


def permuted_rows(settings: TrainingSettings) -> Callable[..., Source]:
    from glassbert.text.generator import PermutedGenerator

    return partial(PermutedGenerator, packing=settings.packing)


def pair_rows(task: str, settings: TrainingSettings) -> Callable[..., Source]:
    from glassbert.text.pairs import PairDataGenerator

    return partial(PairDataGenerator, task=task)


# The kinds of rows that objectives name (`Objective.rows`), by what a class of batches gives.
ROWS: dict[tuple[str, ...], Callable[[TrainingSettings], Callable[..., Source]]] = {
    ("masked",): masked_rows,
    ("masked", "next_sentence"): partial(pair_rows, "next"),
    ("masked", "sentence_order"): partial(pair_rows, "order"),
    ("next_token",): next_token_rows,
    ("permuted",): permuted_rows,
}


def open_or_build(
    settings: TrainingSettings, run: Path, name: str = "corpus", like: Any = None, new: bool = False
) -> tuple[Any, float]:
    """The corpus of a run, and the seconds it took to build.

    It is opened if the settings name a corpus folder. It is built from text files in RUN/corpus, or from the built-in
    texts in a folder beside the run, where later runs find it. `like` is a corpus whose tokenizer it gets. For a `new`
    run a corpus in RUN/corpus must have been built from the same texts and with the same settings.
    """
    from glassbert.text.corpus import Corpus

    paths = [Path(path) for path in settings.corpus]
    if len(paths) == 1 and os.path.exists(paths[0] / "manifest.json"):  # False for names that no path can have
        corpus = Corpus.open(paths[0])
        if settings.tokenizer:
            from glassbert.text import load_tokenizer

            corpus.check_tokenizer(load_tokenizer(settings.tokenizer))
        return corpus, 0.0
    if settings.tokenizer and settings.family:
        check_tokenizer_kind(settings)
    kind = "" if settings.tokenizer_kind == "wordpiece" else f"-{settings.tokenizer_kind}"
    folder = run / name if paths else run.parent / "corpora" / f"built-in-{settings.vocab_size}{kind}"
    if (folder / "manifest.json").exists() and not (new and paths):
        return Corpus.open(folder), 0.0
    began = time.monotonic()
    if like is not None:
        settings = settings.replace(tokenizer=str(like.folder))
    with in_folder_of_run(folder):
        return build(settings, folder), time.monotonic() - began


@contextmanager
def in_folder_of_run(folder: Path) -> Iterator[None]:
    """A build in this folder of a run; the error about another corpus there names what a run can do."""
    try:
        yield
    except DifferentCorpusError as error:
        raise TrainingError(
            f"{folder} was left by another attempt, and differs from what this run asks for: {error.difference}; "
            f"choose another folder with --run, or remove {folder}"
        ) from None


def check_tokenizer_kind(settings: TrainingSettings) -> None:
    """Raise if the tokenizer is of another kind than the one that the family is trained with."""
    from glassbert.text import load_tokenizer

    kind = load_tokenizer(settings.tokenizer).kind.lower()
    if kind != settings.tokenizer_kind:
        raise TrainingError(
            f"the tokenizer {settings.tokenizer} is of the kind {kind}, and {settings.family} is trained with "
            f"{settings.tokenizer_kind}; leave --tokenizer out to train one, or give --tokenizer-kind {kind}"
        )


def build(settings: TrainingSettings, folder: Path) -> Any:
    """Build a corpus from the text files of the settings, or from the built-in texts, with a progress bar."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    from glassbert.text.corpus import build_corpus

    screen = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), console=screen, transient=True, disable=not screen.is_terminal
    ) as bar:
        task = bar.add_task("Building the corpus", total=None)

        def on_progress(now: Any) -> None:
            bar.update(
                task, description=f"Building the corpus: {now.stage}", completed=now.done, total=now.total or None
            )

        corpus = build_corpus(
            list(settings.corpus),
            folder,
            settings.tokenizer or None,
            vocab_size=settings.vocab_size,
            kind=settings.tokenizer_kind,
            progress=on_progress,
            validation=0.01 if settings.corpus else 0.05,  # the built-in corpus is small
        )
    for note in corpus.manifest.get("notes", []):
        screen.print(f"Note: {note}.", markup=False, highlight=False, soft_wrap=True)
    return corpus


def fingerprint_of(corpus: Any) -> str:
    """A hash of tokens and tokenizer of a corpus, which determine its rows."""
    content = [corpus.manifest["tokenizer"]["fingerprint"], corpus.manifest["splits"]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def describe(corpus: Any) -> dict[str, Any]:
    """The part of the corpus manifest that settings.json records."""
    manifest = corpus.manifest
    return {
        "folder": str(corpus.folder),
        "tokenizer": {key: manifest["tokenizer"][key] for key in ("vocab_size", "fingerprint")},
        "sources": manifest.get("sources", []),
        "splits": {
            name: {"documents": split.documents, "sentences": split.sentences, "tokens": split.tokens}
            for name, split in corpus.splits.items()
        },
    }
