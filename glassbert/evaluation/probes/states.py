"""What every layer of an encoder says about every token, in one pass and with the memory of a prediction.

Layer 0 is the output of the embeddings, layer i that of block i; the last one passes the final norm where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from glassbert.models.config import EncoderConfig
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.text.buckets import batches_by_length
from glassbert.training.evaluate import quietly

Progress = Callable[[int, int], None]  # how much is done, of how much
BATCH_TOKENS = 8192


def state_names(config: EncoderConfig) -> list[str]:
    """The dotted names of the states, layers + 1 of them."""
    between = [f"layers.{i}.output" for i in range(config.num_hidden_layers - 1)]
    return ["embeddings.output", *between, "output"]


def layer_states(model: Model, input_ids: Any, attention_mask: Any = None) -> list[np.ndarray]:
    """[batch, length, hidden] for every layer; padding gets zeros."""
    checked = check_inputs(model.config, input_ids, attention_mask)
    names = state_names(model.config)
    with quietly(model):
        run = model.run(checked, inference=True, keep=names, skip_padding=True)
        run.encode()
    states = [model.engine.to_numpy(run[name]) for name in names]
    mask = checked["mask"]
    return states if mask is None else [state * mask[:, :, None] for state in states]


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
