"""The settings of a pretraining run, in one frozen dataclass.

Settings and corpus determine a run completely. Values from a TOML file or from flags override the defaults of the
preset (`glassbert.training.recipes`). All fields are checked before anything is read or written.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from glassbert.checkpoints.family import PRESETS, family_name
from glassbert.errors import TrainingError
from glassbert.models.config import EncoderConfig
from glassbert.training.optimizers import OPTIMIZERS
from glassbert.training.settings_base import (
    SHORT,
    Check,
    Settings,
    about,
    check_fields,
    check_known,
    document,
    is_between,
    is_flag,
    is_integer,
    is_number,
    is_path,
    is_text,
    one_in,
    one_of,
)

MASK_SENTENCE = "Paris is the [MASK] of France."
BUILT_IN_SENTENCE = "This function returns a [MASK] of strings."  # the built-in texts are about Python
LONGEST, LARGEST_VOCABULARY = 2**20, 2**24  # tables of these sizes are made before a model is
BUDGETS = ("steps", "tokens", "minutes")
# Config fields that follow from preset, corpus and teacher.
NOT_CHOSEN = ("family", "vocab_size", "series", "numbers", "teacher_size")
CONFIG_FIELDS = {f.name: f for f in dataclasses.fields(EncoderConfig) if f.name not in NOT_CHOSEN}


def config_fields(preset: Any) -> dict[str, Any]:
    """The fields of the config of a preset: those of every encoder, and those that only its family has."""
    config = PRESETS.get(preset) if isinstance(preset, str) else None
    own = () if config is None else dataclasses.fields(config)
    return {**CONFIG_FIELDS, **{f.name: f for f in own if f.name not in NOT_CHOSEN}}


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """The settings of a pretraining run. Lengths are in tokens, shares between 0 and 1, intervals in steps."""

    recipe: str = about(
        "", "small-best: choose shape, rows, batch and rate for the budget on this machine (docs/recipes.md).", "Model"
    )
    family: str = about(
        "",
        "A member (`glassbert family`) at its Mini size, with its own objective and tokenizer.",
        "Model",
    )
    preset: str = about("mini", "The model config: mini, larger, bert-base, modernbert-base, ...", "Model")
    size: float | None = about(
        None, "A size between the presets, as a number of layers: 3 is Mini, 6 Larger, 12 BERT-base.", "Model"
    )
    model: Mapping[str, Any] = field(default_factory=dict)  # config fields that differ from the preset
    dropout: float | None = about(None, "The rate of all dropouts of the model.", "Model")
    start_from: str = about("", "A saved model, or a run, to take the initial weights from.", "Model")

    corpus: tuple[str, ...] = about(
        (),
        "A corpus folder, or text files to build one from (may be repeated). Without it: the built-in texts.",
        "Text",
    )
    general: tuple[str, ...] = about(
        (), "A second corpus, or text files, mixed into every batch, against forgetting (may be repeated).", "Text"
    )
    general_share: float = about(0.3, "The share of the rows that come from --general.", "Text")
    tokenizer: str = about("", "A tokenizer folder for text files. Without it, a tokenizer is trained on them.", "Text")
    tokenizer_kind: str = about(
        "wordpiece",
        "The kind of tokenizer that is trained on text files: wordpiece, bpe (of bytes) or unigram.",
        "Text",
    )
    vocab_size: int = about(8_192, "Vocabulary size of a tokenizer trained on text files.", "Text")
    length: int = about(64, "Tokens per row.", "Text")
    short_length: int | None = about(None, "Curriculum: rows of this length first (with more rows per batch).", "Text")
    short_share: float = about(0.5, "Curriculum: the share of the run with short rows.", "Text")
    packing: str = about(
        "sentences", "How documents are split into rows: sentences, or tokens (slices of exact length).", "Text"
    )
    segments: int = about(1, "Read rows in so many segments, each with the memory of those before it (XLNet).", "Text")
    masking: str = about("tokens", "What is masked: tokens, words, spans, or ngrams (1 to 3 words).", "Text")
    mask_rate: float = about(0.3, "The share of masked tokens at the start; for the whole run if given alone.", "Text")
    final_mask_rate: float | None = about(0.15, "Curriculum: the share at the end; it changes linearly.", "Text")

    objective: str = about("mlm", "The objective, a weighted sum: mlm, rtd, mlm+sop, mlm+0.5*nsp.", "Learning")
    teacher: str = about(
        "",
        "A trained model to learn from: --objective mlm+distill, or mlm+hidden for one with other tokens.",
        "Learning",
    )
    temperature: float = about(2.0, "Softens the scores of teacher and student for the objective distill.", "Learning")
    optimizer: str = about("muon", "adamw, lion, sophia, muon or sgd.", "Learning")
    learning_rate: float = about(3e-3, "The highest learning rate of the schedule.", "Learning")
    weight_decay: float = about(0.01, "Decoupled weight decay; not for norms and biases.", "Learning")
    clip: float | None = about(1.0, "Larger gradient norms are scaled down to this; 0 turns it off.", "Learning")
    schedule: str = about(
        "linear", "constant, linear, cosine, inverse-root or wsd (warmup, stable, decay).", "Learning"
    )
    warmup: float = about(0.05, "The share of the run with a rising learning rate.", "Learning")
    batch: int = about(64, "Rows per logical batch.", "Learning")
    physical_batch: int | None = about(
        None, "Rows computed at a time; their gradients are added up over the batch.", "Learning"
    )
    ema: float | None = about(None, "The decay of a moving average of the weights, which is then saved.", "Learning")

    steps: int | None = about(None, "The budget in steps.", "Budget")
    tokens: int | None = about(None, "The budget in tokens.", "Budget")
    minutes: float | None = about(None, "The budget in minutes, with evaluation and saving.", "Budget")
    patience: int | None = about(None, "Stop after this number of evaluations without a lower loss.", "Budget")
    max_skipped: int = about(
        100, "Stop after this number of steps without a finite gradient (10 in a row also stop).", "Budget"
    )

    evaluate_every: int | None = about(None, "Steps between evaluations. Without it: 20 per run.", "Monitoring")
    evaluation_rows: int = about(512, "Held-out rows per evaluation during the run.", "Monitoring")
    final_evaluation_rows: int = about(4_096, "Held-out rows of the last evaluation.", "Monitoring")
    checkpoint_every: int | None = about(None, "Steps between checkpoints. Without it: 10 per run.", "Monitoring")
    keep: int = about(2, "The number of last checkpoints to keep; the best is kept too.", "Monitoring")
    snapshots: int = about(
        0, "The number of snapshots of the weights to keep: at 0, ..., 1/8, 1/4 and 1/2 of the run.", "Monitoring"
    )
    sentence: str = about(
        MASK_SENTENCE, "A sentence whose [MASK] is predicted repeatedly during the run.", "Monitoring"
    )
    tensorboard: bool = about(False, "Also write TensorBoard files (needs tensorboardX).", "Monitoring")
    wandb: str = about("", "The Weights & Biases project to log to (needs wandb).", "Monitoring")

    engine: str = about("auto", "auto, numpy or mlx.", "Machine")
    precision: str = about("float32", "float32; bfloat16 (NumPy: with oneDNN); float64 on NumPy.", "Machine")
    threads: int | None = about(None, "Threads of the NumPy engine. Without it: all cores.", "Machine")
    gradient_checkpointing: bool = about(False, "Recompute activations: less memory, a third more time.", "Machine")
    seed: int = about(0, "The seed of initial weights and dropout.", "Machine")
    data_seed: int = about(0, "The seed of row order and masks.", "Machine")

    def __post_init__(self) -> None:
        for name in ("corpus", "general"):
            paths: Any = getattr(self, name)
            several = (
                () if paths is None or paths == "" else tuple(paths) if isinstance(paths, list | tuple) else (paths,)
            )
            object.__setattr__(self, name, several)
        check_fields(self, CHECKS, OPTIONAL)
        if self.clip == 0:
            object.__setattr__(self, "clip", None)
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(given) > 1:
            raise TrainingError(f"a run has one budget, but {' and '.join(given)} were given; choose one of them")
        if self.physical_batch is not None and self.physical_batch > self.batch:
            raise TrainingError(
                f"physical_batch {self.physical_batch} is larger than the logical batch of {self.batch} rows"
            )
        if self.short_length is not None and self.short_length >= self.length:
            raise TrainingError(f"short_length {self.short_length} must be below length {self.length}")
        if 2 * self.segments > self.length:
            raise TrainingError(f"rows of {self.length} tokens are too short for {self.segments} segments")
        if self.sentence and self.sentence.count("[MASK]") != 1:
            raise TrainingError(f"the sentence must contain [MASK] exactly once, as in {MASK_SENTENCE!r}")
        check_known(self.model, config_fields(self.preset), "the model")
        if self.family:
            from glassbert.training.recipes import check_preset_of_family

            check_preset_of_family(self.family, self.preset)

    @property
    def budget(self) -> tuple[str, float]:
        """Kind and amount of the budget; five minutes by default."""
        for name in BUDGETS:
            if (amount := getattr(self, name)) is not None:
                return name, float(amount)
        return "minutes", 5.0

    def mask_rate_at(self, progress: float) -> float:
        """The masking rate at this progress of the run."""
        if self.final_mask_rate is None:
            return self.mask_rate
        return self.mask_rate + progress * (self.final_mask_rate - self.mask_rate)

    def to_dict(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self),
            "corpus": list(self.corpus),
            "general": list(self.general),
            "model": dict(self.model),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Settings from fields of this class and of the model config; missing ones have the defaults of the preset."""
        from glassbert.training.recipes import defaults_for, preset_of

        values = {name.replace("-", "_"): value for name, value in values.items()}
        if values.get("family"):
            values["family"] = family_name(values["family"])
        check_known(
            values,
            {**_FIELDS, **config_fields(values.get("preset") or preset_of(values.get("family", "")))},
            "the settings",
        )
        values = _with_recipe(values)
        model = {**values.pop("model", {}), **{name: values.pop(name) for name in list(values) if name not in _FIELDS}}
        values.setdefault("preset", preset_of(values.get("family", "")))
        defaults = defaults_for(values["preset"], values.get("size"))
        if values.get("optimizer", defaults["optimizer"]) != defaults["optimizer"]:
            defaults["learning_rate"] = LEARNING_RATES.get(values["optimizer"], 1e-3)
        if "mask_rate" in values:
            defaults["final_mask_rate"] = None
        if not values.get("corpus"):
            defaults["sentence"] = BUILT_IN_SENTENCE
        return cls(**{**defaults, **values, "model": model})


