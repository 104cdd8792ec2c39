"""Model families: one module each, with its config, its models and its tables of Hugging Face names."""

from glassbert.families import bert, gpt2, longformer, modernbert, xlnet

__all__ = ["bert", "gpt2", "longformer", "modernbert", "xlnet"]
