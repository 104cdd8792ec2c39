"""Models of all families, windows, heads and poolings, random masks, and the difference of `predict` and `forward`."""

from __future__ import annotations

import functools

import numpy as np

from glassbert.checkpoints.family import FAMILIES
from glassbert.models.heads import resolve_head
from glassbert.models.model import Model

FAMILY_NAMES = [name for name, family in FAMILIES.items() if family.mini]
POOLINGS = ("cls", "mean", "max", "attention", "last")
LENGTH, ROWS, VOCABULARY = 13, 5, 40


@functools.cache
def model_of(
    family: str, head: str | None, pooling: str, window: int | None, threads: int, dtype: str = "float64"
) -> Model:
    preset = FAMILIES[family].presets[FAMILIES[family].mini]
    narrow = {} if preset.embedding_size in (None, preset.hidden_size) else {"embedding_size": 8}
    local = {} if window is None else {"local_window": window, "global_attention_every": 2}
    config = preset.replace(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        pad_token_id=0, **narrow, **local,
    )  # fmt: skip
    if head is not None and head != "token":
        config = config.replace(classifier_pooling=pooling, pooler=config.pooler and pooling == "cls")
    labels = {"multiclass": 3, "token": 3}.get(head or "", 0)
    kind, count, loss = (head, 0, None) if head is None else resolve_head(head, labels or None, None)
    model = Model(config, kind, count or 0, loss=loss, engine="numpy", dtype=dtype, threads=threads)
    rng = np.random.default_rng(5)
    for name, values in model.parameters.items():
        resting = 1.0 if name.endswith("norm.weight") else 0.0
        model.parameters[name] = resting + 0.3 * rng.standard_normal(values.shape)
    return model


def random_mask(rng: np.random.Generator) -> np.ndarray:
    """A mask of one of the kinds that occur: padding on either side, holes, single tokens, empty rows."""
    place = np.arange(LENGTH)
    rows = []
    for _ in range(ROWS):
        count = int(rng.integers(0, LENGTH + 1))
        rows.append(
            [
                place < count,
                place >= LENGTH - count,
                rng.random(LENGTH) < rng.random(),
                (place >= count // 2) & (place < count),
                np.ones(LENGTH, bool),
            ][int(rng.integers(5))]
        )
    return np.array(rows).astype(np.int64)


def random_segments(rng: np.random.Generator, mask: np.ndarray) -> np.ndarray | None:
    """Documents of a packed row, sometimes; padding inside and outside of the mask."""
    if rng.random() < 0.7:
        return None
    segments = np.cumsum(rng.random(mask.shape) < 0.2, axis=1) + 1
    return np.where(mask * (rng.random(mask.shape) < 0.9), segments, 0)


def largest_difference(model: Model, rng: np.random.Generator, pooled: bool) -> float:
    mask = random_mask(rng)
    ids = rng.integers(1, VOCABULARY, mask.shape)
    ids = np.where(mask | (rng.random() < 0.5), ids, 0)
    more = {}
    segments = random_segments(rng, mask)
    if segments is not None and model.config.attention == "self":
        more["segment_ids"] = segments
    expected = np.asarray(model.forward(ids, mask, **more)[0])
    found = np.asarray(model.predict(ids, mask, **more))
    assert found.shape == expected.shape and np.isfinite(found).all()
    real = np.ones(ROWS, bool) if pooled else (mask != 0) & (segments != 0 if segments is not None else True)
    difference = np.abs(found - expected)[real]
    return float(difference.max(initial=0.0))


def heads_of(family: str) -> list[tuple[str | None, str]]:
    return [(None, "cls"), ("token", "cls"), *(("multiclass", p) for p in POOLINGS), ("embedding", "mean")]
