"""Everything a fine-tuning needs before its first step: examples in tokens, and the head that learns from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import ConfigError
from glassbert.finetuning import choosing
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.examples import Examples, encode_examples, truth_of
from glassbert.finetuning.opening import HeadChoice, is_preset, open_model, open_tokenizer
from glassbert.finetuning.reading import TaskExamples, read_examples
from glassbert.finetuning.rows import Progress
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.models.model import Model
from glassbert.tasks import Finding, TaskData
from glassbert.text.tokenizer import Tokenizer

HEAVIEST = 10.0  # a rare label counts at most so many times as much
Watching = Callable[[str], AbstractContextManager[Progress | None]]


@dataclass(frozen=True)
class Prepared:
    """Settings with every choice made, and what follows from them; the same for all seeds of a run."""

    settings: FineTuningSettings
    card: TaskCard
    train: TaskData
    dev: TaskData
    train_examples: Examples
    dev_examples: Examples
    tokenizer: Tokenizer
    head: HeadChoice
    findings: list[Finding]
    notes: list[str]

    def model(self, seed: int) -> Model:
        """A model to begin with; seeds differ in the new head and in dropout."""
        settings = self.settings
        model, _ = open_model(settings, self.head, self.tokenizer, seed)
        names = self.card.label_names
        if self.card.head == "binary":  # its one output is the second label
            names = names[1:]
        if names:
            model.carried_fields["id2label"] = {str(number): name for number, name in enumerate(names)}
        if settings.low_rank is None:
            return model
        from glassbert.finetuning.low_rank import LowRank

        alpha = settings.low_rank_alpha or 2.0 * settings.low_rank
        return LowRank(model, settings.low_rank, alpha, settings.low_rank_targets, seed)

    @property
    def fingerprint(self) -> str:
        """A checksum of what is learned and measured: a resumed run must find the same."""
        digest = hashlib.blake2b(digest_size=16)
        for one in (self.train_examples, self.dev_examples):
            digest.update(one.rows.ids.tobytes() + one.rows.starts.tobytes())
            digest.update(b"" if one.labels is None else np.ascontiguousarray(one.labels).tobytes())
        return digest.hexdigest()


def prepare(settings: FineTuningSettings, watching: Watching, tokenizer_folder: Path | None = None) -> Prepared:
    """Read the examples, open the model once to see what it is like, choose what was left open, and encode."""
    found = read_examples(settings)
    card = found.card
    texts = [*found.train.texts, *(found.train.pairs or ())]
    tokenizer = open_tokenizer(settings, texts, tokenizer_folder)
    head = choose_head(settings, found)
    model, notes = open_model(settings, head, tokenizer, settings.seed)
    config = model.config
    card = card.replace(max_length=choosing.max_length(settings, config))
    epochs = choosing.epochs(settings, len(found.train))
    settings = settings.replace(
        learning_rate=choosing.learning_rate(settings, config, len(found.train), is_preset(settings.model)),
        epochs=epochs,
        patience=choosing.patience(settings, epochs),
        max_length=card.max_length,
    )
    examples = []
    for data, name in ((found.train, "training"), (found.dev, "held-out")):
        with watching(f"Encoding {len(data):,} {name} examples") as progress:
            types = config.type_vocab_size > 1
            examples.append(encode_examples(data, tokenizer, card, token_types=types, progress=progress))
    train, dev = examples
    notes += [note for one in examples for note in one.notes]
    if card.head == "regression" and found.train.pairs is not None and config.type_vocab_size < 2:
        notes.append(
            "This encoder has no token types, so it sees the two texts of a pair as one. Where the number says how "
            "alike they are, --head embedding, which compares two vectors, learns it sooner."
        )
    windows = len(train.rows) // train.group
    if card.head != "embedding" and windows > len(train):
        notes.append(f"Long texts are cut into windows of {card.max_length} tokens: {windows:,} from {len(train):,}.")
    smoothing = settings.label_smoothing
    if smoothing and train.labels is not None and card.head in ("binary", "multilabel"):  # these may be soft
        train = replace(train, labels=train.labels * (1 - smoothing) + smoothing / 2)
    return Prepared(
        settings, card, found.train, found.dev, train, dev, tokenizer, head, found.findings, found.notes + notes
    )


def choose_head(settings: FineTuningSettings, found: TaskExamples) -> HeadChoice:
    """The head with the options of its loss, which are those of the training data."""
    card, train = found.card, found.train
    truth = truth_of(train, card)
    options: dict[str, Any] = {}
    loss = None
    if card.head == "regression":
        options = {"target_mean": [float(truth.mean())], "target_scale": [float(truth.std())]}
    elif card.head == "embedding":
        loss = settings.embedding_loss or ("contrastive" if truth is None else "cosine")
        if loss == "contrastive" and truth is not None:
            raise ConfigError(
                "a contrastive loss learns from pairs that belong together, without scores; leave --target out"
            )
        if loss == "cosine" and truth is None:
            raise ConfigError("a cosine loss needs scores of similarity: say with --target where they are")
    if settings.class_weights == "balanced":
        options |= _balanced(card, truth)
    if settings.focal_gamma:
        options["focal_gamma"] = settings.focal_gamma
    if settings.label_smoothing and card.head not in ("binary", "multilabel"):
        options["label_smoothing"] = settings.label_smoothing
    return HeadChoice(card.head, len(card.labels) or (1 if card.head == "regression" else None), loss, options)


def _balanced(card: TaskCard, truth: Any) -> dict[str, Any]:
    """Weights by which every label counts as much as every other, within limits."""
    count = len(card.labels)
    if card.head in ("multiclass", "token"):
        counts = np.bincount(np.concatenate(truth) if card.head == "token" else truth, minlength=count)
        weights = counts.sum() / (count * np.maximum(counts, 1))
        return {"class_weights": np.clip(weights, 1 / HEAVIEST, HEAVIEST).tolist()}
    if card.head in ("binary", "multilabel"):
        positive = np.asarray(truth, np.float64).reshape(len(truth), -1).sum(0)
        weights = (len(truth) - positive) / np.maximum(positive, 1)
        return {"positive_weights": np.clip(weights, 1 / HEAVIEST, HEAVIEST).tolist()}
    raise ConfigError(f"class_weights are for labels without an order, which the head {card.head} has not")
