"""GlassBERT: a BERT you can see through and still put to work.

Every name is imported on first use, so that `import glassbert` and `glassbert --help` are quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from glassbert import learn as learn
    from glassbert.checkpoints import load as load
    from glassbert.checkpoints.family import FAMILIES as FAMILIES
    from glassbert.checkpoints.family import PRESETS as PRESETS
    from glassbert.checkpoints.family import Family as Family
    from glassbert.checkpoints.family import register_family as register_family
    from glassbert.engines import get_engine as get_engine
    from glassbert.engines import which as which
    from glassbert.errors import CheckpointError as CheckpointError
    from glassbert.errors import ConfigError as ConfigError
    from glassbert.errors import EngineError as EngineError
    from glassbert.errors import GlassBertError as GlassBertError
    from glassbert.errors import InputError as InputError
    from glassbert.errors import TrainingError as TrainingError
    from glassbert.evaluation import Subject as Subject
    from glassbert.evaluation import evaluate as evaluate
    from glassbert.families.albert import AlbertConfig as AlbertConfig
    from glassbert.families.bert import LARGER_BERT_CONFIG as LARGER_BERT_CONFIG
    from glassbert.families.bert import MINI_BERT_CONFIG as MINI_BERT_CONFIG
    from glassbert.families.bert import BertConfig as BertConfig
    from glassbert.families.bert import BertCore as BertCore
    from glassbert.families.bert import BertWithHead as BertWithHead
    from glassbert.families.bert import LargerBERT as LargerBERT
    from glassbert.families.bert import MiniBERT as MiniBERT
    from glassbert.families.distilbert import DistilBertConfig as DistilBertConfig
    from glassbert.families.distilbert import student_of as student_of
    from glassbert.families.factory import create_from_registry as create_from_registry
    from glassbert.families.factory import create_model as create_model
    from glassbert.families.factory import register as register
    from glassbert.families.gpt2 import Gpt2Config as Gpt2Config
    from glassbert.families.modernbert import ModernBertConfig as ModernBertConfig
    from glassbert.families.modernbert import ModernBertCore as ModernBertCore
    from glassbert.families.mpnet import MPNetConfig as MPNetConfig
    from glassbert.families.roberta import RobertaConfig as RobertaConfig
    from glassbert.families.roberta import XlmRobertaConfig as XlmRobertaConfig
    from glassbert.finetuning.cross_validation import cross_validate as cross_validate
    from glassbert.finetuning.low_rank import LowRank as LowRank
    from glassbert.finetuning.predictor import Predictor as Predictor
    from glassbert.finetuning.run import finetune as finetune
    from glassbert.finetuning.run import resume as resume
    from glassbert.finetuning.settings import FineTuningSettings as FineTuningSettings
    from glassbert.forecasting.forecast import forecast as forecast
    from glassbert.generation import generate as generate
    from glassbert.insight.prediction import explain as explain
    from glassbert.layers.registry import ATTENTIONS as ATTENTIONS
    from glassbert.layers.registry import BLOCKS as BLOCKS
    from glassbert.layers.registry import EMBEDDINGS as EMBEDDINGS
    from glassbert.layers.registry import FEED_FORWARDS as FEED_FORWARDS
    from glassbert.layers.registry import POSITIONS as POSITIONS
    from glassbert.learn.glass.widget import glass as glass
    from glassbert.models.config import EncoderConfig as EncoderConfig
    from glassbert.models.heads import HEADS as HEADS
    from glassbert.models.heads import Head as Head
    from glassbert.models.heads import head_names as head_names
    from glassbert.models.model import Model as Model
    from glassbert.ops.registry import operation as operation
    from glassbert.proof.gradient_check import gradient_check as gradient_check
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
    "ATTENTIONS": "layers.registry",
    "AdamW": "training.optimizers",
    "AlbertConfig": "families.albert",
    "BLOCKS": "layers.registry",
    "BertConfig": "families.bert",
    "BertCore": "families.bert",
    "BertWithHead": "families.bert",
    "CheckpointError": "errors",
    "ConfigError": "errors",
    "Corpus": "text.corpus",
    "DistilBertConfig": "families.distilbert",
    "EMBEDDINGS": "layers.registry",
    "EncoderConfig": "models.config",
    "EngineError": "errors",
    "FAMILIES": "checkpoints.family",
    "FEED_FORWARDS": "layers.registry",
    "Family": "checkpoints.family",
    "FastTokenizer": "text.fast",
    "FineTuningSettings": "finetuning.settings",
    "GlassBertError": "errors",
    "Gpt2Config": "families.gpt2",
    "HEADS": "models.heads",
    "Head": "models.heads",
    "InputError": "errors",
    "LARGER_BERT_CONFIG": "families.bert",
    "LargerBERT": "families.bert",
    "LargerBERTTrainer": "training.trainer",
    "LowRank": "finetuning.low_rank",
    "MINI_BERT_CONFIG": "families.bert",
    "MLMDataGenerator": "text.generator",
    "MPNetConfig": "families.mpnet",
    "MiniBERT": "families.bert",
    "Model": "models.model",
    "ModernBertConfig": "families.modernbert",
    "ModernBertCore": "families.modernbert",
    "OBJECTIVES": "training.objectives",
    "OPTIMIZERS": "training.optimizers",
    "POSITIONS": "layers.registry",
    "PRESETS": "checkpoints.family",
    "Predictor": "finetuning.predictor",
    "RobertaConfig": "families.roberta",
    "Subject": "evaluation",
    "Teacher": "training.teacher",
    "Trainer": "training.trainer",
    "TrainingError": "errors",
    "TrainingSettings": "training.settings",
    "TrainingStep": "training.step",
    "WordPieceTokenizer": "text.wordpiece_tokenizer",
    "XlmRobertaConfig": "families.roberta",
    "adapt": "training.adapting.adapt",
    "build_corpus": "text.corpus",
    "create_from_registry": "families.factory",
    "create_model": "families.factory",
    "cross_validate": "finetuning.cross_validation",
    "evaluate": "evaluation",
    "explain": "insight.prediction",
    "fill_mask": "training.fill_mask",
    "finetune": "finetuning.run",
    "forecast": "forecasting.forecast",
    "generate": "generation",
    "get_engine": "engines",
    "glass": "learn.glass.widget",
    "gradient_check": "proof.gradient_check",
    "head_names": "models.heads",
    "load": "checkpoints",
    "load_tokenizer": "text.fast",
    "mask_tokens": "text.masking",
    "operation": "ops.registry",
    "plan": "training.planning.plan",
    "register": "families.factory",
    "register_family": "checkpoints.family",
    "resume": "finetuning.run",
    "student_of": "families.distilbert",
    "which": "engines",
}

# Packages and modules that can be used without importing them.
PACKAGES = (
    *("arrays", "bulk", "checkpoints", "engines", "errors", "evaluation", "export", "extensions", "families", "files"),
    *("finetuning", "forecasting", "generation", "insight", "layers", "learn", "locks", "metrics", "models", "on_ray"),
    *("ops", "proof", "quantization", "reading", "reports", "search", "serving", "tasks", "text", "training"),
)

__all__ = sorted(LATER)


def __getattr__(name: str) -> Any:
    if name in PACKAGES:
        return import_module(f"glassbert.{name}")
    if name not in LATER:
        raise AttributeError(f"glassbert has no {name!r}")
    return getattr(import_module(f"glassbert.{LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER, *PACKAGES})
