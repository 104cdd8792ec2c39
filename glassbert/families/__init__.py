"""Model families: one module each, with its config, its models and its tables of Hugging Face names."""

from glassbert.families import (
    albert,
    bert,
    deberta,
    distilbert,
    electra,
    gpt2,
    longformer,
    modernbert,
    mpnet,
    roberta,
    xlnet,
)

__all__ = [
    "albert",
    "bert",
    "deberta",
    "distilbert",
    "electra",
    "gpt2",
    "longformer",
    "modernbert",
    "mpnet",
    "roberta",
    "xlnet",
]
