"""The model card: a README.md in the model folder, with use, quality, training data and the command to repeat it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from glassbert.files import atomic_write
from glassbert.training.history import History
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

A {what} of {parameters:,} parameters, trained from scratch with GlassBERT: {layers} layers of {hidden},
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
| loss (nats per {unit}) | {loss:.4f} |
| perplexity | {perplexity:,.2f} |
| {unit}s predicted correctly | {accuracy:.2%} |

Held-out documents were not used for training. {targets}

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


# What a card says, by whether the model is causal.
WORDS = {
    False: {
        "pipeline": "fill-mask",
        "tag": "masked-language-model",
        "what": "masked language model",
        "unit": "masked token",
        "use": 'glassbert fill-mask {folder} "{sentence}"',
        "targets": "15% of their tokens were masked, always the same ones.",
    },
    True: {
        "pipeline": "text-generation",
        "tag": "causal-language-model",
        "what": "causal language model",
        "unit": "token",
        "use": 'glassbert generate {folder} "{beginning}"',
        "targets": "Every token is predicted from those before it in its document.",
    },
}


def write_model_card(run: RunFolder, result: Result) -> None:
    """Write RUN/model/README.md."""
    history = History.read(run)
    config = history.info["model"]["config"]
    sources = history.info["data"].get("sources") or [{"name": "not recorded"}]
    sentence = history.settings["sentence"] or "The [MASK] is blue."
    words = dict(WORDS[config.get("causal", False)])
    words["use"] = words["use"].format(
        folder=run.model, sentence=sentence, beginning=sentence.partition("[MASK]")[0].strip()
    )
    card = CARD.format(
        **words,
        family=config.get("family", "bert"),
        name=run.name,
        folder=run.model,
        parameters=history.info["model"]["parameters"],
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        vocabulary=config["vocab_size"],
        loss=result.loss if result.loss is not None else math.nan,
        perplexity=result.perplexity if result.perplexity is not None else math.nan,
        accuracy=result.accuracy if result.accuracy is not None else math.nan,
        tokens=result.tokens,
        steps=result.steps,
        minutes=result.seconds / 60,
        machine=history.info["machine"]["processor"],
        sources="\n".join(f"| {source['name']} | {source.get('documents', '')} |" for source in sources),
        command=repeat_command(history),
    )
    with atomic_write(run.model / "README.md") as file:
        file.write(card)
