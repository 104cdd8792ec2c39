"""Teacher and student side by side: scores on the same examples, sizes and speed.

    content = compare_with_teacher(prepared, model, outcome, without)
    for row in rows_of(content): ...

The content is stored in result.json under "distillation".
"""

from __future__ import annotations

from typing import Any

from glassbert.finetuning.outcome import Outcome
from glassbert.finetuning.predictor import Predictor
from glassbert.finetuning.preparing import Prepared
from glassbert.finetuning.teaching import texts_per_second
from glassbert.metrics import Score
from glassbert.models.model import Model

HEADERS = ("", "score", "95 %", "of the teacher", "parameters", "float32", "texts/s")
SECONDS = 2.0  # of measuring each speed


def compare_with_teacher(
    prepared: Prepared, model: Model, outcome: Outcome, without: Outcome | None = None
) -> dict[str, Any] | None:
    """What result.json says about teacher and student; None if there is no teacher."""
    teacher, data = prepared.teacher, prepared.dev
    if teacher is None:
        return None
    truth, resamples = prepared.dev_examples.truth, prepared.settings.resamples
    theirs = teacher.outcome(data, truth, prepared.scores_folder, resamples)
    student = Predictor(model, prepared.tokenizer, outcome.card)
    *of_teachers, ours = [
        texts_per_second(one, data, SECONDS) for one in (*(one.predictor for one in teacher.models), student)
    ]
    together = 1.0 / sum(1.0 / speed for speed in of_teachers) if all(of_teachers) else 0.0  # each reads every text
    name = "teacher" if len(of_teachers) == 1 else f"{len(of_teachers)} teachers"
    models = [_facts(name, theirs.main, teacher.parameters, together)]
    models.append(_facts("student", outcome.main, model.get_parameter_count(), ours))
    if without is not None:
        models.append(_facts("student without teacher", without.main, model.get_parameter_count(), ours))
    return {
        "teacher": teacher.title,
        "metric": outcome.card.metric,
        "examples": {"labelled": len(prepared.train), "all": len(prepared.train_examples)},
        "models": models,
    }


def _facts(name: str, score: Score, parameters: int, speed: float) -> dict[str, Any]:
    return {
        "name": name, "score": score.value, "low": score.low, "high": score.high, "parameters": parameters,
        "texts_per_second": round(speed, 1),
    }  # fmt: skip


def rows_of(content: dict[str, Any]) -> list[list[str]]:
    """The models as rows of text, under `HEADERS`."""
    best = content["models"][0]["score"]
    rows = []
    for one in content["models"]:
        known = one["score"] is not None
        share = f"{one['score'] / best:.1%}" if known and best else "–"
        rows.append([
            one["name"],
            f"{one['score']:.4f}" if known else "–",
            f"{one['low']:.4f} to {one['high']:.4f}" if one["low"] is not None else "–",
            share,
            f"{one['parameters']:,}",
            f"{4 * one['parameters'] / 1e6:,.1f} MB",
            f"{one['texts_per_second']:,.0f}",
        ])  # fmt: skip
    return rows


def sentence(content: dict[str, Any]) -> str:
    """What the table is about."""
    count = content["examples"]
    further = count["all"] - count["labelled"]
    texts = f", and for {further:,} texts without labels" if further else ""
    return (
        f"Teacher: {content['teacher']}. It answered for the {count['labelled']:,} training examples{texts}. Scores: "
        f"{content['metric']} on the same held-out examples."
    )
