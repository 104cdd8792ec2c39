"""What nobody said, chosen from the model and the data: how fast to learn, how long, and how long rows may be.

A small encoder stands a higher rate than a large one: 4e-4 for Mini, 1e-4 for MiniLM, 3e-5 for BERT-base and 1e-5 for
BERT-large lie on one curve,

    rate = RATE / (width · layers)
"""

from __future__ import annotations

import math

from glassbert.finetuning.settings import FineTuningSettings
from glassbert.models.config import EncoderConfig

RATE = 0.24
FACTORS = {"lion": 0.2, "sophia": 0.3, "muon": 5.0, "sgd": 100.0}  # of the rate, for other optimizers than AdamW
LOW_RANK_FACTOR = 10.0  # few numbers learn, from zero
HEAD_ONLY_FACTOR = 10.0
FROM_SCRATCH_FACTOR = 2.0
LONGEST = 512  # tokens; a model may allow more, at a price
# Up to so many examples, so many epochs.
EPOCHS = ((1_000, 20), (3_000, 12), (8_000, 8), (30_000, 5), (math.inf, 3))


def learning_rate(settings: FineTuningSettings, config: EncoderConfig, from_scratch: bool) -> float:
    if settings.learning_rate is not None:
        return settings.learning_rate
    rate = RATE / (config.hidden_size * max(1, config.num_hidden_layers))
    rate *= FACTORS.get(settings.optimizer, 1.0)
    if settings.low_rank is not None:
        rate *= LOW_RANK_FACTOR
    elif settings.freeze == "encoder":
        rate *= HEAD_ONLY_FACTOR
    elif from_scratch:
        rate *= FROM_SCRATCH_FACTOR
    return float(f"{rate:.2g}")


def epochs(settings: FineTuningSettings, examples: int) -> int:
    if settings.epochs is not None:
        return settings.epochs
    return next(count for most, count in EPOCHS if examples <= most)


def patience(settings: FineTuningSettings, epochs: int) -> int:
    """A quarter of the evaluations, two at least: on few examples a score goes up and down."""
    if settings.patience is not None:
        return settings.patience
    return max(2, epochs * settings.evaluations // 4)


def max_length(settings: FineTuningSettings, config: EncoderConfig) -> int:
    return min(settings.max_length or LONGEST, config.max_position_embeddings)
