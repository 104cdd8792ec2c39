"""The teacher of a distillation: a trained model that computes the same rows as the student, without a gradient.

    teacher = Teacher(glassbert.load("teacher"), temperature=2.0)
    objectives = Objectives.parse("mlm+distill").with_teacher(teacher)
    step = TrainingStep(student, AdamW(student), objective=objectives)

Its outputs are constants of the student's loss. It scores only the rows that the student scores. On MLX its forward is
compiled on its own, so that the student's step stays one function of arrays; that of a quantised teacher is not.

Scores belong to tokens, so they need one vocabulary. Hidden states can also come from a teacher with a tokenizer of its
own (`WordTeacher`): it reads the same words, none of them masked, and each token of the student learns the mean of the
states of its word.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.arrays import Array
from glassbert.checkpoints import load
from glassbert.engines import Engine
from glassbert.errors import TrainingError
from glassbert.layers.registry import POSITIONS
from glassbert.models.encoder import Batch
from glassbert.models.heads import Head
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.models.passes import Pass
from glassbert.models.quantized import quantized_parameters
from glassbert.ops import IGNORED
from glassbert.text.loading import load_with_tokenizer, same_vocabulary
from glassbert.text.translation import RowTranslator
from glassbert.training.adapting.extension import load_masked


class Teacher:
    """A model whose scores and hidden states a student learns.

    model        a trained model with the head of the student
    temperature  both distributions are softmax(scores / temperature)
    part         the part of the head whose scores are learned
    """

    def __init__(self, model: Model, temperature: float = 2.0):
        if not (isinstance(temperature, (int, float)) and math.isfinite(temperature) and temperature > 0):
            raise TrainingError(f"the temperature must be a number above 0, got {temperature!r}")
        model.set_training(False)
        self.model, self.temperature = model, float(temperature)
        self.part = next(iter(model.head.parts), "") if model.head is not None else ""
        self.parameters = model.computing(model.parameters)
        self.quantized = bool(quantized_parameters(model))
        self._compiled: dict[frozenset[str], Any] = {}

    def check_outputs(self, head: Head) -> None:
        """Raise if the student's head has other outputs than the teacher's."""
        own = self.model.head.parts[self.part].head  # type: ignore[union-attr]
        mine, theirs = (h.config.vocab_size if h.kind == "mlm" else h.outputs for h in (own, head))
        if mine != theirs:
            raise TrainingError(f"the teacher scores {mine:,} classes, but the student {theirs:,}")

    def check(self, labels: Any = None, **inputs: Any) -> dict[str, Any]:
        """The inputs of a batch as the teacher reads them: positions and token types are its own."""
        if self.model.config.type_vocab_size < 2:
            inputs["token_type_ids"] = None
        return check_inputs(self.model.config, **inputs)

    def __call__(self, checked: Mapping[str, Any], rows: Array | None, wanted: frozenset[str]) -> dict[str, Array]:
        """`scores` of the chosen rows, `states` (the hidden states [B, T, H]), or both."""
        model = self.model
        if not model.engine.compiles or self.quantized:  # codes are no arrays of a compiled function
            run = Pass(model.network, checked, self.parameters, inference=True, skip_padding=True)
            return self._values(run, rows, wanted)
        arrays = {name: value for name, value in vars(model.batch_of(checked)).items() if value is not None}
        return self._forward(wanted)(self.parameters, arrays, {} if rows is None else {"rows": rows})

    def _values(self, run: Pass, rows: Array | None, wanted: frozenset[str]) -> dict[str, Array]:
        values = {"states": run.encode()} if "states" in wanted else {}
        if "scores" in wanted:
            output = run.output(rows)
            values["scores"] = output[self.part] if isinstance(output, Mapping) else output
        return values

    def _forward(self, wanted: frozenset[str]) -> Any:
        """The compiled forward of the MLX engine."""
        if wanted not in self._compiled:
            import mlx.core as mx

            network = self.model.network

            def forward(parameters: Any, arrays: Any, chosen: Any) -> dict[str, Array]:
                run = Pass(network, Batch(**arrays), parameters, inference=True)
                return self._values(run, chosen.get("rows"), wanted)

            self._compiled[wanted] = mx.compile(forward)
        return self._compiled[wanted]


class WordTeacher(Teacher):
    """A teacher with a tokenizer of its own, whose hidden states a student learns.

    It reads the words of the student's rows before they were masked. A token of the student has the mean of the states
    of the pieces of its word.
    """

    def __init__(self, model: Model, tokenizer: Any, student_tokenizer: Any):
        super().__init__(model)
        config = model.config
        longest = config.max_length if POSITIONS[config.positions].limited else None
        self.translate = RowTranslator(student_tokenizer, tokenizer, longest)

    def check(self, labels: Any = None, **inputs: Any) -> dict[str, Any]:
        """The rows of the teacher, and where the words of the student's tokens are in them: `first` and `pieces`."""
        ids = np.asarray(inputs["input_ids"])
        ids = ids if labels is None else np.where(np.asarray(labels) == IGNORED, ids, labels)
        segments, mask = inputs.get("segment_ids"), inputs.get("attention_mask")
        segments = np.asarray(segments) if segments is not None else np.ones(ids.shape, np.int64)
        rows = self.translate(ids, segments if mask is None else segments * np.asarray(mask))
        checked = check_inputs(self.model.config, rows.ids, segment_ids=rows.segments)
        return {**checked, "first": rows.first, "pieces": rows.pieces}

    def __call__(self, checked: Mapping[str, Any], rows: Array | None, wanted: frozenset[str]) -> dict[str, Array]:
        own = {name: value for name, value in checked.items() if name not in ("first", "pieces")}
        states = super().__call__(own, None, wanted)["states"]
        return {"states": word_means(states, checked["first"], checked["pieces"], self.model.engine)}


