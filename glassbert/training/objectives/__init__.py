"""Training objectives: what a model is trained on. One file an objective; `base.py` has what they share.

Importing this package enters all of them into the table `OBJECTIVES`.
"""

from glassbert.training.objectives import next_token, permutation  # noqa: F401  (enter their objectives)
from glassbert.training.objectives.base import (
    OBJECTIVES,
    HeadObjective,
    Objective,
    ObjectiveResult,
    Objectives,
    SampleTargets,
    right_choices,
    right_signs,
)

__all__ = [
    "OBJECTIVES",
    "HeadObjective",
    "Objective",
    "ObjectiveResult",
    "Objectives",
    "SampleTargets",
    "right_choices",
    "right_signs",
]
