"""How a corpus lies on disk.

    DIR/manifest.json               what is in the folder, where it came from, every file's checksum; written last
    DIR/tokenizer.json, vocab.txt   the tokenizer that made the numbers
    DIR/train-00000.tokens.npy      [tokens] token ids, 16 bits where the vocabulary allows it, no special tokens
    DIR/train-00000.sentences.npy   [sentences] where each sentence ends in the tokens
    DIR/train-00000.documents.npy   [documents, 2] where each document ends in the sentences, and its source's number
    DIR/validation-00000...         the same for the documents held out
    DIR/.building/                  only while a build is under way

A shard is these three files. Everything is a plain array that can be memory-mapped, so a corpus larger than memory is
read like a small one. A document never crosses from one shard to the next.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

FORMAT = "glassbert-corpus"
VERSION = 1
MANIFEST = "manifest.json"
BUILDING = ".building"
TRAIN, VALIDATION = SPLITS = ("train", "validation")
TOKENS, SENTENCES, DOCUMENTS = ARRAYS = ("tokens", "sentences", "documents")
OFFSET_TYPE = np.dtype("<u4")


def token_type(vocab_size: int) -> np.dtype:
    """The smallest unsigned integers that hold every id."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def array_file(split: str, shard: int, array: str) -> str:
    return f"{split}-{shard:05d}.{array}.npy"


def is_corpus_file(path: Path) -> bool:
    """Whether a file of this name belongs to a corpus's shards."""
    return path.name.startswith(SPLITS) and path.name.endswith(tuple(f".{array}.npy" for array in ARRAYS))
