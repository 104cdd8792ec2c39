"""What goes into the model: batches that give the answer away, ask nothing, or hide what should be seen."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from glassbert.evaluation.measures import Check, failed
from glassbert.text.corpus import Corpus, Split
from glassbert.text.corpus.layout import TRAIN, VALIDATION
from glassbert.text.masking import NOT_ASKED
from glassbert.text.pieces import document_token_ends
from glassbert.text.tokenizer import Tokenizer

FEWEST_ASKED = 30
LEAKING = 0.35  # of the asked words stand there unhidden; the usual masking leaves a tenth
FEW, MANY = 0.02, 0.6  # of the words are asked
UNKNOWN = 0.1
REPEATED = 0.2


def check_batches(batches: Iterable[Any], tokenizer: Tokenizer) -> Iterator[Check]:
    """`batches` are mappings of what `model.loss` takes, or objects with these as attributes."""
    fields = [_fields(batch) for batch in batches]
    if not fields:
        yield Check("batches", skipped="there are none")
        return
    ids = [np.asarray(one["input_ids"]) for one in fields]
    yield _masks(fields, ids, tokenizer)
    yield _leaks(fields, ids)
    yield _asked(fields, ids, tokenizer)
    yield _unknown(ids, tokenizer)
    yield _repeats(fields, ids, tokenizer)


def _fields(batch: Any) -> dict[str, Any]:
    names = ("input_ids", "labels", "attention_mask", "segment_ids")
    given = batch if isinstance(batch, Mapping) else {name: getattr(batch, name, None) for name in names}
    return {name: given.get(name) for name in names}


def _real(one: dict[str, Any]) -> np.ndarray | None:
    """[B, T] True where the batch says that there is a token."""
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
    evidence = f"{hidden:,} of {words:,} words are masked away, and {shown:,} of {padding:,} paddings are shown."
    if words and hidden > 0.5 * words:
        return failed(
            name,
            "The attention mask is inverted.",
            evidence,
            "1 and 0 are exchanged where the batch is made.",
            "1 means a real token and 0 padding.",
        )
    if hidden or shown:
        return failed(
            name,
            "The attention mask does not fit the tokens.",
            evidence,
            "the mask was made before the rows were padded or cut, or is missing.",
            "Make the mask from the finished rows: ids != pad_id.",
        )
    return Check(name, f"{padding:,} paddings, all covered")


def _leaks(fields: list[dict[str, Any]], ids: list[np.ndarray]) -> Check:
    name = "inputs do not give the answers away"
    same = asked = 0
    for one, tokens in zip(fields, ids, strict=True):
        if one["labels"] is None:
            return Check(name, skipped="the batches have no labels")
        labels = np.asarray(one["labels"])
        if labels.shape != tokens.shape:
            return Check(name, skipped="labels are not about single words")
        at = labels != NOT_ASKED
        same, asked = same + int((tokens[at] == labels[at]).sum()), asked + int(at.sum())
    share = same / max(asked, 1)
    if asked >= FEWEST_ASKED and share > LEAKING:
        return failed(
            name,
            "The labels leak into the inputs.",
            f"{share:.0%} of {asked:,} words that are asked for stand in the input unhidden; about 10 % is usual.",
            "rows were masked after a copy was made, or the unmasked rows are handed to the model.",
            "Hand the model what the masking returns as seen, and keep the original for the labels alone.",
        )
    return Check(name, f"{share:.1%} of {asked:,} asked words are visible")


def _asked(fields: list[dict[str, Any]], ids: list[np.ndarray], tokenizer: Tokenizer) -> Check:
    name = "a fair share of the words is asked for"
    if any(
        one["labels"] is None or np.shape(one["labels"]) != tokens.shape
        for one, tokens in zip(fields, ids, strict=True)
    ):
        return Check(name, skipped="the batches have no labels for words")
    asked = sum(int((np.asarray(one["labels"]) != NOT_ASKED).sum()) for one in fields)
    words = sum(int((~np.isin(tokens, _framing(tokenizer))).sum()) for tokens in ids)
    share = asked / max(words, 1)
    if not FEW <= share <= MANY:
        return failed(
            name,
            "Hardly any word is asked for." if share < FEW else "Most words are asked for.",
            f"{asked:,} of {words:,} words, {share:.1%}; 15 % is usual.",
            "labels are -100 everywhere else than expected, or nothing is set to -100.",
            "Labels hold the right token where one is asked for, and -100 everywhere else.",
        )
    return Check(name, f"{share:.1%}")


def _unknown(ids: list[np.ndarray], tokenizer: Tokenizer) -> Check:
    name = "the tokenizer knows the words"
    unknown = sum(int((tokens == tokenizer.unknown_id).sum()) for tokens in ids)
    words = sum(int((~np.isin(tokens, _framing(tokenizer))).sum()) for tokens in ids)
    share = unknown / max(words, 1)
    if share > UNKNOWN:
        return failed(
            name,
            "Many words are unknown to the tokenizer.",
            f"{share:.1%} of {words:,} tokens are [UNK].",
            "the text is of another language or script than the tokenizer was made for.",
            "Train a tokenizer on this text: `glassbert tokenizer train`.",
        )
    return Check(name, f"{share:.2%} unknown")


def _repeats(fields: list[dict[str, Any]], ids: list[np.ndarray], tokenizer: Tokenizer) -> Check:
    """Rows that come again, by their answers where these are hidden."""
    name = "rows do not repeat"
    rows: list[bytes] = []
    for one, tokens in zip(fields, ids, strict=True):
        whole = tokens
        if one["labels"] is not None and np.shape(one["labels"]) == tokens.shape:
            labels = np.asarray(one["labels"])
            whole = np.where(labels == NOT_ASKED, tokens, labels)
        rows += [np.ascontiguousarray(row).tobytes() for row in whole]
    share = 1 - len(set(rows)) / len(rows)
    if len(rows) >= 8 and share > REPEATED:
        return failed(
            name,
            "The same rows come again and again.",
            f"{share:.0%} of {len(rows):,} rows are copies of others.",
            "the data holds copies, or an epoch repeats its rows.",
            "Take the copies out: `glassbert corpus build` does so by default.",
        )
    return Check(name, f"{share:.1%} of {len(rows):,} are copies")


def _framing(tokenizer: Tokenizer) -> list[int]:
    return [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id]


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
        ends = document_token_ends(shard)
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
