"""The model card of a fine-tuned model: README.md in the model folder.

Its header is the YAML metadata of the Hugging Face hub: the task and the scores.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassbert.files import atomic_write, portable
from glassbert.finetuning.baseline import Baseline
from glassbert.finetuning.calibration import Calibration
from glassbert.finetuning.card import choice_sentence
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.report.texts import (
    TASKS,
    format_interval,
    format_value,
    metric_name,
    python_example,
    shell_examples,
    verdict,
)

# The task names of the hub, by head.
PIPELINES = {
    **dict.fromkeys(("binary", "multiclass", "multilabel", "ordinal", "regression"), "text-classification"),
    "token": "token-classification",
    "span": "question-answering",
    "embedding": "sentence-similarity",
}
CARD = """---
{header}---
# {title}

A model that reads a text and predicts {gives}{labels}. It was fine-tuned with GlassBERT from `{base}`.

```
{shell_examples}
```

```python
{python_example}
```

## Scores

Evaluated on {examples:,} held-out examples.

{scores}

{verdict}

{chosen}{calibrated}

## Training data

{learned}

A model reproduces the language and the biases of its training data. Evaluate it on your own texts before you rely on
it, above all if they differ from the training data.

`task.json` in this folder describes the input columns, the window length and the labels.
"""

# What a card says of its place and its name.
TITLE = re.compile(r"^# (.*)$", re.MULTILINE)
IN_SHELL = re.compile(r"""^glassbert predict ('(?:[^']|'"'"')*'|\S+)""", re.MULTILINE)
IN_PYTHON = re.compile(r'Predictor\.load\("[^"]*"\)')


def card_of_copy(card: str, folder: str, name: str = "") -> str:
    """The card of a model for a copy of it in another folder, under another name where one is given."""
    card = IN_SHELL.sub(lambda _: f"glassbert predict {shlex.quote(folder)}", card)
    card = IN_PYTHON.sub(lambda _: f'Predictor.load("{folder}")', card)
    title = TITLE.search(card)
    if not name or title is None:
        return card
    index, new = (f'"name": {json.dumps(one, ensure_ascii=False)}' for one in (title[1], name))
    return TITLE.sub(lambda _: f"# {name}", card.replace(index, new, 1), count=1)


def write_model_card(
    folder: str | Path,
    outcome: Outcome,
    *,
    settings: Mapping[str, Any],
    outcomes: Mapping[int, Outcome] | None = None,
    baseline: Baseline | None = None,
    calibration: Calibration | None = None,
    examples: int | None = None,
    machine: str = "",
) -> Path:
    """Write README.md into the model folder; `examples` is the number of training examples, `machine` what computed."""
    card, run = outcome.card, Path(folder)
    compared = f"{(found := verdict(outcome, baseline, baseline.name)).sentence} {found.evidence}" if baseline else ""
    learned = f"{examples:,} examples" if examples else "Examples"
    text = CARD.format(
        header=_header(outcome, settings),
        title=card.title,
        gives=TASKS[card.head],
        labels=f": {', '.join(card.label_names[:30])}" if card.labels and card.head != "token" else "",
        base=portable(settings["model"]) if settings.get("model") else "a pretrained encoder",
        shell_examples="\n".join(shell_examples(outcome, Path(portable(run)))),
        python_example=python_example(outcome, Path(portable(run))),
        examples=len(outcome),
        scores=_scores(outcome, baseline),
        verdict=compared,
        chosen=choice_sentence(card, len(outcomes or ())),
        calibrated=_calibration_sentence(calibration),
        learned=f"{learned} of `{settings.get('task') or Path(str(settings.get('train') or 'a file')).name}`"
        f"{f', trained on {machine}' if machine else ''}.",
    )
    path = run / "README.md"
    with atomic_write(path) as file:
        file.write(text)
    return path


def _header(outcome: Outcome, settings: Mapping[str, Any]) -> str:
    """YAML. Values from the user are written as JSON, which is valid YAML, so that they cannot break it."""
    card = outcome.card
    pipeline = PIPELINES.get(card.head, "text-classification")
    lines = ["library_name: glassbert", f"pipeline_tag: {pipeline}", f"tags: [bert, glassbert, {card.head}]"]
    metrics = [
        {"type": name, "name": metric_name(name), "value": float(f"{score.value:.6g}")}
        for name, score in outcome.scores.items()
        if score.value is not None
    ]
    if metrics:
        dataset = {"name": str(settings.get("task") or card.title), "type": "custom"}
        result = {"task": {"type": pipeline}, "dataset": dataset, "metrics": metrics}
        index = [{"name": card.title, "results": [result]}]
        lines.append(f"model-index: {json.dumps(index, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def _scores(outcome: Outcome, baseline: Baseline | None) -> str:
    theirs = f" {baseline.name} |" if baseline else ""
    lines = [f"| | this model | 95 % interval |{theirs}", f"|---|---|---|{'---|' if baseline else ''}"]
    for name, score in outcome.scores.items():
        other = f" {format_value(baseline.scores[name].value, name)} |" if baseline and name in baseline.scores else ""
        lines.append(
            f"| {metric_name(name)} | {format_value(score.value, name)} | {format_interval(score, name)} |{other}"
        )
    return "\n".join(lines)


def _calibration_sentence(calibration: Calibration | None) -> str:
    if calibration is None or not calibration.calibrated or calibration.before is None or calibration.after is None:
        return ""
    before, after = calibration.before.ece.value, calibration.after.ece.value
    bias = " and a bias for each label" if calibration.bias is not None else ""
    return (
        f" Its probabilities are calibrated (temperature {calibration.temperature:.2f}{bias}): the calibration error "
        f"went from {before:.3f} to {after:.3f}."
    )
