"""A small model with a tokenizer for the tests of insight."""

import random
from functools import cache

import numpy as np

from glassbert import MINI_BERT_CONFIG, BertConfig, Model, ModernBertConfig
from glassbert.insight import LoadedModel
from glassbert.text import WordPieceTokenizer
from tests.training.toy import WORDS

SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20, "pad_token_id": 0}
CONFIGS = {
    "bert": BertConfig(hidden_size=12, max_position_embeddings=24, vocab_size=96, **SIZES),
    "mini": MINI_BERT_CONFIG.replace(hidden_size=12, max_position_embeddings=24, vocab_size=96, **SIZES),
    "modernbert": ModernBertConfig(
        hidden_size=16, max_position_embeddings=24, vocab_size=96, local_window=2, global_attention_every=2, **SIZES
    ),
}


@cache
def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer.train(sentences(60), vocab_size=96, min_frequency=1)


def sentences(count: int = 12, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) + "." for _ in range(count)]


def specimen(config="mini", head="mlm", num_labels=0, dtype="float64", engine="numpy", seed=3, labels=(), **options):
    """Random weights far from their initial values, so that a 0 or a 1 hides no error."""
    model = Model(CONFIGS[config], head, num_labels, dtype=dtype, engine=engine, threads=1, seed=seed, **options)
    rng = np.random.default_rng(seed)
    for name, values in model.parameters.items():
        resting = 1.0 if name.endswith("norm.weight") else 0.0
        model.parameters[name] = model.engine.array(resting + 0.3 * rng.standard_normal(values.shape))
    return LoadedModel("specimen", model, tokenizer(), labels=tuple(labels))
