"""What every layer of an encoder says about every token, in one pass and with the memory of a prediction.

Layer 0 is the output of the embeddings, layer i that of block i; the last one passes the final norm where there is one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from glassbert.engines import get_engine
from glassbert.engines.threads import using_threads
from glassbert.evaluation.subject import Subject
from glassbert.layers.scope import Forgetful
from glassbert.models.cache import Part
from glassbert.models.config import EncoderConfig
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.models.padding import unpack
from glassbert.text.buckets import batches_by_length
from glassbert.training.evaluate import quietly

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
    with using_threads(model.engine.threads):
        hidden, _ = model.run_encoder(check_inputs(model.config, ids, **inputs), Forgetful(), skip_padding)
    return np.asarray(model.engine.to_numpy(hidden), np.float64)


def in_float64(model: Model) -> Model:
    """The same model, whatever was done to it, computing in float64 on NumPy: there a difference is no rounding."""
    twin = copy.copy(model)
    twin.engine = get_engine("numpy", "float64", getattr(model.engine, "threads", None))
    twin.parameters = twin.engine.parameters(model.layout)
    for name, array in model.parameters.items():
        twin.parameters[name] = np.asarray(model.engine.to_numpy(array), np.float64)
    twin._shard_gradients = []
    return twin


Progress = Callable[[int, int], None]  # how much is done, of how much
BATCH_TOKENS = 8192


class Listening(Forgetful):
    """Keeps the values of a few names, and forgets what backward would need."""

    def __init__(self, names: Sequence[str]):
        super().__init__()
        self.names = frozenset(names)

    def like(self) -> Listening:
        return Listening(list(self.names))

    def note(self, name: str, value: Any) -> Any:
        if name in self.names:
            self.values_by_name[name] = value
        return value


def state_names(config: EncoderConfig) -> list[str]:
    """The dotted names of the states, layers + 1 of them."""
    between = [f"layers.{i}.output" for i in range(config.num_hidden_layers - 1)]
    return ["embeddings.output", *between, "output"]


def layer_states(model: Model, input_ids: Any, attention_mask: Any = None) -> list[np.ndarray]:
    """[batch, length, hidden] for every layer; padding gets zeros."""
    checked = check_inputs(model.config, input_ids, attention_mask)
    names = state_names(model.config)
    with quietly(model), using_threads(model.engine.threads):
        _, cache = model.run_encoder(checked, Listening(names), skip_padding=True)
    return [np.concatenate([_unpacked(model, part, name, checked) for part in cache.parts]) for name in names]


def _unpacked(model: Model, part: Part, name: str, checked: dict[str, Any]) -> np.ndarray:
    states = model.engine.to_numpy(part.cache[name])
    if part.index is None:
        mask = checked["mask"]
        return states if mask is None else states * mask[part.rows, :, None]
    return unpack(states, part.index, (part.rows.stop - part.rows.start, checked["ids"].shape[1]))


def states_of_all(
    model: Model, token_ids: Sequence[Sequence[int]], progress: Progress | None = None, batch_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Texts of many lengths in batches of similar ones: the numbers of a batch's texts, and their states by layer."""
    lengths = np.array([len(ids) for ids in token_ids], np.int64)
    done = 0
    for rows in batches_by_length(lengths, max(batch_tokens, int(lengths.max(initial=1)))):
        ids = np.full((len(rows), int(lengths[rows].max())), model.config.pad_token_id, np.int64)
        for place, row in enumerate(rows):
            ids[place, : lengths[row]] = token_ids[row]
        yield rows, layer_states(model, ids, np.arange(ids.shape[1]) < lengths[rows][:, None])
        done += len(rows)
        if progress is not None:
            progress(done, len(token_ids))
