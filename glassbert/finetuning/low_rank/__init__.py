"""LoRA: frozen matrices, each with a small product of two thin ones beside it that learns."""

from glassbert.finetuning.low_rank.adapted import LowRank

__all__ = ["LowRank"]
