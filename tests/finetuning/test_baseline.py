"""Baselines of every kind of task, and edge cases such as unseen labels and texts without words."""

import importlib.util

import numpy as np
import pytest

from glassbert.finetuning.baseline import MISSING, BaselineMissing, fit_baseline, learners
from glassbert.finetuning.baseline import fitting as baselines
from glassbert.finetuning.baseline.learners import fit_binary, fit_multiclass, fit_multilabel, rank_logits
from glassbert.finetuning.baseline.rules import TagCounts, overlap_answers
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.outcome import choices, probabilities
from glassbert.tasks import TaskData

with_sklearn = pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="baselines need scikit-learn")
GOOD, BAD = ("fine", "lovely", "great", "warm"), ("dull", "awful", "cold", "weak")
GENERATOR = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def reset_generator():
    global GENERATOR
    GENERATOR = np.random.default_rng(0)


def review(good):
    words = [*GENERATOR.choice(GOOD if good else BAD, 2), *GENERATOR.choice(["film", "plot", "cast", "end"], 3)]
    return " ".join(GENERATOR.permutation(words))


def data(rows, **columns):
    return TaskData.of(rows, **columns)


def card(head, labels=(), **changes):
    return TaskCard(title="toy", head=head, labels=labels, text="text", target="y", **changes)


def reviews(count, label):
    goods = GENERATOR.random(count) < 0.5
    return data([{"text": review(good), "y": label(bool(good))} for good in goods], text="text", target="y")


@with_sklearn
def test_finds_words_that_decide_the_label():
    train, dev = (reviews(count, lambda good: "yes" if good else "no") for count in (120, 40))
    found = fit_baseline(train, dev, card("binary", ("no", "yes")), resamples=50)
    assert found.main.value > 0.99 and found.main.low is not None
    assert found.outputs.shape == (40,) and "logistic regression" in found.name
    assert found.summary()["scores"]["auc"]["value"] == found.main.value


@with_sklearn
def test_baseline_is_deterministic():
    train, dev = (reviews(count, lambda good: "yes" if good else "no") for count in (60, 20))
    first, second = (fit_baseline(train, dev, card("binary", ("no", "yes"))) for _ in range(2))
    assert first.name == second.name
    np.testing.assert_array_equal(first.outputs, second.outputs)


@with_sklearn
def test_multilabel_uses_cross_fitted_thresholds():
    def rows(count):
        flags = GENERATOR.random((count, 2)) < 0.4
        words = [" ".join(["film", *(["fine"] if a else []), *(["long"] if b else [])]) for a, b in flags]
        return [
            {"text": text, "y": [name for name, flag in zip("ab", flag_pair, strict=True) if flag]}
            for text, flag_pair in zip(words, flags, strict=True)
        ]

    train, dev = (data(rows(count), text="text", target="y", kind="multilabel") for count in (120, 60))
    found = fit_baseline(train, dev, card("multilabel", ("a", "b")))
    assert found.outputs.shape == (60, 2) and found.main.value > 0.9 and found.card.thresholds is None


@with_sklearn
def test_ordinal_and_regression():
    rows = [{"text": review(True) if n % 3 == 2 else review(False) if n % 3 == 0 else "film plot", "y": n % 3}
            for n in range(90)]  # fmt: skip
    ranked = data(rows, text="text", target="y", kind="ordinal")
    found = fit_baseline(ranked, ranked, card("ordinal", ("0", "1", "2")))
    assert found.outputs.shape == (90, 2) and found.main.value > 0.9
    numbers = data([{**row, "y": row["y"] + 0.5} for row in rows], text="text", target="y", kind="regression")
    found = fit_baseline(numbers, numbers, card("regression", metric="spearman"))
    assert found.outputs.shape == (90,) and found.main.value > 0.9 and found.probabilities() is None


@with_sklearn
def test_table_gets_a_second_baseline_on_its_columns():
    rows = [
        {"price": int(price), "city": city, "y": int(price > 50_000)}
        for price, city in zip(
            GENERATOR.integers(0, 99_999, 150), GENERATOR.choice(["Rome", "Bonn", ""], 150), strict=True
        )
    ]
    table = data(rows, template="auto", target="y")
    found = fit_baseline(table.select(range(100)), table.select(range(100, 150)), card("binary", ("0", "1")))
    assert "columns" in found.name and len(found.others) == 1 and "TF-IDF" in found.others[0].name
    assert found.main.value > 0.95 > 0.9 > found.others[0].main.value  # a number is more than its digits


@with_sklearn
def test_pairs_and_embeddings():
    words = np.array("man dog sings runs red house sees bird tall tree".split())  # noqa: SIM905
    rows = []
    for _ in range(120):
        first = GENERATOR.choice(words, 5, replace=False)
        second = GENERATOR.choice(words, 5, replace=False)
        rows.append({"a": " ".join(first), "b": " ".join(second), "y": len(set(first) & set(second)) / 5 + 0.01})
    pairs = data(rows, text="a", pair="b", target="y", kind="regression")
    made = TaskCard(title="toy", head="regression", metric="spearman", text="a", pair="b", target="y")
    assert fit_baseline(pairs.select(range(80)), pairs.select(range(80, 120)), made).main.value > 0.9
    embedding = made.replace(head="embedding")
    found = fit_baseline(pairs, pairs, embedding)
    assert found.outputs.shape == (120, 2, 2) and found.main.value > 0.5 and found.choices().min() >= 0
    alike = data([{"a": text, "b": f"{text} indeed"} for text in (review(True) for _ in range(12))], text="a", pair="b")
    found = fit_baseline(alike, alike, embedding.replace(metric="accuracy", target=None))
    assert found.main.value > 0.8  # every text finds its own partner


