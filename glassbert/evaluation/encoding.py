"""Run the encoder of a subject: random or masked rows, the last hidden states, and the states of all layers.

Layer 0 is the output of the embeddings, layer i that of block i; the last one is after the final norm, if there is one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from glassbert.engines import get_engine
from glassbert.evaluation.subject import Subject
from glassbert.layers.registry import ATTENTIONS
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model
from glassbert.text.buckets import batches_by_length
from glassbert.training.evaluate import evaluation_mode

SHORT, LONG = 12, 24  # tokens
ROWS = 4
BATCH_TOKENS = 8192

OnProgress = Callable[[int, int], None]  # done, total


def ordinary_tokens(subject: Subject) -> np.ndarray:
    """Ids of non-special tokens that both the tokenizer and the model have."""
    size = min(subject.model.config.vocab_size, subject.tokenizer.vocab_size)
    return np.setdiff1d(np.arange(size), subject.tokenizer.special_ids)


def random_rows(subject: Subject, rows: int = ROWS, length: int = LONG, seed: int = 0) -> np.ndarray:
    """[rows, length] random tokens between [CLS] and [SEP]."""
    generator = np.random.default_rng(seed)
    ids = generator.choice(ordinary_tokens(subject), (rows, min(length, subject.max_length)))
    ids[:, 0], ids[:, -1] = subject.tokenizer.cls_id, subject.tokenizer.sep_id
    return ids


def masked_rows(subject: Subject, rows: int = ROWS, length: int = LONG, seed: int = 0) -> dict[str, np.ndarray]:
    """Random rows with every fourth token masked, and their labels; for a causal model every token is a label.

    With them come the inputs that let every weight of the attention take part.
    """
    ids = random_rows(subject, rows, length, seed)
    kind = ATTENTIONS[subject.model.config.attention]
    labels = ids.copy()
    if not subject.predicts_next:
        masked = np.arange(ids.shape[1]) % 4 == 1
        masked[-1] = False
        labels[:, ~masked] = -100
        ids[:, masked] = subject.tokenizer.mask_id
    return {"input_ids": ids, "labels": labels, **kind.inputs_for_missing(labels != -100), **kind.full_inputs(ids)}


def encoder_output(model: Model, ids: np.ndarray, skip_padding: bool = False, **inputs: Any) -> np.ndarray:
    """The last hidden states, float64. The mode of the model (training or evaluation) is left as it is."""
    checked = model.check(ids, **inputs)
    hidden = model.run(checked, dropout=model.draw_dropout(), inference=True, skip_padding=skip_padding).encode()
    return np.asarray(model.engine.to_numpy(hidden), np.float64)


def in_float64(model: Model) -> Model:
    """A copy of the model on NumPy in float64, where rounding errors are negligible."""
    exact = copy.copy(model)
    exact.engine = get_engine("numpy", "float64", getattr(model.engine, "threads", None))
    exact.parameters = exact.engine.parameters(model.layout)
    for name, array in model.parameters.items():
        exact.parameters[name] = np.asarray(model.engine.to_numpy(array), np.float64)
    exact._prepare_sharing()
    return exact


def state_names(config: EncoderConfig) -> list[str]:
    """The cache names of the layers + 1 states."""
    between = [f"layers.{i}.output" for i in range(config.num_hidden_layers - 1)]
    return ["embeddings.output", *between, "output"]


def layer_states(model: Model, input_ids: Any, attention_mask: Any = None) -> list[np.ndarray]:
    """[batch, length, hidden] for every layer; 0 at padding."""
    checked = model.check(input_ids, attention_mask)
    names = state_names(model.config)
    with evaluation_mode(model):
        run = model.run(checked, inference=True, keep=names, skip_padding=True)
        run.encode()
    states = [model.engine.to_numpy(run[name]) for name in names]
    mask = checked["mask"]
    return states if mask is None else [state * mask[:, :, None] for state in states]


def states_of_all(
    model: Model,
    token_ids: Sequence[Sequence[int]],
    progress: OnProgress | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Run texts in batches of similar lengths. Yields the indices of a batch's texts and their states by layer."""
    lengths = np.array([len(ids) for ids in token_ids], np.int64)
    done = 0
    for rows in batches_by_length(lengths, max(batch_tokens, int(lengths.max(initial=1)))):
        ids = np.full((len(rows), int(lengths[rows].max())), model.config.pad_token_id or 0, np.int64)
        for number, row in enumerate(rows):
            ids[number, : lengths[row]] = token_ids[row]
        yield rows, layer_states(model, ids, np.arange(ids.shape[1]) < lengths[rows][:, None])
        done += len(rows)
        if progress is not None:
            progress(done, len(token_ids))
