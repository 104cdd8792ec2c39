"""GlassBERT: a BERT you can see through and still put to work."""

from glassbert.models.config import (
    LARGER_BERT_CONFIG,
    MINI_BERT_CONFIG,
    PRESETS,
    BertConfig,
    EncoderConfig,
    ModernBertConfig,
)
from glassbert.models.model import BertCore, BertWithHead, LargerBERT, MiniBERT, Model, ModernBertCore

__version__ = "0.1.0"
