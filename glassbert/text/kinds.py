"""The kinds of tokenizers that can be trained.

    wordpiece   BERT: the longest pieces from the left; words outside the vocabulary are unknown
    bpe         RoBERTa, GPT-2: merges of bytes; every text has tokens, none is unknown
    unigram     ALBERT, XLM-R, XLNet: the most probable split into pieces, with a mark for every space

WordPiece is trained by hand and gives the same vocabulary every time. The other two are trained by Hugging Face's
`tokenizers`, which may give a slightly different vocabulary on another machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from glassbert.errors import TextError
from glassbert.text.fast import FastTokenizer
from glassbert.text.tokenizer import Tokenizer, check_texts
from glassbert.text.vocabulary_training import check_size, warn_of_small_vocabulary
from glassbert.text.wordpiece_tokenizer import WordPieceTokenizer

WORDPIECE = "wordpiece"
BPE_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # as RoBERTa: padding has id 1
UNIGRAM_SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")  # as ALBERT: padding has id 0


def train_tokenizer(kind: str, texts: Iterable[str], vocab_size: int = 8192, lowercase: bool = True) -> Tokenizer:
    """Train a tokenizer of this kind with `vocab_size` entries, fewer if the text is small. A BPE keeps capitals."""
    check_kind(kind)
    if kind == WORDPIECE:
        return WordPieceTokenizer.train(texts, vocab_size, lowercase)
    check_size(vocab_size, 2)
    return TRAINED_BY_LIBRARY[kind](checked(texts), vocab_size, lowercase)


def check_kind(kind: str) -> str:
    if kind not in KINDS:
        raise TextError(f"there is no kind of tokenizer {kind!r}; choose one of {', '.join(KINDS)}")
    return kind


def checked(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        check_texts([text])
        yield text


def byte_level_bpe(texts: Iterable[str], vocab_size: int, lowercase: bool) -> FastTokenizer:
    start, _, end, *_ = BPE_SPECIAL
    rust = tokenizers.Tokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if vocab_size < len(alphabet) + len(BPE_SPECIAL):
        raise TextError(
            f"a byte-level BPE has a token for every byte and {len(BPE_SPECIAL)} special tokens; vocab_size must be at "
            f"least {len(alphabet) + len(BPE_SPECIAL)}, got {vocab_size}"
        )
    rust.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=list(BPE_SPECIAL), initial_alphabet=alphabet, show_progress=False
        ),
    )
    pair = f"{start} $A {end} {end} $B {end}"
    return finished(rust, f"{start} $A {end}", pair, (start, end), vocab_size, roles(BPE_SPECIAL, 1, 3, 0, 2, 4))


def unigram(texts: Iterable[str], vocab_size: int, lowercase: bool) -> FastTokenizer:
    cls, sep = UNIGRAM_SPECIAL[2:4]
    rust = tokenizers.Tokenizer(models.Unigram())
    steps: list[Any] = [normalizers.NFKC(), *([normalizers.Lowercase()] if lowercase else [])]
    rust.normalizer = normalizers.Sequence(steps)
    rust.pre_tokenizer = pre_tokenizers.Metaspace()
    rust.decoder = decoders.Metaspace()
    rust.train_from_iterator(
        texts,
        trainers.UnigramTrainer(
            vocab_size=vocab_size, special_tokens=list(UNIGRAM_SPECIAL), unk_token=UNIGRAM_SPECIAL[1],
            show_progress=False,
        ),
    )  # fmt: skip
    pair = f"{cls} $A {sep} $B:1 {sep}:1"
    return finished(rust, f"{cls} $A {sep}", pair, (cls, sep), vocab_size, UNIGRAM_SPECIAL)


def roles(names: tuple[str, ...], *order: int) -> tuple[str, ...]:
    """The names in the order pad, unknown, cls, sep, mask."""
    return tuple(names[i] for i in order)


def finished(
    rust: tokenizers.Tokenizer, single: str, pair: str, ends: tuple[str, str], vocab_size: int, names: tuple[str, ...]
) -> FastTokenizer:
    found = rust.get_vocab_size()
    if found < vocab_size:
        warn_of_small_vocabulary(vocab_size, found)
    special = [(token, rust.token_to_id(token)) for token in ends]
    rust.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=special)
    return FastTokenizer(json.loads(rust.to_str()), names)


TRAINED_BY_LIBRARY: dict[str, Callable[[Iterable[str], int, bool], FastTokenizer]] = {
    "bpe": byte_level_bpe,
    "unigram": unigram,
}
KINDS = (WORDPIECE, *TRAINED_BY_LIBRARY)
