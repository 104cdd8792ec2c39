"""The model card: a README.md in the model folder, with use, quality, training data and the command to repeat it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glassbert.files import atomic_write, portable
from glassbert.models.heads.rtd import GENERATOR
from glassbert.training.history import History, weights_sentence
from glassbert.training.report import repeat_command
from glassbert.training.run_folder import RunFolder

if TYPE_CHECKING:
    from glassbert.training.finishing import Result

CARD = """---
language: en
library_name: glassbert
pipeline_tag: {pipeline}
tags: [{tag}, {family}, glassbert]
---
# {name}

{what} of {parameters:,} parameters, trained {origin} with GlassBERT: {layers} layers of {hidden},
{heads} heads, a vocabulary of {vocabulary:,}.

```python
import glassbert

model = glassbert.load("{folder}")
```

```
{use}
```

## Quality

| held-out documents | |
|---|---|
{quality}

Held-out documents were not used for training. {targets}

## Training data

{tokens:,} tokens ({steps:,} steps, {minutes:.1f} minutes on {machine}). {weights}{beside}

| source | documents kept | read |
|---|---|---|
{sources}

The model reflects the language, time and biases of these sources. A model of this size is meant for learning, for
experiments and for fine-tuning; do not use it as a source of facts.

## Reproducing it

```
{command}
```

Settings, versions, machine and data manifest are in the run's `settings.json` and `report.html`.
"""

FILES = ("corpus", "general", "tokenizer", "teacher", "start_from")  # settings that name files or folders
# What a card says, by the kind of model.
MASKED = {
    "pipeline": "fill-mask",
    "tag": "masked-language-model",
    "what": "A masked language model",
    "unit": "masked token",
    "use": 'glassbert fill-mask {folder} "{sentence}"',
    "targets": "15% of their tokens were masked, always the same ones.",
}
CAUSAL = {
    "pipeline": "text-generation",
    "tag": "causal-language-model",
    "what": "A causal language model",
    "unit": "token",
    "use": 'glassbert generate {folder} "{beginning}"',
    "targets": "Every token is predicted from those before it in its document.",
}
DISCRIMINATOR = {
    **MASKED,
    "pipeline": "feature-extraction",
    "tag": "replaced-token-detection",
    "what": f"A discriminator of replaced tokens (with its generator in `{GENERATOR}/`, which fills masks)",
    "use": f'glassbert fill-mask {{folder}}/{GENERATOR} "{{sentence}}"',
}


def quality(result: Mapping[str, Any], unit: str) -> list[tuple[str, str]]:
    """The rows of the table of held-out numbers; with several objectives those of each."""
    whole = {"loss": result.get("loss"), "accuracy": result.get("accuracy")}
    rows = []
    parts: dict[str, dict[str, Any]] = dict(result.get("parts") or {}) or {"": whole}
    for name, one in parts.items():
        of = f"{name}: " if name else ""
        loss, right = _number(one["loss"]), _number(one["accuracy"])
        rows.append((f"{of}loss (nats per target)" if of else f"loss (nats per {unit})", f"{loss:.4f}"))
        rows.append((f"{of}predicted correctly" if of else f"{unit}s predicted correctly", f"{right:.2%}"))
    return [*rows, (f"perplexity of {unit}s", f"{_number(result.get('perplexity')):,.2f}")]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def model_card(run: RunFolder, result: Mapping[str, Any], name: str, folder: str, notes: str = "") -> str:
    """The card of the model of a run, as Markdown; `folder` is what `glassbert.load` is given."""
    history = History.read(run)
    config, data = history.info["model"]["config"], history.info["data"]
    second = data.get("general", {}).get("sources", [])
    sources = [*data.get("sources", []), *second] or [{"name": "not recorded"}]
    sentence = history.settings["sentence"] or "The [MASK] is blue."
    kind = CAUSAL if config.get("causal") else DISCRIMINATOR if (run.model / GENERATOR).is_dir() else MASKED
    beginning = sentence.partition("[MASK]")[0].strip()
    card = CARD.format(
        name=name,
        folder=folder,
        origin=_origin(history.settings.get("start_from")),
        family=config.get("family", "bert"),
        parameters=history.info["model"]["parameters"] - map_to_teacher(config),
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        vocabulary=config["vocab_size"],
        quality="\n".join(f"| {what} | {value} |" for what, value in quality(result, kind["unit"])),
        **{**kind, "use": kind["use"].format(folder=folder, sentence=sentence, beginning=beginning)},
        tokens=result["tokens"],
        steps=result["steps"],
        minutes=result["seconds"] / 60,
        machine=machine_of(history.info),
        weights=weights_sentence(result),
        beside=_beside(history.settings, second),
        sources="\n".join(map(_source_row, sources)),
        command=repeat_command(without_paths(history)),
    )
    return f"{card}\n{notes.strip()}\n" if notes.strip() else card


def _origin(start_from: str | None) -> str:
    return f"from the weights of `{Path(start_from).name}`" if start_from else "from scratch"


def map_to_teacher(config: Mapping[str, Any]) -> int:
    """The parameters of the map to the width of a teacher, which the saved model does not have."""
    return config["hidden_size"] * (config.get("teacher_size") or 0)


def _beside(settings: Mapping[str, Any], second: Sequence[Mapping[str, Any]]) -> str:
    """Sentences about the teacher and the second corpus, where a run has them."""
    said = ""
    if settings.get("teacher"):
        said += f" The objective is `{settings['objective']}`, with the teacher `{Path(settings['teacher']).name}`."
    if second:
        names = ", ".join(Path(source["name"]).name for source in second)
        said += f" {settings['general_share']:.0%} of the rows are of {names}."
    return said


def _source_row(source: Mapping[str, Any]) -> str:
    read, kept = source.get("documents"), source.get("kept", source.get("documents"))
    numbers = ("–" if count is None else f"{count:,}" for count in (kept, read))
    return f"| {Path(source['name']).name} | {' | '.join(numbers)} |"


def machine_of(info: Mapping[str, Any]) -> str:
    """The accelerator that computed a run, or the processor with its cores."""
    machine, engine = info["machine"], info["engine"]["name"]
    if engine == "mlx" and machine.get("accelerator"):
        return machine["accelerator"]
    return f"{machine['processor'] or 'a processor'} with {machine['cores']} cores, without an accelerator"


def without_paths(history: History) -> History:
    """The same run with the names of its files and folders in place of their paths."""
    settings = dict(history.settings)
    for name, value in settings.items():
        if isinstance(value, str | list):
            files = name in FILES
            values = [_without_path(one, files) for one in ([value] if isinstance(value, str) else value)]
            settings[name] = values[0] if isinstance(value, str) else values
    return dataclasses.replace(history, info={**history.info, "settings": settings})


def _without_path(value: Any, file: bool) -> Any:
    return Path(value).name if isinstance(value, str) and value and (file or Path(value).is_absolute()) else value


def write_model_card(run: RunFolder, result: Result) -> None:
    """Write RUN/model/README.md."""
    content = {**dataclasses.asdict(result), "perplexity": result.perplexity}
    with atomic_write(run.model / "README.md") as file:
        file.write(model_card(run, content, run.name, portable(run.model)))
