"""Permutation language modelling (plm): the objective of XLNet.

    loss = - mean over predicted tokens i of log p(token i | given tokens, and tokens predicted before i)

A batch has `prediction_order` [B, T]: 0 for tokens that are given, 1, 2, ... for predicted ones. Order and targets of a
row depend on (seed, epoch, row) alone (`glassbert.text.generator.PermutedGenerator`). The scores come from the query
stream, so the head has one row for each predicted token; labels are given where their tokens are.
"""

from __future__ import annotations

from glassbert.training.objectives.base import OBJECTIVES, HeadObjective

OBJECTIVES.register("plm")(HeadObjective("plm", "mlm", "labels", "permuted"))
