"""Attention maps and statistics against loops and uniform attention, and the kinds of heads."""

import numpy as np
import pytest

from glassbert.insight import (
    attention_distance,
    attention_entropy,
    attention_maps,
    head_kinds,
    head_statistics,
    read_rows,
)
from glassbert.insight.attention import HeadStatistics, visible_keys
from tests.insight.specimen import CONFIGS, sentences, specimen


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def test_entropy_of_uniform_and_of_sharp_attention():
    uniform = np.full((5, 5), 1 / 5)
    assert attention_entropy(uniform) == pytest.approx(np.full(5, np.log(5)))
    assert attention_entropy(np.eye(5)) == pytest.approx(np.zeros(5))


def test_distance_counts_tokens():
    assert attention_distance(np.eye(4)) == pytest.approx(np.zeros(4))
    assert attention_distance(np.eye(4)[::-1]) == pytest.approx([3, 1, 1, 3])
    assert attention_distance(np.full((3, 3), 1 / 3)) == pytest.approx([1, 2 / 3, 1])


def test_maps_are_the_softmax_of_queries_and_keys_of_every_head():
    loaded = specimen()
    (rows,) = read_rows(loaded, sentences(3))
    maps = attention_maps(loaded.model, rows.ids, rows.mask)
    _, cache = loaded.model.forward(rows.ids, rows.mask)
    heads, size = 2, 6
    for layer, row, head in np.ndindex(2, 3, heads):
        q, k = (cache[f"layers.{layer}.attention.{name}"][row, head] for name in "qk")
        real = int(rows.mask[row].sum())
        for query in range(real):
            expected = softmax(q[query] @ k[:real].T / np.sqrt(size))
            assert maps[layer, row, head, query, :real] == pytest.approx(expected, abs=1e-6)
        assert (maps[layer, row, head, :, real:] == 0).all()


def test_training_mode_and_dropout_seed_do_not_change():
    loaded = specimen()
    loaded.model.set_training(True)
    before = loaded.model.dropout_seed
    attention_maps(loaded.model, [[2, 7, 8, 3]])
    assert loaded.model.training and loaded.model.dropout_seed == before


def test_statistics_against_loops():
    loaded = specimen(seed=5)
    batches = read_rows(loaded, sentences(9), batch_size=4)
    statistics = head_statistics(loaded.model, batches)
    sums = {name: [] for name in ("previous", "next", "itself", "same_word", "separators", "entropy", "distance")}
    layer, head = 1, 0
    for rows in batches:
        maps = attention_maps(loaded.model, rows.ids, rows.mask)[layer, :, head]
        for row, ids in enumerate(rows.ids):
            real = int(rows.mask[row].sum())
            for i in range(1, real - 1):
                weights = maps[row, i, :real].astype(np.float64)
                if i > 1:
                    sums["previous"].append(weights[i - 1])
                if i < real - 2:
                    sums["next"].append(weights[i + 1])
                again = [j for j in range(1, real - 1) if j != i and ids[j] == ids[i]]
                if again:
                    sums["same_word"].append(weights[again].sum())
                sums["itself"].append(weights[i])
                sums["separators"].append(weights[0] + weights[real - 1])
                sums["entropy"].append(-(weights * np.log(weights)).sum() / np.log(real))
                sums["distance"].append(sum(w * abs(i - j) for j, w in enumerate(weights)))
    assert statistics.words == len(sums["itself"])
    for name, values in sums.items():
        assert getattr(statistics, name)[layer, head] == pytest.approx(np.mean(values), abs=1e-5), name


def test_windows_and_padding_are_not_counted_as_visible():
    loaded = specimen("modernbert")
    mask = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    keys = visible_keys(loaded.model, mask)
    windows = [CONFIGS["modernbert"].window_of(layer) for layer in range(2)]
    for layer, window in enumerate(windows):
        for row, i in np.ndindex(2, 6):
            seen = [j for j in range(6) if mask[row, j] and (window is None or abs(i - j) <= window)]
            assert keys[layer, row, i] == len(seen)
    assert None in windows and any(window is not None for window in windows)


def statistics_of(**values):
    fields = ("previous", "next", "itself", "same_word", "separators", "entropy", "distance")
    return HeadStatistics(**{name: np.array([[values.get(name, 0.0)]]) for name in fields}, words=1)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"previous": 0.5, "separators": 0.4}, "previous token"),
        ({"next": 0.31}, "next token"),
        ({"itself": 0.9}, "itself"),
        ({"same_word": 0.6}, "same word elsewhere"),
        ({"separators": 0.95, "entropy": 0.9}, "separators"),
        ({"previous": 0.29, "entropy": 0.81}, "broad"),
        ({"previous": 0.29, "entropy": 0.5}, "mixed"),
    ],
)
def test_a_head_is_named_after_its_largest_share(values, kind):
    assert head_kinds(statistics_of(**values)) == [[kind]]


def test_uniform_attention_is_broad():
    loaded = specimen(seed=0)
    for name, values in loaded.model.parameters.items():
        if "qkv" in name:
            loaded.model.parameters[name] = 0 * values
    assert {
        kind for row in head_kinds(head_statistics(loaded.model, read_rows(loaded, sentences()))) for kind in row
    } == {"broad"}
