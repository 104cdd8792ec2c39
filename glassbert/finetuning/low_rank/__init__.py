"""LoRA: frozen matrices, each with a trained change of low rank."""

from glassbert.finetuning.low_rank.adapted import LowRank

__all__ = ["LowRank"]
