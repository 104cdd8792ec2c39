"""Next-token prediction (clm): the objective of GPT.

    loss = - mean over t of log softmax(scores at t)[token t + 1]

The labels are the tokens themselves, where they are; the head moves them by one (`CausalLanguageHead`). The first token
of a packed document has no label, so that no document predicts the beginning of the next one. Perplexity is exp(loss).
"""

from __future__ import annotations

from glassbert.training.objectives.base import OBJECTIVES, HeadObjective

OBJECTIVES.register("clm")(HeadObjective("clm", "causal", "labels", "next_token"))
