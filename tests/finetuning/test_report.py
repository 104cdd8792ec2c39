"""The report and the model card of every head, with and without baseline, and with undefined metrics."""

import dataclasses
import json
from html.parser import HTMLParser

import numpy as np
import pytest

from glassbert.finetuning.baseline import Baseline
from glassbert.finetuning.calibration import calibrate
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.report import learning_curves, write_report
from glassbert.finetuning.report.model_card import write_model_card
from glassbert.finetuning.report.sections import fifths, threshold_rows
from glassbert.finetuning.report.texts import (
    compare,
    format_difference,
    format_interval,
    format_value,
    metric_in_sentence,
    metric_name,
    python_example,
    shell_examples,
    verdict,
)
from glassbert.finetuning.scoring import compute_scores
from glassbert.finetuning.spans import SpanAnswer
from glassbert.metrics import METRICS, Score
from glassbert.reports import figures
from glassbert.tasks import Finding, TaskData

N = 60
NASTY = '<script>alert("x")</script> & friends'


def outcome(card, data, truth, outputs, resamples=20):
    return Outcome(card, data, truth, outputs, compute_scores(outputs, truth, card, resamples=resamples))


def case(head, noise=1.0, seed=0, truth=None):
    """A synthetic outcome for this head; less noise is a better model."""
    generator = np.random.default_rng(seed)
    labels = {"binary": ("no", "yes"), "multiclass": ("a", "b", "<c>"), "ordinal": ("1", "2", "3"),
              "multilabel": ("x", "y", "<z>"), "token": ("O", "B-per", "I-per")}.get(head, ())  # fmt: skip
    card = TaskCard(title=f"A <b>{head}</b> task", head=head, labels=labels, text="text", target="y",
                    pair="other" if head in ("embedding", "span") else None)  # fmt: skip
    spread = np.random.default_rng(9)
    rows = [{"text": f"{NASTY} {n}", "other": f"second {n} of it"} for n in range(N)]
    data = TaskData.of(rows, text="text", **({"pair": "other"} if card.pair else {}))
    if head == "binary":
        truth = spread.integers(0, 2, N) if truth is None else truth
        return outcome(card, data, truth, 2.0 * truth - 1 + noise * generator.normal(size=N))
    if head == "multiclass":
        truth = spread.integers(0, 3, N) if truth is None else truth
        return outcome(card, data, truth, np.eye(3)[truth] + noise * generator.normal(size=(N, 3)))
    if head == "multilabel":
        truth = (spread.random((N, 3)) < [0.5, 0.2, 0.0]).astype(np.float32)
        return outcome(card, data, truth, 2 * truth - 1 + noise * generator.normal(size=(N, 3)))
    if head == "ordinal":
        truth = spread.integers(0, 3, N) if truth is None else truth
        return outcome(card, data, truth, 2.0 * (truth[:, None] > [0, 1]) - 1 + noise * generator.normal(size=(N, 2)))
    if head == "regression":
        truth = spread.normal(size=N)
        return outcome(card, data, truth, truth + noise * generator.normal(size=N))
    if head == "embedding":
        truth = spread.random(N)
        angle = np.arccos(np.clip(truth + 0.3 * noise * generator.normal(size=N), -1, 1))
        vectors = np.stack([np.ones(N), np.zeros(N), np.cos(angle), np.sin(angle)], 1).reshape(N, 2, 2)
        return outcome(card, data, truth, vectors)
    if head == "span":
        truth = [[f"second {n}"] for n in range(N)]
        said = [SpanAnswer("second" if generator.random() < noise / 2 else f"second {n}", 0, 6, 1.0) for n in range(N)]
        return outcome(card, data, truth, [[one] for one in said])
    words = [[NASTY, "king", "sings"]] * N
    data = TaskData([" ".join(one) for one in words], data.table, words=words)
    truth = [spread.integers(0, 3, 3) for _ in range(N)]
    return outcome(card, data, truth, [np.eye(3)[tags] + noise * generator.normal(size=(3, 3)) for tags in truth])


def baseline_of(given):
    fields = {field.name: getattr(given, field.name) for field in dataclasses.fields(Outcome)}
    return Baseline(**fields, name="a simple model")


