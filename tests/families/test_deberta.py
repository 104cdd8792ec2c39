"""DeBERTa's config, files and mask decoder: what fits, what does not, and how an error names it."""

import json

import numpy as np
import pytest

import glassbert
from glassbert.errors import CheckpointError, ConfigError
from glassbert.families.deberta import DebertaConfig
from glassbert.layers.disentangled import bucket_rows
from glassbert.models.model import Model

SIZES = {"vocab_size": 31, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
         "max_position_embeddings": 32, "position_buckets": 8}  # fmt: skip
SMALL = DebertaConfig(**SIZES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention": "self", "positions": "learned"}, "belong to attention='disentangled', and attention is 'self'"),
        ({"attention": "self"}, "read by attention='disentangled', and attention is 'self'"),
        ({"positions": "rotary"}, "needs positions='relative' or 'relative_learned', got 'rotary'"),
        ({"pos_att_type": ("c2p", "p2p")}, "has the terms 'c2p' and 'p2c', got 'p2p'"),
        ({"pos_att_type": ()}, "needs a pos_att_type"),
        ({"position_buckets": 2}, "position_buckets 2 must be at least 4"),
        ({"position_buckets": 16, "max_relative_positions": 6}, "half of it below the furthest distance of 5"),
        ({"position_buckets": -1}, "position_buckets must be an integer of at least 0, got -1"),
        ({"max_relative_positions": 2.5}, "max_relative_positions must be an integer"),
        ({"conv_kernel_size": 3}, "needs an odd conv_kernel_size and norm_position='post_convolution'"),
        ({"conv_kernel_size": 4, "norm_position": "post_convolution"}, "needs an odd conv_kernel_size"),
        ({"norm_position": "post_convolution"}, "needs a conv_kernel_size above 0"),
        ({"conv_activation": "swish"}, "conv_activation must be one of"),
        ({"mask_decoder": True, "num_hidden_layers": 0}, "mask_decoder runs the last layer twice"),
        ({"generator_width": 0.0}, r"generator_width must be in \(0, 1\]"),
        ({"generator_embeddings": "tied"}, "generator_embeddings must be one of 'shared', 'disentangled'"),
        ({"buckets": 3}, "has no field 'buckets'"),
    ],
)
def test_fields_that_do_not_fit(changes, message):
    with pytest.raises(ConfigError, match=message):
        SMALL.replace(**changes)


def test_another_family_has_no_disentangled_attention():
    with pytest.raises(ConfigError, match="needs the fields of DebertaConfig"):
        glassbert.BertConfig(attention="disentangled")


def write(model, folder, **changes):
    model.save(folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_attention": False}, "pos_att_type is set although relative_attention is false"),
        ({"pos_att_type": ["c2p", "p2p"]}, "got 'p2p'"),
        ({"embedding_size": 4}, "embedding_size is 4; GlassBERT supports only 8"),
        ({"attention_head_size": 5}, "attention_head_size is 5; GlassBERT supports only 4"),
        ({"conv_groups": 2}, "conv_groups is 2; GlassBERT supports only 1"),
        ({"conv_act": "swish"}, "conv_act is 'swish'"),
        ({"position_buckets": 16}, "rel_embeddings.weight' has the shape"),
        ({"norm_rel_ebd": "none"}, "tensors that this model does not have: deberta.encoder.LayerNorm"),
        ({"share_att_key": False}, "missing from the file: .*pos_key_proj.weight"),
        ({"model_type": "electra"}, "missing from the file|is 'mlm'|names the architecture"),
        ({"model_type": "bert"}, "names the architecture 'DebertaV2ForMaskedLM', but GlassBERT opens BertModel"),
    ],
)
@pytest.mark.usefixtures("without_checksums")
def test_files_that_do_not_fit(changes, message, tmp_path):
    write(Model(SMALL, "mlm", engine="numpy"), tmp_path, **changes)
    with pytest.raises(CheckpointError, match=message):
        glassbert.load(tmp_path)


def test_a_mask_decoder_is_saved_in_our_own_layout(tmp_path):
    config = SMALL.replace(mask_decoder=True)
    model = Model(config, "mlm", engine="numpy")
    with pytest.raises(CheckpointError, match="mask_decoder is True"):
        model.to_huggingface()
    model.save(tmp_path / "mlm")
    again = glassbert.load(tmp_path / "mlm", engine="numpy")
    ids = np.array([[4, 9, 3, 30]])
    np.testing.assert_array_equal(again.predict(ids), model.predict(ids))
    bare = Model(config, engine="numpy")  # without a head there is no decoder, so transformers has a class for it
    assert "encoder.rel_embeddings.weight" in bare.to_huggingface()


def test_another_head_leaves_the_mask_decoder_out(tmp_path):
    model = Model(SMALL.replace(mask_decoder=True), "mlm", engine="numpy", seed=1)
    model.save(tmp_path / "masked")
    tuned = glassbert.load(tmp_path / "masked", head="binary", engine="numpy")
    assert not any(name.startswith("decoder.") for name in tuned.parameters)
    np.testing.assert_array_equal(tuned.parameters["embeddings.token"], model.parameters["embeddings.token"])


