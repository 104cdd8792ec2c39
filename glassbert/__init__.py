"""GlassBERT: a BERT you can see through and still put to work."""

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

__version__ = "0.1.0"

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
]
