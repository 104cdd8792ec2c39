"""A model to look into, with its tokenizer and its run, and the same model before it learned anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from glassbert.models.model import Model
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.run_folder import RunFolder


@dataclass(frozen=True)
class Opened:
    """A model and all that is known of it.

    `run` made it; `labels` are the names of its answers and `temperature` makes their chances honest, where a task card
    or config tells.
    """

    name: str
    model: Model
    tokenizer: Tokenizer
    run: RunFolder | None = None
    labels: tuple[str, ...] = ()
    temperature: float = 1.0

    @property
    def longest(self) -> int:
        """How many tokens it reads at once."""
        return self.model.config.max_position_embeddings


def open_model(path: str | Path, engine: str = "auto", name: str = "") -> Opened:
    """A run, a saved model or a Hugging Face folder, with the head it was saved with; every kind of head will do."""
    from glassbert.text.loading import load_with_tokenizer

    model, tokenizer = load_with_tokenizer(path, engine=engine)
    folder = Path(path)
    run = RunFolder(folder) if (folder / "settings.json").exists() else None
    return Opened(name or _name_of(folder), model, tokenizer, run, *_answers(folder, model))


def untrained(opened: Opened, name: str = "untrained") -> Opened:
    """The same model before its first step: fresh weights, of the run's own seed where it is known."""
    seed = 0
    if opened.run is not None:
        seed = int(opened.run.read_settings()["settings"].get("seed", 0))
    return Opened(name, opened.model.untrained(seed), opened.tokenizer)


def _name_of(folder: Path) -> str:
    folder = folder.absolute() if folder.name else folder.resolve()
    return folder.parent.name if folder.name == "model" else folder.name


def _answers(folder: Path, model: Model) -> tuple[tuple[str, ...], float]:
    """Labels and temperature: from the task card of a model that was fine-tuned here, else labels from its config."""
    from glassbert.finetuning.card import TASK, TaskCard

    if any((place / TASK).exists() for place in (folder, folder / "model")):
        card = TaskCard.load(folder)
        return card.label_names, card.temperature or 1.0
    names = model.carried_fields.get("id2label") or {}
    return tuple(str(names[key]) for key in sorted(names, key=int)), 1.0
