"""What a fine-tuning leaves for people: a page to look at, and a card beside the model."""

from glassbert.finetuning.report.model_card import write_model_card
from glassbert.finetuning.report.page import learning_curves, write_report

__all__ = ["learning_curves", "write_model_card", "write_report"]
