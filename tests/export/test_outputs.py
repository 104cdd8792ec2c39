"""The exported graph of every family and head gives our numbers in ONNX Runtime, at every length."""

import numpy as np
import pytest

from glassbert.errors import ConfigError
from glassbert.export import record_model
from glassbert.models.heads import with_pooling
from glassbert.models.model import Model
from glassbert.models.numbers import NumbersConfig
from glassbert.models.series import SeriesConfig, with_series
from glassbert.ops import unit_length
from tests.export.small import MEMBERS, batch, make_model, run, session, toy
from tests.models.small import make

HEADS = {
    "core": 0, "mlm": 0, "causal": 0, "multiclass": 3, "token": 3, "span": 0, "embedding": 0, "discriminator": 0,
    "pretraining": 0, "aligned": 3,
}  # fmt: skip
RAGGED, ONE, LONG = [9, 1, 6, 9, 4], [1], [512, 300]
CASES = [
    (family, head)
    for family in MEMBERS
    for head in HEADS
    if head != "causal" or toy(family).causal
]  # fmt: skip


def expected(model, given):
    """The outputs of the model under the names of the graph."""
    output, cache = model.forward(**given)
    kind = None if model.head is None else model.head.kind
    if kind is None:
        found = {"last_hidden_state": output}
        return found | ({"pooler_output": cache["pooler.output"]} if "pooler.output" in cache else {})
    if kind == "span":
        return {"start_logits": output[:, 0], "end_logits": output[:, 1]}
    if kind == "pretraining":
        return {"prediction_logits": output["mlm"], "seq_relationship_logits": output["pair"]}
    if kind == "embedding":
        unit = unit_length(output)[0]
        return {"last_hidden_state": cache.hidden, "sentence_embedding": unit, "embedding": output}
    return {"logits": output}


def nothing_before(model, given):
    """The inputs of a causal graph whose rows begin here."""
    if model.head is None or model.head.kind != "causal":
        return {}
    config, (rows, length) = model.config, given["input_ids"].shape
    nothing = np.zeros((rows, config.num_attention_heads, 0, config.head_size), np.float32)
    parts = [f"past_key_values.{i}.{part}" for i in range(config.num_hidden_layers) for part in ("key", "value")]
    return {"position_ids": np.tile(np.arange(length), (rows, 1)), **dict.fromkeys(parts, nothing)}


def assert_same(model, opened, given, tolerance=1e-5):
    wanted, found = expected(model, given), run(opened, {**given, **nothing_before(model, given)})
    found = {name: values for name, values in found.items() if not name.startswith("present")}
    assert wanted.keys() == found.keys()
    for name, values in wanted.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], values, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize(("family", "head"), CASES)
def test_outputs_are_ours(family, head):
    """Ragged rows, one token, 512 tokens; ModernBERT also at 2,048."""
    changes = {"max_position_embeddings": 2_048} if toy(family).positions == "rotary" else {}
    model = make_model(family, None if head == "core" else head, HEADS[head], **changes)
    opened = session(record_model(model))
    for lengths in (RAGGED, ONE, [2, 1], LONG, *([[2_048]] if changes and head == "core" else [])):
        assert_same(model, opened, batch(model, lengths))


@pytest.mark.parametrize("changes", [{}, {"positions": "rotary"}], ids=["learned", "rotary"])
def test_words_one_after_the_other(changes):
    """The keys and values of one pass are the past of the next: the last scores are those of the whole rows."""
    model = make_model("gpt2", "causal", **changes)
    opened = session(record_model(model))
    given = batch(model, [9, 9])
    whole = model.forward(**given)[0]
    past = nothing_before(model, given)
    for start, stop in ((0, 4), (4, 5), (5, 9)):
        ids, positions = given["input_ids"][:, start:stop], np.tile(np.arange(start, stop), (2, 1))
        found = run(opened, {**past, "input_ids": ids, "position_ids": positions,
                             "attention_mask": given["attention_mask"][:, :stop]})  # fmt: skip
        np.testing.assert_allclose(found["logits"], whole[:, start:stop], rtol=1e-5, atol=1e-5)
        past = {
            name.replace("present", "past_key_values"): values for name, values in found.items() if "present" in name
        }


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "attention", "last"])
@pytest.mark.parametrize("head", ["multiclass", "embedding"])
def test_poolings(pooling, head):
    """Also for a row that is all padding."""
    model = make(with_pooling(toy("bert"), pooling), head, 3 if head == "multiclass" else 0, dtype="float32")
    given = batch(model, RAGGED)
    given["attention_mask"][2] = 0
    assert_same(model, session(record_model(model)), given)


