"""The model card of a fine-tuned model, README.md beside the weights: what somebody who finds the folder should know.

The header is the one that Hugging Face's hub reads: what the model does, and how well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from glassbert.files import atomic_write
from glassbert.finetuning.baseline import Baseline
from glassbert.finetuning.calibration import Calibration
from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.report.usage import commands, python
from glassbert.finetuning.report.verdict import verdict
from glassbert.finetuning.report.words import TASKS, between, name_of, written

# What the hub calls a task.
PIPELINES = {
    **dict.fromkeys(("binary", "multiclass", "multilabel", "ordinal", "regression"), "text-classification"),
    "token": "token-classification",
    "span": "question-answering",
    "embedding": "sentence-similarity",
}
CARD = """---
{header}---
# {title}

A model that reads a text and gives {gives}{labels}. It was fine-tuned with GlassBERT from `{base}`.

```
{commands}
```

```python
{python}
```

## How good it is

Measured on {examples:,} held-out examples.

{scores}

{verdict}

The epoch{and_seed} chosen by these same examples, so new ones may fare a little worse.{calibrated}

## What it learned from

{learned}

A model repeats what its examples say, with their language, their time and their prejudices. Measure it on texts of your
own before you rely on it, above all on texts that look different from these.

`task.json` beside this file says how texts are read, cut and answered.
"""


def write_model_card(
    folder: str | Path,
    outcome: Outcome,
    *,
    settings: Mapping[str, Any],
    outcomes: Mapping[int, Outcome] | None = None,
    baseline: Baseline | None = None,
    calibration: Calibration | None = None,
    examples: int | None = None,
) -> Path:
    """Write README.md into the folder of the model; `examples` is how many it learned from."""
    card, run = outcome.card, Path(folder)
    compared = f"{(found := verdict(outcome, baseline, baseline.name)).sentence} {found.evidence}" if baseline else ""
    learned = f"{examples:,} examples" if examples else "Examples"
    text = CARD.format(
        header=_header(outcome, settings),
        title=card.title,
        gives=TASKS[card.head],
        labels=f": {', '.join(card.label_names[:30])}" if card.labels and card.head != "token" else "",
        base=settings.get("model") or "a pretrained encoder",
        commands="\n".join(commands(outcome, run)),
        python=python(outcome, run),
        examples=len(outcome),
        scores=_scores(outcome, baseline),
        verdict=compared,
        and_seed=" and the seed were" if outcomes is not None and len(outcomes) > 1 else " was",
        calibrated=_honest(calibration),
        learned=f"{learned} of `{settings.get('task') or Path(str(settings.get('train') or 'a file')).name}`.",
    )
    path = run / "README.md"
    with atomic_write(path) as file:
        file.write(text)
    return path


def _header(outcome: Outcome, settings: Mapping[str, Any]) -> str:
    """YAML. JSON is YAML, so whatever the user named is written as JSON and cannot break it."""
    card = outcome.card
    pipeline = PIPELINES.get(card.head, "text-classification")
    lines = ["library_name: glassbert", f"pipeline_tag: {pipeline}", f"tags: [bert, glassbert, {card.head}]"]
    metrics = [
        {"type": name, "name": name_of(name), "value": float(f"{score.value:.6g}")}
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
        other = f" {written(baseline.scores[name].value, name)} |" if baseline and name in baseline.scores else ""
        lines.append(f"| {name_of(name)} | {written(score.value, name)} | {between(score, name)} |{other}")
    return "\n".join(lines)


def _honest(calibration: Calibration | None) -> str:
    if (
        calibration is None
        or calibration.temperature is None
        or calibration.after is None
        or calibration.before is None
    ):
        return ""
    before, after = calibration.before.ece.value, calibration.after.ece.value
    return (
        f" Its probabilities are calibrated (temperature {calibration.temperature:.2f}): their mean gap to what comes "
        f"true went from {before:.3f} to {after:.3f}."
    )
