"""`quantize`: a trained folder to a quantised one, with a report of what it cost.

DIR/config.json, model.safetensors     the model, with a section "quantization" (`glassbert.checkpoints.quantized`)
DIR/tokenizer.json, task.json, ...     as in the folder that it was made from
DIR/quantization.json                  sizes, scores of both models with intervals, the cost and bits of every matrix
DIR/quantization.html                  the same as a page
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassbert.checkpoints.locate import WEIGHTS
from glassbert.errors import CheckpointError, InputError
from glassbert.files import adding_files, new_folder, require_new, write_json
from glassbert.finetuning.card import TASK
from glassbert.metrics import Undefined
from glassbert.models.model import Model
from glassbert.models.quantized import QuantizedModel, bytes_of
from glassbert.ops.quantized import TOKEN
from glassbert.quantization.calibration import Activations, observe
from glassbert.quantization.choice import FLOAT, Choice, choose_bits
from glassbert.quantization.model import quantize_model
from glassbert.quantization.sensitivity import Cost, OnProgress, costs_of, nothing
from glassbert.quantization.settings import QuantizationSettings, quantizable
from glassbert.quantization.source import Source, open_source, own_task
from glassbert.quantization.task import Compared, OwnTask

REPORT, PAGE = "quantization.json", "quantization.html"
CALIBRATION = (128, 128)  # examples, and about so many tokens of each
COSTS = (48, 64)


@dataclass
class Quantized:
    """The quantised model, and what is known about it."""

    source: str
    model: QuantizedModel
    settings: QuantizationSettings
    task: str
    compared: list[Compared]
    costs: list[Cost]
    choice: Choice | None
    bytes_before: int
    bytes_after: int
    folder: Path | None = None
    file_bytes: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def smaller(self) -> float:
        return self.bytes_before / self.bytes_after

    @property
    def bits(self) -> dict[str, int]:
        """The bits of every matrix that could be quantised; 32: it stayed as it was."""
        found = self.model.quantized
        return {name: found[name].bits if name in found else FLOAT for name in quantizable(self.model)}

    def as_json(self) -> dict[str, Any]:
        weights = self.model.quantized
        costs = {one.name: one.cost for one in self.costs}
        return {
            "source": self.source,
            "folder": None if self.folder is None else str(self.folder),
            "bits": self.settings.bits,
            "method": self.settings.method,
            "task": self.task,
            "scores": [one.as_json() for one in self.compared],
            "bytes": {"float": self.bytes_before, "quantized": self.bytes_after, "file": self.file_bytes},
            "smaller": self.smaller,
            "max_loss_reached": None if self.choice is None else self.choice.allowed,
            "matrices": [
                {
                    "name": name,
                    "shape": list(self.model.layout.shapes[name]),
                    "bits": bits,
                    "groups": weights[name].groups if name in weights else None,
                    "activations": _activations(weights[name].rounding) if name in weights else None,
                    "cost": {str(number): value for number, value in costs.get(name, {}).items()},
                }
                for name, bits in self.bits.items()
            ],
            "notes": self.notes,
        }


def _activations(rounding: Any) -> Any:
    return {None: "float", TOKEN: "by token"}.get(rounding, list(rounding) if isinstance(rounding, tuple) else None)


def quantize(
    source: str | Path,
    folder: str | Path | None = None,
    settings: QuantizationSettings | None = None,
    *,
    data: str | Path | None = None,
    max_loss: float | None = None,
    sensitivity: bool = True,
    threads: int | None = None,
    progress: OnProgress = nothing,
) -> Quantized:
    """Quantise a run, a model folder or a packaged model, measure it, and write it into a new folder.

    data         texts for calibration and measurement; of a fine-tuned model, examples with answers
    max_loss     the largest loss of the score of the model's own task; matrices that cost most get more bits
    sensitivity  measure what each matrix costs
    """
    settings = settings or QuantizationSettings()
    if max_loss is not None and not 0 <= max_loss < float("inf"):
        raise InputError(f"the allowed loss must be a number of at least 0, got {max_loss!r}")
    if settings.method == "static" and data is None:
        raise InputError("static rounding is calibrated with real text; name a file of texts with --data")
    target = None if folder is None else Path(folder)
    if target is not None:
        require_new(target, CheckpointError)
    opened = open_source(source, threads)
    task = own_task(opened, None if data is None else Path(data))
    model = opened.model
    notes: list[str] = []
    choosing = task
    if max_loss is not None:
        choosing, task = halves(task, model)
        if choosing is task:
            notes.append("there are too few examples to choose the bits on one half and to report the other")
    seen: dict[str, Activations] | None = None
    if settings.method == "static" or settings.bits == 4 or max_loss is not None:
        seen = observe(model, choosing.batches(*CALIBRATION))
    costs: list[Cost] = []
    if sensitivity or max_loss is not None:
        bits = (8, 4) if settings.bits == 4 else (8,)
        costs = costs_of(model, choosing.batches(*COSTS), settings, seen, bits, progress)
    choice = None
    if max_loss is not None:
        choice = _chosen(opened, choosing, settings, seen, costs, max_loss)
        if not choice.allowed:
            notes.append(
                f"no choice of bits loses at most {max_loss:g}; the last one that was tried loses {choice.loss:.4f}"
            )
        elif all(number == FLOAT for number in choice.bits.values()):
            notes.append(
                f"every matrix stays in floats, because no smaller choice loses at most {max_loss:g}; the model is not "
                "smaller, and a larger --max-loss makes it so"
            )
    before = task.answers(model)
    quantized = quantize_model(model, settings, None if choice is None else choice.bits, seen)
    after = task.answers(quantized)
    compared = [task.compare(before, after), *task.further(before, after)]
    if max_loss is not None and choice is not None and choice.allowed and compared[0].loss > max_loss:
        notes.append(f"on the examples that did not choose the bits the loss is {compared[0].loss:.4f}")
    notes += undivided(quantized, settings)
    found = Quantized(
        str(source), quantized, settings, task.what, compared, costs, choice, bytes_of(model), bytes_of(quantized),
        notes=notes,
    )  # fmt: skip
    if target is not None:
        write_folder(found, opened, target)
    return found


def _chosen(
    opened: Source,
    task: OwnTask,
    settings: QuantizationSettings,
    seen: dict[str, Activations] | None,
    costs: list[Cost],
    max_loss: float,
) -> Choice:
    before = task.answers(opened.model)

    def loss(bits: Mapping[str, int]) -> float:
        if all(number == FLOAT for number in bits.values()):
            return 0.0
        return task.loss(before, task.answers(quantize_model(opened.model, settings, bits, seen)))

    return choose_bits(costs, settings.bits, max_loss, loss)


def halves(task: OwnTask, model: Model) -> tuple[OwnTask, OwnTask]:
    """Examples to choose the bits on and others to report; the whole task twice where a half has no score."""
    try:
        both = task.half(0), task.half(1)
        for one in both:
            answers = one.answers(model)
            one.compare(answers, answers)
    except (InputError, Undefined):
        return task, task
    both[1].what += ", the half that did not choose the bits"
    return both


def undivided(model: QuantizedModel, settings: QuantizationSettings) -> list[str]:
    """A note if groups do not divide the rows of some matrices."""
    sizes = {name: settings.group_of(weight.bits) for name, weight in model.quantized.items()}
    found = [name for name, size in sizes.items() if size and model.quantized[name].shape[1] % size]
    if not found:
        return []
    width, size = model.quantized[found[0]].shape[1], sizes[found[0]]
    return [
        f"groups of {size} do not divide the rows of {len(found)} matrices, such as {found[0]} with rows of {width}; "
        "each of these rows has one scale"
    ]


def write_folder(found: Quantized, source: Source, target: Path) -> None:
    """Write model, tokenizer, task card and report into a new folder."""
    from glassbert.quantization.report import page_of

    with new_folder(target, CheckpointError) as folder:
        found.model.save(folder, tokenizer=source.tokenizer)
        if (source.folder / TASK).exists():
            with adding_files(folder, (TASK,)):
                shutil.copyfile(source.folder / TASK, folder / TASK)
        found.folder, found.file_bytes = target, (folder / WEIGHTS).stat().st_size
        write_json(folder / REPORT, found.as_json())
        page_of(found).write(folder / PAGE)