def test_the_mask_decoder_reads_absolute_positions():
    """Relative positions cannot tell a row of equal words apart; absolute ones at the last layer can."""
    ids = np.full((1, 12), 7)
    middle = slice(5, 8)  # far enough from both ends: the buckets of the neighbours are the same
    for decoder in (False, True):
        config = SMALL.replace(mask_decoder=decoder, max_relative_positions=3, position_buckets=0)
        model = Model(config, "mlm", engine="numpy", seed=2)
        output = model.predict(ids)[0, middle]
        differ = float(np.abs(output - output[:1]).max())
        assert differ > 1e-4 if decoder else differ < 1e-3


def test_distances_beyond_the_furthest_share_a_row():
    first, last, index = bucket_rows(6, 0, 3)
    assert (first, last) == (0, 6)
    np.testing.assert_array_equal(index, [0, 0, 0, 1, 2, 3, 4, 5, 5, 5, 5])
    assert bucket_rows(1, 8, 32)[2].tolist() == [0]
    np.testing.assert_array_equal(bucket_rows(4, 256, 4)[2], np.arange(7))  # fewer positions than buckets


@pytest.mark.usefixtures("without_checksums")
def test_the_discriminator_of_a_published_file(tmp_path):
    """Files of v3 hold the words' head and the discriminator's; either can be opened, and the bare encoder."""
    from safetensors.numpy import load_file, save_file

    model, discriminator = (Model(SMALL, head, engine="numpy", seed=4) for head in ("mlm", "discriminator"))
    write(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors = {name.replace("cls.predictions.transform.", "lm_predictions.lm_head."): a for name, a in tensors.items()}
    tensors["lm_predictions.lm_head.bias"] = tensors.pop("cls.predictions.bias")
    for ours, theirs in (("transform", "dense"), ("norm", "LayerNorm"), ("classifier", "classifier")):
        for part in ("weight", "bias"):
            tensors[f"mask_predictions.{theirs}.{part}"] = np.array(discriminator.parameters[f"head.{ours}.{part}"])
    # v3-xsmall and mdeberta-v3-base have these too, and transformers leaves them out.
    for name, rows in (("word_embeddings._", 31), ("position_embeddings._", 32), ("position_embeddings.", 32)):
        tensors[f"deberta.embeddings.{name}weight"] = np.ones((rows, 8), np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    ids = np.array([[4, 9, 3, 30]])
    np.testing.assert_array_equal(glassbert.load(tmp_path, engine="numpy").predict(ids), model.predict(ids))
    opened = glassbert.load(tmp_path, engine="numpy", head="discriminator")
    for name, value in discriminator.parameters.items():
        if name.startswith("head."):
            np.testing.assert_array_equal(opened.parameters[name], value)
    assert glassbert.load(tmp_path, engine="numpy", head="core").head is None


def test_fields_of_its_own_are_settings_of_a_run():
    from glassbert.errors import TrainingError
    from glassbert.training.settings import TrainingSettings

    settings = TrainingSettings.from_dict({"preset": "deberta-mini", "position_buckets": 16, "steps": 1})
    assert settings.model == {"position_buckets": 16} and settings.objective == "rtd"
    with pytest.raises(TrainingError, match="position_buckets"):
        TrainingSettings.from_dict({"preset": "mini", "position_buckets": 16})


def test_low_rank_adapters_learn_from_positions_too():
    """Keys and queries of positions are made by the adapted maps, so their adapters have two sources of gradients."""
    from glassbert.finetuning.low_rank.adapted import LowRank
    from glassbert.proof import gradient_check

    model = LowRank(
        Model(SMALL, "sequence", 2, engine="numpy", dtype="float64", threads=1), rank=2, targets=("query", "key")
    )
    ids, labels = np.array([[4, 9, 3, 30, 7], [8, 8, 1, 2, 6]]), np.array([1, 0])
    rng = np.random.default_rng(0)
    values = {name: 0.3 * rng.standard_normal(array.shape) for name, array in model.parameters.items()}

    def loss(parameters):
        for name, value in parameters.items():
            model.parameters[name] = value
        found, cache = model.loss(ids, labels)
        return found, dict(model.backward(cache))

    assert gradient_check(loss, values).ok


def test_the_arithmetic_of_positions_and_of_the_mask_decoder_is_counted():
    from glassbert.models.flops import forward_flops

    plain, decoder = (forward_flops(SMALL.replace(mask_decoder=on), 2, 8, head="mlm") for on in (False, True))
    assert plain["attention.positions"] > 2 * plain["attention.scores"]
    assert decoder["ffn.up"] == 1.5 * plain["ffn.up"] and decoder["head.decoder"] == plain["head.decoder"]