def _with_recipe(values: dict[str, Any]) -> dict[str, Any]:
    """The values with the choices of their recipe. Settings that were saved are complete, and stay as they are."""
    from glassbert.training.budget_recipes import choose, fastest_precision, measured_operations

    if not values.get("recipe") or values.keys() >= _FIELDS.keys():
        return values
    engine = values.get("engine", "auto")
    choice = choose(values["recipe"], values, measured_operations(engine, values.get("threads")))
    model = {**choice.model, **values.get("model", {})}
    given = {name: value for name, value in values.items() if name in _FIELDS or name not in model}
    model.update({name: value for name, value in values.items() if name not in _FIELDS})
    precision = given.get("precision") or fastest_precision(engine)
    return {**choice.settings, **given, "precision": precision, "recipe": choice.name, "model": model}


LEARNING_RATES = {"adamw": 2e-3, "lion": 3e-4, "sophia": 5e-4, "muon": 3e-3, "sgd": 0.1}
PACKINGS = ("sentences", "tokens")
SCHEDULES = ("constant", "linear", "cosine", "inverse-root", "wsd")
MASKINGS = ("tokens", "words", "spans", "ngrams")
TOKENIZER_KINDS = ("wordpiece", "bpe", "unigram")
ENGINES = ("auto", "numpy", "mlx")
PRECISIONS = ("float32", "bfloat16", "float64")


