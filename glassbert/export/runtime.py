"""Running an exported model with ONNX Runtime.

    model = open_onnx("folder")
    model.predict(input_ids, attention_mask)          the numbers of the model that was exported

The graph carries the description of its model, and the config.json beside it must describe the same one.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints.description import CORE, NO_LABELS, Description
from glassbert.checkpoints.formats import NATIVE, NativeFormat, format_of_model
from glassbert.checkpoints.locate import CONFIG, read_json
from glassbert.checkpoints.quantized import SECTION
from glassbert.errors import CheckpointError, ConfigError, InputError
from glassbert.export.folder import CARD, DESCRIPTION, FOLDER, GRAPHS, Exported
from glassbert.export.writing import EXTERNAL, require
from glassbert.files import verify_checksums
from glassbert.models.model import Model
from glassbert.models.quantized import quantized_parameters

MAY_DIFFER = {"architectures", "dtype", "glassbert", "glassbert_version", "torch_dtype", "problem_type"}
TOLERANCE = 1e-4  # of the largest output, in float32


class OnnxModel(Model):
    """A model whose forward pass is a graph. It has no weights of its own, so it has no `forward` and no `loss`."""

    def __init__(self, described: Description, session: Any):
        head = None if described.head == CORE else described.head
        super().__init__(
            described.config, head, described.num_labels, loss=described.loss, loss_options=described.loss_options,
            engine="numpy", initialize=False,
        )  # fmt: skip
        self.carried_fields = described.carried
        self.session = session
        self.input_names = [one.name for one in session.get_inputs()]
        self.output_names = [one.name for one in session.get_outputs()]

    def run_graph(
        self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None, **more: Any
    ) -> dict[str, np.ndarray]:
        """All outputs of the graph by name; the arguments are the inputs of `forward`, checked as there."""
        for name, given in more.items():
            if given is not None and name not in self.input_names:
                raise InputError(f"the exported graph of this model takes no {name}; load the model itself")
        checked = self.check(input_ids, attention_mask, token_type_ids, **more)
        if checked.get("pairs") is not None:
            raise InputError(
                "the exported graph takes an attention_mask [B, T], not one of pairs; load the model itself"
            )
        found = {"values": np.asarray(input_ids, np.float64)} if checked["ids"] is None else self._tokens(checked, more)
        return dict(zip(self.output_names, self.session.run(None, found), strict=True))

    def _tokens(self, checked: dict[str, Any], more: dict[str, Any]) -> dict[str, np.ndarray]:
        """The inputs of the graph; what was left out has its default, and a causal graph has no past."""
        ids, mask, types, segments = (checked[name] for name in ("ids", "mask", "types", "segments"))
        if segments is None and "segment_ids" in self.input_names:
            raise InputError("this model compares two texts: give segment_ids, 1 in the first text and 2 in the second")
        given = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids) if mask is None else mask,
            "token_type_ids": np.zeros_like(ids) if types is None else types,
            "segment_ids": segments,
            "position_ids": np.broadcast_to(checked["positions"], ids.shape),
            "fields": np.zeros_like(ids) if more.get("fields") is None else more["fields"],
        }
        if "values" in self.input_names:
            values = more.get("values")
            given["values"] = np.full(ids.shape, np.nan) if values is None else np.asarray(values, np.float64)
        nothing = np.zeros((len(ids), self.config.num_attention_heads, 0, self.config.head_size), np.float32)
        given |= {name: nothing for name in self.input_names if name not in given}
        types = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(double)": np.float64}
        return {one.name: np.asarray(given[one.name], types[one.type]) for one in self.session.get_inputs()}

    def predict(self, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None, **inputs: Any) -> Any:
        """The output of the model, as `Model.predict` gives it; `skip_padding` has no effect."""
        inputs.pop("skip_padding", None)
        found = self.run_graph(input_ids, attention_mask, token_type_ids, **inputs)
        kind = None if self.head is None else self.head.kind
        if kind == "span":
            return np.stack([found["start_logits"], found["end_logits"]], 1)
        if kind == "pretraining":
            return {"mlm": found["prediction_logits"], "pair": found["seq_relationship_logits"]}
        if kind == "forecast":
            assert self.config.series is not None
            return self.config.series.scaled(found["forecast"])
        return found[{None: "last_hidden_state", "embedding": "embedding"}.get(kind, "logits")]

    def run(self, *arguments: Any, **options: Any) -> Any:
        raise InputError(
            "this model runs in ONNX Runtime, which gives its output and nothing in between; use predict, or load the "
            "model with engine='numpy'"
        )


def open_onnx(folder: str | Path, dtype: str = "float32", threads: int | None = None) -> OnnxModel:
    """Open the graph of an exported folder: that in float16 where there is no other.

    A graph that does not belong to its config.json raises `CheckpointError`.
    """
    require("onnxruntime")
    import onnxruntime

    folder = graph_folder(folder)
    if dtype not in GRAPHS:
        raise ConfigError(f"exported graphs are {' or '.join(GRAPHS)}, not {dtype!r}")
    path = folder / FOLDER / GRAPHS[dtype]
    half = path.with_name(GRAPHS["float16"])
    if not path.exists() and half.exists():  # exported with --dtype float16 alone; inputs and outputs are the same
        path = half
    if not path.exists():
        option = "" if dtype == "float32" else f" --dtype {dtype}"
        raise CheckpointError(f"there is no {path}; write it with: glassbert export {folder} --format onnx{option}")
    graph = path.relative_to(folder).as_posix()
    verify_checksums(folder, CheckpointError, (CONFIG, CARD, graph, f"{graph}{EXTERNAL}"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
    except Exception as error:  # the errors of the runtime share no base class
        raise CheckpointError(f"ONNX Runtime cannot open {path}: {str(error).strip()[:300]}") from error
    described, quantization = description_in(session, path)
    check_config(described, folder / CONFIG, quantization)
    return OnnxModel(described, session)


def graph_folder(path: str | Path) -> Path:
    """The folder with `onnx/`: the given one, or the model folder of a run."""
    path = Path(path).expanduser()
    return path / "model" if (path / "model" / FOLDER).is_dir() else path


def description_in(session: Any, path: Path) -> tuple[Description, Any]:
    """The description of the model that a graph carries with it, and how its weights are quantised."""
    try:
        found = session.get_modelmeta().custom_metadata_map.get(DESCRIPTION)
        if found is None:
            raise CheckpointError(f"{path} was not written by GlassBERT: it does not describe its model")
        fields = json.loads(found)
        return NativeFormat().read(fields, fields.get("head_type") or CORE, {}), fields.get(SECTION)
    except CheckpointError:
        raise
    except (ValueError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{path} describes its model in a way that cannot be read: {error}") from error


def check_config(described: Description, path: Path, quantization: Any = None) -> None:
    """Raise if a config.json describes another model than the graph beside it."""
    fields = read_json(path)
    if fields.get(SECTION) != quantization:
        raise CheckpointError(
            f"{path} and the graph in {FOLDER}/ belong to models that are quantised in different ways; export the "
            "model again"
        )
    ours = fields.get("model_type") == NATIVE
    expected = (NativeFormat() if ours else format_of_model(described, [])[0]).write(described)
    names: Any = fields.get("id2label")
    named = isinstance(names, dict) and described.num_labels and described.head not in NO_LABELS
    if named and len(names) != described.num_labels:
        raise CheckpointError(
            f"{path} names {len(names)} labels, and the graph in {FOLDER}/ has {described.num_labels}; export the "
            "model again"
        )
    for name, wanted in expected.items():
        same_kind = name not in MAY_DIFFER and not isinstance(wanted, (dict, list))
        stored = list(wanted) if isinstance(wanted, tuple) else wanted  # JSON has no tuples
        if same_kind and name in fields and fields[name] != stored:
            raise CheckpointError(
                f"{path} has {name} = {fields[name]!r}, and the graph in {FOLDER}/ was made from a model with "
                f"{stored!r}; export the model again"
            )


def compare_with_model(written: Exported, dtype: str = "float32") -> float | None:
    """The largest difference between ONNX Runtime and the exported model on a small batch; None without the runtime.

    In float32 a difference beyond rounding raises `CheckpointError`.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    model = written.model
    given = _small_batch(model)
    expected, found = model.predict(**given, skip_padding=False), open_onnx(written.folder, dtype).predict(**given)
    pairs = [(expected[part], found[part]) for part in expected] if isinstance(expected, dict) else [(expected, found)]
    difference = max(float(np.abs(one - other).max()) for one, other in pairs)
    scale = max(1.0, *(float(np.abs(one).max()) for one, _ in pairs))
    exact = dtype == "float32" and not quantized_parameters(model)  # the runtime rounds activations in its own way
    if exact and not difference <= TOLERANCE * scale:
        raise CheckpointError(
            f"the graph in {written.folder} differs from its model by {difference:.1e}; this is an error of GlassBERT "
            "or of the runtime, and the graph should not be used"
        )
    return difference


def _small_batch(model: Model) -> dict[str, Any]:
    """Three rows, padded; or two windows of a series."""
    config = model.config
    if config.series is not None:
        return {"input_ids": np.linspace(1.0, 2.0, 2 * config.series.window).reshape(2, -1)}
    length = min(16, config.max_length)
    mask = (np.arange(length) < np.array([[length], [1], [(length + 1) // 2]])).astype(np.int64)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, mask.shape)
    pad = config.pad_token_id or 0
    ids = np.where(mask == 1, np.where(ids == pad, (pad + 1) % config.vocab_size, ids), pad)
    batch = {"input_ids": ids, "attention_mask": mask}
    if model.head is not None and model.head.reads_segments:
        batch["segment_ids"] = np.where(mask == 1, 1 + (np.arange(length) >= length // 2), 0)
    return batch
