"""GlassBERT: a BERT you can see through and still put to work.

Everything about text and training is imported on first use, so that `import glassbert` stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glassbert import families as families
from glassbert.checkpoints import load
from glassbert.checkpoints.family import FAMILIES, PRESETS, Family, register_family
from glassbert.engines import get_engine, which
from glassbert.errors import (
    CheckpointError,
    ConfigError,
    EngineError,
    GlassBertError,
    InputError,
    TrainingError,
)
from glassbert.families.albert import AlbertConfig
from glassbert.families.bert import (
    LARGER_BERT_CONFIG,
    MINI_BERT_CONFIG,
    BertConfig,
    BertCore,
    BertWithHead,
    LargerBERT,
    MiniBERT,
)
from glassbert.families.distilbert import DistilBertConfig, student_of
from glassbert.families.factory import create_from_registry, create_model, register
from glassbert.families.gpt2 import Gpt2Config
from glassbert.families.modernbert import ModernBertConfig, ModernBertCore
from glassbert.families.mpnet import MPNetConfig
from glassbert.families.roberta import RobertaConfig, XlmRobertaConfig
from glassbert.layers.registry import ATTENTIONS, BLOCKS, EMBEDDINGS, FEED_FORWARDS, POSITIONS
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import HEADS, Head, head_names
from glassbert.models.model import Model
from glassbert.ops.registry import operation
from glassbert.proof.gradient_check import gradient_check

if TYPE_CHECKING:
    from glassbert import learn as learn
    from glassbert.evaluation import Subject as Subject
    from glassbert.evaluation import evaluate as evaluate
    from glassbert.finetuning.cross_validation import cross_validate as cross_validate
    from glassbert.finetuning.low_rank import LowRank as LowRank
    from glassbert.finetuning.predictor import Predictor as Predictor
    from glassbert.finetuning.run import finetune as finetune
    from glassbert.finetuning.run import resume as resume
    from glassbert.finetuning.settings import FineTuningSettings as FineTuningSettings
    from glassbert.forecasting.forecast import forecast as forecast
    from glassbert.generation import generate as generate
    from glassbert.insight.prediction import explain as explain
    from glassbert.learn.glass.widget import glass as glass
    from glassbert.text.corpus import Corpus as Corpus
    from glassbert.text.corpus import build_corpus as build_corpus
    from glassbert.text.fast import FastTokenizer as FastTokenizer
    from glassbert.text.fast import load_tokenizer as load_tokenizer
    from glassbert.text.generator import MLMDataGenerator as MLMDataGenerator
    from glassbert.text.masking import mask_tokens as mask_tokens
    from glassbert.text.wordpiece_tokenizer import WordPieceTokenizer as WordPieceTokenizer
    from glassbert.training.adapting.adapt import adapt as adapt
    from glassbert.training.fill_mask import fill_mask as fill_mask
    from glassbert.training.objectives import OBJECTIVES as OBJECTIVES
    from glassbert.training.optimizers import OPTIMIZERS as OPTIMIZERS
    from glassbert.training.optimizers import AdamW as AdamW
    from glassbert.training.planning.plan import plan as plan
    from glassbert.training.settings import TrainingSettings as TrainingSettings
    from glassbert.training.step import TrainingStep as TrainingStep
    from glassbert.training.teacher import Teacher as Teacher
    from glassbert.training.trainer import LargerBERTTrainer as LargerBERTTrainer
    from glassbert.training.trainer import Trainer as Trainer

__version__ = "0.1.0"

LATER = {
    "AdamW": "training.optimizers",
    "Corpus": "text.corpus",
    "FastTokenizer": "text.fast",
    "FineTuningSettings": "finetuning.settings",
    "LargerBERTTrainer": "training.trainer",
    "LowRank": "finetuning.low_rank",
    "MLMDataGenerator": "text.generator",
    "OBJECTIVES": "training.objectives",
    "OPTIMIZERS": "training.optimizers",
    "Predictor": "finetuning.predictor",
    "Subject": "evaluation",
    "Teacher": "training.teacher",
    "Trainer": "training.trainer",
    "TrainingSettings": "training.settings",
    "TrainingStep": "training.step",
    "WordPieceTokenizer": "text.wordpiece_tokenizer",
    "adapt": "training.adapting.adapt",
    "build_corpus": "text.corpus",
    "cross_validate": "finetuning.cross_validation",
    "evaluate": "evaluation",
    "explain": "insight.prediction",
    "fill_mask": "training.fill_mask",
    "finetune": "finetuning.run",
    "forecast": "forecasting.forecast",
    "generate": "generation",
    "glass": "learn.glass.widget",
    "load_tokenizer": "text.fast",
    "mask_tokens": "text.masking",
    "plan": "training.planning.plan",
    "resume": "finetuning.run",
}

PACKAGES = ("learn",)  # packages that can be used without importing them

__all__ = [
    "ATTENTIONS",
    "BLOCKS",
    "EMBEDDINGS",
    "FAMILIES",
    "FEED_FORWARDS",
    "HEADS",
    "LARGER_BERT_CONFIG",
    "MINI_BERT_CONFIG",
    "POSITIONS",
    "PRESETS",
    "AlbertConfig",
    "BertConfig",
    "BertCore",
    "BertWithHead",
    "CheckpointError",
    "ConfigError",
    "DistilBertConfig",
    "EncoderConfig",
    "EngineError",
    "Family",
    "GlassBertError",
    "Gpt2Config",
    "Head",
    "InputError",
    "LargerBERT",
    "MPNetConfig",
    "MiniBERT",
    "Model",
    "ModernBertConfig",
    "ModernBertCore",
    "RobertaConfig",
    "TrainingError",
    "XlmRobertaConfig",
    "create_from_registry",
    "create_model",
    "get_engine",
    "gradient_check",
    "head_names",
    "load",
    "operation",
    "register",
    "register_family",
    "student_of",
    "which",
    *LATER,
]


def __getattr__(name: str) -> Any:
    if name in PACKAGES:
        return import_module(f"glassbert.{name}")
    if name not in LATER:
        raise AttributeError(f"glassbert has no {name!r}")
    return getattr(import_module(f"glassbert.{LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})
