"""Held-out text with published masks, which are the same in every evaluation.

A document is cut into runs of whole sentences that fit into a row of 128 tokens (or the model's input, if that is
shorter). Each row is [CLS] run [SEP]. 15 % of its tokens are targets; 80 % of these are replaced by [MASK], 10 % by
another token and 10 % are unchanged. The random numbers are seeded with a hash of the row's ids, so a mask depends on
the text and the tokenizer only, not on a seed, the order or the sample. This is version 1 of the masks; any change
needs a new version.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glassbert.errors import TextError
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import DoesNotApply, Options
from glassbert.text.corpus import Corpus, Shard
from glassbert.text.corpus.build import open_corpus
from glassbert.text.corpus.storage import TRAIN, VALIDATION
from glassbert.text.masking import IGNORED, Masker, Masking
from glassbert.text.segments import sentence_runs
from glassbert.text.tokenizer import Tokenizer

MASKS_VERSION = 1
LENGTH = 128
MASKING = Masking(rate=0.15, mask_share=0.8, random_share=0.1)
COUNTED_TOKENS = 20_000_000  # of the training text, for the frequency of words


@dataclass(frozen=True)
class HeldOut:
    """Rows [CLS] run [SEP] of held-out documents, and the frequency of each token of the vocabulary."""

    rows: list[np.ndarray]
    document: np.ndarray  # [rows]
    source: np.ndarray  # [documents], into source_names
    source_names: list[str]
    counts: np.ndarray  # [vocabulary]
    length: int
    cut: int  # sentences longer than a row
    notes: list[str]
    shards: list[Shard]


def held_out(subject: Subject, options: Options) -> HeldOut:
    """The text named in the options, or the validation split of the run's corpus."""
    corpus, every, notes = _open(subject, options)
    tokenizer = subject.tokenizer
    names = [Path(source["name"]).name.split(".")[0] for source in corpus.manifest.get("sources", [])] or ["text"]
    splits = [corpus.split(VALIDATION), *([corpus.split(TRAIN)] if every else [])]
    shards = [shard for split in splits for shard in split.shards if len(shard.tokens)]
    counted = [shard.tokens for shard in (corpus.split(TRAIN).shards if not every else shards)]
    foreign = corpus.manifest["tokenizer"]["fingerprint"] != tokenizer.fingerprint
    if foreign:
        notes.append("the corpus has another tokenizer; its sentences were decoded and tokenized again")
        shards = [retokenised(shard, corpus.tokenizer, tokenizer) for shard in shards]
        counted = [shard.tokens for shard in shards]
    length = min(LENGTH, subject.max_length)
    rows: list[np.ndarray] = []
    owners, sources, cut, before = [], [], 0, 0
    for shard in shards:
        runs = sentence_runs(shard, np.ones(len(shard.document_ends), np.bool_), length - 2, tokenizer.continues_word)
        pieces = runs.segments(np.zeros(len(runs.run_starts), np.bool_))
        cut += int((np.diff(shard.sentence_ends.astype(np.int64), prepend=0) > length - 2).sum())
        tokens = np.asarray(shard.tokens).astype(np.int32)
        rows += [_row(tokens[s : s + n], tokenizer) for s, n in zip(pieces.starts, pieces.lengths, strict=True)]
        owners.append(np.searchsorted(shard.document_token_ends, pieces.starts, side="right") + before)
        sources.append(np.asarray(shard.document_sources, np.int64))
        before += len(shard.document_ends)
    if not rows:
        raise DoesNotApply(
            f"the validation split of {corpus.folder} is empty; name another corpus or a text file by --dev"
        )
    if cut:
        notes.append(f"{cut:,} sentences are longer than {length - 2} tokens and were cut between words")
    counts = np.zeros(subject.model.config.vocab_size, np.int64)
    left = COUNTED_TOKENS
    for part in counted:
        some = np.bincount(np.asarray(part[:left]), minlength=len(counts))
        counts += some[: len(counts)]
        left -= min(left, len(part))
    return HeldOut(rows, np.concatenate(owners), np.concatenate(sources), names, counts, length, cut, notes, shards)


def published_masks(ids: np.ndarray, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Rows [B, T] int32 -> masked inputs and labels [B, T]; the label is -100 where there is no target."""
    masker = Masker(MASKING, tokenizer.vocab_size, tokenizer.mask_id, tokenizer.special_ids)
    hashes = [hashlib.blake2b(row.astype("<i4").tobytes(), digest_size=8).digest() for row in ids]
    return masker(ids.astype(np.int32), np.frombuffer(b"".join(hashes), "<u8").astype(np.uint64))


def target_positions(labels: np.ndarray) -> np.ndarray:
    """Flat positions (row · T + position) of the targets."""
    return np.flatnonzero(labels.reshape(-1) != IGNORED)


def retokenised(shard: Shard, old: Tokenizer, new: Tokenizer) -> Shard:
    """The same sentences and documents, encoded with another tokenizer. No sentence may become empty."""
    tokens = np.asarray(shard.tokens)
    ends = shard.sentence_ends.astype(np.int64)
    texts = [old.decode(tokens[start:end]) for start, end in zip(np.append(0, ends[:-1]), ends, strict=True)]
    ids, lengths = new.encode_ids(texts)
    return Shard(shard.name, ids, np.cumsum(lengths).astype(np.uint32), shard._documents)


def _open(subject: Subject, options: Options) -> tuple[Corpus, bool, list[str]]:
    """The corpus, whether all of it is held out (true for a text file), and notes."""
    if options.text is not None:
        if not options.text.exists():
            raise TextError(f"there is no text {options.text}; name a text file or a corpus folder by --dev")
        if options.text.is_file():
            return (
                open_corpus(options.text, subject.tokenizer),
                True,
                [f"all of {options.text.name} counts as held out"],
            )
        return Corpus.open(options.text), False, []
    if subject.corpus is not None:
        return subject.corpus, False, []
    raise DoesNotApply("there is no held-out text: name a text file or a corpus folder by --dev")


def _row(run: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    return np.concatenate([[tokenizer.cls_id], run, [tokenizer.sep_id]]).astype(np.int32)
