"""The model and tokenizer that fine-tuning starts from.

The encoder comes from anything that `glassbert.load` opens, or is a preset with random weights. The head is kept if it
has the same type and number of labels; otherwise a new one is initialised at random.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints import load
from glassbert.checkpoints.family import PRESETS
from glassbert.checkpoints.locate import open_checkpoint
from glassbert.errors import InputError, TextError, TrainingError
from glassbert.families.bert import BertWithHead
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import resolve_head, with_pooling
from glassbert.models.model import Model
from glassbert.models.numbers import NumbersConfig
from glassbert.models.quantized import QuantizedModel, quantized_parameters
from glassbert.text import FastTokenizer, Tokenizer, WordPieceTokenizer
from glassbert.text.loading import find_tokenizer
from glassbert.training.recipes import DROPOUTS

HEAD_DROPOUT = 0.1
OF_NUMBERS = ("embeddings.number",)  # parameters that belong to the columns of one table
VOCABULARY_SIZES = (8_192, 4_096, 2_048, 1_024, 512, 256, 128, 64)  # the largest that the texts allow is used


@dataclass(frozen=True)
class HeadChoice:
    """The head of a task: a name in `head_names()`, the number of labels, and the options of its loss."""

    name: str
    num_labels: int | None = None
    loss: str | None = None
    loss_options: Mapping[str, Any] | None = None
    kind: str | None = None  # another class than the one that the name implies

    def as_options(self) -> dict[str, Any]:
        """Arguments for `load` and `BertWithHead`. A binary head has one output for its two labels."""
        kind, labels, loss = resolve_head(self.name, self.num_labels, None)
        return {
            "head": self.kind or kind,
            "num_labels": labels,
            "loss": self.loss or loss,
            "loss_options": dict(self.loss_options or {}) or None,
        }


@dataclass(frozen=True)
class TableNumbers:
    """The numbers of a table: the knots of its columns, and their names as words."""

    config: NumbersConfig
    names: tuple[str, ...]


def has_token_types(settings: FineTuningSettings) -> bool:
    """Whether the encoder was made to read two texts in one sequence."""
    if settings.from_scratch:
        return PRESETS[settings.preset].type_vocab_size > 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a random pooler, which is not used
        return load(settings.model, head="core").config.type_vocab_size > 1


def build_model(
    settings: FineTuningSettings,
    head: HeadChoice,
    tokenizer: Tokenizer,
    seed: int = 0,
    numbers: TableNumbers | None = None,
) -> tuple[Model, list[str]]:
    """The model to train, and notes about its randomly initialised parts. `numbers`: columns between the words."""
    device = {"engine": settings.engine, "dtype": settings.precision, "threads": settings.threads, "seed": seed}
    options = head.as_options()
    if settings.from_scratch:
        config = PRESETS[settings.preset]
        ids = {"vocab_size": tokenizer.vocab_size, "pad_token_id": tokenizer.pad_id}
        if config.sep_token_id is not None:
            ids["sep_token_id"] = tokenizer.sep_id
        config = config.replace(**ids)
        notes = [f"All weights of {settings.preset} begin at random: a pretrained encoder would do better."]
        config = _with_settings(_with_numbers(config, numbers), settings, options["head"], new_head=True)
        model = _new_model(config, options, device)
        _start_numbers(model, numbers, tokenizer)
        return model, notes
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = load(settings.model, pooling=settings.pooling, **options, **device)  # type: ignore[arg-type]
    kept = quantized_parameters(found) if settings.low_rank is not None else {}
    if isinstance(found, QuantizedModel) and not kept:
        found = found.in_floats()  # all weights are trained, from what the codes stand for
    notes = [f"{warning.message}." for warning in caught]  # each begins with the name of the model, as it was given
    bad = [name for name, a in found.parameters.items() if not np.isfinite(found.engine.to_numpy(a)).all()]
    if bad:
        raise TrainingError(f"{settings.model} has weights that are not finite, in {bad[0]}; use another model")
    if tokenizer.vocab_size > found.config.vocab_size:
        raise InputError(
            f"the tokenizer has {tokenizer.vocab_size:,} entries and the model {found.config.vocab_size:,}: "
            "they do not belong together; give the right one with --tokenizer"
        )
    config = _with_settings(_with_numbers(found.config, numbers), settings, options["head"], new_head=bool(caught))
    model = _new_model(config, options, device)
    for name, values in found.parameters.items():
        same = name not in OF_NUMBERS or found.config.numbers == config.numbers
        if name in model.parameters and same:
            model.parameters[name] = values
    if found.config.numbers != config.numbers:
        _start_numbers(model, numbers, tokenizer)
    model.carried_fields = {key: value for key, value in found.carried_fields.items() if "label" not in key}
    return QuantizedModel(model, kept) if kept else model, notes


def _with_numbers(config: EncoderConfig, numbers: TableNumbers | None) -> EncoderConfig:
    """The config with these numbers between its words, and without those of an earlier task."""
    if config.numbers is None and numbers is None:
        return config
    if numbers is None:
        return config.replace(embeddings="tokens", numbers=None)
    return config.replace(embeddings="numbers", numbers=numbers.config)


def _start_numbers(model: Model, numbers: TableNumbers | None, tokenizer: Tokenizer) -> None:
    """Let the vectors of a column begin as the mean of the vectors of the words of its name.

    A number is the token [MASK] plus the vector of the number, so that of [MASK] is subtracted.
    """
    if numbers is None:
        return
    to_numpy = model.engine.to_numpy
    table = np.array(to_numpy(model.parameters["embeddings.token"]), np.float32)
    steps = np.array(to_numpy(model.parameters["embeddings.number"]), np.float32)
    for column, name in enumerate(numbers.names):
        pieces = np.asarray(tokenizer.encode_ids([name])[0], np.int64)
        start = (table[pieces].mean(0) if len(pieces) else 0.0) - table[tokenizer.mask_id]
        steps[column, 0] += start  # of all knots, which are sums of steps
        steps[column, -1] += start  # of a missing value
    model.parameters["embeddings.number"] = model.engine.array(steps)


def _new_model(config: EncoderConfig, options: Mapping[str, Any], device: Mapping[str, Any]) -> Model:
    rest = {name: options[name] for name in ("loss", "loss_options")}
    return BertWithHead(config, options["head"], options["num_labels"] or 0, **rest, **device)


def _with_settings(config: EncoderConfig, settings: FineTuningSettings, head: str, new_head: bool) -> EncoderConfig:
    """The config with the dropout for fine-tuning and, for a new head, a pooling that suits the encoder.

    Without --dropout the encoder keeps its own dropout and only the head gets `HEAD_DROPOUT`: a Mini-BERT pretrained
    without dropout learned nothing with 0.1 in the encoder. A new head pools [CLS] if the encoder has a pooler or its
    heads have a transform, else the mean over all tokens; also for a table, whose columns are tokens of equal rank.
    """
    if settings.dropout is None:
        config = config.replace(classifier_dropout=config.classifier_dropout or HEAD_DROPOUT)
    else:
        config = config.replace(**dict.fromkeys((*DROPOUTS, "classifier_dropout"), settings.dropout))
    if head != "sequence" or not new_head:
        return config
    trained_cls = config.pooler or config.classifier_transform
    pooling = settings.pooling or ("cls" if trained_cls and config.numbers is None else "mean")
    return with_pooling(config, pooling)


def open_tokenizer(settings: FineTuningSettings, texts: Sequence[str], saved: Path | None = None) -> Tokenizer:
    """The tokenizer of the model; for a preset, one trained on `texts`. A resumed run has it in the folder `saved`."""
    if settings.tokenizer:
        return FastTokenizer.load(settings.tokenizer)
    if saved is not None and saved.is_dir():
        return FastTokenizer.load(saved)
    if not settings.from_scratch:
        return find_tokenizer(open_checkpoint(settings.model).config_path.parent)
    for size in VOCABULARY_SIZES:
        with suppress(TextError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trained = WordPieceTokenizer.train(texts, size, min_frequency=1)
            if trained.vocab_size == size:
                return trained
    raise InputError("there are too few texts to train a tokenizer; use a pretrained model, or give a --tokenizer")
