"""Sentence embeddings by a loaded model: the mean of the last hidden states over the real tokens."""

from __future__ import annotations

import functools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import glassbert

BATCH = 64


def embed(folder: Path, engine: str, rows: list[list[int]]) -> np.ndarray:
    """Embeddings [N, H] of rows of token ids, rows of similar length together."""
    order = np.argsort([len(ids) for ids in rows], kind="stable")
    batches = [[rows[i] for i in order[start : start + BATCH]] for start in range(0, len(order), BATCH)]
    if engine == "mlx" and _mlx_is_slow():
        processes = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
            pieces = list(pool.map(embed_batch, [folder] * len(batches), [engine] * len(batches), batches))
    else:
        pieces = [embed_batch(folder, engine, batch) for batch in batches]
    embeddings = np.empty((len(rows), pieces[0].shape[1]), np.float32)
    embeddings[order] = np.concatenate(pieces)
    return embeddings


def embed_batch(folder: Path, engine: str, batch: list[list[int]]) -> np.ndarray:
    model = _model(folder, engine)
    mask = np.arange(max(map(len, batch))) < np.array([len(ids) for ids in batch])[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate(batch)
    hidden, _ = model.forward(ids, mask, skip_padding=engine == "numpy")
    return (model.engine.to_numpy(hidden) * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)


@functools.cache
def _model(folder: Path, engine: str) -> glassbert.Model:
    model = glassbert.load(folder, engine=engine)
    if engine == "mlx" and _mlx_is_slow():
        _lay_out_for_the_cpu(model)
    return model


def _mlx_is_slow() -> bool:
    import mlx.core as mx

    return mx.default_device() == mx.Device(mx.cpu)


def _lay_out_for_the_cpu(model: glassbert.Model) -> None:
    """MLX's BLAS for Linux multiplies by a transposed matrix at 2.5 GFLOP/s and by a plain one at 5.8.

    The same weights in the other order of memory: x Wᵀ then finds Wᵀ as a plain matrix.
    """
    import mlx.core as mx

    for name, weight in model.parameters.items():
        if weight.ndim == 2 and not name.startswith("embeddings."):
            model.parameters[name] = mx.contiguous(weight.T).T
