"""Models of series: normalisation, patches, files, engines, and errors."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert import ModernBertConfig, create_model, load
from glassbert.errors import CheckpointError, ConfigError, InputError
from glassbert.families.bert import MINI_BERT_CONFIG
from glassbert.layers.embeddings import frame, patches
from glassbert.models.series import CENTRES, SeriesConfig
from glassbert.training.optimizers.adamw import AdamW
from glassbert.training.step import TrainingStep

MINI = MINI_BERT_CONFIG.replace(hidden_size=16, intermediate_size=24, num_hidden_layers=2)
MODERN = ModernBertConfig(hidden_size=16, num_attention_heads=2, intermediate_size=24, num_hidden_layers=2)
RNG = np.random.default_rng(0)
VALUES = 50 + 10 * RNG.standard_normal((5, 12))
FUTURE = 50 + 10 * RNG.standard_normal((5, 3))


def forecaster(config=MINI, engine="numpy", **options):
    given = {"horizon": 3, "window": 12, "patch": 4, "stride": 2, "mean": 50.0, "scale": 10.0, **options}
    return create_model("bert_with_head", head_type="forecast", config=config, engine=engine, **given)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 5))
def test_patches_are_slices_up_to_the_last_value(patch, stride, more):
    window = patch + stride * more
    config = SeriesConfig(window=window, patch=patch, stride=stride)
    values = np.arange(2.0 * window).reshape(2, window)
    found = patches(values, config)
    assert found.shape == (2, config.tokens, patch) and config.tokens == more + 1
    for t in range(config.tokens):
        assert (found[:, t] == values[:, t * stride : t * stride + patch]).all()
    assert found[0, -1, -1] == values[0, -1]


@pytest.mark.parametrize("centre", CENTRES)
@pytest.mark.parametrize("divide", [True, False])
def test_centre_and_spread_follow_the_window(centre, divide):
    config = SeriesConfig(window=12, centre=centre, divide=divide)
    (level, spread), (moved, grown) = frame(VALUES, config), frame(VALUES + 7, config)
    assert np.allclose(moved - level, 0 if centre == "none" else 7) and np.allclose(grown, spread)
    if divide:
        assert np.allclose(frame(3 * VALUES, config)[1], 3 * spread, rtol=1e-4)
        assert np.isfinite(1 / frame(np.ones((1, 12)), config)[1]).all()


@settings(max_examples=15, deadline=None)
@given(st.floats(0.5, 20), st.floats(-100, 100))
def test_forecasts_follow_a_change_of_units(grow, move):
    """The model commutes with a change of units, up to the epsilon that is added to the variance."""
    model = forecaster(shortcut=True, dtype="float64")
    model.parameters["head.shortcut.weight"] = np.random.default_rng(1).standard_normal((3, 12))
    first = model.head.decode(model.predict(VALUES))
    other = model.head.decode(model.predict(grow * VALUES + move))
    assert np.allclose(other, grow * first + move, rtol=2e-4, atol=2e-4 * grow * 10)


@pytest.mark.parametrize("config", [MINI, MODERN], ids=["bert", "modernbert"])
@pytest.mark.parametrize(
    "options",
    [
        {"patch": 1, "stride": 1},
        {"shortcut": True, "centre": "last", "loss": "huber", "huber_delta": 0.5},
        {"pooling": "attention", "divide": False},
        {"logarithm": True, "mean": 4.0, "scale": 0.2},
    ],
    ids=lambda options: ", ".join(options),
)
def test_saved_and_opened_again(tmp_path, config, options):
    model = forecaster(config, **options)
    model.save(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["model_type"] == "glassbert" and content["series"]["window"] == 12 and "id2label" not in content
    again = load(tmp_path, engine="numpy")
    assert again.config == model.config and again.head.loss_options == model.head.loss_options
    assert (again.predict(VALUES) == model.predict(VALUES)).all()
    assert np.isclose(float(again.loss(VALUES, FUTURE)[0]), float(model.loss(VALUES, FUTURE)[0]))


def test_hugging_face_has_no_such_model():
    with pytest.raises(CheckpointError, match="reads values instead of words"):
        forecaster().to_huggingface()


@pytest.mark.usefixtures("without_checksums")
def test_a_file_with_an_invalid_series(tmp_path):
    forecaster().save(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    for series, sentence in (({**content["series"], "patch": 99}, "shorter than a patch"), (7, "fields of a Series")):
        (tmp_path / "config.json").write_text(json.dumps({**content, "series": series}))
        with pytest.raises(CheckpointError, match=sentence):
            load(tmp_path)


def test_logarithms_come_back_as_values():
    model = forecaster(logarithm=True, mean=4.0, scale=0.2)
    series = model.config.series
    assert np.allclose(series.unscaled(series.scaled(VALUES)), VALUES)
    assert (model.head.decode(model.predict(VALUES)) > 0).all()
    with pytest.raises(InputError, match=r"at \(1, 3\) is 0; this model was trained on logarithms"):
        bad = VALUES.copy()
        bad[1, 3] = 0
        model.predict(bad)


def test_the_label_minus_100_counts():
    model = forecaster(mean=0.0, scale=1.0)
    targets = model.head.prepare_labels(np.full((1, 3), -100.0), (1, 3))["targets"]
    assert (targets.astype(np.float32) != -100).all() and np.allclose(targets, -100)


def steps(model, count=4):
    step = TrainingStep(model, AdamW(model, 1e-3))
    losses = [float(step(VALUES, FUTURE).loss) for _ in range(count)]
    return losses, {name: model.engine.to_numpy(value) for name, value in model.parameters.items()}


def test_engines_agree_and_threads_do_not_matter():
    pytest.importorskip("mlx.core")
    losses, weights = steps(forecaster(shortcut=True))
    assert losses[-1] < losses[0]
    for other in (forecaster(shortcut=True, engine="mlx"), forecaster(shortcut=True, threads=3)):
        found, moved = steps(other)
        assert np.allclose(found, losses, rtol=1e-4)
        assert all(np.allclose(moved[name], weights[name], atol=2e-4) for name in weights)


def test_micro_batches_add_up():
    whole, parts = forecaster(), forecaster()
    one, two = TrainingStep(whole, AdamW(whole, 1e-3)), TrainingStep(parts, AdamW(parts, 1e-3), physical_batch=2)
    first, second = one(VALUES, FUTURE), two(VALUES, FUTURE)
    assert np.isclose(first.loss, second.loss) and np.isclose(first.gradient_norm, second.gradient_norm)


def test_every_parameter_moves():
    model = forecaster(shortcut=True)
    before = {name: np.array(value) for name, value in model.parameters.items()}
    _, after = steps(model, 1)
    still = [name for name in before if (before[name] == after[name]).all()]
    assert still == []


def test_classification_of_series():
    model = create_model("bert_with_head", head_type="multiclass", num_labels=4, pooling="mean", window=12, patch=3,
                         config=MINI, engine="numpy")  # fmt: skip
    assert model.predict(VALUES).shape == (5, 4)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"window": 3}, "a window of 3 values is shorter than a patch of 4"),
        ({"window": 13}, "leave 1 of a window of 13 values out; a window of 12 or 14 fits"),
        ({"window": 0}, "window must be a number of values, at least 1, got 0"),
        ({"patch": 0}, "patch must be a number of values"),
        ({"horizon": 0}, "a horizon of at least 1"),
        ({"horizon": None}, "a horizon of at least 1"),
        ({"centre": "median"}, "centre must be one of 'mean', 'last', 'none'"),
        ({"divide": 1}, "divide must be true or false"),
        ({"scale": 0.0}, "scale of a series must be above 0"),
        ({"mean": float("nan")}, "mean of a series must be a finite number"),
        ({"loss": "cross_entropy"}, "unknown loss 'cross_entropy' of a forecast head"),
        ({"target_mean": [1.0, 1.0, 1.0]}, "a forecast is scaled by the mean and scale of its series"),
        ({"huber_delta": 2.0}, "huber_delta belongs to huber"),
    ],
)
def test_invalid_arguments(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        forecaster(**options)


def test_series_options_and_heads_that_do_not_fit():
    with pytest.raises(ConfigError, match="the number of past values"):
        create_model("bert_with_head", head_type="forecast", horizon=3, config=MINI, engine="numpy")
    with pytest.raises(ConfigError, match="lays the tokens of a window side by side"):
        create_model("bert_with_head", head_type="binary", pooling="flatten", config=MINI, engine="numpy")
    with pytest.raises(ConfigError, match="needs one vector a window"):
        create_model("bert_with_head", head_type="binary", pooling="flatten", window=12, config=MINI, engine="numpy")
    with pytest.raises(ConfigError, match="makes no forecast"):
        create_model("bert_with_head", head_type="binary", horizon=3, config=MINI, engine="numpy")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (VALUES[:, :11], r"the shape must be \[batch, 12\], got \[5, 11\]"),
        (VALUES[0], r"got \[12\]"),
        (VALUES[:0], "give at least one window"),
        (np.where(VALUES[2, 5] == VALUES, np.nan, VALUES), r"at \(2, 5\) is nan"),
        (np.where(VALUES[2, 5] == VALUES, np.inf, VALUES), r"at \(2, 5\) is inf"),
        (VALUES.astype(str), "must be numbers"),
        ([[1.0] * 12, [1.0] * 11], "differ in length"),
        (None, "got None"),
    ],
)
def test_values_that_do_not_fit(values, sentence):
    with pytest.raises(InputError, match=sentence):
        forecaster().predict(values)


def test_no_other_inputs_with_windows():
    with pytest.raises(InputError, match="leave attention_mask out"):
        forecaster().predict(VALUES, np.ones((5, 12)))
    with pytest.raises(InputError, match=r"labels must have the shape \(5, 3\)"):
        forecaster().loss(VALUES, FUTURE[:, :2])
    with pytest.raises(InputError, match="the label of row 1 is not a finite number"):
        forecaster().loss(VALUES, np.where(FUTURE[1, 1] == FUTURE, np.nan, FUTURE))
