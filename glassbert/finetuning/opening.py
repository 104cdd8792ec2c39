"""The model to begin with: an encoder somebody trained, with the head that the task needs on top.

Whatever `glassbert.load` opens will do. Its encoder is taken over; its head as well, where it answers the same kind of
question with the same number of labels, and otherwise a new one begins at random. The name of a preset stands for an
encoder whose weights are random too.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints import load
from glassbert.checkpoints.family import PRESETS
from glassbert.checkpoints.locate import open_checkpoint
from glassbert.errors import InputError, TextError, TrainingError
from glassbert.families.bert import BertWithHead
from glassbert.families.factory import HEAD_TYPES
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.models.config import EncoderConfig
from glassbert.models.heads import with_pooling
from glassbert.models.model import Model
from glassbert.text import FastTokenizer, Tokenizer, WordPieceTokenizer
from glassbert.training.fill_mask import tokenizer_with
from glassbert.training.recipes import DROPOUTS

USUAL_DROPOUT = 0.1
VOCABULARIES = (8_192, 4_096, 2_048, 1_024, 512, 256, 128, 64)  # of the task's own tokenizer: the largest that fits


@dataclass(frozen=True)
class HeadChoice:
    """The head of a task: a name of `HEAD_TYPES`, its labels, and the options of its loss."""

    name: str
    num_labels: int | None = None
    loss: str | None = None
    loss_options: Mapping[str, Any] | None = None

    def as_options(self) -> dict[str, Any]:
        """As `load` and `BertWithHead` take them; a binary head has one output, whatever its labels."""
        known = dict(HEAD_TYPES[self.name])
        labels = known.pop("num_labels", self.num_labels)
        return {
            "head": known["head_type"],
            "num_labels": labels,
            "loss": self.loss or known.get("loss"),
            "loss_options": dict(self.loss_options or {}) or None,
        }


def is_preset(model: str) -> bool:
    return model in PRESETS and not Path(model).exists()


def open_model(
    settings: FineTuningSettings, head: HeadChoice, tokenizer: Tokenizer, seed: int = 0
) -> tuple[Model, list[str]]:
    """A model ready to be trained, and notes about what is new in it."""
    machine = {"engine": settings.engine, "dtype": settings.precision, "threads": settings.threads, "seed": seed}
    options = head.as_options()
    if is_preset(settings.model):
        config = PRESETS[settings.model].replace(vocab_size=tokenizer.vocab_size, pad_token_id=tokenizer.pad_id)
        notes = [f"All weights of {settings.model} begin at random: a pretrained encoder would do better."]
        return _made(_as_asked(config, settings, options["head"], new_head=True), options, machine), notes
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = load(settings.model, pooling=settings.pooling, **options, **machine)  # type: ignore[arg-type]
    notes = [f"{str(warning.message)[0].upper()}{str(warning.message)[1:]}." for warning in caught]
    bad = [name for name, a in found.parameters.items() if not np.isfinite(found.engine.to_numpy(a)).all()]
    if bad:
        raise TrainingError(f"{settings.model} has numbers that are not finite, in {bad[0]}; nothing to build on")
    if tokenizer.vocab_size > found.config.vocab_size:
        raise InputError(
            f"the tokenizer has {tokenizer.vocab_size:,} entries and the model {found.config.vocab_size:,}; "
            "they do not belong together: say with --tokenizer which one does"
        )
    model = _made(_as_asked(found.config, settings, options["head"], new_head=bool(caught)), options, machine)
    for name, values in found.parameters.items():
        if name in model.parameters:
            model.parameters[name] = values
    model.carried_fields = {key: value for key, value in found.carried_fields.items() if "label" not in key}
    return model, notes


def _made(config: EncoderConfig, options: Mapping[str, Any], machine: Mapping[str, Any]) -> Model:
    rest = {name: options[name] for name in ("loss", "loss_options")}
    return BertWithHead(config, options["head"], options["num_labels"] or 0, **rest, **machine)


def _as_asked(config: EncoderConfig, settings: FineTuningSettings, head: str, new_head: bool) -> EncoderConfig:
    """The config with the dropout of fine-tuning, and for a new head the pooling that suits the encoder.

    An encoder that was pretrained without dropout does not bear it now: a Mini-BERT learned nothing with 0.1. The head
    is new and does. [CLS] says something where a pooler was trained on it; elsewhere the mean over all tokens is the
    better beginning.
    """
    if settings.dropout is None:
        config = config.replace(classifier_dropout=config.classifier_dropout or USUAL_DROPOUT)
    else:
        config = config.replace(**dict.fromkeys((*DROPOUTS, "classifier_dropout"), settings.dropout))
    if head != "sequence" or not new_head:
        return config
    pooling = settings.pooling or ("cls" if config.pooler or config.family == "modernbert" else "mean")
    return with_pooling(config, pooling)


def open_tokenizer(settings: FineTuningSettings, texts: Sequence[str], keep: Path | None = None) -> Tokenizer:
    """The tokenizer of the model; for a preset, one that is learnt from the task's own texts."""
    if settings.tokenizer:
        return FastTokenizer.load(settings.tokenizer)
    if keep is not None and keep.is_dir():
        return FastTokenizer.load(keep)
    if not is_preset(settings.model):
        return tokenizer_with(open_checkpoint(settings.model).config_path.parent)
    for size in VOCABULARIES:
        try:
            return WordPieceTokenizer.train(texts, size, min_frequency=1)
        except TextError:
            continue
    raise InputError(
        "the texts are too few to learn a vocabulary from; begin with a pretrained model, or give a --tokenizer"
    )
