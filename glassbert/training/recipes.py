"""Good defaults for every preset, and one dial for the sizes between them.

The presets lie on a line: Mini has 3 layers of 192, Larger 6 of 384, BERT-base 12 of 768, so 64 features to a layer.
The dial is the number of layers; beyond 12 the width grows more slowly, as it does in BERT-large.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.checkpoints.family import PRESETS
from glassbert.errors import TrainingError
from glassbert.models.config import EncoderConfig

if TYPE_CHECKING:
    from glassbert.training.settings import TrainingSettings

DROPOUTS = ("embedding_dropout", "attention_dropout", "hidden_dropout")

LAYERS = (1, 3, 6, 12, 24)
WIDTHS = (64, 192, 384, 768, 1_024)
HEADS = (1, 4, 8, 12, 16)

# A rate that stays high for tens of thousands of steps ruined a post-norm Mini-BERT (docs/lab-notes.md), so these go
# with a schedule that falls from the end of the warm-up on. Muon's rate hardly depends on the width.
DEFAULTS: dict[str, dict[str, Any]] = {
    "mini": {"length": 64, "batch": 64, "optimizer": "muon", "learning_rate": 3e-3},
    "larger": {"length": 128, "batch": 128, "optimizer": "muon", "learning_rate": 3e-3, "vocabulary": 50_000},
    "base": {"length": 128, "batch": 256, "optimizer": "muon", "learning_rate": 2e-3, "vocabulary": 30_522},
}


def defaults_for(preset: str, size: float | None = None) -> dict[str, Any]:
    """The settings that differ from those of Mini, for a preset or for a place on the dial."""
    _known_preset(preset)
    if size is not None:
        preset = "mini" if size < 5 else "larger" if size < 9 else "base"
    return dict(DEFAULTS.get(preset, DEFAULTS["base"]))


def config_for(settings: TrainingSettings, vocab_size: int, pad_id: int) -> EncoderConfig:
    """The model of a run: the preset or the dial, with the vocabulary of the corpus and the user's own fields."""
    config = PRESETS[_known_preset(settings.preset)]
    if settings.size is not None:
        config = config.replace(**sized(settings.size, config.gated))
    changes: dict[str, Any] = {"vocab_size": vocab_size, "pad_token_id": pad_id}
    changes["max_position_embeddings"] = max(settings.length, config.max_position_embeddings)
    if settings.dropout is not None:
        changes.update(dict.fromkeys(DROPOUTS, settings.dropout))
    changes.update(settings.model)
    if settings.length > changes["max_position_embeddings"]:
        raise TrainingError(
            f"rows of {settings.length} tokens do not fit a model with {changes['max_position_embeddings']} positions; "
            f"lower length or raise max_position_embeddings"
        )
    return config.replace(**changes)


def sized(size: float, gated: bool = False) -> dict[str, int]:
    """Layers, width, heads and feed-forward width for a place on the dial."""
    layers = max(1, int(size + 0.5))
    grain = 32 if size <= 12 else 64  # half a step of the dial is another width
    width = grain * max(64 // grain, round(float(np.interp(size, LAYERS, WIDTHS)) / grain))
    wanted = float(np.interp(size, LAYERS, HEADS))
    heads = min((n for n in range(1, 65) if width % n == 0 and (width // n) % 2 == 0), key=lambda n: abs(n - wanted))
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 3 * width // 2 if gated else 4 * width,
    }


def _known_preset(preset: str) -> str:
    if preset not in PRESETS:
        close = difflib.get_close_matches(str(preset), PRESETS, 1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise TrainingError(f"there is no preset {preset!r}{hint} There are {', '.join(PRESETS)}.")
    return preset