def word_means(states: Array, first: np.ndarray, pieces: np.ndarray, engine: Engine) -> Array:
    """The mean of states[b, first : first + pieces] for every token, [B, T, H]; zeros where there is no piece."""
    count, length, width = states.shape
    flat = states.reshape(-1, width)
    start = (np.arange(count)[:, None] * length + first).reshape(-1)
    number = pieces.reshape(-1)
    total = flat[engine.integers(start)]  # [B·T, H]
    for place in range(1, int(number.max(initial=1))):
        longer = np.nonzero(number > place)[0]
        total[engine.integers(longer)] += flat[engine.integers(start[longer] + place)]  # no token occurs twice
    share = engine.array(np.where(number > 0, 1.0 / np.maximum(number, 1), 0.0))[:, None]
    total *= share.astype(total.dtype)
    return total.reshape(*first.shape, width)


def open_teacher(
    folder: str | Path, tokenizer: Any, taught: Collection[str], temperature: float = 2.0, **options: Any
) -> Teacher:
    """The teacher in a folder, for a student with this tokenizer; `options` are those of `glassbert.load`.

    Where only hidden states are taught, it may have another vocabulary.
    """
    if set(taught) == {"states"} and not same_vocabulary(folder, tokenizer):
        model, own = load_with_tokenizer(folder, **options)
        return WordTeacher(model, own, tokenizer)
    model = load_masked(folder, **options) if "scores" in taught else load(folder, **options)
    check_vocabulary(folder, model, tokenizer)
    return Teacher(model, temperature)


def check_vocabulary(folder: str | Path, model: Model, tokenizer: Any) -> None:
    """Raise if the teacher was trained with other tokens than those of this tokenizer."""
    advice = "a student learns the teacher's scores of the same tokens: give the teacher's folder as --tokenizer"
    if model.config.vocab_size != tokenizer.vocab_size:
        raise TrainingError(
            f"the teacher {folder} has a vocabulary of {model.config.vocab_size:,}, but that of the corpus has "
            f"{tokenizer.vocab_size:,}; {advice}"
        )
    if not same_vocabulary(folder, tokenizer):
        raise TrainingError(f"the vocabulary of the teacher {folder} is not that of the corpus; {advice}")
