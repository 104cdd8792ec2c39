"""The HTML report of a fine-tuning run and the model card (README.md) of its model."""

from glassbert.finetuning.report.model_card import write_model_card
from glassbert.finetuning.report.page import learning_curves, write_report

__all__ = ["learning_curves", "write_model_card", "write_report"]
