"""Texts that the report page and the model card share: metric names, formatted values, the verdict, usage examples."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from glassbert.errors import InputError
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.scoring import MetricInputs
from glassbert.finetuning.tags import marks_spans
from glassbert.metrics import Difference, Score, Undefined, get_metric, paired_difference
from glassbert.reports import Page, number

NAMES = {
    "accuracy": "Accuracy",
    "balanced_accuracy": "Balanced accuracy",
    "precision": "Precision",
    "recall": "Recall",
    "f1": "F1",
    "micro_f1": "Micro F1",
    "macro_f1": "Macro F1",
    "weighted_f1": "Weighted F1",
    "matthews": "Matthews' correlation",
    "kappa": "Cohen's kappa",
    "quadratic_kappa": "Quadratic kappa",
    "auc": "AUC",
    "average_precision": "Average precision",
    "log_loss": "Log loss",
    "brier": "Brier score",
    "ece": "Calibration error",
    "rmse": "RMSE",
    "mae": "Mean absolute error",
    "smape": "SMAPE",
    "r2": "R²",
    "pearson": "Pearson's correlation",
    "spearman": "Spearman's correlation",
    "kendall": "Kendall's correlation",
    "span_f1": "Span F1",
    "span_precision": "Span precision",
    "span_recall": "Span recall",
    "exact_match": "Exact match",
    "answer_f1": "Answer F1",
}
SHARES = frozenset(("accuracy", "balanced_accuracy", "precision", "recall", "exact_match"))
TASKS = {
    "binary": "one of two labels",
    "multiclass": "one of several labels",
    "multilabel": "any number of labels",
    "ordinal": "a rank",
    "regression": "a number",
    "token": "a tag for every word",
    "span": "a passage that answers a question",
    "embedding": "the similarity of two texts",
}
LOADING = {  # a sentence about the model folder, by head
    "": "The folder `model` also opens in transformers, if transformers has a class for this encoder and head.",
    "embedding": "The folder `model` holds the encoder; cosines of its vectors measure how similar two texts are.",
}
MAX_EXAMPLE_CHARACTERS = 90

# ---- metrics and values -----------------------------------------------------------------------------------------


def metric_name(metric: str) -> str:
    """The display name of a metric; a user-defined metric keeps its own name."""
    return NAMES.get(metric, metric.replace("_", " "))


def metric_in_sentence(metric: str) -> str:
    """The display name inside a sentence: names and abbreviations keep their capitals."""
    name = metric_name(metric)
    kept = name.isupper() or name[:2] in ("F1", "R²") or "'" in name or name in ("RMSE", "SMAPE", "AUC")
    return name if kept else name[0].lower() + name[1:]


def format_value(value: float | None, metric: str) -> str:
    """A value of this metric as text: 86.2 %, or 0.873."""
    if value is None:
        return "–"
    return f"{_digits(value, metric)} %" if metric in SHARES else _digits(value, metric)


def format_interval(score: Score, metric: str) -> str:
    """The interval of a score as text, or the reason why it has none."""
    if score.low is None or score.high is None:
        return score.reason
    return _format_two(score.low, "–", score.high, metric)


def format_mean(mean: float, deviation: float, metric: str) -> str:
    """A mean and its standard deviation as text: 86.2 ± 0.4 %."""
    return _format_two(mean, "±", deviation, metric)


def _format_two(first: float, sign: str, second: float, metric: str) -> str:
    both = f"{_digits(first, metric)} {sign} {_digits(second, metric, like=first)}"
    return f"{both} %" if metric in SHARES else both


def _digits(value: float, metric: str, like: float | None = None) -> str:
    """The value with as many digits as it needs, or as `like` needs."""
    size = abs(value if like is None else like)
    if metric in SHARES:
        return f"{100 * value:.1f}".replace("-", "−")
    return f"{value:.3f}".replace("-", "−") if size == 0 or 0.01 <= size < 10 else number(value)


def format_difference(value: float, metric: str) -> str:
    """A difference with its sign; in percentage points for shares."""
    sign = "+" if value > 0 else "−" if value < 0 else "±"
    size = f"{abs(value):.3f}" if abs(value) < 10 else number(abs(value))
    return f"{sign}{abs(100 * value):.1f} points" if metric in SHARES else f"{sign}{size}"


# ---- comparison with the baseline -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """The comparison with the baseline. `level` is that of a page message; `difference` is ours minus theirs."""

    level: str
    sentence: str
    evidence: str = ""
    remedy: str = ""
    difference: Difference | None = None


def compare(ours: Outcome, theirs: Outcome, metric: str, resamples: int = 1000) -> Difference:
    """Ours minus theirs in one metric, with a paired bootstrap over the same examples.

    Multilabel thresholds and the borders between ranks are tuned on the other half of the examples, for both models.
    """
    inputs = []
    for outcome in (ours, theirs):
        card = outcome.card.replace(thresholds=None, cuts=None)
        inputs.append(MetricInputs(outcome.outputs, outcome.truth, card).for_metric(metric))
    (function, truth, first), (_, _, second) = inputs
    return paired_difference(function, truth, first, second, resamples=max(2, resamples))


def verdict(ours: Outcome, theirs: Outcome, name: str, resamples: int = 1000) -> Verdict:
    """Whether our model is better than the baseline called `name`, beyond chance."""
    metric = ours.card.metric
    called = metric_in_sentence(metric)
    scores = f"{format_value(ours.main.value, metric)} against {format_value(theirs.main.value, metric)} of {name}"
    try:
        found = compare(ours, theirs, metric, resamples)
    except (Undefined, InputError) as reason:
        return Verdict(
            "note", "It cannot be compared with the baseline.", f"{str(reason)[0].upper()}{str(reason)[1:]}."
        )
    sign = 1.0 if get_metric(metric).higher_is_better else -1.0
    low, high = sorted((sign * found.low, sign * found.high))
    value, lowest, highest = (format_difference(one, metric) for one in (found.value, found.low, found.high))
    size = f"{value} in {called}, 95 % interval {lowest.removesuffix(' points')} to {highest}"
    count = f"{len(ours):,} examples"
    if not ours.card.unbiased:
        side = "higher than" if found.value > 0 else "lower than" if found.value else "equal to"
        return Verdict(
            "warning" if high < 0 else "note",
            f"The score is {side} that of the baseline: {scores}.",
            f"{size}. Whether this is more than chance is not tested, because the epoch was chosen on these examples.",
            "Report on examples that choose nothing: give a --test file, or more training examples.",
            found,
        )
    if low == high == 0:
        return Verdict(
            "note",
            f"The same score as the baseline: {scores}.",
            f"Both have it on every resample of the {count}, which does not show that they are equal on others.",
            "Evaluate on more examples, or on harder ones. If the scores stay equal, use the simpler model.",
            found,
        )
    if low > 0:
        return Verdict(
            "good",
            f"Better than the baseline, and the difference is more than chance: {scores}.",
            f"{size}. The difference is significant for a sample of {count} (p = {_format_p(found.p)}).",
            "",
            found,
        )
    if high < 0:
        return Verdict(
            "warning",
            f"The baseline is better: {scores}.",
            f"{size}. The difference is more than chance (p = {_format_p(found.p)}).",
            "Use the simple model, or fine-tune an encoder that was pretrained on more text, with more examples or for "
            "more epochs.",
            found,
        )
    return Verdict(
        "warning",
        f"No clear difference from the baseline: {scores}.",
        f"{size}. The difference may be chance in a sample of {count} (p = {_format_p(found.p)}).",
        "Evaluate on more examples before you decide. If the difference stays this small, use the simpler model.",
        found,
    )


def _format_p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.002 else "0.002 or less"


# ---- usage ------------------------------------------------------------------------------------------------------


def how_to_use(page: Page, outcome: Outcome, run: Path) -> None:
    page.heading("How to use it")
    page.code("\n".join(shell_examples(outcome, run)))
    page.code(python_example(outcome, run))
    page.text(LOADING.get(outcome.card.head, LOADING[""]))


def shell_examples(outcome: Outcome, run: Path) -> list[str]:
    """Two shell commands: one for a single held-out example, one for a file."""
    data, card = outcome.data, outcome.card
    command = f"glassbert predict {shlex.quote(str(run))}"
    if card.template is not None:
        cells = [(name, data.table.column(name)[0]) for name in card.template.columns[:4]]
        single = " ".join([command, *(f"-c {shlex.quote(f'{name}={value}')}" for name, value in cells)])
    else:
        single = f"{command} {shlex.quote(_brief(data.texts[0]))}"
        if data.pairs is not None:
            single += f" --pair {shlex.quote(_brief(data.pairs[0]))}"
    answers = "vectors.npy" if card.head == "embedding" and data.pairs is None else "answers.csv"
    return [single, f"{command} --file {'new.txt' if _takes_lines(card) else 'new.csv'} --output {answers}"]


def python_example(outcome: Outcome, run: Path) -> str:
    card = outcome.card
    given = '"a text"' if card.pair is None else '("a text", "another")'
    if card.template is not None:
        given = "table"
    lines = [
        "from glassbert.finetuning import Predictor",
        "",
        f'found = Predictor.load("{run}").predict({given})',
        "found.answers()",
    ]
    if marks_spans(card):
        lines.append("found.entities")
    elif card.labels:
        lines.append("found.probabilities()")
    return "\n".join(lines)


def _takes_lines(card: TaskCard) -> bool:
    return card.template is None and card.pair is None and not card.reading.get("format")


def _brief(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_EXAMPLE_CHARACTERS else text[:MAX_EXAMPLE_CHARACTERS].rsplit(" ", 1)[0]
