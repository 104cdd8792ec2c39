"""The task card (`task.json`): everything that `predict` needs besides the weights of a fine-tuned model.

    card = TaskCard.load("runs/reviews/model")
    card.labels, card.max_length, card.temperature

It holds the input columns, the template for table rows, the window length, the labels, the temperature and thresholds,
and the scores of the baseline.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from glassbert.errors import CheckpointError, ConfigError, GlassBertError, InputError
from glassbert.files import adding_files, read_json, write_json
from glassbert.metrics import METRICS, Metric, get_metric
from glassbert.models.heads import HEADS as MODEL_HEADS
from glassbert.tasks import LabelMap, TaskData, Template
from glassbert.tasks.reading import fitting
from glassbert.tasks.targets import Kind

TASK = "task.json"
FORMAT = 1

CLASS_HEADS = ("binary", "multiclass", "ordinal")  # one label per example
SEQUENCE_HEADS = (*CLASS_HEADS, "multilabel", "regression")  # one prediction per text
HEADS = (*SEQUENCE_HEADS, "token", "span", "embedding", "forecast")
# The head for a kind of target, if their names differ.
HEAD_OF_KIND = {"tokens": "token", "series": "forecast"}
KIND_OF_HEAD: dict[str, Kind] = {"token": "tokens", "forecast": "series", "embedding": "regression"}
# The default metric that selects the best epoch.
DEFAULT_METRICS = {
    "binary": "auc",
    "multiclass": "accuracy",
    "multilabel": "micro_f1",
    "ordinal": "quadratic_kappa",
    "regression": "rmse",
    "token": "accuracy",
    "span": "answer_f1",
    "embedding": "spearman",
    "forecast": "mae",
}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31


def _all(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, (list, tuple)) and all(fits(one) for one in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_OPTIONAL_TEXT = (lambda value: value is None or _is_text(value), "a text, or null")
_OBJECT = (lambda value: isinstance(value, Mapping) and all(map(_is_text, value)), "an object")
_TEXTS = (lambda value: _all(value, _is_text), "a list of texts")
_CHOSEN_ON = ("other", "reported", "nothing")
# What every field must be, and in words.
FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("title", "head", "metric", "label_prefix"), (_is_text, "a text")),
    **dict.fromkeys(("text", "pair", "words", "target", "separator"), _OPTIONAL_TEXT),
    **dict.fromkeys(("reading", "details", "baseline", "examples"), _OBJECT),
    **dict.fromkeys(("labels", "label_names"), _TEXTS),
    "template": (lambda value: value is None or isinstance(value, Template), "a template, or null"),
    "max_length": (lambda value: _is_whole(value, 1), "a whole number of at least 1"),
    "stride": (lambda value: value is None or _is_whole(value, 1), "a whole number of at least 1, or null"),
    "max_windows": (lambda value: value is None or _is_whole(value, 1), "a whole number of at least 1, or null"),
    "temperature": (lambda value: value is None or (_is_number(value) and value > 0), "a number above 0, or null"),
    "thresholds": (
        lambda value: value is None or _all(value, lambda one: _is_number(one) and 0 <= one <= 1),
        "a list of numbers from 0 to 1, or null",
    ),
    "bias": (lambda value: value is None or _all(value, _is_number), "a list of finite numbers, or null"),
    "cuts": (
        lambda value: value is None or (_all(value, _is_number) and list(value) == sorted(value)),
        "a list of rising numbers, or null",
    ),
    "chosen_on": (lambda value: value in _CHOSEN_ON, f"one of {', '.join(_CHOSEN_ON)}"),
}


@dataclass(frozen=True, kw_only=True)
class TaskCard:
    """How to use a fine-tuned model.

    labels        as written in the files, in the order of the outputs; `label_names` are for display
    reading       reader options of `TaskData.of` besides the columns: format, header, column names
    max_length    tokens per window, with special tokens; `stride` from one window to the next (None: half a window)
    max_windows   the maximum number of windows per text (None: all)
    temperature   divisor of the logits for calibrated probabilities; None: not calibrated
    thresholds    minimum probability per label; None: 0.5
    details       options of single heads: the margin of forecasts, the range of similarity scores; "aligned" pairs
    baseline      name and scores of the baseline on the same examples
    examples      the numbers of examples for training, for the choice of epoch, seed and calibration ("choice") and for
                  the reported scores
    bias          added to the logits after the division by the temperature; None: nothing
    cuts          the borders between ranks on the scale of the mean rank (`finetuning.ranks`); None: the median rank
    chosen_on     which examples chose the epoch: "other" ones than the "reported" ones, these, or "nothing" did
    """

    title: str
    head: str
    metric: str = ""
    text: str | None = None
    pair: str | None = None
    words: str | None = None
    target: str | None = None
    template: Template | None = None
    separator: str | None = None
    label_prefix: str = ""
    reading: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    max_length: int = 512
    stride: int | None = None
    max_windows: int | None = None
    temperature: float | None = None
    thresholds: tuple[float, ...] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    baseline: Mapping[str, Any] = field(default_factory=dict)
    examples: Mapping[str, int] = field(default_factory=dict)
    bias: tuple[float, ...] | None = None
    cuts: tuple[float, ...] | None = None
    chosen_on: str = "reported"

    def __post_init__(self) -> None:
        for name, (fits, wanted) in FIELDS.items():
            value = getattr(self, name)
            if not fits(value):
                raise ConfigError(f"{name} must be {wanted}, got {value!r}")
        if self.head not in HEADS:
            raise ConfigError(f"there is no head {self.head!r}; choose one of {', '.join(HEADS)}")
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "label_names", tuple(self.label_names) or self.labels)
        object.__setattr__(self, "metric", self.metric or DEFAULT_METRICS[self.head])
        get_metric(self.metric)
        if len(self.label_names) != len(self.labels):
            raise ConfigError(
                f"there are {len(self.labels)} labels and {len(self.label_names)} names; their numbers must be equal"
            )
        if len(set(self.labels)) < len(self.labels):
            raise ConfigError(f"labels must differ, and one of {', '.join(map(repr, self.labels))} occurs twice")
        for name in ("thresholds", "bias"):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, tuple(values))
                outputs = 1 if self.head == "binary" else len(self.labels)
                if len(values) != outputs and self.labels:
                    raise ConfigError(f"{name} must have {outputs} numbers, one for each output, got {len(values)}")
        if self.cuts is not None:
            object.__setattr__(self, "cuts", tuple(self.cuts))
            if self.head != "ordinal" or (self.labels and len(self.cuts) != len(self.labels) - 1):
                borders = max(len(self.labels) - 1, 0)
                raise ConfigError(
                    f"cuts are the borders between ranks: {borders} for an ordinal head with these labels; got "
                    f"{len(self.cuts)} with the head {self.head}"
                )
        if self.stride is not None and self.stride > self.max_length:
            raise ConfigError(f"stride must be at most max_length, {self.max_length}, got {self.stride}")

    @property
    def label_map(self) -> LabelMap:
        return LabelMap(self.labels)

    @property
    def main_metric(self) -> Metric:
        return METRICS[self.metric]

    @property
    def kind(self) -> Kind:
        """The kind of target in the terms of `glassbert.tasks`."""
        return KIND_OF_HEAD.get(self.head, self.head)  # type: ignore[arg-type]

    @property
    def embeds_pairs(self) -> bool:
        """Whether an example is a pair of texts with one vector each."""
        return self.head == "embedding" and self.pair is not None

    @property
    def reads_numbers(self) -> bool:
        """Whether the numbers of a table go to the model beside its words."""
        return self.template is not None and self.template.values and self.pair is None

    @property
    def chosen_apart(self) -> bool:
        """Whether epoch, seed, calibration and thresholds were chosen on other examples than the reported ones."""
        return self.chosen_on == "other"

    @property
    def needs_cuts(self) -> bool:
        """Whether ranks are chosen for quadratic kappa; for other metrics the median rank is the answer."""
        return self.head == "ordinal" and self.metric == "quadratic_kappa"

    @property
    def unbiased(self) -> bool:
        """Whether the reported examples chose nothing, so that their scores can be tested for significance."""
        return self.chosen_on != "reported"

    @property
    def uncalibrated(self) -> Self:
        """The card without temperature, bias, thresholds and cuts."""
        return self.replace(temperature=None, bias=None, thresholds=None, cuts=None)

    @property
    def aligned(self) -> bool:
        """Whether the two texts of a pair are compared word by word (`AlignedHead`)."""
        return bool(self.details.get("aligned"))

    def replace(self, **changes: Any) -> Self:
        return dataclasses.replace(self, **changes)

    # ---- reading examples ---------------------------------------------------------------------------------------

    def read(self, given: Any, *, with_targets: bool = False, **options: Any) -> TaskData:
        """Read examples from a file, a list or a data frame, in the same way as in training.

        `with_targets` also reads the targets, which must exist. `options` are those of `TaskData.of`.
        """
        columns: dict[str, Any] = {name: getattr(self, name) for name in ("text", "pair", "words")}
        if self.template is not None:
            columns = {"template": self.template, "pair": self.pair}
        targets = {
            "target": self.target,
            "kind": None if self.words else self.kind,
            "separator": self.separator,
            "label_prefix": self.label_prefix,
        }
        if (
            not with_targets or self.target is None or self.head == "span"
        ):  # answers of spans are read by `true_answers`
            targets = {}
        return TaskData.of(given, **{**columns, **targets, **fitting(given, self.reading), **options})

    # ---- files --------------------------------------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        content = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in content.items()}
        plain["template"] = None if self.template is None else self.template.as_json()
        plain |= {name: dict(content[name]) for name in ("reading", "details", "baseline", "examples")}
        return {"format": FORMAT, **plain}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        known = {f.name for f in dataclasses.fields(cls)}
        values = {name: value for name, value in content.items() if name in known}
        if values.get("template") is not None:
            values["template"] = Template.from_json(values["template"])
        try:
            return cls(**values)
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, GlassBertError):
                raise
            raise ConfigError(f"this is not a task card: {error}") from error

    def save(self, folder: str | Path) -> None:
        with adding_files(folder, (TASK,)):
            write_json(Path(folder) / TASK, self.as_json())

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load the card from a model folder or a run folder."""
        folder = Path(folder)
        path = next((p for p in (folder / TASK, folder / "model" / TASK) if p.exists()), None)
        if path is None:
            raise CheckpointError(
                f"{folder} has no {TASK}: it was not fine-tuned with GlassBERT. "
                f"Fine-tune it with: glassbert finetune --model {folder} --train FILE"
            )
        try:
            content = read_json(path)
            if content.get("format") != FORMAT:
                raise ConfigError(f"its format is not {FORMAT}, the one that this version reads")
            return cls.from_json(content)
        except GlassBertError as error:
            raise CheckpointError(f"{path} cannot be used: {error}") from error


