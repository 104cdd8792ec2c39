"""Small subjects for the evaluation tests: a tokenizer over invented words, tiny models, short real runs."""

from functools import cache
from pathlib import Path

from glassbert.evaluation import Subject
from glassbert.families.bert import BertConfig
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model
from glassbert.text import WordPieceTokenizer
from tests.training.toy import make_trainer, texts

SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}


VOCABULARY = 96  # nearly every invented word is one token


@cache
def tokenizer(size: int = VOCABULARY) -> WordPieceTokenizer:
    return WordPieceTokenizer.train(texts(), vocab_size=size, min_frequency=1)


def config(**changes) -> EncoderConfig:
    plain = {"vocab_size": VOCABULARY, "type_vocab_size": 0, "tie_word_embeddings": False, **SIZES}
    return BertConfig(**{**plain, **changes})


def subject(head: str | None = "mlm", seed: int = 0, **changes) -> Subject:
    model = Model(config(**changes), head, engine="numpy", threads=2, seed=seed)
    return Subject("toy", model, tokenizer())


def trained(corpus: Path, run: Path, **changes) -> Subject:
    make_trainer(corpus, run, **{"steps": 60, "evaluate_every": 20, **changes}).train()
    return Subject.open(run, engine="numpy", threads=2)
