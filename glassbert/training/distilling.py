"""`distill`: pretraining of a student that learns from a larger masked language model.

    from glassbert.training.distilling import distill

    trainer = distill("runs/large", corpus="corpus", student="mini", minutes=30)
    result = trainer.train()

It returns an ordinary trainer: reports, receipts and `glassbert resume` are those of pretraining.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glassbert.checkpoints.locate import open_checkpoint
from glassbert.errors import InputError, TrainingError
from glassbert.text.loading import find_tokenizer, same_vocabulary
from glassbert.training.adapting.adapt import preset_of
from glassbert.training.adapting.extension import load_masked
from glassbert.training.objectives import Objectives
from glassbert.training.settings import TrainingSettings
from glassbert.training.trainer import Trainer

OBJECTIVE = "mlm+2*distill"
TEMPERATURE = 1.0  # with 29 M parameters teaching 4.4 M, docs/recipes.md


OF_RANDOM_WEIGHTS = ("preset", "family", "size", "recipe")  # settings that choose a shape


def check_student(student: str, settings: Mapping[str, Any]) -> None:
    """Raise for a setting that chooses the shape of a model, which a pretrained student has already."""
    for name in OF_RANDOM_WEIGHTS:
        if settings.get(name):
            raise TrainingError(
                f"--{name} {settings[name]} is the shape of random weights, and the student {student} has its own; "
                f"add --from-scratch, or leave out --{name}"
            )


def check_scores(teacher: str, student: str, objective: str) -> None:
    """Raise if the objective compares scores of teacher and student, and they have different tokens."""
    if "scores" not in Objectives.parse(objective).taught:
        return
    try:
        own = find_tokenizer(open_checkpoint(student).config_path.parent)
    except InputError:  # it has none, and is taken to have that of the teacher
        return
    if not same_vocabulary(teacher, own):
        raise TrainingError(
            f"the objective {objective!r} compares scores of tokens, and the teacher {teacher} has another vocabulary "
            f"than the student {student}; learn its hidden states, with --objective mlm+3*hidden, or give "
            f"--from-scratch for a student with its vocabulary"
        )


def distill(
    teacher: str,
    corpus: str | Sequence[str],
    student: str = "",
    *,
    run: str | Path | None = None,
    display: Any = None,
    **settings: Any,
) -> Trainer:
    """Prepare the training of a student and return its trainer.

    corpus    text files, a corpus folder in the teacher's vocabulary (in that of the student where only hidden states
              are learned), or "python:" for the built-in texts
    student   a pretrained model to begin with; "": random weights, of `preset`, `size` or `recipe`
    settings  fields of `TrainingSettings`: budget, objective, temperature and so on
    """
    if not teacher:
        raise TrainingError("distillation needs a teacher, a trained model to learn from; name it with --teacher")
    paths = [corpus] if isinstance(corpus, str) else list(corpus)
    chosen: dict[str, Any] = {"objective": OBJECTIVE, "temperature": TEMPERATURE, **settings}
    if student:
        check_student(student, settings)
        preset, changes = preset_of(load_masked(student, engine="numpy").config)
        chosen |= {"preset": preset, "model": {**changes, **settings.get("model", {})}, "start_from": student}
        check_scores(teacher, student, chosen["objective"])
    if not (len(paths) == 1 and (Path(paths[0]) / "manifest.json").exists()):
        by_words = student and Objectives.parse(chosen["objective"]).taught == {"states"}
        chosen.setdefault("tokenizer", str(open_checkpoint(student if by_words else teacher).config_path.parent))
    return Trainer(TrainingSettings.from_dict({**chosen, "teacher": teacher, "corpus": paths}), run, display=display)
