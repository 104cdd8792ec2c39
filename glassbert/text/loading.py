"""Loading a model together with its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glassbert.checkpoints import load
from glassbert.checkpoints.locate import open_checkpoint
from glassbert.errors import InputError
from glassbert.files import verifying
from glassbert.models.model import Model
from glassbert.text.fast import FastTokenizer, load_tokenizer

FILES = ("tokenizer.json", "vocab.txt")


def load_with_tokenizer(path: str | Path, **options: Any) -> tuple[Model, FastTokenizer]:
    """The model and the tokenizer of a run, a model folder, a `.safetensors` file or a hub id.

    `options` are those of `glassbert.load`: head, engine, dtype, threads.
    """
    model = load(path, **options)
    local = Path(path).expanduser()
    tokenizer = find_tokenizer(local if local.is_dir() else open_checkpoint(path).config_path.parent)
    check_together(model, tokenizer, path)
    return model, tokenizer


def check_together(model: Model, tokenizer: FastTokenizer, path: str | Path) -> None:
    """Raise if a tokenizer gives ids that the model does not have, or other padding than it was trained with."""
    config = model.config
    if config.series is not None:
        return
    if tokenizer.vocab_size > config.vocab_size:
        raise InputError(
            f"the tokenizer of {path} ({tokenizer.kind}) has {tokenizer.vocab_size:,} entries, but the model "
            f"({config.family}) has a vocabulary of {config.vocab_size:,}; they belong to different models"
        )
    if verifying() and config.pad_token_id is not None and tokenizer.pad_id != config.pad_token_id:
        raise InputError(
            f"the tokenizer of {path} pads with the id {tokenizer.pad_id}, but its config.json has pad_token_id "
            f"{config.pad_token_id}: they belong to different models. --no-verify uses them all the same"
        )


def find_tokenizer(path: str | Path) -> FastTokenizer:
    """The tokenizer of a local model folder, of a run, or of the run that a checkpoint folder belongs to."""
    path = Path(path)
    for folder in (path / "model", path, path / "tokenizer", *(parent / "tokenizer" for parent in path.parents[:2])):
        if any((folder / name).exists() for name in FILES):
            return load_tokenizer(folder)
    raise InputError(f"{path} has no tokenizer: neither {FILES[0]} nor {FILES[1]} was found there or in its run folder")


def same_vocabulary(path: str | Path, tokenizer: Any) -> bool:
    """Whether the model in a run or a folder was trained with these tokens; True where it has no tokenizer."""
    try:
        own = find_tokenizer(open_checkpoint(path).config_path.parent)
    except InputError:
        return True
    return own.vocabulary == tokenizer.vocabulary
