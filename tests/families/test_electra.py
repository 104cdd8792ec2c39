"""ELECTRA's files and sizes: what fits, what does not, and how an error names it."""

import json

import numpy as np
import pytest

import glassbert
from glassbert.errors import CheckpointError, ConfigError
from glassbert.families.electra import ElectraConfig
from glassbert.models.flops import forward_flops
from glassbert.models.model import Model

SMALL = ElectraConfig(
    vocab_size=31, hidden_size=8, embedding_size=4, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=16,
)  # fmt: skip


def write(model, folder, **changes):
    model.save(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bert"}, "names the architecture 'ElectraForPreTraining', but GlassBERT opens BertModel"),
        ({"model_type": "deberta-v2"}, "names the architecture 'ElectraForPreTraining', but GlassBERT opens Deberta"),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "missing from the file"),
        ({"embedding_size": 8}, "word_embeddings.weight' has the shape"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": True}, "is_decoder is True"),
    ],
)
@pytest.mark.usefixtures("without_checksums")
def test_files_that_do_not_fit(changes, message, tmp_path):
    write(Model(SMALL, "discriminator", engine="numpy"), tmp_path, **changes)
    with pytest.raises(CheckpointError, match=message):
        glassbert.load(tmp_path)


@pytest.mark.usefixtures("without_checksums")
def test_a_file_of_bert_is_no_discriminator(tmp_path):
    config = glassbert.BertConfig(vocab_size=31, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                                  intermediate_size=12, max_position_embeddings=16)  # fmt: skip
    write(Model(config, "mlm", engine="numpy"), tmp_path, model_type="electra", architectures=["ElectraForMaskedLM"])
    with pytest.raises(CheckpointError, match=r"shape|missing|does not have"):
        glassbert.load(tmp_path)


def test_generators_of_the_published_sizes():
    """A generator has heads as wide as the discriminator's, and embeddings of the same width."""
    for preset, (hidden, heads, wide, layers) in {
        "electra-base": (256, 4, 1_024, 12),
        "electra-large": (256, 4, 1_024, 24),
        "electra-small": (64, 1, 256, 12),
    }.items():
        config = glassbert.PRESETS[preset]
        generator = config.generator()
        found = (generator.hidden_size, generator.num_attention_heads, generator.intermediate_size)
        assert (*found, generator.num_hidden_layers) == (hidden, heads, wide, layers)
        assert generator.embedding_size == config.embedding_size and generator.head_size == config.head_size


def test_other_heads_of_a_discriminator(tmp_path):
    """A classifier takes the encoder; the dense layer before it is new, and belongs to the head."""
    Model(SMALL, "discriminator", engine="numpy").save(tmp_path)
    with pytest.warns(UserWarning, match="has no weights for pooler.weight, pooler.bias, head.classifier.weight"):
        model = glassbert.load(tmp_path, engine="numpy", head="multiclass", num_labels=3)
    assert model.predict(np.array([[3, 4, 5]])).shape == (1, 3)
    bare = glassbert.load(tmp_path, engine="numpy", head="core")
    assert not any(name.startswith("pooler") for name in bare.parameters)


def test_the_arithmetic_of_both_models_is_counted():
    flops = forward_flops(SMALL, 2, 8, head="rtd", scored_rows=3)
    alone = forward_flops(SMALL, 2, 8, head="discriminator")
    generator = forward_flops(SMALL.generator(), 2, 8, head="mlm", scored_rows=3)
    assert sum(flops.values()) == sum(alone.values()) + sum(generator.values())
    assert "head.generator.head.decoder" in flops
    assert "generator" in Model(SMALL, "rtd", engine="numpy").describe(2, 8)


def test_a_series_has_no_words_to_replace():
    with pytest.raises(ConfigError, match="reads a series"):
        glassbert.create_model("bert_with_head", head="rtd", config="mini", window=24, patch=6)
