"""Checks of the inputs of a model: token ids, masks, positions, or windows of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.arrays import Array, namespace
from glassbert.errors import InputError
from glassbert.layers.attention import QUERIES
from glassbert.layers.registry import ATTENTIONS, POSITIONS
from glassbert.models.config import EncoderConfig
from glassbert.models.numbers import check_numbers
from glassbert.models.series import SeriesConfig
from glassbert.ops import IGNORED


def check_inputs(
    config: EncoderConfig,
    input_ids: Any,
    attention_mask: Any = None,
    token_type_ids: Any = None,
    segment_ids: Any = None,
    position_ids: Any = None,
    memory: Any = None,
    fields: Any = None,
    values: Any = None,
    *,
    head: str | None = None,
    past: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """The inputs as integer arrays [B, T]; an invalid input raises `InputError`.

    A model of series takes windows of values [B, W] instead of ids, and no other inputs. `more` are inputs that the
    attention of the model has of its own, with defaults by `head`. `past` is the length of a memory that follows later.
    """
    kind = ATTENTIONS[config.attention]
    for name, given in more.items():
        if given is not None and name not in kind.inputs:
            own = f"; its attention takes {' and '.join(kind.inputs)}" if kind.inputs else ""
            raise InputError(f"this model takes no {name}{own}")
    if config.series is not None:
        others = {"attention_mask": attention_mask, "token_type_ids": token_type_ids, "segment_ids": segment_ids,
                  "position_ids": position_ids, "memory": memory, "fields": fields, "values": values}  # fmt: skip
        for name, given in others.items():
            if given is not None:
                raise InputError(f"a model of series takes only windows of values; leave {name} out")
        return {"windows": check_windows(config.series, input_ids), "ids": None, "mask": None, "types": None,
                "segments": None, "positions": np.arange(config.series.tokens)[None]}  # fmt: skip
    ids = _integers("input_ids", input_ids)
    if ids.ndim != 2:
        raise InputError(f"input_ids must have the shape [batch, length], got {list(ids.shape)}")
    if ids.size == 0:
        raise InputError(f"input_ids are empty: the shape is {list(ids.shape)}")
    _in_range("input_ids", ids, config.vocab_size, "the vocabulary")
    length = ids.shape[1]
    past = past if memory is None else _check_memory(config, memory, len(ids))
    scheme = POSITIONS[config.positions]
    if scheme.limited and past + length > config.max_length:
        before = f" after {past} in the memory" if past else ""
        raise InputError(
            f"a sequence of {length} tokens{before} is longer than the {config.max_length} positions of this "
            f"model; truncate it or split it into windows"
        )
    mask = pairs = None
    given = None if attention_mask is None else as_array("attention_mask", attention_mask)
    if given is not None and given.ndim == 3:
        pairs = given
        if pairs.shape != (len(ids), length, past + length):
            raise InputError(
                f"an attention_mask of pairs must have the shape {[len(ids), length, past + length]}, "
                f"got {list(pairs.shape)}"
            )
        if pairs.dtype.kind not in "biuf" or not np.isin(pairs, (0, 1)).all():
            raise InputError("attention_mask must hold only 1 (attends to) and 0 (does not)")
        pairs = pairs.astype(np.bool_)
    elif given is not None:
        mask = _same_shape("attention_mask", given, ids)
        if mask.dtype.kind not in "biuf" or not np.isin(mask, (0, 1)).all():
            raise InputError("attention_mask must hold only 1 (a real token) and 0 (padding)")
        mask = None if mask.all() else mask.astype(np.bool_)
    types = None
    if token_type_ids is not None:
        if config.type_vocab_size == 0:
            raise InputError("this model has no token types (type_vocab_size is 0); leave token_type_ids out")
        types = _same_shape("token_type_ids", _integers("token_type_ids", token_type_ids), ids)
        _in_range("token_type_ids", types, config.type_vocab_size, "the token types")
    segments = None
    if segment_ids is not None:
        segments = _same_shape("segment_ids", _integers("segment_ids", segment_ids), ids)
        if segments.min() < 0:
            raise InputError("segment_ids count documents from 1, with 0 for padding; a negative one was given")
    if past and (mask is not None or segments is not None) and not kind.masks_with_memory:
        raise InputError("a memory goes with an attention_mask of pairs [B, T, M + T], or without a mask")
    positions = default_positions(config, ids, past)
    if position_ids is not None:
        positions = np.atleast_2d(_integers("position_ids", position_ids))
        if positions.shape not in (ids.shape, (1, length)):
            raise InputError(
                f"position_ids must have the shape {list(ids.shape)} or [1, {length}], got {list(positions.shape)}"
            )
        _in_range("position_ids", positions, config.max_position_embeddings, "the positions")
    elif segments is not None and not scheme.relative:
        positions = positions_in_segments(segments) + config.position_offset
    checked = {"ids": ids, "mask": mask, "types": types, "segments": segments, "positions": positions}
    checked |= check_numbers(config.numbers, fields, values, ids.shape)
    if pairs is not None:
        checked["pairs"] = pairs
    if memory is not None:
        checked["memory"] = memory
    return checked | kind.more_inputs(config, head, more, checked)


def default_positions(config: EncoderConfig, ids: Array, past: int = 0) -> Array:
    """Positions [1, T] from 0. With an offset [B, T]: real tokens count from the offset, padding gets offset - 1."""
    if not config.position_offset:
        return namespace(ids).arange(past, past + ids.shape[1])[None]
    real = ids != config.pad_token_id
    counted = np.cumsum(real, 1) - 1 + past + config.position_offset
    return np.where(real, counted, config.position_offset - 1)


def _check_memory(config: EncoderConfig, memory: Any, rows: int) -> int:
    """The number of earlier tokens in a memory; a wrong shape raises `InputError`."""
    kind = ATTENTIONS[config.attention]
    names, axis = kind.memory_names, kind.memory_axis
    sizes = ", ".join(str(size) for size in kind.memory_shape(config, rows, "M"))
    wanted = f"for each of {config.num_hidden_layers} layers {' and '.join(names)} of the shape [{sizes}]"
    layers = memory if isinstance(memory, (list, tuple)) else ()
    if len(layers) != config.num_hidden_layers or any(
        not isinstance(arrays, (list, tuple)) or len(arrays) != len(names) for arrays in layers
    ):
        raise InputError(f"memory must have {wanted}")
    shapes = list(dict.fromkeys(tuple(np.shape(array)) for arrays in layers for array in arrays))
    length = shapes[0][axis] if shapes and len(shapes[0]) > axis else 0
    for shape in shapes:
        if shape != kind.memory_shape(config, rows, length):
            raise InputError(f"memory must have {wanted}, got an array of {list(shape)}")
    return int(length)


def check_windows(series: SeriesConfig, values: Any) -> np.ndarray:
    """Check windows [B, W] and return them scaled, as float64."""
    windows = as_array("the values", values)
    if windows.ndim != 2 or windows.shape[1] != series.window:
        raise InputError(
            f"this model reads windows of {series.window} values: the shape must be [batch, {series.window}], "
            f"got {list(windows.shape)}"
        )
    if not len(windows):
        raise InputError("the values are empty; give at least one window")
    if windows.dtype.kind not in "iuf":
        raise InputError(f"the values of a series must be numbers, got {windows.dtype}")
    return series.scaled(windows, "value of the windows")


def shape_of(checked: Mapping[str, Any]) -> tuple[int, int]:
    """The numbers of rows and of hidden states in a row of checked inputs."""
    given = checked["ids"] if checked["ids"] is not None else checked["windows"]
    return len(given), checked.get(QUERIES, checked["positions"]).shape[1]


def output_rows(positions: np.ndarray, checked: Mapping[str, Any]) -> np.ndarray:
    """Flat positions (row · T + token) as flat rows of the hidden states."""
    queries = checked.get(QUERIES)
    if queries is None:
        return positions
    row, token = np.divmod(positions, checked["ids"].shape[1])
    return row * queries.shape[1] + (queries[row] == token[:, None]).argmax(1)


def labels_at_outputs(labels: Any, checked: Mapping[str, Any]) -> Any:
    """Labels that are given where their tokens are, [B, T], at the hidden states of a query stream [B, P]."""
    queries = checked.get(QUERIES)
    if queries is None or labels is None:
        return labels
    labels = _same_shape("labels", as_array("labels", labels), checked["ids"])
    return np.where(queries < 0, IGNORED, np.take_along_axis(labels, np.maximum(queries, 0), 1))


def real_tokens(checked: Mapping[str, Any]) -> np.ndarray | None:
    """[B, T], true where a token is no padding; None: all are real."""
    mask, segments = checked["mask"], checked["segments"]
    if segments is None:
        pairs = checked.get("pairs")
        return mask if pairs is None else pairs.any(1)
    return segments != 0 if mask is None else (segments != 0) & mask


def positions_in_segments(segments: np.ndarray) -> np.ndarray:
    """Positions that start from 0 in every document of a packed row."""
    starts = np.ones(segments.shape, np.bool_)
    starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
    index = np.broadcast_to(np.arange(segments.shape[1]), segments.shape)
    return index - np.maximum.accumulate(np.where(starts, index, 0), axis=1)


def as_array(name: str, values: Any) -> np.ndarray:
    """The values as an array; rows of different lengths raise `InputError`."""
    if values is None:
        raise InputError(f"{name} must be an array of numbers, got None")
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"the rows of {name} differ in length; pad them to one length") from None
    if array.dtype == object:
        raise InputError(f"the rows of {name} differ in length; pad them to one length")
    return array


def _integers(name: str, values: Any) -> np.ndarray:
    array = as_array(name, values)
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} must be integers, got {array.dtype}")
    return array.astype(np.int64)


def _same_shape(name: str, array: np.ndarray, ids: np.ndarray) -> np.ndarray:
    if array.shape != ids.shape:
        raise InputError(f"{name} must have the shape of input_ids, {list(ids.shape)}, got {list(array.shape)}")
    return array


def _in_range(name: str, array: np.ndarray, limit: int, of_what: str) -> None:
    if array.min() < 0 or array.max() >= limit:
        index = tuple(int(i) for i in np.argwhere((array < 0) | (array >= limit))[0])
        raise InputError(f"{name} has {int(array[index])} at {index}, outside {of_what} (0 to {limit - 1})")
