"""The predicted memory of a forward pass against that of a real cache."""

import numpy as np
import pytest

from glassbert import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, BertConfig, BertWithHead, ModernBertConfig
from glassbert.models.memory import activation_numbers

SMALL = {"vocab_size": 300, "num_hidden_layers": 3}
CONFIGS = {
    "mini": MINI_BERT_CONFIG.replace(**SMALL),
    "larger": LARGER_BERT_CONFIG.replace(**SMALL),
    "bert": BertConfig(hidden_size=96, num_attention_heads=4, intermediate_size=384, **SMALL),
    "modernbert": ModernBertConfig(
        hidden_size=96, num_attention_heads=4, intermediate_size=144, pad_token_id=0, **SMALL
    ),
}


def bytes_held(cache, parameters) -> int:
    """The memory behind all arrays of the parts but the parameters, each block of memory counted once."""
    blocks = {}

    def visit(value):
        if isinstance(value, np.ndarray):
            owner = value
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            if owner is not parameters:
                blocks[id(owner)] = owner.nbytes
        elif isinstance(value, (tuple, list)):
            for item in value:
                visit(item)

    for part in cache.parts:
        for name, value in [*part.cache.stored.items(), *part.cache.states.items()]:
            if not name.startswith("embeddings.") or "norm" in name or "dropout" in name:
                visit(value)
    return sum(blocks.values())


@pytest.mark.parametrize("length", [48, 64])
@pytest.mark.parametrize("name", CONFIGS)
def test_activations_as_predicted(name, length):
    config = CONFIGS[name]
    model = BertWithHead(config, "mlm", engine="numpy", threads=2)
    model.set_training(True)
    ids = np.random.default_rng(0).integers(1, 300, (8, length))
    labels = np.where(np.arange(length) % 7 == 0, ids, -100)
    _, cache = model.loss(ids, labels)
    predicted = activation_numbers(config, 8, length, head="mlm")
    del predicted["head"]
    assert bytes_held(cache, model.parameters.flat) == pytest.approx(4 * sum(predicted.values()), rel=0.15)
