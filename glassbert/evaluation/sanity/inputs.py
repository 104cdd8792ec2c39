"""What the checks ask with: random rows, a model as it stands, and its twin in float64."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from glassbert.engines import get_engine
from glassbert.evaluation.subject import Subject
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model

SHORT, LONG = 12, 24  # tokens
ROWS = 4


def ordinary_tokens(subject: Subject) -> np.ndarray:
    """Ids that stand for text, known to both the tokenizer and the model."""
    size = min(subject.model.config.vocab_size, subject.tokenizer.vocab_size)
    return np.setdiff1d(np.arange(size), subject.tokenizer.special_ids)


def random_rows(subject: Subject, rows: int = ROWS, length: int = LONG, seed: int = 0) -> np.ndarray:
    """[rows, length] random words between [CLS] and [SEP]."""
    generator = np.random.default_rng(seed)
    ids = generator.choice(ordinary_tokens(subject), (rows, min(length, subject.longest)))
    ids[:, 0], ids[:, -1] = subject.tokenizer.cls_id, subject.tokenizer.sep_id
    return ids


def masked_rows(subject: Subject, rows: int = ROWS, length: int = LONG, seed: int = 0) -> dict[str, np.ndarray]:
    """Random rows of which every fourth word is hidden and asked for."""
    ids = random_rows(subject, rows, length, seed)
    labels = np.full(ids.shape, -100)
    asked = np.arange(1, ids.shape[1] - 1, 4)
    labels[:, asked] = ids[:, asked]
    ids[:, asked] = subject.tokenizer.mask_id
    return {"input_ids": ids, "labels": labels}


def hidden_states(model: Model, ids: np.ndarray, skip_padding: bool = False, **inputs: Any) -> np.ndarray:
    """What the encoder gives for these inputs, in the state the model is in: nothing is switched on or off."""
    checked = check_inputs(model.config, ids, **inputs)
    hidden = model.run(checked, dropout=model.draw_dropout(), inference=True, skip_padding=skip_padding).encode()
    return np.asarray(model.engine.to_numpy(hidden), np.float64)


def in_float64(model: Model) -> Model:
    """The same model, whatever was done to it, computing in float64 on NumPy: there a difference is no rounding."""
    twin = copy.copy(model)
    twin.engine = get_engine("numpy", "float64", getattr(model.engine, "threads", None))
    twin.parameters = twin.engine.parameters(model.layout)
    for name, array in model.parameters.items():
        twin.parameters[name] = np.asarray(model.engine.to_numpy(array), np.float64)
    twin._prepare_sharing()
    return twin
