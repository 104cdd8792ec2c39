"""Tokenizers, corpora and pretraining batches.

    from glassbert.text import WordPieceTokenizer, load_tokenizer, Corpus, MLMDataGenerator

Names are imported at first use, so importing this package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassbert.text.batches import Batch as Batch
    from glassbert.text.corpus import Corpus as Corpus
    from glassbert.text.corpus import build_corpus as build_corpus
    from glassbert.text.encoding import Encoding as Encoding
    from glassbert.text.fast import FastTokenizer as FastTokenizer
    from glassbert.text.fast import load_tokenizer as load_tokenizer
    from glassbert.text.generator import MLMDataGenerator as MLMDataGenerator
    from glassbert.text.masking import Masking as Masking
    from glassbert.text.masking import mask_tokens as mask_tokens
    from glassbert.text.pairs import PairDataGenerator as PairDataGenerator
    from glassbert.text.tokenizer import Tokenizer as Tokenizer
    from glassbert.text.wordpiece_tokenizer import WordPieceTokenizer as WordPieceTokenizer

MODULES = {
    "Batch": "batches",
    "Corpus": "corpus",
    "Encoding": "encoding",
    "FastTokenizer": "fast",
    "MLMDataGenerator": "generator",
    "Masking": "masking",
    "PairDataGenerator": "pairs",
    "Tokenizer": "tokenizer",
    "WordPieceTokenizer": "wordpiece_tokenizer",
    "build_corpus": "corpus",
    "load_tokenizer": "fast",
    "mask_tokens": "masking",
}
__all__ = sorted(MODULES)


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"glassbert.text has no {name!r}")
    return getattr(import_module(f"glassbert.text.{MODULES[name]}"), name)
