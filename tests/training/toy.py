"""A toy run: random sentences and a tiny model that trains in seconds."""

import random
from pathlib import Path

from glassbert.text import FastTokenizer
from glassbert.text.corpus import write_corpus
from glassbert.training.display import NoDisplay
from glassbert.training.trainer import Trainer

WORDS = [
    "the", "a", "red", "old", "small", "green", "house", "tree", "river", "stone", "bird", "king", "road", "night",
    "sings", "falls", "stands", "runs", "sees", "was", "and", "of", "in",
]  # fmt: skip
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}
SETTINGS = {
    "preset": "mini", "steps": 12, "batch": 8, "length": 16, "optimizer": "adamw", "learning_rate": 3e-3, "threads": 2,
    "engine": "numpy", "evaluate_every": 100, "evaluation_rows": 16, "final_evaluation_rows": 32,
    "sentence": "the [MASK] sings.", **TINY,
}  # fmt: skip


def texts(count: int = 60) -> list[str]:
    rng = random.Random(1)
    return ["\n".join(" ".join(rng.choices(WORDS, k=9)) + "." for _ in range(6)) for _ in range(count)]


def make_corpus(folder: Path) -> Path:
    documents = texts()
    write_corpus(folder, FastTokenizer.train(documents, vocab_size=64, min_frequency=1), documents, validation=0.1)
    return folder


def make_trainer(corpus: Path, run: Path, **changes) -> Trainer:
    return Trainer(None, run, display=NoDisplay(), corpus=str(corpus), **{**SETTINGS, **changes})
