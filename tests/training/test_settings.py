"""Settings: one set of fields for Python, TOML and flags; errors name every wrong value."""

import json
import shlex
from types import SimpleNamespace

import pytest

from glassbert.checkpoints.family import PRESETS
from glassbert.cli import main
from glassbert.errors import ConfigError, TrainingError
from glassbert.families.bert import LARGER_BERT_CONFIG, MINI_BERT_CONFIG, BertConfig
from glassbert.training.recipes import config_for, sized
from glassbert.training.report import repeat_command
from glassbert.training.settings import CHECKS, TrainingSettings, read_toml

WRONG = [
    ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
    ({"steps": 2.5}, "steps must be a whole number"),
    ({"steps": True}, "steps must be a whole number"),
    ({"minutes": -1}, "minutes must be a number above 0"),
    ({"minutes": float("nan")}, "minutes must be a number above 0"),
    ({"steps": 5, "minutes": 5}, "steps and minutes were given; choose one"),
    ({"mask_rate": 1.5}, "mask_rate must be between 0 and 1"),
    ({"batch": 4, "physical_batch": 8}, "larger than the logical batch of 4"),
    ({"short_length": 64}, "short_length 64 must be below length 64"),
    ({"optimizer": "adam"}, "optimizer must be one of adamw, lion"),
    ({"schedule": "cosin"}, "schedule must be one of constant"),
    ({"sentence": "no mask here"}, "exactly once"),
    ({"preset": "mni"}, "did you mean 'mini'"),
    ({"learning_rte": 1}, "did you mean 'learning_rate'"),
    ({"hidden_sise": 1}, "did you mean 'hidden_size'"),
    ({"model": {"vocab_size": 7}}, "no field 'vocab_size' in the model"),
    ({"ema": 1.0}, "ema must be between 0 and 1"),
    ({"size": 0.1}, "size must be between 1 and 100"),
    ({"length": 2**31}, "length must be a whole number from 8 to 1,048,576, got 2147483648"),
    ({"vocab_size": 2**31}, "vocab_size must be a whole number from 64 to 16,777,216"),
    ({"steps": 10**400}, r"steps must be below 2\*\*63"),
    ({"learning_rate": 10**400}, r"learning_rate must be below 2\*\*63"),
    ({"corpus": "é" * 5_000}, "corpus must be a path .*, whose names have at most 255 bytes"),
    ({"corpus": ["a", "\ud800"]}, "corpus must be a path"),
    ({"tokenizer": "a/" * 3_000}, "tokenizer must be a path"),
    ({"teacher": "a\0b"}, "teacher must be a path"),
    ({"corpus": [1]}, "corpus must be a path or a list of paths"),
    ({"corpus": 0}, "corpus must be a path or a list of paths"),
    ({"general": {"a": 1}}, "general must be a path or a list of paths"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_wrong_values_are_named(given, message):
    with pytest.raises(TrainingError, match=message):
        TrainingSettings.from_dict(given)


def test_every_field_is_checked():
    assert set(CHECKS) == set(TrainingSettings.__dataclass_fields__)


def test_toml_and_flags_give_the_same_settings(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('preset = "larger"\nsteps = 7\nlearning-rate = 1e-3\ncorpus = "c"\n[model]\nhidden_size = 96\n')
    flags = {"preset": "larger", "steps": 7, "learning_rate": 1e-3, "corpus": ["c"], "hidden_size": 96}
    assert TrainingSettings.from_dict(read_toml(path)) == TrainingSettings.from_dict(flags)


def test_settings_round_trip_through_json():
    settings = TrainingSettings.from_dict({"preset": "larger", "tokens": 10, "hidden_size": 96, "corpus": ["a", "b"]})
    assert TrainingSettings.from_dict(settings.to_dict()) == settings


def test_bad_toml_raises_a_clear_error(tmp_path):
    (tmp_path / "a.toml").write_text("steps = ")
    with pytest.raises(TrainingError, match="is not TOML"):
        read_toml(tmp_path / "a.toml")
    with pytest.raises(TrainingError, match="cannot be read: No such file"):
        read_toml(tmp_path / "b.toml")


def test_presets_have_their_own_defaults():
    assert TrainingSettings.from_dict({"preset": "larger"}).length == 128
    assert TrainingSettings.from_dict({}).length == 64
    assert TrainingSettings.from_dict({"clip": 0}).clip is None


def test_another_optimizer_has_its_own_learning_rate():
    assert TrainingSettings.from_dict({"optimizer": "lion"}).learning_rate == 3e-4
    assert TrainingSettings.from_dict({"optimizer": "lion", "learning_rate": 1.0}).learning_rate == 1.0


def test_sizes_of_the_presets_give_their_shapes():
    for size, config in (
        (3, MINI_BERT_CONFIG),
        (6, LARGER_BERT_CONFIG),
        (12, BertConfig()),
        (24, PRESETS["bert-large"]),
    ):
        assert sized(size) == {name: getattr(config, name) for name in sized(size)}


@pytest.mark.parametrize("size", [1, 1.5, 2, 3.5, 4, 5, 7, 9.3, 15, 30, 99])
def test_every_size_gives_a_valid_model(size):
    config = config_for(TrainingSettings(size=size), vocab_size=1000, pad_id=0)
    assert config.hidden_size % 32 == 0 and 24 <= config.head_size <= 128


def test_a_larger_size_is_a_larger_model():
    sizes = [sized(size / 2) for size in range(2, 60)]
    volumes = [s["num_hidden_layers"] * s["hidden_size"] ** 2 for s in sizes]
    assert volumes == sorted(volumes)
    small = [v for v, half_steps in zip(volumes, range(2, 60), strict=True) if half_steps <= 24]
    assert len(set(small)) == len(small)  # up to BERT-base every half step is another model


def test_the_config_follows_the_settings():
    settings = TrainingSettings.from_dict({"length": 100, "dropout": 0.2, "activation": "gelu"})
    config = config_for(settings, vocab_size=321, pad_id=5)
    assert (config.vocab_size, config.pad_token_id, config.max_position_embeddings) == (321, 5, 100)
    assert config.hidden_dropout == config.attention_dropout == 0.2 and config.activation == "gelu"
    with pytest.raises(TrainingError, match="rows of 64 tokens do not fit a model with 32 positions"):
        config_for(TrainingSettings.from_dict({"max_position_embeddings": 32}), 321, 0)
    with pytest.raises(ConfigError, match="do not divide"):
        config_for(TrainingSettings.from_dict({"num_attention_heads": 5}), 321, 0)


def test_the_masking_rate_changes_linearly():
    settings = TrainingSettings(mask_rate=0.3, final_mask_rate=0.1)
    assert [round(settings.mask_rate_at(p), 3) for p in (0.0, 0.5, 1.0)] == [0.3, 0.2, 0.1]
    assert TrainingSettings(final_mask_rate=None, mask_rate=0.2).mask_rate_at(0.7) == 0.2


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [
        ({}, 0.3, 0.15),
        ({"mask_rate": 0.15}, 0.15, 0.15),
        ({"final_mask_rate": 0.2}, 0.3, 0.2),
        ({"mask-rate": 0.4, "final-mask-rate": 0.1}, 0.4, 0.1),
        ({"preset": "larger"}, 0.3, 0.15),
    ],
)
def test_the_default_masking_rate_falls_and_a_rate_given_alone_is_constant(given, first, last):
    settings = TrainingSettings.from_dict(given)
    assert [settings.mask_rate_at(p) for p in (0.0, 1.0)] == pytest.approx([first, last])
    assert TrainingSettings.from_dict(settings.to_dict()) == settings


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"preset": "larger", "size": 8, "corpus": ["a corpus", "b.txt"], "minutes": 3.5, "tie_word_embeddings": True},
        {"mask_rate": 0.3},
        {"mask_rate": 0.4, "final_mask_rate": 0.15},
        {"final_mask_rate": 0.2, "clip": 0},
        {"optimizer": "adamw", "learning_rate": 3e-3},
        {
            "optimizer": "lion",
            "sentence": "Who is [MASK] there?",
            "gradient_checkpointing": True,
            "feed_forward": "gated",
        },
        {"length": 256, "short_length": 128, "batch": 8, "physical_batch": 4, "tensorboard": True},
    ],
)
def test_the_command_in_a_report_gives_the_same_settings(given):
    settings = TrainingSettings.from_dict(given)
    command = shlex.split(repeat_command(SimpleNamespace(settings=json.loads(json.dumps(settings.to_dict())))))
    assert command[:2] == ["glassbert", "pretrain"]
    received = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassbert.cli.pretrain.train_and_show", lambda trainer, as_json: received.append(trainer))
        patch.setattr("glassbert.cli.pretrain.Trainer", lambda settings, run: settings)
        with pytest.raises(SystemExit, match="0"):
            main(command[1:])
    assert received == [settings]
