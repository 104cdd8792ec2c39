"""Inputs of every insight: a loaded model with its tokenizer, and texts as padded batches or as masked batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import InputError, TextError
from glassbert.models.model import Model
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.run_folder import RunFolder

BATCH_ROWS = 16  # attention maps of more rows would fill the memory
BATCH_POSITIONS = 2_048


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer.

    run          the folder of the run that trained it, if known
    labels       the names of its classes, from the task card or the config
    temperature  the logits are divided by it before they become probabilities (calibration of the task card)
    """

    name: str
    model: Model
    tokenizer: Tokenizer
    run: RunFolder | None = None
    labels: tuple[str, ...] = ()
    temperature: float = 1.0

    @property
    def max_length(self) -> int:
        """The longest input in tokens, special tokens included."""
        return self.model.config.max_length


def open_model(path: str | Path, engine: str = "auto", name: str = "") -> LoadedModel:
    """Load a run, a saved model or a Hugging Face folder, with the head it was saved with, of any kind."""
    from glassbert.text.loading import load_with_tokenizer

    model, tokenizer = load_with_tokenizer(path, engine=engine)
    folder = Path(path)
    run = RunFolder(folder) if (folder / "settings.json").exists() else None
    labels, temperature = _labels_and_temperature(folder, model)
    return LoadedModel(name or _name_of(folder), model, tokenizer, run, labels, temperature)


def untrained(loaded: LoadedModel, name: str = "untrained") -> LoadedModel:
    """The same model with its initial weights: from the seed of the run, or seed 0 if there is no run."""
    seed = 0
    if loaded.run is not None:
        seed = int(loaded.run.read_settings()["settings"].get("seed", 0))
    return LoadedModel(name, loaded.model.untrained(seed), loaded.tokenizer)


def _name_of(folder: Path) -> str:
    folder = folder.absolute() if folder.name else folder.resolve()
    return folder.parent.name if folder.name == "model" else folder.name


def _labels_and_temperature(folder: Path, model: Model) -> tuple[tuple[str, ...], float]:
    """From the task card if the model was fine-tuned with GlassBERT; otherwise the labels of the config and 1."""
    from glassbert.finetuning.card import TASK, TaskCard

    if any((path / TASK).exists() for path in (folder, folder / "model")):
        card = TaskCard.load(folder)
        return card.label_names, card.temperature or 1.0
    names = model.carried_fields.get("id2label") or {}
    return tuple(str(names[key]) for key in sorted(names, key=int)), 1.0


# ---- batches ----


@dataclass(frozen=True)
class TextBatch:
    """Texts as one padded batch, [B, T]. `words` is True on tokens of the text: not on [CLS], [SEP] or padding."""

    ids: np.ndarray
    mask: np.ndarray
    words: np.ndarray


def read_rows(loaded: LoadedModel, texts: Sequence[str], batch_size: int = BATCH_ROWS) -> list[TextBatch]:
    """Tokenize texts into batches. Texts longer than the model's input are truncated."""
    if not len(texts):
        raise InputError("the list of texts is empty; give at least one text")
    encodings = loaded.tokenizer.encode_batch(list(texts), max_length=loaded.max_length)
    return [pad_rows(loaded.tokenizer, part) for part in _group(encodings, batch_size)]


def pad_rows(tokenizer: Tokenizer, encodings: Sequence[Any]) -> TextBatch:
    """Encodings of texts as one padded batch."""
    width = max(len(encoding) for encoding in encodings)
    padded = [encoding.padded(width, "", tokenizer.pad_id) for encoding in encodings]
    mask = np.array([row.attention_mask for row in padded], np.int64)
    is_text = np.array([row.special_tokens_mask for row in padded]) == 0
    return TextBatch(np.array([row.ids for row in padded], np.int64), mask, (mask == 1) & is_text)


def masked_batches(loaded: LoadedModel, texts: Sequence[str], seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Batches for `model.loss` with 15 % of the tokens masked; the same seed masks the same tokens.

    A causal model predicts every token. Only for models that predict words; other heads need labels.
    """
    from glassbert.text.masking import mask_tokens

    head, tokenizer = loaded.model.head, loaded.tokenizer
    if head is None or not {"mlm", "causal"} & set(head.parts):
        raise InputError(f"{loaded.name} predicts no words, so text without labels gives no loss")
    batches = []
    for number, batch in enumerate(read_rows(loaded, texts)):
        if "causal" in head.parts:
            labels = np.where(batch.mask == 1, batch.ids, -100)
            batches.append({"input_ids": batch.ids, "labels": labels, "attention_mask": batch.mask})
            continue
        size = loaded.model.config.vocab_size
        masked = mask_tokens(batch.ids, tokenizer.mask_id, size, special_ids=tokenizer.special_ids, seed=seed + number)
        batches.append({"input_ids": masked.input_ids, "labels": masked.targets, "attention_mask": batch.mask})
    return batches


def _group(encodings: Sequence[Any], batch_size: int) -> list[list[Any]]:
    """Consecutive encodings in groups of at most `batch_size` texts and BATCH_POSITIONS padded positions."""
    groups: list[list[Any]] = []
    width = 0
    for encoding in encodings:
        width = max(width, len(encoding))
        full = not groups or len(groups[-1]) >= batch_size or width * (len(groups[-1]) + 1) > BATCH_POSITIONS
        if full:
            groups.append([])
            width = len(encoding)
        groups[-1].append(encoding)
    return groups


# ---- texts ----


def read_texts(path: str | Path, limit: int = 256) -> list[str]:
    """At most `limit` texts: lines of a text file, sentences of a CoNLL-U file, or held-out sentences of a corpus."""
    from glassbert.tasks.conll import read_conllu
    from glassbert.tasks.table import read_lines

    path = Path(path)
    if path.is_dir():
        return _held_out(path, limit)
    if ".conllu" in path.suffixes:
        return read_conllu(path).column("text")[:limit]
    texts = [line.strip() for line in read_lines(path) if line.strip()]
    if not texts:
        raise TextError(f"{path} contains no text; every line is empty")
    return texts[:limit]


def _held_out(folder: Path, limit: int) -> list[str]:
    """Decoded sentences of the validation split, evenly spaced."""
    from glassbert.text.corpus import Corpus

    corpus = Corpus.open(folder)
    shards = [shard for shard in corpus.split("validation").shards if len(shard.sentence_ends)]
    if not shards:
        raise TextError(f"the validation split of the corpus {folder} is empty; name another corpus or a text file")
    ends = [np.asarray(shard.sentence_ends).astype(np.int64) for shard in shards]
    total = sum(len(one) for one in ends)
    texts = []
    for number in np.unique(np.linspace(0, total - 1, min(limit, total)).astype(int)):
        for shard, sentence_ends in zip(shards, ends, strict=True):
            if number < len(sentence_ends):
                begin = sentence_ends[number - 1] if number else 0
                ids = np.asarray(shard.tokens[begin : sentence_ends[number]])
                texts.append(corpus.tokenizer.decode(ids.tolist()))
                break
            number -= len(sentence_ends)
    return [text for text in texts if text.strip()]
