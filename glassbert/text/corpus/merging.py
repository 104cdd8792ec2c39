"""The last stage of a build: select the documents to keep, and merge all parts into shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import TextError
from glassbert.text.corpus.cleaning import RULES
from glassbert.text.corpus.duplicates import exact_duplicates, held_out, near_duplicates
from glassbert.text.corpus.parts import Part, part_path
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.storage import SPLITS, TRAIN, VALIDATION, ShardWriter, TokenizedDocuments

LEAST_OF_ONE = 0.05  # share of the paragraphs that is held out of a single document, at least
EXAMPLES = 20  # removed documents per reason that the manifest shows


@dataclass(frozen=True)
class MergeResult:
    """The entries of the manifest about documents."""

    counts: dict[str, int]
    cleaning: dict[str, int]
    examples: dict[str, list[dict[str, Any]]]
    read: Counter[int]  # documents by source
    kept: Counter[int]
    splits: dict[str, Any]
    notes: list[str]  # for the user


class DocumentTable:
    """The hash, source and MinHash keys of every document of all parts; the rest is read from the parts."""

    def __init__(self, folder: Path, parts: int) -> None:
        self.paths = [part_path(folder, number) for number in range(parts)]
        self.counts: Counter[str] = Counter()
        self.read: Counter[int] = Counter()
        self.examples: dict[str, list[dict[str, Any]]] = {}
        hashes, sources, keys = [], [], []
        for path in self.paths:
            part = Part(path)
            hashes.append(part["hashes"])
            sources.append(part["sources"])
            keys.append(part["keys"])
            about = part.about()
            self.counts.update(about["counts"])
            self.read.update({int(source): count for source, count in about["read"].items()})
            for reason, found in about["examples"].items():
                shown = self.examples.setdefault(reason, [])
                shown += found[: EXAMPLES - len(shown)]
            part.close()
        self.begins = np.cumsum([0, *map(len, sources)])
        self.hashes, self.sources, self.keys = map(np.concatenate, (hashes, sources, keys))

    def sketches_of(self, numbers: np.ndarray) -> Iterator[np.ndarray]:
        """The MinHash sketches of the documents `numbers`, in order."""
        for path, begin, end in zip(self.paths, self.begins, self.begins[1:], strict=False):
            in_part = numbers[(numbers >= begin) & (numbers < end)]
            if len(in_part):
                part = Part(path)
                yield from part["sketches"][in_part - begin]
                part.close()

    def excerpt(self, number: int) -> dict[str, Any]:
        """The source and the beginning of a document."""
        part_number = int(np.searchsorted(self.begins, number, side="right")) - 1
        part = Part(self.paths[part_number])
        text = part.about()["excerpts"][number - self.begins[part_number]]
        part.close()
        return {"source": int(self.sources[number]), "text": text}


def merge_parts(
    folder: Path,
    parts: int,
    target: Path,
    dtype: np.dtype,
    settings: Settings,
    progress: Callable[[int, int], None],
) -> MergeResult:
    """Write the shards into `target`. The result depends only on the parts and the settings."""
    table = DocumentTable(folder, parts)
    documents = len(table.hashes)
    removed: dict[str, np.ndarray] = {}
    kept = np.ones(documents, bool)
    if settings.exact_duplicates:
        removed["exact_duplicates"] = exact_duplicates(table.hashes)
        kept &= removed["exact_duplicates"] < 0
    if settings.near_duplicates is not None:
        removed["near_duplicates"] = near_duplicates(table.keys, kept, settings.near_duplicates, table.sketches_of)
        kept &= removed["near_duplicates"] < 0
    if not kept.any():
        raise TextError(
            f"none of the {sum(table.read.values()):,} documents read is left: "
            + (", ".join(f"{table.counts[rule]:,} {rule}" for rule in RULES if table.counts[rule]) or "no documents")
        )
    validation = held_out(table.hashes, table.sources, kept, settings.validation, settings.seed)
    writers = {split: ShardWriter(target, split, dtype, settings.shard_tokens) for split in SPLITS}
    unknown = 0
    notes: list[str] = []
    for number, path in enumerate(table.paths):
        part = Part(path)
        group = part.documents()
        in_part = slice(table.begins[number], table.begins[number + 1])
        train = group.select(kept[in_part] & ~validation[in_part])
        held = group.select(kept[in_part] & validation[in_part])
        if settings.validation and kept.sum() == 1 and kept[in_part].any():
            paragraphs = part.about().get("paragraph_sentences", [])
            train, held, notes = split_document(group.select(kept[in_part]), paragraphs, settings.validation)
        writers[TRAIN].add(train)
        writers[VALIDATION].add(held)
        unknown += int(part["unknown"][kept[in_part]].sum())
        part.close()
        progress(number + 1, parts)
    for writer in writers.values():
        writer.close()
    splits = {split: writer.facts for split, writer in writers.items()}
    return MergeResult(
        counts={
            "documents_read": sum(table.read.values()),
            "documents_kept": int(kept.sum()),
            **{name: int((originals >= 0).sum()) for name, originals in removed.items()},
            **{name: table.counts[name] for name in ("too_short", "noise", "unreadable", "cut", "special_tokens")},
            "characters_read": table.counts["characters_read"],
            "sentences": sum(facts["sentences"] for facts in splits.values()),
            "tokens": sum(facts["tokens"] for facts in splits.values()),
            "unknown_tokens": unknown,
        },
        cleaning={rule: table.counts[rule] for rule in RULES},
        examples={**table.examples, **{name: _examples(table, originals) for name, originals in removed.items()}},
        read=table.read,
        kept=Counter(dict(enumerate(np.bincount(table.sources[kept]).tolist()))),
        splits=splits,
        notes=notes,
    )


def split_document(
    only: TokenizedDocuments, paragraphs: list[int], share: float
) -> tuple[TokenizedDocuments, TokenizedDocuments, list[str]]:
    """The last paragraphs of the only document of a corpus are held out, or its last sentences if it has one paragraph.

    `paragraphs` are the numbers of sentences of its paragraphs. Of one sentence nothing is held out.
    """
    unit = "paragraphs" if len(paragraphs) > 1 else "sentences"
    sizes = paragraphs if len(paragraphs) > 1 else [1] * len(only.sentence_tokens)
    if len(sizes) < 2:
        return only, only.cut(0, 0), []
    held = min(max(1, round(max(share, LEAST_OF_ONE) * len(sizes))), len(sizes) - 1)
    sentences = sum(sizes[:-held])
    tokens = int(only.sentence_tokens[:sentences].sum())
    first = TokenizedDocuments(
        only.tokens[:tokens],
        only.sentence_tokens[:sentences],
        np.array([sentences], np.uint32),
        only.sources,
    )
    last = TokenizedDocuments(
        only.tokens[tokens:],
        only.sentence_tokens[sentences:],
        np.array([len(only.sentence_tokens) - sentences], np.uint32),
        only.sources,
    )
    note = f"there is a single document; held out of it: the last {held:,} of {len(sizes):,} {unit}"
    return first, last, [note]


def _examples(table: DocumentTable, originals: np.ndarray) -> list[dict[str, Any]]:
    numbers = np.flatnonzero(originals >= 0)[:EXAMPLES]
    return [{**table.excerpt(number), "of": table.excerpt(int(originals[number]))} for number in numbers.tolist()]
