"""Opening a model that answers, with its tokenizer and what its answers mean.

A model that was fine-tuned here has a card. A folder of Hugging Face has none, but its config names the head, the kind
of loss and the labels (`id2label`), and from these a card can be made.
"""

from __future__ import annotations

from pathlib import Path

from glassbert.checkpoints import load
from glassbert.checkpoints.locate import MODULES, open_checkpoint
from glassbert.errors import CheckpointError, InputError
from glassbert.finetuning.card import TASK, TaskCard
from glassbert.models.model import Model
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.fill_mask import tokenizer_with

# What a sequence head answers, by its loss.
ANSWERS = {
    "cross_entropy": "multiclass",
    "binary_cross_entropy": "multilabel",
    "mean_squared_error": "regression",
    "ordinal": "ordinal",
}
COLUMNS = {"span": ("question", "context"), "embedding": ("text", "pair")}  # what such heads look at


def open_answering(
    path: str | Path, *, engine: str = "auto", precision: str = "float32", threads: int | None = None
) -> tuple[Model, Tokenizer, TaskCard]:
    """The model, tokenizer and card of a run, of a saved model, or of a Hugging Face folder with a classifier."""
    if Path(path).is_dir() and (Path(path) / "settings.json").exists() and not (Path(path) / "model").is_dir():
        raise InputError(f"the fine-tuning in {path} is not finished: go on with it, then ask its model")
    folder = open_checkpoint(path).config_path.parent
    carded = (folder / TASK).exists()
    sentences = not carded and (folder / MODULES).exists()  # a folder of sentence-transformers: an encoder that pools
    head = "embedding" if sentences else None
    model = load(folder, engine=engine, dtype=precision, threads=threads, head=head)
    card = TaskCard.load(folder) if carded else card_of_model(model, str(path))
    _check_fit(model, card, folder)
    return model, tokenizer_with(folder), card


def card_of_model(model: Model, title: str) -> TaskCard:
    """A card for a model that came without one, as far as its config tells."""
    kind = model.head.kind if model.head is not None else "core"
    length = model.config.max_position_embeddings
    if kind in COLUMNS:
        text, pair = COLUMNS[kind]
        return TaskCard(title=title, head=kind, text=text, pair=pair, max_length=length)
    if kind == "token":
        return TaskCard(title=title, head="token", words="words", labels=_labels(model), max_length=length)
    if kind != "sequence":
        what = "no head" if kind == "core" else f"a head for {kind}"
        raise CheckpointError(
            f"{title} has {what}, which answers no question about a text; make a model that does with: "
            f"glassbert finetune --model {title} --train FILE --target COLUMN"
        )
    assert model.head is not None
    head, labels = ANSWERS[model.head.loss_name], _labels(model)
    if head == "regression":
        if len(labels) > 1:
            raise CheckpointError(f"{title} gives {len(labels)} numbers for a text, and predict can show one")
        labels = ()
    if head == "multilabel" and len(labels) == 1:
        head, labels = "binary", (f"not {labels[0]}", labels[0])
    return TaskCard(title=title, head=head, text="text", labels=labels, max_length=length)


def _labels(model: Model) -> tuple[str, ...]:
    assert model.head is not None
    names = model.carried_fields.get("id2label")
    if isinstance(names, dict) and len(names) == model.head.num_labels:
        return tuple(str(names[key]) for key in sorted(names, key=int))
    return tuple(f"LABEL_{number}" for number in range(model.head.num_labels))


def _check_fit(model: Model, card: TaskCard, folder: Path) -> None:
    if model.head is None:
        raise CheckpointError(f"{folder}: {TASK} speaks of a {card.head} head, and the model has none")
    expected = {"binary": 1, "multilabel": len(card.labels), "multiclass": len(card.labels), "token": len(card.labels)}
    wanted = expected.get(card.head, model.head.num_labels)
    if wanted != model.head.num_labels:
        raise CheckpointError(
            f"{folder}: {TASK} names {len(card.labels)} labels for a {card.head} head, and the model has "
            f"{model.head.num_labels} outputs; the files do not belong together"
        )
