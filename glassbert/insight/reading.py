"""The texts that a model reads while it is looked at: as padded rows, and as rows with some tokens hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import InputError, TextError
from glassbert.insight.opening import Opened
from glassbert.text.tokenizer import Tokenizer

ROWS = 16  # of a batch: attention maps of more would fill the memory
BATCH_POSITIONS = 2_048


@dataclass(frozen=True)
class Rows:
    """Some texts as one padded batch, [B, T]. `words` is True on tokens of the text: no [CLS], [SEP] or padding."""

    ids: np.ndarray
    mask: np.ndarray
    words: np.ndarray
    tokens: list[list[str]]


def read_rows(opened: Opened, texts: Sequence[str], rows: int = ROWS) -> list[Rows]:
    """Texts in batches; what is longer than the model reads is cut off."""
    if not len(texts):
        raise InputError("there is no text to look at")
    encodings = opened.tokenizer.encode_batch(list(texts), max_length=opened.longest)
    return [rows_of(opened.tokenizer, part) for part in _batches(encodings, rows)]


def rows_of(tokenizer: Tokenizer, encodings: Sequence[Any]) -> Rows:
    """Encodings of texts as one padded batch."""
    width = max(len(encoding) for encoding in encodings)
    padded = [encoding.padded(width, "", tokenizer.pad_id) for encoding in encodings]
    mask = np.array([row.attention_mask for row in padded], np.int64)
    return Rows(
        np.array([row.ids for row in padded], np.int64),
        mask,
        (mask == 1) & (np.array([row.special_tokens_mask for row in padded]) == 0),
        [encoding.tokens for encoding in encodings],
    )


def masked_batches(opened: Opened, texts: Sequence[str], seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Texts with 15 % of their tokens hidden or changed, always the same ones, as `model.loss` takes them.

    What a masked language model is asked in training; other heads need labels of their own.
    """
    from glassbert.text.masking import mask_tokens

    head, tokenizer = opened.model.head, opened.tokenizer
    if head is None or "mlm" not in head.parts:
        raise InputError(f"{opened.name} has no masked language head, so text alone gives it no loss")
    batches = []
    for number, rows in enumerate(read_rows(opened, texts)):
        size = opened.model.config.vocab_size
        masked = mask_tokens(rows.ids, tokenizer.mask_id, size, special_ids=tokenizer.special_ids, seed=seed + number)
        batches.append({"input_ids": masked.input_ids, "labels": masked.targets, "attention_mask": rows.mask})
    return batches


def _batches(encodings: Sequence[Any], rows: int) -> list[list[Any]]:
    """Runs of encodings, few enough of the long ones."""
    batches: list[list[Any]] = []
    width = 0
    for encoding in encodings:
        width = max(width, len(encoding))
        full = not batches or len(batches[-1]) >= rows or width * (len(batches[-1]) + 1) > BATCH_POSITIONS
        if full:
            batches.append([])
            width = len(encoding)
        batches[-1].append(encoding)
    return batches


def read_texts(path: str | Path, most: int = 256) -> list[str]:
    """At most so many texts: lines of a text file, sentences of a CoNLL-U file, held-out sentences of a corpus."""
    from glassbert.tasks.conll import read_conllu
    from glassbert.tasks.table import read_lines

    path = Path(path)
    if path.is_dir():
        return _held_out(path, most)
    if ".conllu" in path.suffixes:
        return read_conllu(path).column("text")[:most]
    texts = [line.strip() for line in read_lines(path) if line.strip()]
    if not texts:
        raise TextError(f"{path} holds no text")
    return texts[:most]


def _held_out(folder: Path, most: int) -> list[str]:
    """Runs of sentences from documents that are held out, spread evenly over them, decoded."""
    from glassbert.text.corpus import Corpus

    corpus = Corpus.open(folder)
    shards = [shard for shard in corpus.split("validation").shards if len(shard.sentence_ends)]
    if not shards:
        raise TextError(f"the corpus {folder} has no held-out text")
    ends = [np.asarray(shard.sentence_ends).astype(np.int64) for shard in shards]
    total = sum(len(one) for one in ends)
    texts = []
    for number in np.unique(np.linspace(0, total - 1, min(most, total)).astype(int)):
        for shard, sentence_ends in zip(shards, ends, strict=True):
            if number < len(sentence_ends):
                begin = sentence_ends[number - 1] if number else 0
                ids = np.asarray(shard.tokens[begin : sentence_ends[number]])
                texts.append(corpus.tokenizer.decode(ids.tolist()))
                break
            number -= len(sentence_ends)
    return [text for text in texts if text.strip()]
