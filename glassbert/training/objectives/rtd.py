"""Replaced-token detection: a generator fills masks with samples, and the encoder finds which tokens are not original.

    generator       loss = cross-entropy of the masked words
    rtd             loss = binary cross-entropy over all real tokens of "this token is not the original"

"rtd" alone stands for the sum of ELECTRA, generator + 50 · rtd. The generator runs first (`begin`): its scores of the
masked words are sampled, and the samples take the place of the masks in what the encoder reads. A sample that happens
to be the original counts as original. No gradient passes through the sampling, so the two losses meet only in the
embeddings.

Samples are a function of seed, step and row, as dropout masks are; those of held-out rows have a seed of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.arrays import Array, is_numpy, namespace
from glassbert.errors import InputError
from glassbert.layers.scope import Scope
from glassbert.models.encoder import Batch
from glassbert.models.heads import Head
from glassbert.models.heads.rtd import GENERATOR, PREFIX
from glassbert.models.inputs import as_array
from glassbert.models.passes import Network, Pass
from glassbert.ops import IGNORED
from glassbert.ops.sampling import sample_columns
from glassbert.training.objectives.base import (
    OBJECTIVES,
    SHORT_SUMS,
    HeadObjective,
    Objective,
    ObjectiveResult,
    SampleTargets,
)

WEIGHT = 50
SEED = 0  # of the samples of held-out rows
STATE = f"head.{GENERATOR}.pass"


class OneHead:
    """The loss of one head as an objective of a pass; `after` is given its scores before the loss."""

    def __init__(self, head: Head, after: Any):
        self.objective = HeadObjective(head.kind, head.kind)
        self.after = after

    def begin(self, run: Pass, targets: Mapping[str, Any], **options: Any) -> None:
        """Nothing is needed before the hidden states."""

    def rows_read(self, head: Head, batch: Batch, targets: Mapping[str, Any]) -> Array | None:
        return self.objective.rows_read(head, batch, targets)

    def loss(
        self, head: Head, hidden: Array, batch: Batch, targets: Mapping[str, Any], scope: Scope, **options: Any
    ) -> ObjectiveResult:
        output = self.objective.output(head, hidden, batch, targets, scope)
        self.after(output)
        return self.objective.output_loss(head, output, targets, scope, **options)

    def backward(self, head: Head, dloss: Any, scope: Scope) -> Array:
        return self.objective.backward(head, dloss, scope)


@OBJECTIVES.register("generator")
class GeneratorObjective(Objective):
    """The masked words, by the generator. It also makes what the discriminator reads."""

    name = "generator"
    part = "rtd"
    beside = ("rtd",)

    def prepare(self, head: Any, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        if given.get("labels") is None:
            raise InputError("the objective 'generator' needs labels in every batch")
        return head.generator_head.prepare_labels(as_array("labels", given["labels"]), shape)

    def count(self, prepared: Mapping[str, np.ndarray]) -> int:
        return int((prepared["targets"] != IGNORED).sum())

    def begin(
        self, run: Pass, targets: Mapping[str, Array], measure: bool = False, sample: SampleTargets | None = None
    ) -> None:
        head: Any = run.network.head
        inner = run.with_network(Network(head.generator_config, head.generator, head.generator_head, run.engine))
        source = run.dropout if run.dropout is not None else run.engine.dropout(SEED)

        def fill_masks(scores: Array) -> None:
            uniform = source.uniform(f"{PREFIX}samples", tuple(run.batch.ids.shape)).reshape(-1)  # type: ignore[union-attr]
            chosen = sample_columns(scores, uniform[targets["rows"]])
            run.replace_ids(replaced(run.batch.ids, targets, chosen))

        words = OneHead(head.generator_head, fill_masks)
        result = inner.loss(words, targets, measure=measure, sample=sample)
        words.after = None  # it refers to the pass: a cycle would keep both alive
        run.head_cache.states[STATE] = inner, result

    def loss(
        self,
        head: Head,
        hidden: Array,
        batch: Batch,
        targets: Mapping[str, Array],
        scope: Scope,
        measure: bool = False,
        sample: SampleTargets | None = None,
    ) -> ObjectiveResult:
        return scope.cache.states[STATE][1]

    def backward(self, head: Head, dloss: Array, scope: Scope) -> Array | None:
        inner = scope.cache.states[STATE][0]
        inner.backward(scope.gradients, dloss, thread_gradients=inner.thread_gradients)
        return None


def replaced(ids: Array, targets: Mapping[str, Array], chosen: Array) -> Array:
    """The ids [B, T] with the chosen ones in the rows of the targets. Rows that only pad the targets change nothing."""
    rows, flat = targets["rows"], ids.reshape(-1)
    change = (chosen.astype(flat.dtype) - flat[rows]) * (targets["targets"] != IGNORED)
    if not is_numpy(flat):
        return flat.at[rows].add(change).reshape(ids.shape)
    flat = flat.copy()
    flat[rows] += change
    return flat.reshape(ids.shape)


@OBJECTIVES.register("rtd")
class ReplacedTokens(Objective):
    """Which tokens are not the original ones, over all real tokens."""

    name = "rtd"
    part = "rtd"
    beside = ("generator",)
    fixed_targets = False  # a better generator makes it harder

    def prepare(self, head: Head, given: Mapping[str, Any], shape: tuple[int, int]) -> dict[str, np.ndarray]:
        if given.get("labels") is None:
            raise InputError("the objective 'rtd' needs labels in every batch")
        labels, ids, real = (given[name] for name in ("labels", "input_ids", "real_tokens"))
        labels = as_array("labels", labels)
        if labels.shape != shape:
            raise InputError(f"labels must have the shape {shape}, got {labels.shape}")
        return {
            "originals": np.where(labels == IGNORED, ids, labels),
            "real": np.ones(shape, np.int64) if real is None else np.asarray(real, np.int64),
        }

    def count(self, prepared: Mapping[str, np.ndarray]) -> int:
        return int(prepared["real"].sum())

    def loss(
        self,
        head: Head,
        hidden: Array,
        batch: Batch,
        targets: Mapping[str, Array],
        scope: Scope,
        measure: bool = False,
        sample: SampleTargets | None = None,
    ) -> ObjectiveResult:
        xp = namespace(hidden)
        wrong = (batch.ids != targets["originals"]).astype(hidden.dtype)  # type: ignore[union-attr]
        wanted = xp.where(targets["real"] != 0, wrong, xp.array(IGNORED, dtype=hidden.dtype))  # [B, T]
        part = head.parts[self.part].head
        output = part.forward(hidden, batch, scope)
        return SCORES.output_loss(part, output, {"targets": wanted}, scope, measure=measure, sample=sample)

    def backward(self, head: Head, dloss: Array, scope: Scope) -> Array:
        part = head.parts[self.part].head
        return part.backward(SCORES.output_backward(part, dloss, scope), scope)


SCORES = HeadObjective("rtd", "rtd")
SHORT_SUMS["rtd"] = f"generator+{WEIGHT}*rtd"
