"""Training objectives: what a model is trained on. One file an objective; `base.py` has what they share.

Importing this package enters all of them into the table `OBJECTIVES`.
"""

from glassbert.training.objectives import (  # noqa: F401  (enter their objectives)
    distillation,
    next_token,
    permutation,
    rtd,
)
from glassbert.training.objectives.base import (
    OBJECTIVES,
    HeadObjective,
    Objective,
    ObjectiveResult,
    Objectives,
    OutputObjective,
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
    "OutputObjective",
    "SampleTargets",
    "right_choices",
    "right_signs",
]
