"""Model families: one module each, with its config, its models and its tables of Hugging Face names."""

from glassbert.families import bert, deberta, electra, modernbert, roberta

__all__ = ["bert", "deberta", "electra", "modernbert", "roberta"]
