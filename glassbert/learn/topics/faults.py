"""Exercises "find the planted fault": a solution with one of its known mistakes in it.

The learner answers with the number of the wrong line, or with the mended function.
"""

from __future__ import annotations

from dataclasses import replace

from glassbert.learn.exercise import EXERCISES, register
from glassbert.learn.topics import attention, blocks, gradients, masking, model, row_gradients, training  # noqa: F401

PLANTED = {
    "layer_norm": (3, "eps is added to the root"),
    "attention": (6, "the mask hides queries, not keys"),
    "block": (7, "the second residual adds the input of the block"),
    "cross_entropy": (9, "ignored rows count in the mean"),
    "embedding_backward": (10, "a repeated id keeps only its last gradient"),
    "layer_norm_backward": (11, "gamma outside the means"),
    "attention_backward": (11, "the inner sum of the softmax is missing"),
    "adamw_step": (12, "no bias correction of v"),
    "clip_gradients": (13, "short gradients are made longer"),
}

for name, (lesson, planted) in PLANTED.items():
    written = EXERCISES[name]
    fault = next(one for one in written.mistakes if one.name == planted)
    register(
        replace(
            written,
            name=f"{name}_fault",
            lesson=lesson,
            task=f"`{name}` with one thing wrong. Name the wrong line, or mend it. {written.task}",
            fault=fault,
        )
    )
