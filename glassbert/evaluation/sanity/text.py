"""The text behind a run: copies within it, and held-out documents that were trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from glassbert.evaluation.sanity.check import Check, failed
from glassbert.text.corpus import Corpus, Split
from glassbert.text.corpus.storage import TRAIN, VALIDATION

SHORTEST = 8  # tokens: shorter documents ("Chapter 1") may well come twice
COPIES, SHARED = 0.1, 0.01  # of the tokens


def check_text(corpus: Corpus) -> Iterator[Check]:
    train, held = (_documents(corpus.split(name)) for name in (TRAIN, VALIDATION))
    yield _copies(train)
    yield _held_out(train, held)


def _documents(split: Split) -> list[tuple[bytes, int]]:
    """A hash and a length for every document that is long enough."""
    found = []
    for shard in split.shards:
        ends = shard.document_token_ends
        tokens = np.asarray(shard.tokens)
        for start, end in zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True):
            if end - start >= SHORTEST:
                found.append((hashlib.blake2b(tokens[start:end].tobytes(), digest_size=12).digest(), end - start))
    return found


def _copies(train: list[tuple[bytes, int]]) -> Check:
    name = "documents come once"
    seen: set[bytes] = set()
    total = copied = copies = 0
    for digest, length in train:
        total += length
        if digest in seen:
            copied, copies = copied + length, copies + 1
        seen.add(digest)
    share = copied / max(total, 1)
    if share > COPIES:
        return failed(
            name,
            "Much of the training text is copies.",
            f"{copies:,} of {len(train):,} documents repeat another, {share:.0%} of the tokens.",
            "a source was added twice, or duplicates were kept.",
            "Build the corpus again without keeping duplicates; a copy teaches nothing but itself.",
        )
    return Check(name, f"{share:.1%} of the tokens are copies")


def _held_out(train: list[tuple[bytes, int]], held: list[tuple[bytes, int]]) -> Check:
    name = "held-out documents are not trained on"
    if not held:
        return Check(name, skipped="nothing is held out")
    known = {digest for digest, _ in train}
    shared = sum(length for digest, length in held if digest in known)
    share = shared / sum(length for _, length in held)
    if share > SHARED:
        return failed(
            name,
            "Held-out text is in the training text as well.",
            f"{share:.0%} of the held-out tokens stand in documents that are trained on.",
            "the split was made before duplicates were removed, or by hand.",
            "Split by document after removing duplicates, as `glassbert corpus build` does; until then the held-out "
            "figures measure memory.",
        )
    return Check(name, f"{share:.1%} of the held-out tokens")
