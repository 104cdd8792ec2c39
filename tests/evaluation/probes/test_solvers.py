"""The minimiser and the probes: gradients against finite differences, and known solutions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.arrays import FlatGradients, Layout
from glassbert.evaluation.probes.biaffine import (
    BiaffineProblem,
    edges_in_common,
    fit_biaffine,
    groups_of,
    heads_and_trees,
    spanning_edges,
)
from glassbert.evaluation.probes.features import Features
from glassbert.evaluation.probes.hidden_layer import fit_hidden, loss_and_gradients
from glassbert.evaluation.probes.layer_mix import MixProblem, fit_mix
from glassbert.evaluation.probes.minimise import minimise
from glassbert.evaluation.probes.questions import Questions
from glassbert.evaluation.probes.softmax_regression import Problem, choose_l2, fit_linear


def largest_error(function, x, seed=0, directions=12, step=1e-6):
    """The largest error of the gradient against central differences, along random directions and single axes."""
    generator = np.random.default_rng(seed)
    _, gradient = function(x)
    along = [generator.standard_normal(len(x)) for _ in range(directions)]
    along += [np.eye(1, len(x), axis)[0] for axis in generator.integers(0, len(x), directions)]
    along.append(np.eye(1, len(x), len(x) - 1)[0])
    errors = []
    for d in along:
        measured = (function(x + step * d)[0] - function(x - step * d)[0]) / (2 * step)
        errors.append(abs(measured - gradient @ d) / max(1.0, abs(measured)))
    return max(errors)


def cloud(layers=1, rows=300, width=6, seed=0, dtype="float64", scale=1.0):
    generator = np.random.default_rng(seed)
    correlated = generator.standard_normal((width, width))
    return (scale * (generator.standard_normal((layers, rows, width)) @ correlated) + 3).astype(dtype)


def labels_of(x, classes, noise=1.0, seed=0):
    generator = np.random.default_rng(seed)
    scores = x @ generator.standard_normal((x.shape[1], classes))
    return (scores + noise * scores.std() * generator.standard_normal(scores.shape)).argmax(1)


# ---- the minimiser -----------------------------------------------------------------------------------------------


def test_minimum_of_a_narrow_valley():
    def rosenbrock(x):
        a, b = x
        return (1 - a) ** 2 + 100 * (b - a * a) ** 2, np.array(
            [-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)]
        )

    found = minimise(rosenbrock, np.array([-1.2, 1.0]), tolerance=1e-14)
    assert found.converged
    np.testing.assert_allclose(found.x, [1, 1], atol=1e-5)


def test_it_converges_without_a_preconditioner():
    curvature = np.logspace(0, 4, 12)
    found = minimise(
        lambda x: (0.5 * float(curvature @ (x - 1) ** 2), curvature * (x - 1)), np.zeros(12), tolerance=1e-12
    )
    assert found.converged and found.value < 1e-10


def test_a_good_preconditioner_saves_steps():
    curvature = np.logspace(0, 6, 40)

    def bowl(x):
        return 0.5 * float(curvature @ (x - 1) ** 2), curvature * (x - 1)

    start = np.zeros(40)
    alone = minimise(bowl, start, tolerance=1e-12, most_steps=300)
    helped = minimise(bowl, start, lambda g: g / curvature, tolerance=1e-12)
    assert helped.converged and helped.value < 1e-12
    assert helped.steps < alone.steps


def test_it_reports_when_it_did_not_converge():
    def slide(x):
        return float(-x.sum()), -np.ones_like(x)

    assert not minimise(slide, np.zeros(3), most_steps=20).converged
    assert minimise(lambda x: (float(x @ x), 2 * x), np.zeros(3)).converged  # the start is the minimum


# ---- the linear probe --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 3])
def test_gradient_of_the_linear_probe(layers):
    features = Features.of(cloud(layers))
    problem = Problem(features, labels_of(features.blocks[0], 4), 4, 1e-3)
    x = np.random.default_rng(1).standard_normal(4 * (features.width + 1))
    assert largest_error(problem.function, x) < 1e-6


@pytest.mark.parametrize("classes", [2, 5])
def test_the_linear_probe_agrees_with_scikit_learn(classes):
    linear_model = pytest.importorskip("sklearn.linear_model")
    x = cloud(rows=400)
    labels, l2 = labels_of(x[0], classes), 1e-2
    ours = fit_linear(Features.of(x), labels, classes, l2, tolerance=1e-13).scores(Features.of(x))
    scaled = np.c_[(x[0] - x[0].mean(0)) / x[0].std(0), np.ones(400)]
    # For two classes it has one vector where we have two, w and -w: the same penalty at half the weight.
    strength = (2 if classes == 2 else 1) / (l2 * 400)
    theirs = linear_model.LogisticRegression(C=strength, fit_intercept=False, tol=1e-12, max_iter=10_000)
    theirs.fit(scaled, labels)
    shown = theirs.decision_function(scaled)
    if classes == 2:
        np.testing.assert_allclose(ours[:, 1] - ours[:, 0], shown, atol=1e-5)
    else:
        np.testing.assert_allclose(ours - ours.mean(1, keepdims=True), shown - shown.mean(1, keepdims=True), atol=1e-5)


def test_float32_finds_the_same_minimum():
    x = cloud(rows=3000, scale=50.0)
    labels = labels_of(x[0], 4)
    one, two = (fit_linear(Features.of(x.astype(kind)), labels, 4, 1e-3) for kind in ("float64", "float32"))
    assert two.minimum.converged
    assert one.minimum.value == pytest.approx(two.minimum.value, abs=1e-3)


def test_scale_and_constant_features_do_not_matter():
    x = cloud()
    labels = labels_of(x[0], 3)
    other = np.concatenate([1e4 * x - 7, np.full((1, 300, 1), 5.0)], 2)
    answers = [fit_linear(Features.of(v), labels, 3, 1e-2, 1e-12).scores(Features.of(v)) for v in (x, other)]
    np.testing.assert_allclose(*answers, atol=1e-5)


def test_a_class_without_examples_is_never_predicted():
    x = cloud()
    labels = labels_of(x[0], 3)
    assert fit_linear(Features.of(x), labels, 5, 1e-3).scores(Features.of(x)).argmax(1).max() <= 2


def test_the_choice_of_regularisation():
    generator = np.random.default_rng(0)
    x = generator.standard_normal((1, 120, 60))  # as many features as rows to learn from, and nothing but noise
    held_out = np.arange(120) % 2 == 0
    noise = choose_l2(Features.of(x), generator.integers(0, 2, 120), 2, held_out)
    assert noise in (1e-4, 1e-3, 1e-2)
    assert choose_l2(Features.of(x), generator.integers(0, 2, 120), 2, np.zeros(120, bool)) == 1e-3


def test_principal_axes_whiten():
    features = Features.of(cloud(2))
    variances, axes = features.principal_axes
    scaled = (features.rows(slice(None)) - features.scaling.mean) / features.scaling.deviation
    along = scaled @ axes
    np.testing.assert_allclose(along.T @ along / 300, np.diag(variances), atol=1e-10)


# ---- the mix of layers -------------------------------------------------------------------------------------------


def test_gradient_of_the_mix():
    features = Features.of(cloud(3))
    problem = MixProblem(features, labels_of(features.blocks[0], 4), 4, 1e-3)
    x = np.random.default_rng(1).standard_normal(problem.size)
    assert largest_error(problem.function, x) < 1e-6


def test_the_mix_finds_the_informative_layer():
    x = cloud(3, rows=2000)
    labels = labels_of(x[1], 4, noise=0.2)
    found = fit_mix(Features.of(x), labels, 4)
    assert found.shares.sum() == pytest.approx(1)
    assert found.shares.argmax() == 1 and found.shares[1] > 0.8
    best = fit_linear(Features.of(x[1:2]), labels, 4).scores(Features.of(x[1:2])).argmax(1)
    assert (found.scores(Features.of(x)).argmax(1) == labels).mean() > (best == labels).mean() - 0.02


def test_the_mix_of_pairs_of_words():
    x, generator = cloud(2, rows=200), np.random.default_rng(0)
    pairs = generator.integers(0, 200, (2, 500))
    features = Features.of(x, *pairs)
    assert (features.width, features.layer(1).width) == (24, 12)
    np.testing.assert_array_equal(features.layer(1).rows(slice(3)), np.c_[x[1][pairs[0][:3]], x[1][pairs[1][:3]]])
    problem = MixProblem(features, generator.integers(0, 3, 500), 3, 1e-3)
    assert largest_error(problem.function, generator.standard_normal(problem.size)) < 1e-6


# ---- the hidden layer --------------------------------------------------------------------------------------------


def test_gradient_of_the_hidden_layer():
    generator = np.random.default_rng(0)
    shapes = {"hidden.weight": (7, 5), "hidden.bias": (7,), "output.weight": (3, 7), "output.bias": (3,)}
    layout = Layout(shapes)
    x, labels = generator.standard_normal((40, 5)), generator.integers(0, 3, 40)

    def function(flat):
        parameters = {name: layout.view(flat, name) for name in shapes}
        gradients = FlatGradients(layout, np.dtype("float64"))
        loss = loss_and_gradients(x, labels, parameters, gradients)
        gradients.fill_missing()
        return loss, gradients.flat.copy()

    assert largest_error(function, generator.standard_normal(layout.size)) < 1e-6


def test_the_hidden_layer_learns_a_nonlinear_rule():
    x = np.random.default_rng(0).standard_normal((1, 4000, 2)).astype("float32")
    labels = (x[0, :, 0] * x[0, :, 1] > 0).astype(int)
    features = Features.of(x)
    bent, straight = fit_hidden(features, labels, 2), fit_linear(features, labels, 2)
    assert (bent.scores(features).argmax(1) == labels).mean() > 0.95
    assert (straight.scores(features).argmax(1) == labels).mean() < 0.7
    assert bent.losses[-1] < bent.losses[0] / 2


# ---- heads -------------------------------------------------------------------------------------------------------


def head_questions(sizes, heads):
    starts = np.concatenate([[0], np.cumsum(sizes)])
    words = np.flatnonzero(heads >= 0)
    sentences = np.repeat(np.arange(len(sizes)), sizes)[words]
    return Questions(words, starts[sentences] + heads[words], heads[words], words, sentences, (), starts)


def random_trees(sizes, generator):
    return np.concatenate([generator.integers(0, size, size) for size in sizes])


def test_gradient_of_the_biaffine_probe():
    generator = np.random.default_rng(0)
    sizes = [4, 1, 7, 4]
    heads = random_trees(sizes, generator)
    heads[5] = -1  # not annotated
    problem = BiaffineProblem(Features.of(cloud(rows=16)), head_questions(sizes, heads), 1e-2)
    assert largest_error(problem.function, generator.standard_normal(problem.size)) < 1e-6


def test_the_biaffine_probe_finds_planted_heads():
    generator = np.random.default_rng(0)
    sizes = generator.integers(2, 9, 150)
    x = generator.standard_normal((1, sizes.sum(), 8))
    rule = generator.standard_normal((8, 8))
    heads = []
    for start, size in zip(np.cumsum(sizes) - sizes, sizes, strict=True):
        words = x[0, start : start + size]
        heads.append((words @ rule @ words.T).argmax(1))
    questions = head_questions(sizes, np.concatenate(heads))
    probe = fit_biaffine(Features.of(x), questions, l2=1e-4)
    answers, trees = heads_and_trees(probe.log_probabilities(Features.of(x), questions), questions)
    assert probe.minimum.converged
    assert (answers == questions.labels).mean() > 0.97
    assert trees.shape == (2, 150) and trees[0].sum() > 0.8 * trees[1].sum()


def test_sentences_are_grouped_by_length():
    groups = groups_of(head_questions([3, 2, 3], np.array([1, 1, 0, 0, -1, 2, 2, 2])))
    assert [group.words.tolist() for group in groups] == [[[3, 4]], [[0, 1, 2], [5, 6, 7]]]
    assert groups[0].heads.tolist() == [[0, -1]]


@given(st.integers(2, 6), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_no_spanning_tree_is_heavier(count, seed):
    weights = np.random.default_rng(seed).standard_normal((count, count))
    weights = np.maximum(weights, weights.T)
    edges = spanning_edges(weights)
    pairs = list(itertools.combinations(range(count), 2))
    best = max(
        sum(weights[edge] for edge in chosen)
        for chosen in itertools.combinations(pairs, count - 1)
        if _connected(chosen, count)
    )
    assert _connected([tuple(edge) for edge in edges], count)
    assert weights[edges[:, 0], edges[:, 1]].sum() == pytest.approx(best)


def _connected(edges, count):
    group = list(range(count))
    for a, b in edges:
        old, new = group[a], group[b]
        group = [new if g == old else g for g in group]
    return len(set(group)) == 1


def test_edges_in_common():
    assert edges_in_common(np.array([[0, 1], [1, 2]]), np.array([0, 0, 0])) == (1, 2)
    assert edges_in_common(np.zeros((0, 2), int), np.array([0])) == (0, 0)
