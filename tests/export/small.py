"""Small models of every family, batches for them, and ONNX Runtime on a recorded graph."""

from typing import Any

import numpy as np
import onnxruntime

from glassbert.checkpoints.family import FAMILIES
from glassbert.export.writing import as_proto, with_transposed_weights
from glassbert.models.model import Model
from tests.models.small import make

MEMBERS = [name for name, family in FAMILIES.items() if family.mini]
SEPARATOR = 3  # of the toy models


def toy(family: str, **changes: Any) -> Any:
    """The Mini preset of a family with few, narrow layers and 512 positions."""
    preset = FAMILIES[family].presets[FAMILIES[family].mini]
    narrow = {} if preset.embedding_size in (None, preset.hidden_size) else {"embedding_size": 8}
    sizes = {
        "vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
        "pad_token_id": 0, "max_position_embeddings": 512 + preset.position_offset, **narrow,
    }  # fmt: skip
    return preset.replace(**{**sizes, **changes})


def make_model(family: str, head: str | None, num_labels: int = 0, **changes: Any) -> Model:
    return make(toy(family, **changes), head, num_labels, dtype="float32", kernels="plain")


def batch(model: Model, lengths: list[int], seed: int = 0) -> dict[str, np.ndarray]:
    """The inputs of rows of these lengths, padded; the first row has a question before its third token."""
    config, width = model.config, max(lengths)
    rng = np.random.default_rng(seed)
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int64)
    ids = np.where(mask, rng.integers(4, config.vocab_size, mask.shape), 0)
    ids[0, 2:3] = SEPARATOR
    given = {"input_ids": ids, "attention_mask": mask}
    if config.type_vocab_size > 1:
        given["token_type_ids"] = (np.arange(width) >= (width + 1) // 2) * mask
    if model.head is not None and model.head.reads_segments:
        given["segment_ids"] = np.where(mask, 1 + (np.arange(width) >= width // 2), 0)
    return given


def session(graph: Any) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    graph = with_transposed_weights(graph)
    return onnxruntime.InferenceSession(as_proto(graph, {}).SerializeToString(), options)


def run(opened: onnxruntime.InferenceSession, given: dict[str, Any]) -> dict[str, np.ndarray]:
    names = [output.name for output in opened.get_outputs()]
    return dict(zip(names, opened.run(names, given), strict=True))