class Reader(HTMLParser):
    """Checks that all tags are closed and collects them."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag not in ("meta", "br", "path", "use", "rect", "image", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in ("path", "use", "rect", "image") or self.open.pop() == tag


HEADS = ("binary", "multiclass", "multilabel", "ordinal", "regression", "embedding", "span", "token")


@pytest.mark.parametrize("head", HEADS)
def test_report_of_every_head_is_valid_and_escaped(tmp_path, head):
    ours, again, theirs = case(head, 0.4), case(head, 0.6, seed=1), baseline_of(case(head, 2.0, seed=2))
    calibration = calibrate(ours)
    finished = dataclasses.replace(ours, card=calibration.apply_to(ours.card))
    (tmp_path / "settings.json").write_text(json.dumps({"command": "glassbert finetune", "examples": {"train": 1234}}))
    path = write_report(
        tmp_path / "report.html",
        settings={"model": "runs/mini", "epochs": 2},
        outcome=finished,
        outcomes={0: ours, 1: again},
        baseline=theirs,
        calibration=calibration,
        findings=[Finding("warning", f"Odd: {NASTY}", "so", "do")],
        notes=["a note"],
    )
    text = path.read_text(encoding="utf-8")
    seen = Reader(text).seen
    assert "script" not in seen and text.count("http-equiv") == 1 and "default-src 'none'" in text
    assert "alert(&quot;" in text or "alert(&#x27;" in text or head == "embedding"
    assert "1,234" in text and "a simple model" in text and "glassbert predict" in text
    assert metric_name(ours.card.metric) in text and "Worst errors" in text
    if figures.available():
        assert "svg" in seen


def test_undefined_metrics(tmp_path):
    one_class = case("binary", truth=np.ones(N, np.int64))
    path = write_report(tmp_path / "r.html", settings={}, outcome=one_class, outcomes={0: one_class},
                        baseline=baseline_of(one_class), calibration=calibrate(one_class))  # fmt: skip
    text = path.read_text()
    assert "AUC needs both classes, and all examples are positive" in text
    assert "There is no ROC curve" in text and "cannot be compared" in text


def test_report_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "available", lambda: False)
    ours = case("multiclass")
    text = write_report(tmp_path / "r.html", settings={}, outcome=ours, outcomes={0: ours}).read_text()
    assert "pip install matplotlib" in text and "<svg" not in text and "no baseline" in text
    assert text.count("pip install matplotlib") == 1


def apart(outcome):
    """The outcome with other examples that chose the epoch."""
    return dataclasses.replace(outcome, card=outcome.card.replace(chosen_on="other", examples={"choice": 100}))


def test_no_p_value_if_the_epoch_was_chosen_on_the_same_examples():
    good, bad = case("binary", 0.3), case("binary", 4.0, seed=6)
    for found, level in ((verdict(good, bad, "it"), "note"), (verdict(bad, good, "it"), "warning")):
        assert found.level == level and "p =" not in found.evidence and "not tested" in found.evidence
        assert "--test" in found.remedy


def test_verdict():
    cases = case("binary", 0.8), case("binary", 0.8, seed=5), case("binary", 4.0, seed=6)
    good, alike, bad = map(apart, cases)
    assert "p =" in verdict(good, bad, "it").evidence
    assert verdict(good, bad, "it").level == "good" and "more than chance" in verdict(good, bad, "it").sentence
    assert verdict(good, alike, "it").sentence.startswith("No clear difference")
    worse = verdict(bad, good, "it")
    assert worse.sentence.startswith("The baseline is better") and worse.remedy
    assert compare(good, bad, "auc", 50).value == pytest.approx(good.main.value - bad.main.value)


def test_verdict_if_lower_is_better():
    good, bad = apart(case("regression", 0.1)), apart(case("regression", 2.0, seed=1))
    found = verdict(good, bad, "it")
    assert good.card.metric == "rmse" and found.difference.value < 0 and found.level == "good"


def test_multilabel_comparison_uses_cross_fitted_thresholds():
    ours = case("multilabel", 0.5)
    tuned = dataclasses.replace(ours, card=calibrate(ours).apply_to(ours.card))
    assert compare(tuned, ours, "micro_f1", 20).value == pytest.approx(0, abs=0.05)


def test_threshold_rows():
    rows = threshold_rows(np.array([1, 1, 0, 0]), np.array([0.95, 0.35, 0.55, 0.05]))
    by_cut = {row[0]: row[1:] for row in rows}
    assert by_cut["0.5"] == ["50.0%", "50.0%", "0.500", "50.0%", "50.0%"]
    assert by_cut["0.1"] == ["66.7%", "100.0%", "0.800", "75.0%", "75.0%"]
    assert threshold_rows(np.array([1, 0]), np.array([0.2, 0.1]))[-1][1] == "–"


def test_fifths():
    rows = fifths(np.arange(10.0), np.arange(10.0) + 1, np.zeros(10))
    assert [row[3] for row in rows] == [2] * 5 and [row[4] for row in rows] == ["1"] * 5
    assert [row[6] for row in rows] == ["0.5", "2.5", "4.5", "6.5", "8.5"]
    assert len(fifths(np.array([1.0]), np.array([1.0]), None)) == 1


def test_learning_curves():
    lines = [
        {"kind": "train", "seed": 1, "progress": 0.5, "loss": 0.7},
        {"kind": "train", "seed": 1, "progress": 1.0, "loss": None},
        {"kind": "evaluation", "seed": 1, "epoch": 2, "scores": {"auc": 0.9}},
        {"kind": "evaluation", "seed": 1, "epoch": 3, "scores": {"auc": None}},
    ]
    assert learning_curves(lines, "auc", 4) == ({"seed 1": ([2.0], [0.7])}, {"seed 1": ([2], [0.9])})


def test_formatting():
    assert format_value(0.8734, "accuracy") == "87.3 %" and format_value(0.87345, "auc") == "0.873"
    assert format_value(None, "auc") == "–"
    assert format_value(12345.6, "rmse") == "12,346" and format_value(-0.5, "r2") == "−0.500"
    assert format_interval(Score(0.9, "", 0.85, 0.95), "accuracy") == "85.0 – 95.0 %"
    assert format_interval(Score(None, "why"), "auc") == "why"
    assert format_difference(0.021, "accuracy") == "+2.1 points" and format_difference(-0.0042, "auc") == "−0.004"
    assert metric_in_sentence("accuracy") == "accuracy" and metric_in_sentence("auc") == "AUC"
    assert all(metric_name(name) for name in METRICS) and metric_name("within_one") == "within one"


@pytest.mark.parametrize("head", HEADS)
def test_model_card_header(tmp_path, head):
    yaml = pytest.importorskip("yaml", reason="the header is read back with PyYAML")
    ours, theirs = case(head, 0.5), baseline_of(case(head, 2.0, seed=3))
    ours = dataclasses.replace(ours, card=ours.card.replace(title='Reviews: "good" & bad'))
    path = write_model_card(tmp_path, ours, settings={"model": "runs/mini", "train": "data/reviews.csv"},
                            baseline=theirs, calibration=calibrate(ours), examples=100)  # fmt: skip
    _, header, body = path.read_text(encoding="utf-8").split("---\n", 2)
    fields = yaml.safe_load(header)
    metrics = fields["model-index"][0]["results"][0]["metrics"]
    assert fields["library_name"] == "glassbert" and fields["model-index"][0]["name"] == 'Reviews: "good" & bad'
    assert {one["type"]: one["value"] for one in metrics}[ours.card.metric] == pytest.approx(ours.main.value, rel=1e-5)
    assert "100 examples of `reviews.csv`" in body and "glassbert predict" in body and "a simple model" in body


def test_usage_of_a_table_and_of_pairs(tmp_path):
    rows = [{"sex": "male" if n % 2 else "female", "age": n % 9 + 0.5, "y": n % 2} for n in range(N)]
    table = TaskData.of(rows, template="auto", target="y")
    ours = case("binary")
    by_table = dataclasses.replace(ours, data=table, card=ours.card.replace(template=table.template, text=None))
    assert shell_examples(by_table, tmp_path)[0].endswith("-c sex=female -c age=0.5")
    assert "predict(table)" in python_example(by_table, tmp_path)
    assert "--pair 'second 0 of it'" in shell_examples(case("embedding"), tmp_path)[0]


def test_verdict_of_two_perfect_models():
    """No interval of 0 to 0 is shown, and nothing is called significant."""
    one, other = case("binary", 0.0), case("binary", 0.0, seed=3)
    found = verdict(dataclasses.replace(one, card=one.card.replace(chosen_on="nothing")), other, "a simple model")
    assert found.level == "note" and "The same score" in found.sentence and "p =" not in found.evidence
    assert "0.000 to" not in found.evidence


def test_seeds_with_equal_scores_are_ordered_by_loss():
    from types import SimpleNamespace

    from glassbert.finetuning.seeds import SeedResult, SeedRuns

    def result(seed, score, loss):
        return SeedResult(seed, score, "finished", 1.0, 1.0, 1, 1, 1.0, loss=loss)

    runs = SimpleNamespace(card=TaskCard(title="t", head="binary", labels=("a", "b"), chosen_on="other"))
    tied = [result(0, 0.9, 0.5), result(1, 0.9, 0.3), result(2, 0.8, 0.1), result(3, 0.9, None)]
    assert SeedRuns.best(runs, tied).seed == 1
    error = SimpleNamespace(card=TaskCard(title="t", head="regression", chosen_on="other"))
    assert SeedRuns.best(error, tied).seed == 2
    unchosen = SimpleNamespace(card=TaskCard(title="t", head="binary", labels=("a", "b"), chosen_on="nothing"))
    assert SeedRuns.best(unchosen, tied).seed == 0


def test_thresholds_of_labels_are_those_of_the_scores(tmp_path):
    """Where other examples chose the thresholds, the table by label counts with them, as the scores do."""
    given = case("multilabel", 0.8)
    for chosen_on, sentence in (("other", "examples that chose the epoch"), ("nothing", "tuned on the other half")):
        card = given.card.replace(chosen_on=chosen_on, thresholds=(0.9, 0.5, 0.5), examples={"choice": 9})
        one = dataclasses.replace(given, card=card)
        path = write_report(tmp_path / "report.html", settings={}, outcome=one, outcomes={0: one})
        assert sentence in path.read_text(encoding="utf-8")
