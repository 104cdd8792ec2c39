"""Reads the user's files: chooses the head and the columns, and splits off held-out examples.

All checks of the data happen here, before training. Errors name the row or column and the remedy.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.finetuning.card import CLASS_HEADS, KIND_OF_HEAD, TaskCard, head_of, kind_of_prediction
from glassbert.finetuning.examples import truth_of
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.finetuning.spans import true_answers
from glassbert.reading.cells import is_missing, shown
from glassbert.tasks import Finding, LabelMap, TaskData, check_data, folds, read_table, ready_task, train_dev_split
from glassbert.tasks.data import long_columns, text_column
from glassbert.tasks.profile import profile
from glassbert.tasks.reading import fitting
from glassbert.tasks.ready import ReadyTask
from glassbert.tasks.table import Table, listed
from glassbert.tasks.template import FIELD

COLUMNS = ("text", "pair", "words", "target", "template", "separator", "label_prefix", "drop_missing")
QUESTION, CONTEXT, ANSWERS = "question", "context", ("answers", "answer")
WORDS = "words"
LABELLED = (*CLASS_HEADS, "multilabel", "token")
LEAST_FOR_INNER = 2_000  # training examples
FEW_WORDS = 6  # a column with fewer on average is read together with the others
INNER_SHARE, INNER_LEAST, INNER_MOST = 0.1, 100, 2_000  # of the training examples: share, and limits of their number


@dataclass(frozen=True)
class TaskExamples:
    """Training and held-out examples with their card. `notes` list the automatic choices.

    `dev` are the examples that are reported. `choice` are those that choose the epoch, the seed, the calibration and
    the thresholds; None: the reported ones choose, or nothing does (`card.chosen_on`).
    """

    card: TaskCard
    train: TaskData
    dev: TaskData
    choice: TaskData | None
    findings: list[Finding]
    notes: list[str]


def require_files(settings: FineTuningSettings, run: Path, remedy: str = "") -> None:
    """Raise if a file that the examples of this run are read from is gone: settings keep names as they were given."""
    task = ready_task(settings.task) if settings.task else None
    given = [Path(settings.data) / name for name in (task.train, task.dev) if name] if task else []
    files = [*given, *(Path(name) for name in (settings.train, settings.dev, settings.test) if name)]
    missing = next((path for path in files if not path.expanduser().exists()), None)
    if missing is not None:
        raise InputError(
            f"the examples of {run} are read from {missing}, and there is no such file here; "
            f"go to the folder in which the run was started, or put the file there{remedy}"
        )


def read_examples(settings: FineTuningSettings) -> TaskExamples:
    """Read the files, recognise the kind of target, split off held-out examples, and check everything."""
    task = ready_task(settings.task) if settings.task else None
    if task is not None and task.head == "series":
        raise InputError(f"{task.name} is a time series; use: glassbert forecast --series {settings.data}/{task.train}")
    train_file, dev_file, options = _files(settings, task)
    notes: list[str] = []
    head = kind_of_prediction(settings.head) or (head_of(task.head) if task is not None else None)
    columns = {**_columns(settings, task), **options}
    table = _read(train_file, columns)
    if head == "span":
        columns = _span_columns(table, columns)
    elif task is None:
        columns = _default_columns(table, columns, settings, notes)
    columns = _with_target_kind(columns, head)
    train = TaskData.of(table, **columns)
    if train.template is not None:
        train = _with_values(train, settings, head)
        columns["template"] = train.template
    dev = _held_out(dev_file, columns) if dev_file is not None else None
    test = _held_out(settings.test, columns) if settings.test else None
    for examples in (train, dev, test):
        if examples is not None and examples.notes:
            notes.append(f"{Path(examples.source).name}: {'; '.join(examples.notes)}.")
    if head is None:
        assert train.inferred is not None
        head = head_of(train.inferred.kind)
        notes.append(f"The head is {head}, because {train.inferred.reason}; --head overrides this.")
    _check_texts(train, "train on")
    card = _card(settings, task, head, train, columns)
    if head == "binary" and len(card.labels) == 2:
        notes.append(f"The positive class is {card.labels[1]!r}; --positive chooses the other one.")
    _check_targets(card, train)
    if dev is None or settings.folds is not None:
        if settings.folds is None:
            train, dev = train_dev_split(train, settings.held_out, settings.seed)
        else:
            train, dev = folds(train, settings.folds, settings.seed)[settings.fold or 0]
        notes.append(f"{len(dev):,} of {len(train) + len(dev):,} examples are held out for evaluation.")
    reported, choice = (dev, None) if test is None else (test, dev)
    findings = check_data(train, reported)
    if settings.limit is not None and settings.limit < len(train):
        order = np.random.default_rng(settings.seed).permutation(len(train))[: settings.limit]
        train = train.select(np.sort(order))
    chosen_on = "other"
    if test is None:
        train, choice, chosen_on = _inner_split(train, card, settings)
    for data in (reported, *([choice] if choice is not None else [])):
        _check_texts(data, "evaluate on")
        _check_held_out(card, data)
    counts = {"train": len(train), "choice": 0 if choice is None else len(choice), "reported": len(reported)}
    card = card.replace(examples=counts, chosen_on=chosen_on)
    return TaskExamples(card, train, reported, choice, findings, notes)


def _inner_split(
    train: TaskData, card: TaskCard, settings: FineTuningSettings
) -> tuple[TaskData, TaskData | None, str]:
    """The training examples without those that choose, the latter, and `card.chosen_on`."""
    choose = settings.choose or ("inner" if settings.inner is not None or len(train) >= LEAST_FOR_INNER else "last")
    if choose != "inner":
        return train, None, {"last": "nothing", "reported": "reported"}[choose]
    share = settings.inner or min(max(INNER_SHARE * len(train), INNER_LEAST), INNER_MOST) / len(train)
    try:
        rest, choice = train_dev_split(train, share, settings.seed)
        _check_held_out(card, choice)
        missing = set(card.labels) - set(LabelMap.of(rest.targets or ()).names) if card.head in LABELLED else set()
        if missing:
            raise InputError(
                f"{train.source}: the label {min(missing)!r} is too rare for --choose inner: no example of it is left "
                "for training; give --choose last, or a --test file"
            )
    except InputError:
        if settings.choose is None and settings.inner is None:
            return train, None, "nothing"
        raise
    return rest, choice, "other"


def _files(settings: FineTuningSettings, task: ReadyTask | None) -> tuple[Any, Any, dict[str, Any]]:
    """Training file, dev file or None, and the reader options."""
    if task is None:
        return settings.train, settings.dev or None, settings.reading()
    folder = Path(settings.data)
    if not (folder / task.train).exists():
        raise InputError(f"{folder / task.train} does not exist; name the folder of the ready tasks with --data")
    options = {name: value for name, value in task.read.items() if name not in (*COLUMNS, "kind")}
    options |= settings.reading()
    return folder / task.train, None if task.dev is None else folder / task.dev, options


def _held_out(file: Any, columns: dict[str, Any]) -> TaskData:
    """Examples of another file, read as the training file; options that only fit the latter are left out."""
    options = fitting(file, columns)
    options.pop("drop", None)
    return TaskData.of(file, **options)


def _columns(settings: FineTuningSettings, task: ReadyTask | None) -> dict[str, Any]:
    """Column options of the ready task, overridden by the settings."""
    given = {name: getattr(settings, name) for name in COLUMNS if getattr(settings, name)}
    task_columns = {name: value for name, value in task.read.items() if name in COLUMNS} if task is not None else {}
    return {**task_columns, **given}


def _read(file: Any, columns: dict[str, Any]) -> Table:
    """The table of the training file, which is read once."""
    reader = {name: value for name, value in columns.items() if name not in COLUMNS}
    named = [columns[name] for name in ("text", "pair", "words", "target") if columns.get(name)]
    fields = FIELD.findall(columns.get("template") or "")
    written = [columns["target"]] if columns.get("target") else []
    return read_table(file, named=(*named, *fields, *reader.get("drop", ())), as_written=written, **reader)


def _default_columns(
    table: Table, columns: dict[str, Any], settings: FineTuningSettings, notes: list[str]
) -> dict[str, Any]:
    """Default columns: the words of CoNLL files, a text column, or a template if the table has no text column."""
    if settings.target is None and not (settings.head == "embedding" and settings.pair):
        raise InputError(f"{table.source}: name the target column with --target; the columns are {table.names()}")
    for name in ("text", "pair", "words", "target"):
        if columns.get(name):
            table.column(columns[name])
    if WORDS in table.columns and not {"text", "words", "template"} & set(columns):
        return {**columns, "words": WORDS}
    if not {"text", "words", "template"} & set(columns):
        return _text_or_template(table, columns, settings, notes)
    return columns


def _text_or_template(
    table: Table, columns: dict[str, Any], settings: FineTuningSettings, notes: list[str]
) -> dict[str, Any]:
    """The only text column, two as a pair if there is nothing else, or all columns by a template."""
    others = [settings.target, columns.get("pair")]
    long = long_columns(table, *others)
    rest = [name for name in table.columns if name not in (*others, *long)]
    used = [name for name in rest if profile(name, table.columns[name]).kind not in ("id", "constant", "empty")]
    if len(long) == 2 and not columns.get("pair"):
        as_pair = f"--text {shlex.quote(long[0])} --pair {shlex.quote(long[1])}"
        if not used:
            notes.append(
                f"The columns {long[0]!r} and {long[1]!r} hold texts and are read as a pair ({as_pair}); --template "
                "auto makes one text of each row."
            )
            return {**columns, "text": long[0], "pair": long[1]}
        notes.append(
            f"The columns {long[0]!r} and {long[1]!r} hold texts. Each row becomes one text; {as_pair} compares them."
        )
        return {**columns, "template": "auto"}
    if len(long) == 1 and len(used) > 1 and _mean_words(table.columns[long[0]]) < FEW_WORDS and not columns.get("pair"):
        notes.append(
            f"The column {long[0]!r} holds short texts beside {len(used)} other columns, so each row becomes a "
            f"sentence; --text {shlex.quote(long[0])} reads that column alone."
        )
        return {**columns, "template": "auto"}
    try:
        more = "; --template auto uses the other columns as well" if used else ""
        notes.append(f"The text is in the column {text_column(table, *others)!r}{more}.")
    except InputError:
        what = "Several columns contain text" if long else "No column contains text"
        notes.append(f"{what}, so each row becomes a sentence; --text names a column instead.")
        return {**columns, "template": "auto"}
    return columns


def _mean_words(values: Sequence[Any]) -> float:
    known = [str(value) for value in values if not is_missing(value)]
    return sum(len(value.split()) for value in known) / max(1, len(known))


def _span_columns(table: Table, columns: dict[str, Any]) -> dict[str, Any]:
    """Default columns of span tasks: question, context and answers."""
    answer_column = next((name for name in ANSWERS if name in table.columns), ANSWERS[-1])
    named = {"text": QUESTION, "pair": CONTEXT, "target": answer_column, **columns}
    for name in ("text", "pair", "target"):
        table.column(named[name])
    return named


def _with_values(train: TaskData, settings: FineTuningSettings, head: str | None) -> TaskData:
    """The data with a template that puts numbers beside the text, unless --numbers text."""
    template = train.template
    assert template is not None
    values = settings.numbers != "text" and bool(template.number_columns) and train.pairs is None
    if settings.numbers == "values" and not values:
        reason = "pairs of texts" if train.pairs is not None else "a table without a column of numbers"
        raise InputError(f"--numbers values does not apply to {reason}; remove it")
    return replace(train, template=replace(template, values=values and head not in ("token", "span", "embedding")))


def _with_target_kind(columns: dict[str, Any], head: str | None) -> dict[str, Any]:
    """Add the kind of target of the head. The answers of spans are read by `spans.py`."""
    if head == "span":
        return {name: value for name, value in columns.items() if name != "target"}
    if head == "token" and not columns.get("words"):
        raise InputError(
            "a token head needs words: name the column with --words; it holds a list of words in every row"
        )
    if head == "embedding" and not columns.get("pair"):
        raise InputError("an embedding head needs pairs of texts: name the column of the second text with --pair")
    if head not in (None, "token") and columns.get("words"):
        raise InputError(f"the {head} head works on whole texts; --words is only for the token head")
    if columns.get("target") is None or head in (None, "token"):
        return columns
    return {**columns, "kind": KIND_OF_HEAD.get(head, head)}


def _card(
    settings: FineTuningSettings, task: ReadyTask | None, head: str, train: TaskData, columns: dict[str, Any]
) -> TaskCard:
    target = columns.get("target")
    details: dict[str, Any] = {}
    labels: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    if head in LABELLED:
        found = train.encoded().labels
        assert found is not None
        labels = found.names
        names = tuple(task.names_of_labels(settings.data, found)) if task is not None else labels
        labels, names = _positive_last(labels, names, settings, head, train.source)
    if head == "embedding" and train.targets is not None:
        values = train.encoded().values
        details["score_range"] = [float(values.min()), float(values.max())]
    metric = settings.metric or (task.metric if task is not None and head == head_of(task.head) else "")
    if head == "token" and not metric and any(label.startswith("B-") for label in labels):
        metric = "span_f1"
    if head == "embedding" and train.targets is None:
        metric = "accuracy"
    if head == "span":
        target = _span_target(train, settings)
    reading = {name: value for name, value in columns.items() if name not in (*COLUMNS, "kind", "drop")}
    card = TaskCard(
        title=task.title if task is not None else Path(settings.train).name,
        head=head,
        metric=metric,
        text=train.names.get("text"),
        pair=train.names.get("pair"),
        words=train.names.get("words"),
        target=target,
        template=train.template,
        separator=columns.get("separator") or (train.inferred.separator if train.inferred else None),
        label_prefix=columns.get("label_prefix", ""),
        reading=reading,
        labels=labels,
        label_names=names,
        stride=settings.stride,
        max_windows=None if head in ("token", "span") else settings.max_windows,
        details=details,
    )
    if head == "span":
        answers = true_answers(train, card) or []
        card = card.replace(details={"may_be_empty": any(found == [""] for found in answers)})
    return card


def _positive_last(
    labels: tuple[str, ...], names: tuple[str, ...], settings: FineTuningSettings, head: str, source: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels and their names, with the class of --positive as the second of two."""
    wanted = settings.positive
    if wanted is None:
        return labels, names
    if head != "binary" or len(labels) != 2:
        raise InputError(f"--positive is for two classes; {source} is {head} with {len(labels)} labels; remove it")
    if wanted not in (*labels, *names):
        raise InputError(f"{source} has no label {shown(wanted)} for --positive; its labels are {listed(labels)}")
    return (labels[::-1], names[::-1]) if wanted in (labels[0], names[0]) else (labels, names)


