"""Small models and batches, shared by the tests of models and of training."""

import numpy as np

from glassbert import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, BertConfig, Model, ModernBertConfig

SIZES = {"vocab_size": 31, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20, "pad_token_id": 0}
BERT = BertConfig(hidden_size=12, max_position_embeddings=16, **SIZES)
MODERN = ModernBertConfig(
    hidden_size=16, max_position_embeddings=24, local_window=2, global_attention_every=2, **SIZES
).replace(num_hidden_layers=3)
MINI = MINI_BERT_CONFIG.replace(hidden_size=12, max_position_embeddings=16, **SIZES)
LARGER = LARGER_BERT_CONFIG.replace(hidden_size=12, max_position_embeddings=16, **SIZES)
CAUSAL = BERT.replace(causal=True, norm_position="pre", final_norm=True, type_vocab_size=0, pooler=False)
DROPOUT = {
    "embedding_dropout": 0.2,
    "attention_dropout": 0.2,
    "hidden_dropout": 0.2,
    "ffn_dropout": 0.2,
    "classifier_dropout": 0.2,
}
CONFIGS = {"bert": BERT, "modernbert": MODERN, "mini": MINI, "larger": LARGER, "causal": CAUSAL}
LENGTHS = np.array([9, 1, 5, 0, 7])


def make(config=BERT, head="mlm", num_labels=0, dtype="float64", threads=1, seed=3, spread=True, **options):
    """A model with random values in all parameters, so that no error is hidden by a 0 or a 1."""
    options.setdefault("engine", "numpy")
    model = Model(config, head, num_labels, dtype=dtype, threads=threads, seed=seed, **options)
    if spread:
        rng = np.random.default_rng(seed)
        for name, values in model.parameters.items():
            resting = 1.0 if name.endswith("norm.weight") else 0.0
            model.parameters[name] = model.engine.array(resting + 0.3 * rng.standard_normal(values.shape))
    return model


def batch(config=BERT, lengths=LENGTHS, width=9, seed=0):
    """ids, mask and labels of a ragged batch; padding has the padding id, a third of the real tokens has a label."""
    rng = np.random.default_rng(seed)
    mask = (np.arange(width) < np.asarray(lengths)[:, None]).astype(np.int64)
    ids = np.where(mask, rng.integers(1, config.vocab_size, mask.shape), config.pad_token_id or 0)
    chosen = (rng.random(mask.shape) < 0.34) & (mask == 1)
    chosen[0, 0] = True
    labels = np.where(chosen, rng.integers(1, config.vocab_size, mask.shape), -100)
    return ids, mask, labels


def loss_and_gradients(model, *inputs, **options):
    loss, cache = model.loss(*inputs, **options)
    return float(loss), {name: np.array(g) for name, g in model.backward(cache).items()}
