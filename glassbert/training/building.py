"""The components of a run: model, optimizer, schedule, training step, moving average, and their saved state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.checkpoints import load
from glassbert.checkpoints.family import FAMILIES
from glassbert.checkpoints.locate import open_checkpoint
from glassbert.engines.machine import measure_matmul_rate, measure_mlx_matmul_rate
from glassbert.errors import TrainingError
from glassbert.families.bert import BertWithHead
from glassbert.layers.registry import ATTENTIONS
from glassbert.models.config import EncoderConfig
from glassbert.models.flops import forward_flops, training_flops
from glassbert.models.heads import HEADS
from glassbert.models.heads.rtd import GENERATOR, ReplacedTokenHead
from glassbert.models.model import Model
from glassbert.text.loading import same_vocabulary
from glassbert.training.budget import Costs
from glassbert.training.data import TrainingData
from glassbert.training.ema import EMA
from glassbert.training.evaluate import Evaluation, evaluate
from glassbert.training.objectives import Objectives
from glassbert.training.optimizers import make_optimizer
from glassbert.training.recipes import config_for
from glassbert.training.schedules import make_schedule
from glassbert.training.settings import TrainingSettings
from glassbert.training.step import Prepared, TrainingStep
from glassbert.training.teacher import Teacher, open_teacher
from glassbert.training.workers import Workers


class TrainingComponents:
    """Model, optimizer, schedule, training step and moving average of a run, made from its settings."""

    def __init__(self, settings: TrainingSettings, data: TrainingData, workers: Workers | None = None):
        self.settings = settings
        self.objectives = Objectives.parse(settings.objective)
        self.model = build_model(settings, data, self.objectives, workers.threads if workers else None)
        if settings.teacher:
            self.objectives = self.objectives.with_teacher(teacher_of(settings, data, self.model, self.objectives))
            self.model = self.objectives.prepared_student(self.model)
        self.optimizer = make_optimizer(
            settings.optimizer,
            self.model,
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
            clip=settings.clip,
        )
        self.schedule = make_schedule(settings.schedule, warmup=settings.warmup)
        self.average = EMA(self.model, settings.ema) if settings.ema is not None else None
        self.step = TrainingStep(
            self.model,
            self.optimizer,
            objective=self.objectives,
            physical_batch=settings.physical_batch,
            segments=settings.segments,
            workers=workers,
            ema=self.average,
        )
        self.costs = Costs(data)

    def inputs(self, batch: Any) -> dict[str, Any]:
        """The arguments of the training step for a batch."""
        inputs = batch.as_inputs()
        inputs.pop("position_ids", None)  # a model counts them itself, by the segments and from its own offset
        if "pair_labels" in self.objectives.needs:
            inputs["pair_labels"] = batch.pair_labels
        return inputs

    def prepare(self, batch: Any) -> tuple[dict[str, Any], Prepared]:
        """The inputs of a batch, and the same prepared for the step."""
        inputs = self.inputs(batch)
        return inputs, self.step.prepare(**inputs)

    def compile_step(self, batch: Any) -> None:
        """Run a step with and without `detailed`, so that the engine compiles both, and restore the previous state.

        Otherwise the time to compile would shorten the warm-up of a run with a budget in minutes.
        """
        model, optimizer, average, step = self.model, self.optimizer, self.average, self.step
        parameters, state, steps = model.parameters, optimizer.state, optimizer.steps
        attempts, seed = optimizer.attempts, model.dropout_seed
        averaged = average.parameters if average is not None else None
        for step.detailed in (True, False):
            float(step(**self.inputs(batch)).loss)
        model.parameters, optimizer.state, optimizer.steps = parameters, state, steps
        optimizer.attempts, model.dropout_seed = attempts, seed
        if average is not None:
            average.parameters = averaged

    def evaluate(self, batches: Iterable[Any]) -> Evaluation:
        """Held-out loss and accuracy, of the moving average if there is one."""
        inputs = (self.inputs(batch) for batch in batches)
        with nullcontext() if self.average is None else self.average.swapped(self.model):
            return evaluate(self.model, inputs, objective=self.objectives, segments=self.settings.segments)

    def use_average(self) -> None:
        """Replace the weights of the model by the moving average, permanently."""
        assert self.average is not None
        self.model.parameters, self.average = self.average.parameters, None

    # ---- saving -----------------------------------------------------------------------------------------------------

    def state_arrays(self) -> dict[str, np.ndarray]:
        arrays = {f"optimizer/{name}": array for name, array in self.optimizer.state_arrays().items()}
        return arrays if self.average is None else {**arrays, **self.average.state_arrays()}

    def state_numbers(self) -> dict[str, Any]:
        return {
            "optimizer": self.settings.optimizer,
            "counters": dict(self.optimizer.state_numbers),
            "dropout_seed": self.model.dropout_seed,
            "costs": self.costs.seconds,
        }

    def load(self, arrays: Mapping[str, np.ndarray], numbers: Mapping[str, Any]) -> None:
        if numbers["optimizer"] != self.settings.optimizer:
            raise TrainingError(
                f"the checkpoint was saved with optimizer {numbers['optimizer']}, but the run uses "
                f"{self.settings.optimizer}"
            )
        own = {name.removeprefix("optimizer/"): a for name, a in arrays.items() if name.startswith("optimizer/")}
        self.optimizer.load_state_arrays(own)
        if self.average is not None:
            self.average.load_state_arrays({name: a for name, a in arrays.items() if name.startswith("ema/")})
        self.load_numbers(numbers)

    def load_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Restore the counters that `state_numbers` returned."""
        self.optimizer.load_state_numbers(numbers["counters"])
        self.model.dropout_seed = int(numbers["dropout_seed"])
        self.costs.seconds.update(numbers["costs"])

    @property
    def checkpoint_bytes(self) -> int:
        """The approximate size of a checkpoint."""
        number = 8 if self.settings.precision == "float64" else 4
        copies = 1 + len(self.optimizer.state) + (self.average is not None)
        return self.model.get_parameter_count() * number * copies

    # ---- speed ------------------------------------------------------------------------------------------------------

    def matmul_rate(self) -> float:
        """Measured operations per second of a matrix product on this machine, in the precision of the run."""
        engine = self.model.engine
        if engine.name == "numpy":
            return 1e9 * measure_matmul_rate(engine.dtype_name, engine.threads, seconds=0.2)
        return 1e9 * measure_mlx_matmul_rate(engine.dtype_name, seconds=0.2)


