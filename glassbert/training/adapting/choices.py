"""What an adaptation chooses for the size of its text and of its budget, where nothing is given.

What is chosen:

    budget   EPOCHS times the text of the domain, and the general text beside it; at most TOKENS in all
    batch    no more rows of the domain than its text has
    pieces   those that the run reads at least LEAST_READ times: uses · tokens of the run / tokens of the text
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

from glassbert.text.new_pieces import MIN_FREQUENCY
from glassbert.text.wordpiece import WordPiece
from glassbert.text.wordpiece_files import Description
from glassbert.training.settings import BUDGETS, TrainingSettings

NEW_PIECES = 1_000
LEAST_READ = 200
EPOCHS = 20
TOKENS = 4_000_000
STEPS_A_MINUTE = 100  # a guess, for the number of pieces alone


def tokens_of(counts: Counter[str], description: Description) -> int:
    """The tokens of the counted words in the pieces of a vocabulary."""
    splitter = WordPiece(description.vocabulary, longest_word=description.longest_word)
    return sum(count * len(splitter.split(word)) for word, count in counts.items())


def domain_tokens(settings: TrainingSettings, text: int, share: float) -> float:
    """The tokens of the domain that a run reads; `text` are those of its text, `share` that of general text."""
    step = settings.batch * settings.length
    tokens = {"steps": step, "tokens": 1, "minutes": STEPS_A_MINUTE * step}
    for name, each in tokens.items():
        if (amount := getattr(settings, name)) is not None:
            return (1 - share) * amount * each
    return min(EPOCHS * text, (1 - share) * TOKENS)


def least_uses(settings: TrainingSettings, text: int, share: float) -> int:
    """The uses in the text from which on the run reads a piece LEAST_READ times."""
    return max(MIN_FREQUENCY, math.ceil(LEAST_READ * text / max(1.0, domain_tokens(settings, text, share))))


def fitted(settings: TrainingSettings, text: int, share: float, given: Collection[str]) -> TrainingSettings:
    """The settings with a batch and a budget for a text of so many tokens, as far as they are not given."""
    if "batch" not in given:
        rows = max(1, text // settings.length)  # of the domain
        least = math.ceil(0.6 / min(share, 1 - share)) if share else 1  # both texts have a row
        settings = settings.replace(batch=max(least, min(settings.batch, int(rows / (1 - share)))))
    if all(getattr(settings, name) is None for name in BUDGETS):
        tokens = domain_tokens(settings, text, share) / (1 - share)
        settings = settings.replace(steps=max(1, round(tokens / (settings.batch * settings.length))))
    return settings
