"""GlassBERT: a BERT you can see through and still put to work.

What concerns text and training is imported when it is first asked for, so that `import glassbert` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glassbert.checkpoints import load
from glassbert.models.config import (
    LARGER_BERT_CONFIG,
    MINI_BERT_CONFIG,
    PRESETS,
    BertConfig,
    EncoderConfig,
    ModernBertConfig,
)
from glassbert.models.factory import create_from_registry, create_model, register
from glassbert.models.model import BertCore, BertWithHead, LargerBERT, MiniBERT, Model, ModernBertCore
from glassbert.proof.gradient_check import gradient_check

if TYPE_CHECKING:
    from glassbert.evaluation import Subject as Subject
    from glassbert.evaluation import evaluate as evaluate
    from glassbert.finetuning.low_rank import LowRank as LowRank
    from glassbert.finetuning.predictor import Predictor as Predictor
    from glassbert.finetuning.run import finetune as finetune
    from glassbert.forecasting.forecast import forecast as forecast
    from glassbert.insight.prediction import explain as explain
    from glassbert.text.corpus import Corpus as Corpus
    from glassbert.text.corpus import build_corpus as build_corpus
    from glassbert.text.fast import FastTokenizer as FastTokenizer
    from glassbert.text.fast import load_tokenizer as load_tokenizer
    from glassbert.text.generator import MLMDataGenerator as MLMDataGenerator
    from glassbert.text.masking import mask_tokens as mask_tokens
    from glassbert.text.wordpiece_tokenizer import WordPieceTokenizer as WordPieceTokenizer
    from glassbert.training.fill_mask import fill_mask as fill_mask
    from glassbert.training.trainer import LargerBERTTrainer as LargerBERTTrainer
    from glassbert.training.trainer import Trainer as Trainer

__version__ = "0.1.0"

LATER = {
    "Corpus": "text.corpus",
    "FastTokenizer": "text.fast",
    "LargerBERTTrainer": "training.trainer",
    "LowRank": "finetuning.low_rank",
    "MLMDataGenerator": "text.generator",
    "Predictor": "finetuning.predictor",
    "Subject": "evaluation",
    "Trainer": "training.trainer",
    "WordPieceTokenizer": "text.wordpiece_tokenizer",
    "build_corpus": "text.corpus",
    "evaluate": "evaluation",
    "explain": "insight.prediction",
    "fill_mask": "training.fill_mask",
    "finetune": "finetuning.run",
    "forecast": "forecasting.forecast",
    "load_tokenizer": "text.fast",
    "mask_tokens": "text.masking",
}

__all__ = [
    "LARGER_BERT_CONFIG",
    "MINI_BERT_CONFIG",
    "PRESETS",
    "BertConfig",
    "BertCore",
    "BertWithHead",
    "EncoderConfig",
    "LargerBERT",
    "MiniBERT",
    "Model",
    "ModernBertConfig",
    "ModernBertCore",
    "create_from_registry",
    "create_model",
    "gradient_check",
    "load",
    "register",
    *LATER,
]


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"glassbert has no {name!r}")
    return getattr(import_module(f"glassbert.{LATER[name]}"), name)