def flops_per_token(config: EncoderConfig, settings: TrainingSettings, teacher: EncoderConfig | None = None) -> float:
    """Floating-point operations of training per token, with rows of the full length, and those of a teacher."""
    tokens = settings.batch * settings.length
    objectives = Objectives.parse(settings.objective)
    head = objectives.head_type
    share = settings.mask_rate_at(0.5) if HEADS[head].scored_share < 1 else 1.0  # the mean rate of the run
    scored = round(tokens * share)
    flops = training_flops(config, settings.batch, settings.length, head=head, scored_rows=scored)
    if teacher is not None:
        scores = "mlm" if "scores" in objectives.taught else None
        flops += sum(forward_flops(teacher, settings.batch, settings.length, head=scores, scored_rows=scored).values())
    return flops / tokens


def require_teacher(settings: TrainingSettings) -> None:
    """Raise if only one of teacher and an objective that compares with one is given, before anything is read."""
    objectives = Objectives.parse(settings.objective)
    if settings.teacher:
        objectives.check_taught()
    for objective, _ in objectives.terms:
        if objective.taught and not settings.teacher:
            raise TrainingError(
                f"the objective {objective.name!r} compares with a teacher; name its folder with --teacher FOLDER, or "
                f"choose another --objective, such as mlm"
            )


