"""Loading checkpoints. Everything is checked before the first weight is copied, so a model is never loaded in part."""

from __future__ import annotations

import dataclasses
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints.description import CORE, Description, describe, differences, has_no_effect
from glassbert.checkpoints.family import FAMILIES
from glassbert.checkpoints.formats import EMBEDDING, Format, family_of_names, format_of_file
from glassbert.checkpoints.locate import Checkpoint, open_checkpoint, verify_model
from glassbert.checkpoints.names import Match, list_names, match, read_values
from glassbert.checkpoints.quantized import StoredQuantized
from glassbert.checkpoints.sentence import pooling_in
from glassbert.errors import CheckpointError, ConfigError, GlassBertError
from glassbert.files import verifying
from glassbert.models.heads import HEADS, Head, head_names, resolve_head, with_pooling
from glassbert.models.initialize import initial_values
from glassbert.models.model import Model
from glassbert.models.quantized import QuantizedModel, on_engine

CLASSIFIER = "head.classifier."
HEAD_AND_POOLER = ("head.", "pooler.")
POOLING = ("head.pool.", "pooler.")


def load(
    path_or_hub_id: str | Path,
    *,
    engine: Any = "auto",
    dtype: str = "float32",
    threads: int | None = None,
    kernels: str = "fast",
    head: str | None = None,
    num_labels: int | None = None,
    loss: str | None = None,
    loss_options: Mapping[str, Any] | None = None,
    pooling: str | None = None,
    revision: str | None = None,
    seed: int = 0,
    verify: bool = True,
) -> Model:
    """Load a saved model: a folder, a .safetensors file in a folder with config.json, or a Hugging Face hub id.

    `head` is "mlm", "binary", "multiclass", "token", ... (`glassbert.head_names()`) or "core" (no head). By default
    the model has the head, pooling, loss and options it was saved with. With another head, number of labels, loss or
    pooling, weights that the file does not have are initialised at random (from `seed`), and a warning names them.
    float16 and bfloat16 files are converted; `dtype` is the precision of the computation. Quantised weights stay
    as they are (`glassbert.models.quantized`).

    A folder of sentence-transformers is loaded as the encoder of its config.json; head="embedding" adds the pooling of
    its modules.

    Files that GlassBERT wrote are compared with their checksums, and weights that are not finite are refused;
    `verify=False`, or GLASSBERT_VERIFY=0, loads them all the same.
    """
    verify = verify and verifying()
    if head is not None and head != CORE:
        if head not in head_names():
            raise CheckpointError(f"unknown head {head!r}; choose one of {', '.join((CORE, *head_names()))}")
        head, num_labels, loss = resolve_head(head, num_labels, loss)
    checkpoint = open_checkpoint(path_or_hub_id, revision)
    if verify:
        verify_model(checkpoint.config_path.parent)
    with _path_in_errors(checkpoint.config_path):
        file_format = format_of_file(checkpoint.fields)
        tensors = file_format.plain_names(checkpoint.tensors)
        saved_head = file_format.saved_head(checkpoint.fields, tensors, head)
        wanted = head or saved_head
        if wanted is None:
            raise CheckpointError(file_format.explain_unknown_head(checkpoint.fields))
        if wanted != saved_head and _has_further_models(saved_head):
            return _load_finished(
                checkpoint.config_path.parent, saved_head, engine=engine, dtype=dtype, threads=threads, kernels=kernels,
                head=wanted, num_labels=num_labels, loss=loss, loss_options=loss_options, pooling=pooling, seed=seed,
                verify=verify,
            )  # fmt: skip
        described = file_format.read(checkpoint.fields, wanted, tensors)
        new_head = wanted != saved_head
        described, new_classifier = _with_requested_head(described, new_head, num_labels, loss, loss_options)
        if wanted == EMBEDDING and pooling is None:
            pooling = pooling_in(checkpoint.config_path.parent)
        described, new_pooling = _with_requested_pooling(described, new_head, pooling)
        model = _build(described, len(tensors), engine=engine, dtype=dtype, threads=threads, kernels=kernels, seed=seed)
    with _path_in_errors(checkpoint.config_path.parent):
        entries = file_format.entries(described.config, wanted, model.layout.shapes)
        labelled = any(head in HEADS and HEADS[head].labelled for head in (wanted, saved_head or ""))
        if new_classifier and wanted in HEADS and labelled:  # the saved classifier is for other labels
            entries = {name: entry for name, entry in entries.items() if not name.startswith(CLASSIFIER)}
        matched = match(entries, model.layout.shapes, tensors)
        may_be_new = (*((CLASSIFIER,) if new_classifier else ()), *(POOLING if new_pooling else ()))
        may_be_new = HEAD_AND_POOLER if new_head else may_be_new
        fresh = [name for name in matched.missing if name.startswith(may_be_new)]
        _check_match(matched, fresh, described, file_format, checkpoint, another_head=new_classifier or new_pooling)
    if fresh:
        names = list_names(fresh)
        warnings.warn(
            f"{path_or_hub_id} has no weights for {names}; they are initialised at random and must be trained",
            stacklevel=2,
        )
    quantized = {}
    for name, parts in matched.sources.items():
        if isinstance(parts[0], StoredQuantized):
            quantized[name] = on_engine(parts[0].read_quantized(), model.engine)
            continue
        values = read_values(parts)
        if verify:
            _check_finite(values, [part.name for part in parts], checkpoint)
        model.parameters[name] = model.engine.array(file_format.from_file(described, name, values))
    new = [parameter for parameter in model.specification if parameter.name in fresh]
    for name, values in initial_values(new, described.config, seed):
        model.parameters[name] = model.engine.array(values)
    model.carried_fields = described.carried
    return QuantizedModel(model, quantized) if quantized else model


