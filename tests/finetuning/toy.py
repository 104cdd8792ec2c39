"""A toy task: sentences with a good or bad word as label, and a very small encoder."""

import csv
import random
from pathlib import Path

from glassbert.families.bert import MINI_BERT_CONFIG, BertWithHead
from glassbert.finetuning.run import FineTuned, finetune
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.text import FastTokenizer
from glassbert.text import wordpiece_files as files
from glassbert.text.normalise import Normaliser
from glassbert.text.tokenizer import SPECIAL_TOKENS
from glassbert.text.wordpiece_files import Description
from glassbert.training.display import NoDisplay

GOOD, BAD = ("lovely", "bright", "sweet"), ("awful", "grim", "bitter")
WORDS = ["the", "a", "house", "tree", "river", "stone", "bird", "king", "road", "night", "sings", "falls", "runs"]
QUICK = {"engine": "numpy", "threads": 1, "report": False, "baseline": False, "resamples": 50}


class Stop(Exception):
    """Raised to simulate a killed process."""


def sentences(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences of six words, one of them good or bad."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        label = rng.choice(["bad", "good"])
        words = rng.choices(WORDS, k=5)
        words.insert(rng.randrange(6), rng.choice(GOOD if label == "good" else BAD))
        found.append((" ".join(words), label))
    return found


def make_tokenizer() -> FastTokenizer:
    """A tokenizer with all words of the toy task and all letters."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,?"
    pieces = [*letters, *(f"##{letter}" for letter in letters), *WORDS[2:], "the", *GOOD, *BAD, "is", "who", "what"]
    return FastTokenizer(files.as_json(Description((*SPECIAL_TOKENS, *pieces), Normaliser())))


def make_model(folder: Path, tokenizer: FastTokenizer | None = None, **changes) -> Path:
    """Save a masked language model with its tokenizer."""
    tokenizer = tokenizer or make_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    sizes |= {"max_position_embeddings": 24, "vocab_size": tokenizer.vocab_size}
    config = MINI_BERT_CONFIG.replace(tie_word_embeddings=True, **{**sizes, **changes})
    BertWithHead(config, "mlm", engine="numpy", seed=3).save(folder)
    tokenizer.save(folder)
    return folder


def write_csv(path: Path, columns: list[str], rows: list) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def write_reviews(folder: Path, train: int = 96, dev: int = 32) -> tuple[Path, Path]:
    columns = ["review", "verdict"]
    return (
        write_csv(folder / "train.csv", columns, sentences(train, 1)),
        write_csv(folder / "dev.csv", columns, sentences(dev, 2)),
    )


def settings(model: Path, train: Path, dev: Path | None = None, **changes) -> FineTuningSettings:
    given = {"model": str(model), "train": str(train), "dev": str(dev or ""), "text": "review", "target": "verdict",
             "epochs": 3, "learning_rate": 3e-3, "batch": 8, **QUICK}  # fmt: skip
    return FineTuningSettings.from_dict({**given, **changes})


def tune(run: Path, model: Path, train: Path, dev: Path | None = None, **changes) -> FineTuned:
    return finetune(settings(model, train, dev, **changes), run, display=NoDisplay())
