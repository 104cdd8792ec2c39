"""The teacher of a distillation: a trained model that computes the same rows as the student, without a gradient.

    teacher = Teacher(glassbert.load("teacher"), temperature=2.0)
    objectives = Objectives.parse("mlm+distill").with_teacher(teacher)
    step = TrainingStep(student, AdamW(student), objective=objectives)

Its outputs are constants of the student's loss. It scores only the rows that the student scores. On MLX its forward is
compiled on its own, so that the student's step stays one function of arrays; that of a quantised teacher is not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from glassbert.arrays import Array
from glassbert.checkpoints import load
from glassbert.errors import TrainingError
from glassbert.models.encoder import Batch
from glassbert.models.heads import Head
from glassbert.models.inputs import check_inputs
from glassbert.models.model import Model
from glassbert.models.passes import Pass
from glassbert.models.quantized import quantized_parameters
from glassbert.text.loading import same_vocabulary


class Teacher:
    """A model whose scores and hidden states a student learns.

    model        a trained model with the head of the student
    temperature  both distributions are softmax(scores / temperature)
    part         the part of the head whose scores are learned
    """

    def __init__(self, model: Model, temperature: float = 2.0):
        if model.head is None:
            raise TrainingError("a teacher needs a head, whose scores the student learns; this model has none")
        if not (isinstance(temperature, (int, float)) and math.isfinite(temperature) and temperature > 0):
            raise TrainingError(f"the temperature must be a number above 0, got {temperature!r}")
        model.set_training(False)
        self.model, self.temperature = model, float(temperature)
        self.part = next(iter(model.head.parts))
        self.parameters = model.computing(model.parameters)
        self.quantized = bool(quantized_parameters(model))
        self._compiled: dict[frozenset[str], Any] = {}

    @classmethod
    def open(cls, folder: str | Path, tokenizer: Any, temperature: float = 2.0, **options: Any) -> Self:
        """The teacher in a folder, with the vocabulary of this tokenizer; `options` are those of `glassbert.load`."""
        model = load(folder, head="mlm", **options)
        check_vocabulary(folder, model, tokenizer)
        return cls(model, temperature)

    def check_outputs(self, head: Head) -> None:
        """Raise if the student's head has other outputs than the teacher's."""
        own = self.model.head.parts[self.part].head  # type: ignore[union-attr]
        mine, theirs = (h.config.vocab_size if h.kind == "mlm" else h.outputs for h in (own, head))
        if mine != theirs:
            raise TrainingError(f"the teacher scores {mine:,} classes, but the student {theirs:,}")

    def check(self, **inputs: Any) -> dict[str, Any]:
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