def _has_further_models(head: str | None) -> bool:
    """Whether a model with this head is made of several, of which one is kept when training ends."""
    return head is not None and head in HEADS and HEADS[head].finished is not Head.finished


def _load_finished(folder: Path, saved_head: str | None, *, verify: bool, **options: Any) -> Model:
    """The model that would be kept of an unfinished one, with another head."""
    whole = load(folder, head=saved_head, engine="numpy", verify=verify)
    assert whole.head is not None
    with tempfile.TemporaryDirectory() as temporary:
        whole.head.finished(whole)[""].save(temporary)
        return load(temporary, verify=verify, **options)


def _check_finite(values: np.ndarray, names: list[str], checkpoint: Checkpoint) -> None:
    """Raise if a value is NaN, infinite, or beyond the range of float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float32)):  # one pass; a NaN or an infinity would be in the sum
            return
        bad = int((~np.isfinite(values.astype(np.float32))).sum())
    if bad:
        raise CheckpointError(
            f"{checkpoint.config_path.parent}: the tensor {list_names(names)} has {bad:,} values that are not finite, "
            f"so the model cannot compute anything; use an earlier checkpoint, or load it as it is with --no-verify "
            f"(verify=False)"
        )


def _with_requested_head(
    saved: Description,
    new_head: bool,
    num_labels: int | None,
    loss: str | None,
    loss_options: Mapping[str, Any] | None,
) -> tuple[Description, bool]:
    """The model to build, and whether its classifier is new: another head, number of labels, or ordinal or not.

    The saved loss options are kept only with the saved classifier and loss.
    """
    other_labels = saved.head in HEADS and HEADS[saved.head].labelled and num_labels not in (None, saved.num_labels)
    other_loss = loss is not None and loss != saved.loss
    new_classifier = new_head or other_labels or (other_loss and "ordinal" in (loss, saved.loss))
    options = {} if new_classifier or other_loss else saved.loss_options
    described = dataclasses.replace(
        saved,
        num_labels=saved.num_labels if num_labels is None else num_labels,
        loss=loss or (None if new_classifier else saved.loss),
        loss_options=options if loss_options is None else dict(loss_options),
    )
    return described, new_classifier


def _with_requested_pooling(saved: Description, new_head: bool, pooling: str | None) -> tuple[Description, bool]:
    """With the requested pooling, or the default of a new head; and whether it differs from the saved one."""
    head = HEADS.get(saved.head)
    if pooling is not None and not hasattr(head, "pooling"):
        raise CheckpointError(f"pooling makes one vector of a sequence, which a head {saved.head!r} does not use")
    pooling = head.default_pooling if head is not None and new_head and pooling is None else pooling
    if pooling is None:
        return saved, False
    config = with_pooling(saved.config, pooling)
    return dataclasses.replace(saved, config=config), config != saved.config


def load_weights(model: Model, folder: str | Path) -> None:
    """Load the weights of a saved model with the same config; if one does not fit, the model is unchanged."""
    checkpoint = open_checkpoint(folder)
    if verifying():
        verify_model(checkpoint.config_path.parent)
    ours = describe(model)
    with _path_in_errors(checkpoint.config_path):
        file_format = format_of_file(checkpoint.fields)
        tensors = file_format.plain_names(checkpoint.tensors)
        theirs = file_format.read(checkpoint.fields, ours.head, tensors)
        for name, here, there in differences(model.config, theirs.config):
            if not has_no_effect(name, model.config, ours.head):
                raise CheckpointError(f"the file has another model: {name} is {there!r} there and {here!r} here")
    with _path_in_errors(checkpoint.config_path.parent):
        matched = match(file_format.entries(model.config, ours.head, model.layout.shapes), model.layout.shapes, tensors)
        another_head = file_format.saved_head(checkpoint.fields, tensors, ours.head) != ours.head
        _check_match(matched, [], ours, file_format, checkpoint, another_head)
    # Copy all before the first assignment: reading may still fail.
    read = {name: np.array(read_values(parts)) for name, parts in matched.sources.items()}
    if verifying():
        for name, values in read.items():
            _check_finite(values, [part.name for part in matched.sources[name]], checkpoint)
    arrays = {name: model.engine.array(file_format.from_file(ours, name, values)) for name, values in read.items()}
    for name, array in arrays.items():
        model.parameters[name] = array


def _build(described: Description, tensors: int, **options: Any) -> Model:
    """A model of the class that its family has for it, without parameter values."""
    config, head = described.config, described.head
    if config.num_hidden_layers > tensors:  # building so many layers may take forever
        raise CheckpointError(f"num_hidden_layers is {config.num_hidden_layers}, but the file has {tensors} tensors")
    wanted = None if head == CORE else head
    model_class = FAMILIES[config.family].class_for(config, wanted) if config.family in FAMILIES else Model
    model = object.__new__(model_class)  # the classes differ only in their defaults
    try:
        Model.__init__(
            model, config, wanted, described.num_labels, loss=described.loss, loss_options=described.loss_options,
            initialize=False, **options,
        )  # fmt: skip
        return model
    except GlassBertError:
        raise
    except (MemoryError, OverflowError, ValueError) as error:  # sizes beyond memory, or beyond any array
        raise CheckpointError(f"a model of these sizes cannot be created: {error}") from error


def _check_match(
    matched: Match,
    fresh: list[str],
    described: Description,
    file_format: Format,
    checkpoint: Checkpoint,
    another_head: bool,
) -> None:
    """Raise if a required tensor is missing, or if the file has a tensor that cannot be used."""
    prefix = file_format.prefix_in(checkpoint.tensors)
    missing = [name for name in matched.missing if name not in fresh]
    if missing:
        entries = file_format.entries(described.config, described.head, missing, prefix)
        names = [name for entry in entries.values() for name in entry.theirs if name not in checkpoint.tensors]
        raise CheckpointError(
            f"tensors are missing from the file: {list_names(names)}{_other_family(described, checkpoint.tensors)}"
        )
    extra = [name for name in matched.unused if not file_format.may_be_unused(name, another_head)]
    if extra:
        originals = file_format.plain_names({name: name for name in checkpoint.tensors})
        raise CheckpointError(
            f"the file has tensors that this model does not have: {list_names([originals[name] for name in extra])}"
        )


def _other_family(described: Description, tensors: Iterable[str]) -> str:
    """A hint where the names of the tensors are those of another family than that of config.json."""
    found = family_of_names(tensors)
    if found in ("", described.config.family):
        return ""
    return (
        f"; the names in the file are those of {found}, so its config.json, which gives {described.config.family}, "
        "belongs to another model"
    )


@contextmanager
def _path_in_errors(path: Path) -> Iterator[None]:
    """Put the path before the text of errors raised inside."""
    try:
        yield
    except (CheckpointError, ConfigError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    except (OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path}: a number in it is too large, or it is nested too deeply: {error}") from error