def teacher_of(settings: TrainingSettings, data: TrainingData, student: Model, objectives: Objectives) -> Teacher:
    """The teacher of a run, on the engine of the student."""
    teacher = open_teacher(
        settings.teacher, data.tokenizer, objectives.taught, settings.temperature, engine=settings.engine,
        dtype=settings.precision, threads=student.engine.threads if student.engine.limits_blas else None,
    )  # fmt: skip
    longest = teacher.model.config.max_length
    if settings.length > longest:
        raise TrainingError(
            f"rows of {settings.length} tokens do not fit the {longest} positions of the teacher {settings.teacher}; "
            f"lower --length"
        )
    return teacher


def load_finished(model: Model, folder: str | Path) -> None:
    """Load the weights of a finished run into a model of the same config, with the head that was trained."""
    saved = open_checkpoint(folder).config_path.parent
    if not isinstance(model.head, ReplacedTokenHead) or not (saved / GENERATOR).is_dir():
        model.load_checkpoint(folder)
        return
    parts = model.head.finished(model)  # models of the right shapes
    for name, part in parts.items():
        part.load_checkpoint(saved / name)
    model.head.take(model, parts)


def start_from(model: Model, folder: str, tokenizer: Any) -> None:
    """Load the first weights: of a model of the same config, or of one of another family that this one can use."""
    start = FAMILIES[model.config.family].start if model.config.family in FAMILIES else None
    other = None if start is None else load(folder, engine="numpy")
    same_tokens = same_vocabulary(folder, tokenizer)
    if start is None or other is None or type(other.config) is type(model.config):
        if same_tokens:
            load_finished(model, folder)
    else:
        start(model, other)
        if other.config.vocab_size != model.config.vocab_size:
            return  # `start` took no table of tokens
    if not same_tokens:
        raise TrainingError(
            f"the vocabulary of {folder} is not that of the corpus, so its weights belong to other tokens; give text "
            f"files as --corpus and {folder} as --tokenizer, or begin with random weights"
        )


OF_THE_TEACHER = ("teacher_size",)  # fields of a config that follow from the teacher, which is opened later


def config_of(settings: TrainingSettings, data: TrainingData) -> EncoderConfig:
    """The config of the model of a run, before a teacher changes it."""
    tokenizer = data.tokenizer
    return config_for(settings, tokenizer.vocab_size, tokenizer.pad_id, tokenizer.sep_id)


def check_parts(config: EncoderConfig, settings: TrainingSettings, objectives: Objectives) -> None:
    """Raise if a model with this config has not the parts that the objectives or the segments of a run need."""
    for objective, _ in objectives.terms:
        need = ""
        if objective.rows in ("next_sentence", "sentence_order") and config.type_vocab_size < 2:
            need = "2 token types: add --type-vocab-size 2"
        elif objective.rows == "permuted" and config.embeddings != "two_streams":
            need = "a model of two streams: choose --family xlnet"
        elif objective.rows == "next_token" and not config.causal:
            need = "a causal model: add --causal, or choose --family gpt2"
        if need:
            raise TrainingError(f"the objective {objective.name!r} needs {need}; or choose another --objective")
    if settings.segments > 1 and not ATTENTIONS[config.attention].masks_with_memory:
        raise TrainingError(
            f"the attention {config.attention!r} takes no padding beside a memory, so rows cannot be read in "
            f"{settings.segments} segments; choose --family xlnet, or leave --segments out"
        )


def build_model(
    settings: TrainingSettings, data: TrainingData, objectives: Objectives, threads: int | None = None
) -> Model:
    """The model of a run, with random weights or those of `start_from`; `threads` is used if the settings have none."""
    config = config_of(settings, data)
    check_parts(config, settings, objectives)
    options: dict[str, Any] = {
        "engine": settings.engine,
        "dtype": settings.precision,
        "threads": settings.threads or threads,
        "seed": settings.seed,
    }
    model = BertWithHead(config, objectives.head_type, **options)
    if settings.start_from:
        start_from(model, settings.start_from, data.tokenizer)
        bad = [n for n, a in model.parameters.items() if not np.isfinite(model.engine.to_numpy(a)).all()]
        if bad:
            raise TrainingError(
                f"{settings.start_from} has numbers that are not finite in {bad[0]}; give --start-from another model"
            )
    model.set_training(True)
    model.set_checkpointing(settings.gradient_checkpointing)
    return model
