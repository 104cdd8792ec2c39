"""What nobody said, chosen from the model and the data: how fast to learn, how long, and how long rows may be.

A small encoder stands a higher rate than a large one: 4e-4 for Mini, 1e-4 for MiniLM, 3e-5 for BERT-base and 1e-5 for
BERT-large lie on one curve,

    rate = RATE / (width · layers)

Few examples are seen more often, and want slower steps: on Titanic's 713 a Mini-BERT was right in 81.1 % of five folds
with 1.5e-4 over 10 epochs, and in 79.3 % with 4.2e-4 over 20.
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
# Up to so many examples: so many epochs, and this factor on the rate.
BY_EXAMPLES = ((3_000, 10, 0.4), (8_000, 8, 0.7), (30_000, 5, 1.0), (math.inf, 3, 1.0))


def learning_rate(settings: FineTuningSettings, config: EncoderConfig, examples: int, from_scratch: bool) -> float:
    if settings.learning_rate is not None:
        return settings.learning_rate
    rate = RATE / (config.hidden_size * max(1, config.num_hidden_layers))
    rate *= next(factor for most, _, factor in BY_EXAMPLES if examples <= most)
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
    return next(count for most, count, _ in BY_EXAMPLES if examples <= most)


def patience(settings: FineTuningSettings, epochs: int) -> int:
    """Half of the evaluations, two at least: on few examples a score goes up and down.

    With a quarter, a fold of Titanic ended with the weights of its first epoch, which said no to everybody.
    """
    if settings.patience is not None:
        return settings.patience
    return max(2, epochs * settings.evaluations // 2)


def max_length(settings: FineTuningSettings, config: EncoderConfig) -> int:
    return min(settings.max_length or LONGEST, config.max_position_embeddings)