@with_sklearn
@pytest.mark.parametrize("head", ["binary", "multiclass", "ordinal"])
def test_unseen_labels_and_texts_without_words(head):
    labels = ("a", "b") if head == "binary" else ("a", "b", "c")
    kind = {"kind": head}
    train = data([{"text": text, "y": "ab"[n % 2]} for n, text in enumerate(["?", "", "!", "..", "", "?!"] * 2)],
                 text="text", target="y", **kind)  # fmt: skip
    dev = data([{"text": "new words", "y": "a"}, {"text": "", "y": labels[-1]}], text="text", target="y", **kind)
    found = fit_baseline(train, dev, card(head, labels, metric="accuracy"))
    assert len(found.answers()) == 2 and np.isfinite(found.outputs).all()


@with_sklearn
def test_one_label_in_training_gives_constant_outputs():
    x = np.eye(4)
    assert (fit_binary(x, np.zeros(4, int), 1.0, 2)(x) < 0).all()
    assert (fit_multiclass(x, np.full(4, 2), 1.0, 3)(x).argmax(1) == 2).all()
    two = fit_multiclass(x, np.array([0, 2, 0, 2]), 10.0, 3)(x)
    assert two.shape == (4, 3) and two.argmax(1).tolist() == [0, 2, 0, 2]
    assert fit_multilabel(x, np.array([[1, 0]] * 4), 1.0, 2)(x).tolist() == [[30.0, -30.0]] * 4


def test_rank_logits_decode_to_the_probabilities():
    p = np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.0, 0.0, 1.0, 0.0]])
    above = np.cumsum(p[:, ::-1], 1)[:, ::-1][:, 1:]
    made = card("ordinal", tuple("1234"))
    np.testing.assert_allclose(probabilities(rank_logits(above), made), p, atol=1e-6)
    assert choices(rank_logits(above), made).tolist() == [2, 0, 2]


def test_most_frequent_tag_and_suffixes_of_unknown_words():
    sentences = [["The", "king", "sings"], ["the", "bird", "sings"], ["Sings", "walking", "42nd"]]
    tags = [np.array([0, 1, 2]), np.array([0, 1, 2]), np.array([2, 2, 1])]
    counts = TagCounts(sentences, tags, 3)
    chosen = counts.scores(["sings", "KING", "talking", "57nd", "zzz"]).argmax(1).tolist()
    assert chosen[:4] == [2, 1, 2, 1] and np.isfinite(counts.scores(["", "é"])).all()
    assert counts.scores([]).shape == (0, 3)
    words = data([{"w": s, "y": [str(t) for t in tag]} for s, tag in zip(sentences, tags, strict=True)], words="w",
                 target="y")  # fmt: skip
    made = TaskCard(title="toy", head="token", words="w", target="y", labels=("0", "1", "2"))
    assert fit_baseline(words, words, made).main.value == pytest.approx(1.0)


def test_overlap_answers():
    context = "Rain fell all day. The engine was built by Ada Lovelace in London. Nobody came."
    rows = [{"q": "Who built the engine?", "c": context}, {"q": "", "c": ""}]
    found = overlap_answers(data(rows, text="q", pair="c"))
    assert found[0][0].text == "Ada Lovelace" and context[found[0][0].start : found[0][0].end] == "Ada Lovelace"
    assert found[1][0].text == ""


def test_error_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(baselines, "find_spec", lambda name: None)
    train = reviews(20, lambda good: "yes" if good else "no")
    with pytest.raises(BaselineMissing, match="pip install scikit-learn"):
        fit_baseline(train, train, card("binary", ("no", "yes")))
    assert "scikit-learn" in MISSING


def test_samples_are_limited_by_size_and_deterministic():
    many = data([{"text": "x" * 100, "y": n % 2} for n in range(500)], text="text", target="y")
    rows = baselines._sample(many, 20_000)
    assert len(rows) == 200 and (np.diff(rows) > 0).all() and (rows == baselines._sample(many, 20_000)).all()
    assert len(baselines._sample(many, 100)) == 100 and len(baselines._sample(many, 10**9)) == 500


@pytest.mark.parametrize("many, alone", [(learners.MANY_CELLS, True), (0, False)])
def test_trees_of_a_usual_table_are_fitted_by_one_thread(monkeypatch, many, alone):
    from sklearn.ensemble import HistGradientBoostingRegressor as Trees
    from threadpoolctl import threadpool_info, threadpool_limits

    def threads():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "openmp"}

    seen, fit = [], Trees.fit
    monkeypatch.setattr(Trees, "fit", lambda *given: seen.append(threads()) or fit(*given))
    monkeypatch.setattr(learners, "MANY_CELLS", many)
    x = np.random.default_rng(0).normal(size=(60, 2))
    with threadpool_limits(2, user_api="openmp"):
        before = threads()
        learners.tree_learner("regression")(x, x[:, 0], 1.0, 1)(x)
        assert threads() == before
    assert seen == [{1} if alone else before]
