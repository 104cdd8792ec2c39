"""The model card: a README.md in the model folder, with use, quality, training data and the command to repeat it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassbert.files import atomic_write
from glassbert.training.history import History
from glassbert.training.report import repeat_command
from glassbert.training.run_folder import RunFolder

if TYPE_CHECKING:
    from glassbert.training.finishing import Result

CARD = """---
language: en
library_name: glassbert
pipeline_tag: fill-mask
tags: [masked-language-model, bert, glassbert]
---
# {name}

A masked language model of {parameters:,} parameters, trained from scratch with GlassBERT: {layers} layers of {hidden},
{heads} heads, a vocabulary of {vocabulary:,}.

```python
import glassbert

model = glassbert.load("{folder}")
```

```
glassbert fill-mask {folder} "{sentence}"
```

## Quality

| held-out documents | |
|---|---|
| loss (nats per masked token) | {loss:.4f} |
| perplexity | {perplexity:,.2f} |
| masked tokens predicted correctly | {accuracy:.2%} |

Held-out documents were not used for training. {rate:.0%} of their tokens were masked, always the same ones.

## Training data

{tokens:,} tokens ({steps:,} steps, {minutes:.1f} minutes on {machine}).

| source | documents |
|---|---|
{sources}

The model reflects the language, time and biases of these sources. A model of this size is meant for learning, for
experiments and for fine-tuning; do not use it as a source of facts.

## Reproducing it

```
{command}
```

Settings, versions, machine and data manifest are in the run's `settings.json` and `report.html`.
"""


def model_card(run: RunFolder, result: Mapping[str, Any], name: str, folder: str, notes: str = "") -> str:
    """The card of the model of a run, as Markdown; `folder` is what `glassbert.load` is given."""
    history = History.read(run)
    config = history.info["model"]["config"]
    sources = history.info["data"].get("sources") or [{"name": "not recorded"}]

    def number(key: str) -> float:
        return math.nan if result.get(key) is None else result[key]

    card = CARD.format(
        name=name,
        folder=folder,
        parameters=history.info["model"]["parameters"],
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        vocabulary=config["vocab_size"],
        sentence=history.settings["sentence"] or "The [MASK] is blue.",
        loss=number("loss"),
        perplexity=number("perplexity"),
        accuracy=number("accuracy"),
        rate=0.15,
        tokens=result["tokens"],
        steps=result["steps"],
        minutes=result["seconds"] / 60,
        machine=history.info["machine"]["accelerator"] or history.info["machine"]["processor"],
        sources="\n".join(map(_source_row, sources)),
        command=repeat_command(without_paths(history)),
    )
    return f"{card}\n{notes.strip()}\n" if notes.strip() else card


def _source_row(source: Mapping[str, Any]) -> str:
    return f"| {Path(source['name']).name} | {source.get('kept', source.get('documents', ''))} |"


def without_paths(history: History) -> History:
    """The same run with the names of its files and folders in place of their paths."""
    settings = dict(history.settings)
    for name in ("corpus", "tokenizer", "teacher", "start_from"):
        value = settings.get(name)
        if value:
            settings[name] = [Path(path).name for path in value] if isinstance(value, list) else Path(value).name
    return dataclasses.replace(history, info={**history.info, "settings": settings})


def write_model_card(run: RunFolder, result: Result) -> None:
    """Write RUN/model/README.md."""
    content = {**dataclasses.asdict(result), "perplexity": result.perplexity}
    with atomic_write(run.model / "README.md") as file:
        file.write(model_card(run, content, run.name, str(run.model)))
