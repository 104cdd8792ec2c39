"""Caches and scopes: names, promises, forgetting."""

import numpy as np
import pytest

from glassbert.arrays import Layout
from glassbert.engines.numpy_engine import NumpyEngine
from glassbert.layers.scope import Cache, Forgetful, Scope


def test_a_cache_keeps_always_and_notes_only_while_tracing():
    for trace in (False, True):
        cache = Cache(trace)
        assert cache.keep("a", 1) == 1 and cache.note("b", 2) == 2
        assert ("a" in cache, "b" in cache) == (True, trace)
        assert len(cache) == len(list(cache)) == 1 + trace


def test_a_promise_is_computed_once_and_only_when_asked_for():
    cache, calls = Cache(), []
    cache.promise("slow", lambda: calls.append(1) or 42)
    assert "slow" in list(cache) and not calls
    assert cache["slow"] == cache["slow"] == 42
    assert calls == [1] and len(cache) == 1


def test_a_missing_name_is_named():
    with pytest.raises(KeyError, match="'x' is not in this cache"):
        Cache()["x"]
    assert Cache().get("x") is None


def test_a_forgetful_cache_keeps_nothing():
    cache = Forgetful()
    assert cache.keep("a", 1) == 1 and cache.note("b", 2) == 2
    cache.promise("c", lambda: 3)
    assert len(cache) == 0 and isinstance(cache.like(), Forgetful)
    assert Cache(True).like().trace


def test_a_scope_puts_its_place_in_front_of_every_name():
    gradients = NumpyEngine("float64").gradients(Layout({"layers.0.ffn.up.weight": (2,)}))
    outer = Scope({"layers.0.ffn.up.weight": np.ones(2)}, Cache(True), gradients)
    scope = outer.inside("layers.0").inside("ffn")
    assert scope.name("x") == "layers.0.ffn.x"
    assert scope.parameter("up.weight").sum() == 2 and scope.optional("up.bias") is None
    scope.keep("hidden", 5)
    assert outer["layers.0.ffn.hidden"] == scope["hidden"] == 5
    scope.add("up.weight", np.array([1.0, 2.0]))
    scope.add("up.weight", np.array([1.0, 2.0]))
    scope.add("up.bias", None)
    np.testing.assert_array_equal(gradients["layers.0.ffn.up.weight"], [2.0, 4.0])
    assert scope.outermost().name("x") == "x"