def read_toml(path: str | Path) -> dict[str, Any]:
    """The fields of a TOML file; the table [model] has those of the model config."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainingError(f"the settings file {path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TrainingError(f"{path} is not TOML: {error}") from error


CHECKS: dict[str, Check] = {
    **dict.fromkeys(
        ("recipe", "family", "preset", "objective", "sentence", "wandb"),
        (is_text, "text"),
    ),
    **dict.fromkeys(("start_from", "tokenizer", "teacher"), (is_path, f"a path, {SHORT}")),
    **dict.fromkeys(("tensorboard", "gradient_checkpointing"), (is_flag, "true or false")),
    **dict.fromkeys(
        ("batch", "physical_batch", "steps", "tokens", "patience", "max_skipped", "evaluate_every", "checkpoint_every",
         "evaluation_rows", "final_evaluation_rows", "keep", "threads", "segments"),
        (is_integer(1), "a whole number of at least 1"),
    ),
    **dict.fromkeys(("seed", "data_seed", "snapshots"), (is_integer(0), "a whole number of at least 0")),
    **dict.fromkeys(("length", "short_length"), (is_integer(8, LONGEST), f"a whole number from 8 to {LONGEST:,}")),
    **dict.fromkeys(
        ("mask_rate", "final_mask_rate", "short_share", "general_share"), (is_between(0, 1), "between 0 and 1")
    ),
    "ema": (is_between(0, 1), "between 0 and 1, like 0.999"),
    "vocab_size": (is_integer(64, LARGEST_VOCABULARY), f"a whole number from 64 to {LARGEST_VOCABULARY:,}"),
    "minutes": (is_between(0, math.inf), "a number above 0"),
    "size": (is_between(0.5, 100), "between 1 and 100 (3 is Mini, 6 Larger, 12 BERT-base)"),
    "learning_rate": (is_between(0, math.inf), "a number above 0"),
    "temperature": (is_between(0, math.inf), "a number above 0"),
    "weight_decay": (lambda value: is_number(value) and value >= 0, "a number of at least 0"),
    "clip": (lambda value: is_number(value) and value >= 0, "a number of at least 0"),
    "dropout": (lambda value: is_number(value) and 0 <= value < 1, "in [0, 1)"),
    "warmup": (lambda value: is_number(value) and 0 <= value < 1, "in [0, 1)"),
    "optimizer": one_in(OPTIMIZERS),
    "schedule": one_of(*SCHEDULES),
    "masking": one_of(*MASKINGS),
    "tokenizer_kind": one_of(*TOKENIZER_KINDS),
    "packing": one_of(*PACKINGS),
    "engine": one_of(*ENGINES),
    "precision": one_of(*PRECISIONS),
    **dict.fromkeys(
        ("corpus", "general"), (lambda value: all(map(is_path, value)), f"a path or a list of paths, {SHORT}")
    ),
    "model": (lambda value: isinstance(value, Mapping), "a table of config fields"),
}  # fmt: skip
_FIELDS = {f.name: f for f in dataclasses.fields(TrainingSettings)}
OPTIONAL = {name for name, f in _FIELDS.items() if "None" in str(f.type)}

document(TrainingSettings, TrainingSettings)
