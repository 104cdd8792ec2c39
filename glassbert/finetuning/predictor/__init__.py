"""A fine-tuned model put to use: open it, let it answer, keep the answers."""

from glassbert.finetuning.predictor.predicting import Predictor

__all__ = ["Predictor"]
