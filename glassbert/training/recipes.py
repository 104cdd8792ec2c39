"""Default settings of every preset, and model shapes for sizes between the presets.

A size is a number of layers. Mini has 3 layers of width 192, Larger 6 of 384, BERT-base 12 of 768: a width of 64 per
layer. Beyond 12 layers the width grows more slowly, as in BERT-large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.checkpoints.family import FAMILIES, PRESETS, Family
from glassbert.errors import TrainingError
from glassbert.models.config import EncoderConfig
from glassbert.training.settings_base import unknown_name

if TYPE_CHECKING:
    from glassbert.training.settings import TrainingSettings

DROPOUTS = ("embedding_dropout", "attention_dropout", "hidden_dropout")

LAYERS = (1, 3, 6, 12, 24)
WIDTHS = (64, 192, 384, 768, 1_024)
HEADS = (1, 4, 8, 12, 16)

# These rates need a schedule that falls from the end of the warm-up on: a post-norm Mini-BERT diverged with a rate that
# stayed high for tens of thousands of steps (docs/lab-notes.md). Muon's rate hardly depends on the width.
DEFAULTS: dict[str, dict[str, Any]] = {
    "mini": {"length": 64, "batch": 64, "optimizer": "muon", "learning_rate": 3e-3},
    "larger": {"length": 128, "batch": 128, "optimizer": "muon", "learning_rate": 3e-3, "vocab_size": 50_000},
    "base": {"length": 128, "batch": 256, "optimizer": "muon", "learning_rate": 2e-3, "vocab_size": 30_522},
}


def defaults_for(preset: str, size: float | None = None) -> dict[str, Any]:
    """The default settings of a preset; for a size, those of the nearest of Mini, Larger and base."""
    _check_preset(preset)
    family = next(family for family in FAMILIES.values() if preset in family.presets)
    if preset == family.mini:
        preset = "mini"
    if size is not None:
        preset = "mini" if size < 5 else "larger" if size < 9 else "base"
    own = {"objective": family.objective, "tokenizer_kind": family.tokenizer, **family.training}
    return {**DEFAULTS.get(preset, DEFAULTS["base"]), **own}


def preset_of(family: str) -> str:
    """The preset that `--family` trains; "" is the family of Mini-BERT."""
    if not family:
        return "mini"
    if not _member(family).mini:
        trained = ", ".join(name for name, one in FAMILIES.items() if one.mini)
        raise TrainingError(f"the family {family!r} has no Mini size to train; there are {trained}, or give --preset")
    return _member(family).mini


def check_preset_of_family(family: str, preset: str) -> None:
    """Raise if a family and a preset of another family were given together."""
    presets = _member(family).presets
    if preset not in presets:
        raise TrainingError(
            f"the preset {preset!r} is not one of the family {family!r}; its presets are {', '.join(presets)}"
        )


def _member(family: str) -> Family:
    if family not in FAMILIES:
        raise TrainingError(unknown_name(f"there is no family {family!r}", family, FAMILIES))
    return FAMILIES[family]


def config_for(settings: TrainingSettings, vocab_size: int, pad_id: int, sep_id: int | None = None) -> EncoderConfig:
    """The model config of a run: from preset or size, the vocabulary of the corpus, and the fields in the settings."""
    config = PRESETS[_check_preset(settings.preset)]
    if settings.size is not None:
        shape = sized(settings.size, config.gated)
        if config.embedding_size is not None:  # as narrow as in the preset, in relation to the layers
            shape["embedding_size"] = max(
                8, 8 * round(shape["hidden_size"] * config.embedding_size / config.hidden_size / 8)
            )
        config = config.replace(**shape)
    changes: dict[str, Any] = {"vocab_size": vocab_size, "pad_token_id": pad_id}
    if config.sep_token_id is not None and sep_id is not None:
        changes["sep_token_id"] = sep_id
    offset = config.replace(**changes).position_offset  # where positions begin may depend on the padding
    changes["max_position_embeddings"] = offset + max(settings.length, config.max_length)
    if settings.dropout is not None:
        changes.update(dict.fromkeys(DROPOUTS, settings.dropout))
    config = config.replace(**{**changes, **settings.model})
    if settings.length > config.max_length:
        raise TrainingError(
            f"rows of {settings.length} tokens do not fit a model with {config.max_length} positions; "
            f"lower --length or raise --max-position-embeddings"
        )
    return config


def sized(size: float, gated: bool = False) -> dict[str, int]:
    """Layers, width, heads and feed-forward width for a size."""
    layers = max(1, int(size + 0.5))
    multiple = 32 if size <= 12 else 64  # of the width; with 32, sizes that differ by 0.5 have different widths
    width = multiple * max(64 // multiple, round(float(np.interp(size, LAYERS, WIDTHS)) / multiple))
    wanted = float(np.interp(size, LAYERS, HEADS))
    heads = min((n for n in range(1, 65) if width % n == 0 and (width // n) % 2 == 0), key=lambda n: abs(n - wanted))
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 3 * width // 2 if gated else 4 * width,
    }


def _check_preset(preset: str) -> str:
    if preset not in PRESETS:
        raise TrainingError(unknown_name(f"there is no preset {preset!r}", preset, PRESETS))
    return preset
