"""A study from its plan to its report, in a folder that can be left and come back to.

    STUDY/study.json          what was asked for, and the tokens that follow from it
    STUDY/runs/size-2-.../    a run for every point, like any other run
    STUDY/result.json         the points, the law, the prediction and how it ended
    STUDY/report.html         what to look at

A finished run is never trained again and an unfinished one goes on, so a study that was stopped at any moment ends as
if it had not been.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from glassbert.errors import TrainingError
from glassbert.evaluation.scaling.budget import Pace, measure_pace, plan_tokens
from glassbert.evaluation.scaling.outcome import Outcome, Trained
from glassbert.evaluation.scaling.plan import Point, StudyPlan, points_of, shapes_of
from glassbert.evaluation.scaling.report import study_page
from glassbert.files import write_json
from glassbert.training.building import Machinery
from glassbert.training.data import TrainingData, open_data
from glassbert.training.display import Display
from glassbert.training.history import read_result
from glassbert.training.run_folder import RunFolder
from glassbert.training.trainer import Trainer

FORMAT = "glassbert-scaling-study"
ERROR_ROWS = 1_024  # held-out rows that say how much the sample of text matters
Told = Callable[[str], None]


class Study:
    """A study in its folder, ready to be trained: a new one where a plan is given, or the one that is there.

    `confirm` trains the predicted size too, after its prediction is written. `predict` and `count` ask something else
    of points that are already trained.
    """

    def __init__(
        self,
        folder: str | Path,
        plan: StudyPlan | None = None,
        *,
        confirm: bool = False,
        predict: float | None = None,
        count: str | None = None,
        display: Callable[[], Display] | None = None,
        told: Told = lambda text: None,
    ):
        self.folder = Path(folder)
        self.file = self.folder / "study.json"
        self.display, self.told = display, told
        stored = self._stored()
        asked = self._asked(plan, stored)
        asked = asked.replace(predict=predict or asked.predict, count=count or asked.count)
        self.data = self._open_data(asked)
        self._check_text(stored)
        self.shapes = shapes_of(asked, self.data)
        target = [asked.next_size] if confirm or self._confirmed(asked.next_size) else []
        self.sizes = [*asked.sizes, *target]
        self.pace: Pace | None = None
        tokens = tuple(stored["tokens"]) if stored else asked.tokens
        if not stored:
            if asked.minutes is None:
                points_of(asked, self.shapes, self.data, self.sizes)  # too few tokens are said before anything is timed
            self.pace = measure_pace(asked, self.sizes, self.data, told)
            tokens = tokens or (plan_tokens(asked, self.sizes, self.shapes, self.pace, self.data),)
        shared = {**asked.settings, "corpus": (self.data.description.get("folder"),)}
        self.plan = asked.replace(tokens=tokens, minutes=None, settings=shared)
        self.points = points_of(self.plan, self.shapes, self.data, self.plan.sizes)
        self.checks = points_of(self.plan, self.shapes, self.data, target)
        if not stored:
            content = {"format": FORMAT, "asked": asked.to_dict(), "tokens": list(tokens)}
            write_json(self.file, {**content, "fingerprint": self.data.fingerprint})

    # ---- opening ----------------------------------------------------------------------------------------------------

    def _stored(self) -> dict[str, Any] | None:
        if not self.file.exists():
            there = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
            if there - {"corpus"} or (self.folder.exists() and not self.folder.is_dir()):
                raise TrainingError(f"{self.folder} holds something that is no study; choose a new folder with -o")
            return None
        try:
            content = json.loads(self.file.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}")
            StudyPlan.from_dict(content["asked"])
            return content
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TrainingError(f"{self.file} cannot be used: {error}") from error

    def _asked(self, plan: StudyPlan | None, stored: dict[str, Any] | None) -> StudyPlan:
        if stored is None:
            if plan is None:
                raise TrainingError(f"there is no study {self.folder} to go on with; begin one by naming its --sizes")
            return plan
        before = StudyPlan.from_dict(stored["asked"])
        if plan is None:
            return before
        if other := before.differences(plan):
            raise TrainingError(
                f"{self.folder} holds another study, with other {' and '.join(other)}; choose a new folder with -o, "
                f"or go on with that one by `glassbert scale -o {self.folder}`"
            )
        return plan

    def _confirmed(self, size: float) -> bool:
        """Whether an earlier sitting has trained this size, or has begun to."""
        return any((self.folder / "runs").glob(f"size-{size:g}-tokens-*/settings.json"))

    def _open_data(self, asked: StudyPlan) -> TrainingData:
        settings = asked.settings_of(Point(asked.sizes[0], 1, 0))
        return open_data(settings, self.folder)

    def _check_text(self, stored: dict[str, Any] | None) -> None:
        if stored and stored["fingerprint"] != self.data.fingerprint:
            raise TrainingError(
                f"the corpus or tokenizer of {self.folder} is not the one the study began with; restore it, or begin "
                f"a new study with -o"
            )

    # ---- training ---------------------------------------------------------------------------------------------------

    def run(self) -> Outcome | None:
        """Train what is missing, and tell what came out; None where somebody stopped it."""
        trained = self._train(self.points)
        if trained is None:
            return None
        outcome = self._outcome(trained)
        self._write(outcome)  # the prediction is on disk before the size it speaks of is trained
        if outcome.law is None:
            return outcome
        checks = self._train(self.checks)
        if checks:
            outcome = self._outcome([*trained, *checks], outcome.shift)
            self._write(outcome)
        return None if checks is None else outcome

    def _train(self, points: Sequence[Point]) -> list[Trained] | None:
        found = []
        for number, point in enumerate(points, 1):
            run = RunFolder(self.folder / "runs" / point.name)
            if read_result(run) is None:
                self.told(f"Point {number} of {len(points)}: size {point.size:g}, {point.tokens:,} tokens, "
                          f"seed {point.seed}")  # fmt: skip
                if self._trainer(point, run).train().stopped == "interrupted":
                    return None
            found.append(self._trained(point, run))
        return found

    def _trainer(self, point: Point, run: RunFolder) -> Trainer:
        display = self.display() if self.display else None
        settings = self.plan.settings_of(point)
        # The masks and the order of the training rows follow the seed; everything else about the text is shared.
        data = self.data if point.seed == 0 else open_data(settings, self.folder)
        if run.settings_file.exists():
            return Trainer.resume(run.path, data=data, display=display)
        return Trainer(settings, run.path, data=data, display=display)

    def _trained(self, point: Point, run: RunFolder) -> Trained:
        result = read_result(run)
        assert result is not None
        rate = self.plan.settings_of(point).learning_rate
        where = str(run.path.relative_to(self.folder))
        return Trained(point, where, result["loss"], result["accuracy"], result["seconds"], rate)

    # ---- telling ----------------------------------------------------------------------------------------------------

    def _outcome(self, trained: Sequence[Trained], shift: float | None = None) -> Outcome:
        text = self.data.description.get("splits", {}).get("train", {}).get("tokens", 0)
        return Outcome(self.plan, self.shapes, trained, text, self._shift(trained) if shift is None else shift)

    def _shift(self, trained: Sequence[Trained]) -> float | None:
        """The standard error of a held-out loss, from the losses of single batches of the cheapest model."""
        cheapest = trained[0]
        settings = self.plan.settings_of(cheapest.point).replace(ema=None)  # the saved model is the average already
        machinery = Machinery(settings, self.data)
        machinery.model.load_checkpoint(self.folder / cheapest.run / "model")
        losses = [machinery.evaluate([batch]).loss for batch in self.data.held_out(ERROR_ROWS)]
        rows = min(self.data.held_out_rows(), settings.final_evaluation_rows)
        batches = -(-rows // self.data.validation_rows)
        return statistics.stdev(losses) / batches**0.5 if len(losses) > 1 else None

    def _write(self, outcome: Outcome) -> None:
        write_json(self.folder / "result.json", outcome.as_json())
        study_page(outcome, self.folder).write(self.folder / "report.html")
