"""Checks of training data: batches (masks, leaking labels, targets, copies) and the documents of a corpus."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from glassbert.evaluation.measures import Check, failed
from glassbert.text.corpus import Corpus, Split
from glassbert.text.corpus.storage import TRAIN, VALIDATION
from glassbert.text.masking import IGNORED
from glassbert.text.tokenizer import Tokenizer

MIN_TARGETS = 30
MAX_VISIBLE = 0.35  # of the targets; the usual masking leaves a tenth unchanged
FEW, MANY = 0.02, 0.6  # targets per word
MAX_UNKNOWN = 0.1
MAX_REPEATED = 0.2


def check_batches(batches: Iterable[Any], tokenizer: Tokenizer) -> Iterator[Check]:
    """Check batches: mappings with the arguments of `model.loss`, or objects with these attributes."""
    fields = [_fields(batch) for batch in batches]
    if not fields:
        yield Check("batches", skipped="there are none")
        return
    ids = [np.asarray(one["input_ids"]) for one in fields]
    yield _masks(fields, ids, tokenizer)
    yield _leaks(fields, ids)
    yield _target_share(fields, ids, tokenizer)
    yield _unknown(ids, tokenizer)
    yield _repeats(fields, ids, tokenizer)


def _fields(batch: Any) -> dict[str, Any]:
    names = ("input_ids", "labels", "attention_mask", "segment_ids")
    given = batch if isinstance(batch, Mapping) else {name: getattr(batch, name, None) for name in names}
    return {name: given.get(name) for name in names}


def _real(one: dict[str, Any]) -> np.ndarray | None:
    """[B, T] True at real tokens according to the batch, or None if it does not say."""
    given = one["attention_mask"] if one["attention_mask"] is not None else one["segment_ids"]
    return None if given is None else np.asarray(given) > 0


def _masks(fields: list[dict[str, Any]], ids: list[np.ndarray], tokenizer: Tokenizer) -> Check:
    name = "the mask covers the padding"
    hidden = shown = words = padding = 0
    for one, tokens in zip(fields, ids, strict=True):
        real = _real(one)
        pad = tokens == tokenizer.pad_id
        words, padding = words + int((~pad).sum()), padding + int(pad.sum())
        if real is None:
            shown += int(pad.sum())
        else:
            hidden, shown = hidden + int((~real & ~pad).sum()), shown + int((real & pad).sum())
    evidence = f"{hidden:,} of {words:,} words are masked out, and {shown:,} of {padding:,} paddings are not."
    if words and hidden > 0.5 * words:
        return failed(
            name,
            "The attention mask is inverted.",
            evidence,
            "1 and 0 are exchanged when the batch is built.",
            "1 means a real token and 0 padding.",
        )
    if hidden or shown:
        return failed(
            name,
            "The attention mask does not fit the tokens.",
            evidence,
            "the mask was built before the rows were padded or truncated, or is missing.",
            "Build the mask from the final rows: ids != pad_id.",
        )
    return Check(name, f"{padding:,} paddings, all masked out")


def _leaks(fields: list[dict[str, Any]], ids: list[np.ndarray]) -> Check:
    name = "labels do not leak into the inputs"
    visible = targets = 0
    for one, tokens in zip(fields, ids, strict=True):
        if one["labels"] is None:
            return Check(name, skipped="the batches have no labels")
        labels = np.asarray(one["labels"])
        if labels.shape != tokens.shape:
            return Check(name, skipped="the labels are not per token")
        at = labels != IGNORED
        visible, targets = visible + int((tokens[at] == labels[at]).sum()), targets + int(at.sum())
    share = visible / max(targets, 1)
    if targets >= MIN_TARGETS and share > MAX_VISIBLE:
        return failed(
            name,
            "The labels leak into the inputs.",
            f"{share:.0%} of {targets:,} target words are visible in the input; about 10 % is usual.",
            "the unmasked rows are passed to the model instead of the masked ones.",
            "Pass the masked rows to the model, and use the original rows for the labels only.",
        )
    return Check(name, f"{share:.1%} of {targets:,} target words are visible")


def _target_share(fields: list[dict[str, Any]], ids: list[np.ndarray], tokenizer: Tokenizer) -> Check:
    name = "a normal share of the words are targets"
    if any(
        one["labels"] is None or np.shape(one["labels"]) != tokens.shape
        for one, tokens in zip(fields, ids, strict=True)
    ):
        return Check(name, skipped="the batches have no labels per token")
    targets = sum(int((np.asarray(one["labels"]) != IGNORED).sum()) for one in fields)
    words = sum(int((~np.isin(tokens, _framing(tokenizer))).sum()) for tokens in ids)
    share = targets / max(words, 1)
    if not FEW <= share <= MANY:
        return failed(
            name,
            "Hardly any word is a target." if share < FEW else "Most words are targets.",
            f"{targets:,} of {words:,} words, {share:.1%}; 15 % is usual.",
            "labels are -100 at the targets, or not set to -100 elsewhere.",
            "A label is the original token id at a target, and -100 everywhere else.",
        )
    return Check(name, f"{share:.1%}")


def _unknown(ids: list[np.ndarray], tokenizer: Tokenizer) -> Check:
    name = "few tokens are unknown"
    unknown = sum(int((tokens == tokenizer.unknown_id).sum()) for tokens in ids)
    words = sum(int((~np.isin(tokens, _framing(tokenizer))).sum()) for tokens in ids)
    share = unknown / max(words, 1)
    if share > MAX_UNKNOWN:
        return failed(
            name,
            "Many tokens are unknown.",
            f"{share:.1%} of {words:,} tokens are [UNK].",
            "the text has another language or script than the training text of the tokenizer.",
            "Train a tokenizer on this text: `glassbert tokenizer train`.",
        )
    return Check(name, f"{share:.2%} unknown")


def _repeats(fields: list[dict[str, Any]], ids: list[np.ndarray], tokenizer: Tokenizer) -> Check:
    """Repeated rows, compared with their original tokens."""
    name = "rows do not repeat"
    rows: list[bytes] = []
    for one, tokens in zip(fields, ids, strict=True):
        whole = tokens
        if one["labels"] is not None and np.shape(one["labels"]) == tokens.shape:
            labels = np.asarray(one["labels"])
            whole = np.where(labels == IGNORED, tokens, labels)
        rows += [np.ascontiguousarray(row).tobytes() for row in whole]
    share = 1 - len(set(rows)) / len(rows)
    if len(rows) >= 8 and share > MAX_REPEATED:
        return failed(
            name,
            "Many rows are repeated.",
            f"{share:.0%} of {len(rows):,} rows are copies of others.",
            "the data has duplicates, or an epoch repeats its rows.",
            "Remove duplicates: `glassbert corpus build` does so by default.",
        )
    return Check(name, f"{share:.1%} of {len(rows):,} are copies")


def _framing(tokenizer: Tokenizer) -> list[int]:
    return [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id]


MIN_DOCUMENT = 8  # tokens: shorter documents ("Chapter 1") may be repeated
MAX_COPIED, MAX_SHARED = 0.1, 0.01  # of the tokens


def check_text(corpus: Corpus) -> Iterator[Check]:
    """Check a corpus for repeated documents and for held-out documents in the training split."""
    train, held = (_documents(corpus.split(name)) for name in (TRAIN, VALIDATION))
    yield _copies(train)
    yield _held_out(train, held)


def _documents(split: Split) -> list[tuple[bytes, int]]:
    """Hash and length of every document of at least MIN_DOCUMENT tokens."""
    found = []
    for shard in split.shards:
        ends = shard.document_token_ends
        tokens = np.asarray(shard.tokens)
        for start, end in zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True):
            if end - start >= MIN_DOCUMENT:
                found.append((hashlib.blake2b(tokens[start:end].tobytes(), digest_size=12).digest(), end - start))
    return found


def _copies(train: list[tuple[bytes, int]]) -> Check:
    name = "documents are not repeated"
    seen: set[bytes] = set()
    total = copied = copies = 0
    for digest, length in train:
        total += length
        if digest in seen:
            copied, copies = copied + length, copies + 1
        seen.add(digest)
    share = copied / max(total, 1)
    if share > MAX_COPIED:
        return failed(
            name,
            "Much of the training text is repeated.",
            f"{copies:,} of {len(train):,} documents repeat another, {share:.0%} of the tokens.",
            "a source was added twice, or duplicates were kept.",
            "Build the corpus again without duplicates.",
        )
    return Check(name, f"{share:.1%} of the tokens are copies")


def _held_out(train: list[tuple[bytes, int]], held: list[tuple[bytes, int]]) -> Check:
    name = "held-out documents are not in the training text"
    if not held:
        return Check(name, skipped="nothing is held out")
    known = {digest for digest, _ in train}
    shared = sum(length for digest, length in held if digest in known)
    share = shared / sum(length for _, length in held)
    if share > MAX_SHARED:
        return failed(
            name,
            "Held-out text is also in the training text.",
            f"{share:.0%} of the held-out tokens are in documents of the training split.",
            "the split was made before duplicates were removed, or by hand.",
            "Split by document after removing duplicates, as `glassbert corpus build` does. With this corpus the "
            "held-out figures measure memorisation.",
        )
    return Check(name, f"{share:.1%} of the held-out tokens")
