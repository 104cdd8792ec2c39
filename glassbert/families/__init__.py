"""The family: one file a member, with its config, its differences from BERT and its Hugging Face key map."""

from glassbert.families import bert, modernbert

__all__ = ["bert", "modernbert"]