def _span_target(train: TaskData, settings: FineTuningSettings) -> str:
    return settings.target or next(name for name in ANSWERS if name in train.table.columns)


def _check_texts(data: TaskData, what: str) -> None:
    if not len(data):
        raise InputError(f"{data.source} has no example to {what}")
    if not any(text.strip() for text in data.texts):
        raise InputError(f"{data.source}: every text is empty; check the column given with --text")


def _check_targets(card: TaskCard, train: TaskData) -> None:
    """Raise if all targets are equal."""
    if card.head in LABELLED and len(card.labels) < 2:
        label = card.labels[0] if card.labels else "none"
        raise InputError(
            f"{train.source}: all {len(train):,} examples have the label {label!r}, so there is nothing to learn; "
            "add examples of another label, or choose another --target"
        )
    if card.head in ("regression", "embedding") and train.targets is not None:
        values = train.encoded().values
        if values.min() == values.max():
            raise InputError(f"{train.source}: every target is {values[0]:g}, so there is nothing to learn")


def _check_held_out(card: TaskCard, dev: TaskData) -> None:
    """Raise if a held-out label is not in training, or if the main metric is undefined."""
    truth = truth_of(dev, card)
    if truth is None and card.target is not None:
        raise InputError(f"{dev.source} has no target column {card.target!r}")
    if card.head == "binary" and len(np.unique(truth)) < 2 and card.metric in ("auc", "f1"):
        raise InputError(
            f"{dev.source}: all {len(dev):,} held-out examples have the label {card.labels[int(truth[0])]!r}, "
            f"so {card.metric} cannot be computed; hold out other examples, or choose --metric accuracy"
        )