@pytest.mark.parametrize(
    ("head", "labels"), [("binary", 0), ("multilabel", 4), ("regression", 0), ("ordinal", 5)]
)  # fmt: skip
def test_heads_of_sequences(head, labels):
    model = make_model("roberta", head, labels)
    assert_same(model, session(record_model(model)), batch(model, RAGGED))


@pytest.mark.parametrize(
    "changes",
    [
        {"position_buckets": 0},
        {"position_buckets": 8},
        {"pos_att_type": ("c2p",)},
        {"pos_att_type": ("p2c",), "share_att_key": False},
        {"share_att_key": False, "positions": "relative_learned"},
        {"conv_kernel_size": 5, "norm_position": "post_convolution", "conv_activation": "gelu"},
        {"max_relative_positions": 40, "position_buckets": 16},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_variants_of_deberta(changes):
    """Lengths on both sides of the buckets, and shorter than the convolution is wide."""
    model = make_model("deberta", None, **changes)
    opened = session(record_model(model))
    for lengths in (RAGGED, ONE, [2], [3, 2], [60, 41]):
        assert_same(model, opened, batch(model, lengths))


@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("pooling", ["flatten", "mean"])
def test_forecasts(logarithm, pooling):
    series = SeriesConfig(window=12, patch=4, stride=2, mean=3.0, scale=0.5, logarithm=logarithm)
    config = with_series(toy("modernbert"), series).replace(classifier_pooling=pooling)
    model = make(config, "forecast", 3, dtype="float32")
    windows = np.random.default_rng(0).random((4, 12)) + 1.0
    found = run(session(record_model(model)), {"values": windows})["forecast"]
    np.testing.assert_allclose(found, model.head.decode(model.predict(windows)), rtol=1e-5)


def test_numbers_beside_words():
    """On knots, between them, beyond them, missing, and tokens without a number."""
    numbers = NumbersConfig(((0.0, 1.0, 4.0), (-2.0, 5.0)))
    model = make(toy("bert", embeddings="numbers", numbers=numbers), "multiclass", 3, dtype="float32")
    given = batch(model, RAGGED)
    rng = np.random.default_rng(0)
    given["fields"] = rng.integers(0, 3, given["input_ids"].shape)
    given["values"] = rng.choice([0.0, 0.5, 1.0, 3.9, 4.0, 9.0, -7.0, np.nan], given["input_ids"].shape)
    assert_same(model, session(record_model(model)), given)


def test_float16_is_close():
    """Weights, arithmetic and masks in float16; inputs are integers and outputs float32."""
    model = make(toy("bert"), "multiclass", 3, dtype="float32", spread=False)
    graph = record_model(model, "float16")
    assert {str(values.dtype) for name, values in graph.constants.items() if name in model.parameters} == {"float16"}
    given = batch(model, RAGGED)
    given["attention_mask"][2] = 0
    assert_same(model, session(graph), given, tolerance=2e-3)


def test_a_weight_beyond_float16_is_named():
    model = make_model("bert", None)
    model.parameters["layers.1.ffn.up.bias"][3] = 1e6
    with pytest.raises(ConfigError, match=r"layers.1.ffn.up.bias has values beyond the range of float16"):
        record_model(model, "float16")


def test_an_unknown_precision():
    with pytest.raises(ConfigError, match="float32 or float16, not 'int8'"):
        record_model(make_model("bert", None), "int8")


def test_a_head_of_training_alone():
    with pytest.raises(ConfigError, match="holds a generator that is only used in training"):
        record_model(Model(toy("electra"), "rtd", engine="numpy"))
