"""A pass is freed when its last reference is dropped: it contains no reference cycle."""

import gc
import weakref

import numpy as np
import pytest

from glassbert import PRESETS, AdamW, TrainingStep
from glassbert.models.model import Model
from tests.models.small import BERT, CONFIGS, batch, make


@pytest.mark.parametrize("options", [{}, {"trace": True}, {"skip_padding": True}], ids=str)
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_pass_is_freed_without_the_garbage_collector(config, checkpointing, options):
    ids, mask, labels = batch(config)
    model = make(config, threads=2)
    model.set_checkpointing(checkpointing)
    gc.collect()
    gc.disable()
    try:
        _, cache = model.loss(ids, labels, mask, **options)
        model.backward(cache)
        _ = cache["layers.0.attention.weights"]
        held = [weakref.ref(one) for one in (cache, cache.head_cache, *(part.cache for part in cache.parts))]
        del cache
        assert [one() for one in held] == [None] * len(held)
    finally:
        gc.enable()


def test_the_pass_of_a_bare_encoder_is_freed():
    ids, mask, _ = batch(BERT)
    model = make(BERT, head=None)
    gc.disable()
    try:
        _, cache = model.forward(ids, mask)
        held = weakref.ref(cache.head_cache)
        del cache
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("preset", ["electra-mini", "deberta-mini"])
def test_a_pass_with_a_generator_is_freed(preset):
    config = PRESETS[preset].replace(
        vocab_size=50, hidden_size=16, num_attention_heads=4, num_hidden_layers=2, intermediate_size=8
    )
    model = Model(config, "rtd", engine="numpy", threads=2)
    step = TrainingStep(model, AdamW(model))
    ids = np.arange(24).reshape(2, 12) + 5
    gc.collect()
    gc.disable()
    try:
        _, run = step.trace({"input_ids": ids, "labels": np.where(ids % 3 == 0, ids, -100)})
        step.backward(run)
        assert run["head.generator.layers.0.attention.weights"].shape[2:] == (12, 12)
        held = [weakref.ref(one) for one in (run, run.head_cache, *run.inner, *(part.cache for part in run.parts))]
        del run
        assert [one() for one in held] == [None] * len(held)
    finally:
        gc.enable()
