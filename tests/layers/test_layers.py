"""Layers, beyond what the proof shows of their gradients: shapes, parameters, choices of parts."""

import numpy as np
import pytest

from glassbert import ops
from glassbert.arrays import Layout
from glassbert.layers import attention
from glassbert.layers.attention import AttentionContext, SelfAttention, merge_heads
from glassbert.layers.block import PostNormBlock, PreNormBlock
from glassbert.layers.embeddings import TokenEmbeddings
from glassbert.layers.feed_forward import FeedForward, GatedFeedForward
from glassbert.layers.positions import LearnedPositions, RotaryPositions
from glassbert.layers.scope import Cache, Scope
from glassbert.ops import AttentionPattern
from glassbert.ops.attention import split_heads
from tests.models.small import BERT, MODERN, make


def test_heads_are_split_and_joined_without_loss():
    qkv = np.random.default_rng(0).standard_normal((2, 5, 3 * 12))
    q, k, v = split_heads(qkv, 3)
    np.testing.assert_array_equal(ops.join_heads(q, k, v)[0], qkv)
    np.testing.assert_array_equal(q.reshape(2, 5, 12), qkv[..., :12])
    heads_first = np.swapaxes(v, 1, 2)
    np.testing.assert_array_equal(merge_heads(heads_first), qkv[..., 24:])


@pytest.mark.parametrize("config", [BERT, MODERN], ids=["bert", "modernbert"])
def test_long_rows_in_tiles_give_what_short_ones_keep(config, monkeypatch):
    rng = np.random.default_rng(0)
    engine, layer = make(config).engine, SelfAttention(config)
    parameters = {p.name: rng.standard_normal(p.shape) for p in layer.parameters()}
    x, dy = rng.standard_normal((2, 2, 7, config.hidden_size))
    angles = ops.rotary_angles(np.arange(7)[None], config.head_size, 100.0, np.dtype("float64"))
    context = AttentionContext(AttentionPattern(keys=np.array([[1] * 5 + [0] * 2, [1] * 7])), angles)
    results = []
    for limit in (256, 0):
        monkeypatch.setattr(attention, "DENSE_LENGTH", limit)
        cache = Cache()
        gradients = engine.gradients(Layout({name: values.shape for name, values in parameters.items()}))
        y = layer.forward(x, Scope(engine.ops, parameters, cache), context)
        dx = layer.backward(dy, Scope(engine.ops, parameters, cache, gradients), context)
        results.append([y, dx, cache["weights"], *(np.array(g) for g in gradients.values())])
    for short, long in zip(*results, strict=True):
        np.testing.assert_allclose(short, long, atol=1e-11)


def embeddings(config):
    positions = RotaryPositions if config.positions == "rotary" else LearnedPositions
    return TokenEmbeddings(config, positions(config)).parameters()


def test_a_config_without_biases_has_none():
    names = [p.name for p in [*PreNormBlock(MODERN, 1).parameters(), *embeddings(MODERN)]]
    assert not any(name.endswith("bias") for name in names)
    assert [p.name for p in embeddings(MODERN)] == ["token", "norm.weight"]
    assert {p.name for p in embeddings(BERT)} == {"token", "position", "token_type", "norm.weight", "norm.bias"}


def test_narrow_embeddings_are_projected():
    shapes = {p.name: p.shape for p in embeddings(BERT.replace(embedding_size=4))}
    assert shapes["token"][1] == shapes["position"][1] == shapes["norm.weight"][0] == 4
    assert shapes["projection.weight"] == (BERT.hidden_size, 4)


def test_a_gated_layer_is_twice_as_wide_on_the_way_up():
    shapes = {p.name: p.shape for p in GatedFeedForward(MODERN).parameters()}
    assert shapes == {"up.weight": (40, 16), "down.weight": (16, 20)}
    assert {p.name: p.initial for p in FeedForward(BERT).parameters()}["down.weight"] == "output"


def test_the_first_pre_norm_block_may_have_no_first_norm():
    first, second = ({p.name for p in PreNormBlock(MODERN, i).parameters()} for i in (0, 1))
    assert second - first == {"attention.norm.weight"}
    assert {p.name for p in PostNormBlock(BERT, 0).parameters()} == {
        p.name for p in PostNormBlock(BERT, 1).parameters()
    }
