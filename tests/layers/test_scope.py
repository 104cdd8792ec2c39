"""Caches and scopes: names, values computed later, inference, shared parameters."""

import numpy as np
import pytest

from glassbert.arrays import Layout
from glassbert.engines.numpy_engine import NumpyEngine
from glassbert.layers.scope import Cache, NullCache, Scope

ENGINE = NumpyEngine("float64")


def test_a_cache_stores_always_and_records_only_while_tracing():
    for trace in (False, True):
        cache = Cache(trace)
        assert cache.store("a", 1) == 1 and cache.record("b", 2) == 2
        assert ("a" in cache, "b" in cache) == (True, trace)
        assert len(cache) == len(list(cache)) == 1 + trace


def test_a_value_that_is_computed_later_is_computed_once():
    cache, calls = Cache(), []
    cache.compute_later("slow", lambda: calls.append(1) or 42)
    assert "slow" in list(cache) and not calls
    assert cache["slow"] == cache["slow"] == 42
    assert calls == [1] and len(cache) == 1


def test_a_missing_name_is_named():
    with pytest.raises(KeyError, match="'x' is not in this cache"):
        Cache()["x"]
    assert Cache().get("x") is None


def test_a_null_cache_keeps_only_the_names_it_is_given():
    cache = NullCache(frozenset(["b"]))
    assert cache.store("a", 1) == 1 and cache.record("b", 2) == 2
    cache.compute_later("c", lambda: 3)
    cache.save_state("d", 4)
    assert dict(cache) == {"b": 2} and not cache.states
    assert cache.like().keep == {"b"} and not len(cache.like())
    assert Cache(True).like().trace


def test_a_scope_puts_its_prefix_before_every_name():
    gradients = ENGINE.gradients(Layout({"layers.0.ffn.up.weight": (2,)}))
    outer = Scope(ENGINE.ops, {"layers.0.ffn.up.weight": np.ones(2)}, Cache(True), gradients)
    scope = outer.inside("layers.0").inside("ffn")
    assert scope.name("x") == "layers.0.ffn.x"
    assert scope.parameter("up.weight").sum() == 2 and scope.optional("up.bias") is None
    scope.store("hidden", 5)
    assert outer["layers.0.ffn.hidden"] == scope["hidden"] == 5
    scope.add("up.weight", np.array([1.0, 2.0]))
    scope.add("up.weight", np.array([1.0, 2.0]))
    scope.add("up.bias", None)
    np.testing.assert_array_equal(gradients["layers.0.ffn.up.weight"], [2.0, 4.0])
    assert scope.without_prefix().name("x") == "x"


def test_the_name_of_a_parameter_need_not_be_that_of_an_activation():
    parameters = {"layers.0.up.weight": np.eye(2)}
    gradients = ENGINE.gradients(Layout({"layers.0.up.weight": (2, 2)}))
    scope = Scope(ENGINE.ops, parameters, Cache(), gradients).inside("layers.5", parameters="layers.0")
    x = np.array([[1.0, 2.0]])
    scope.store("output", scope.linear(x, "up"))
    scope.linear_backward(np.array([[1.0, 0.0]]), "up")
    assert list(scope.cache) == ["layers.5.output"]
    np.testing.assert_array_equal(gradients["layers.0.up.weight"], [[1.0, 2.0], [0.0, 0.0]])


def test_a_forward_scope_collects_no_gradients():
    with pytest.raises(ValueError, match="belongs to a forward pass"):
        Scope(ENGINE.ops, {}, Cache()).add("weight", np.ones(1))
