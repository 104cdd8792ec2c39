"""The contestants of `benchmarks.family`, and the training of one of them.

All have about 3 M parameters: BERT's three layers of 192 with 8,192 pieces and tied embeddings. A member that needs
other fields for this has them here as data. Everything else is its recipe, as in `glassbert pretrain --family`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassbert.checkpoints.family import FAMILIES
from glassbert.errors import TrainingError
from glassbert.training.display import Display
from glassbert.training.history import read_result
from glassbert.training.run_folder import RunFolder
from glassbert.training.settings import TrainingSettings
from glassbert.training.trainer import Trainer

LENGTH = 64  # tokens in a row
BATCH = 32  # rows in a step: in few minutes on a CPU, more and smaller steps learn faster
EVALUATION_ROWS, FINAL_ROWS = 256, 1_024
TRIAL_MINUTES, TRIAL_ROWS = 3.0, 64  # a shorter run is a trial, with fewer rows in its evaluations


@dataclass(frozen=True)
class Contestant:
    """A family, what differs from its Mini size and from its recipe, and why."""

    family: str
    objective: str = "mlm"
    model: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    title: str = ""  # of the family, if it is empty

    def settings(self, corpus: str | Path, minutes: float, **options: Any) -> TrainingSettings:
        return TrainingSettings.from_dict(
            {
                "family": self.family,
                "corpus": (str(corpus),),
                "objective": self.objective,
                "length": LENGTH,
                "batch": BATCH,
                "minutes": minutes,
                "evaluation_rows": TRIAL_ROWS if minutes < TRIAL_MINUTES else EVALUATION_ROWS,
                "final_evaluation_rows": FINAL_ROWS,
                "model": dict(self.model),
                **self.recipe,
                **options,
            }
        )


CONTESTANTS: dict[str, Contestant] = {
    "bert": Contestant(
        "bert",
        model={"tie_word_embeddings": True, "activation": "gelu", "type_vocab_size": 2},
        note="as published: tied, GELU, two token types; without next sentences",
    ),
    "roberta": Contestant("roberta", note="pieces of the common WordPiece vocabulary"),
    "distilbert": Contestant("distilbert", note="without a teacher: BERT without token types"),
    "albert": Contestant(
        "albert",
        model={"hidden_size": 384, "embedding_size": 128, "num_attention_heads": 6, "intermediate_size": 1_536},
        recipe={"masking": "tokens"},
        note="one layer of 384, applied three times; without sentence order",
    ),
    "mpnet": Contestant("mpnet", note="masked words only"),
    "electra": Contestant(
        "electra", "rtd", model={"embedding_size": 192}, note="the discriminator; the generator has 0.1 M more"
    ),
    "deberta": Contestant("deberta", title="DeBERTa v2"),
    "deberta-rtd": Contestant(
        "deberta", "rtd", note="the discriminator; the generator has 2.0 M more", title="DeBERTa v3"
    ),
    "gpt2": Contestant("gpt2", "clm"),
    "xlnet": Contestant("xlnet", "plm", note="two segments in a row"),
    "longformer": Contestant(
        "longformer",
        model={"max_position_embeddings": LENGTH + 1, "local_window": 16},
        note="windows of 16 on each side; 0.3 M of global attention learn only in fine-tuning",
    ),
    "modernbert": Contestant("modernbert", model={"intermediate_size": 512}),
}


def names_of(text: str | None) -> list[str]:
    """The contestants in a list with commas, all without one; raises `ValueError` with those that there are."""
    names = [name.strip() for name in text.split(",")] if text else list(CONTESTANTS)
    if unknown := [name for name in names if name not in CONTESTANTS]:
        raise ValueError(f"no contestant is named {', '.join(unknown)}; there are {', '.join(CONTESTANTS)}")
    return list(dict.fromkeys(names))


def title_of(name: str) -> str:
    contestant = CONTESTANTS[name]
    return contestant.title or FAMILIES[contestant.family].title


def train(
    name: str, corpus: Path, folder: Path, minutes: float, display: Display | None = None, **options: Any
) -> dict[str, Any]:
    """Train one contestant in FOLDER/NAME, or continue it; returns its result. A finished one is left as it is."""
    run = RunFolder(folder / name)
    if (result := read_result(run)) is not None:
        return result
    if run.settings_file.exists():
        begun = run.read_settings()["settings"]["minutes"]
        if begun != minutes:
            raise TrainingError(f"{run.path} was begun with {begun:g} minutes; continue it with --minutes {begun:g}")
        trainer = Trainer.resume(run.path, display=display)
    else:
        settings = CONTESTANTS[name].settings(corpus, minutes, **options)
        trainer = Trainer(settings, run.path, display=display)
    if trainer.train().stopped == "interrupted":
        raise KeyboardInterrupt
    found = read_result(run)
    assert found is not None
    return found