def choice_sentence(card: TaskCard, seeds: int = 1) -> str:
    """Which examples chose the epoch, the seed and the calibration; for reports, cards and result.json."""
    what = "The epoch and the seed were" if seeds > 1 else "The epoch was"
    tuned = "thresholds" if card.head == "multilabel" else "borders between ranks" if card.needs_cuts else ""
    if card.chosen_on == "other":
        also = f" So were the calibration and the {tuned}." if tuned else " So was the calibration."
        also = "" if card.head in ("regression", "span", "embedding", "forecast") else also
        return f"{what} chosen on {card.examples['choice']:,} other examples, which no score here includes.{also}"
    halves = f" {tuned.capitalize()} are tuned on the other half of the examples." if tuned else ""
    if card.chosen_on == "nothing":
        return f"No epoch was chosen: the weights are those of the last one, so that these scores are unbiased.{halves}"
    return (
        f"{what} chosen on these same examples, so scores on new examples may be slightly lower; a --test file would "
        f"give unbiased ones.{halves}"
    )


def kind_of_prediction(head: str | None) -> str | None:
    """The kind of prediction that a head makes: its own name, or the task of a head of an extension."""
    return head if head is None or head in HEADS else MODEL_HEADS[head].task


def head_of(kind: str) -> str:
    """The head for a kind of target."""
    head = HEAD_OF_KIND.get(kind, kind)
    if head not in HEADS:
        raise InputError(f"there is no head for targets of kind {kind!r}; the heads are {', '.join(HEADS)}")
    return head
