"""A scaling study in a folder; it can be interrupted and resumed.

    STUDY/study.json          the plan, and the tokens that follow from it
    STUDY/runs/size-2-.../    an ordinary run for every point
    STUDY/result.json         the points, the law, the prediction and its check
    STUDY/report.html         the report

Finished runs are not trained again and an unfinished run is resumed, so an interrupted study gives the same result.
"""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from glassbert.errors import TrainingError
from glassbert.evaluation.scaling.budget import Pace, measure_pace, plan_tokens
from glassbert.evaluation.scaling.outcome import Outcome, TrainedRun
from glassbert.evaluation.scaling.plan import Point, StudyPlan, points_of, shapes_of
from glassbert.evaluation.scaling.report import study_page
from glassbert.files import write_json
from glassbert.training.building import TrainingComponents, load_finished
from glassbert.training.data import TrainingData, open_data
from glassbert.training.display import Display
from glassbert.training.history import History, read_result
from glassbert.training.planning.table import add_rows, row_of
from glassbert.training.run_folder import RunFolder
from glassbert.training.trainer import Trainer

FORMAT = "glassbert-scaling-study"
ERROR_ROWS = 1_024  # held-out rows for the standard error of the loss


class Study:
    """Open a study: a new one with `plan`, or the one in the folder.

    confirm          train the predicted size too, after its prediction is written
    predict, count   another prediction from the trained points
    table            the table of reference runs that the finished runs are added to (see `training.planning.table`)
    on_message       called with a line of text before each point
    """

    def __init__(
        self,
        folder: str | Path,
        plan: StudyPlan | None = None,
        *,
        confirm: bool = False,
        predict: float | None = None,
        count: str | None = None,
        table: Path | None = None,
        display: Callable[[], Display] | None = None,
        on_message: Callable[[str], None] = lambda text: None,
    ):
        self.folder = Path(folder)
        self.file = self.folder / "study.json"
        self.display, self.on_message, self.table = display, on_message, table
        stored = self._read_stored()
        given = self._resolve_plan(plan, stored)
        given = given.replace(predict=predict or given.predict, count=count or given.count)
        self.data = self._open_data(given)
        self._check_text(stored)
        self.shapes = shapes_of(given, self.data)
        target = [given.next_size] if confirm or self._confirmed(given.next_size) else []
        self.sizes = [*given.sizes, *target]
        self.pace: Pace | None = None
        tokens = tuple(stored["tokens"]) if stored else given.tokens
        if not stored:
            if given.minutes is None:
                points_of(given, self.shapes, self.data, self.sizes)  # checks the tokens before anything is timed
            self.pace = measure_pace(given, self.sizes, self.data, on_message)
            tokens = tokens or (plan_tokens(given, self.sizes, self.shapes, self.pace, self.data),)
        shared = {**given.settings, "corpus": (self.data.description.get("folder"),)}
        self.plan = given.replace(tokens=tokens, minutes=None, settings=shared)
        self.points = points_of(self.plan, self.shapes, self.data, self.plan.sizes)
        self.checks = points_of(self.plan, self.shapes, self.data, target)
        if not stored:
            content = {"format": FORMAT, "asked": given.to_dict(), "tokens": list(tokens)}
            write_json(self.file, {**content, "fingerprint": self.data.fingerprint})

    # ---- opening ----------------------------------------------------------------------------------------------------

    def _read_stored(self) -> dict[str, Any] | None:
        if not self.file.exists():
            names = {path.name for path in self.folder.iterdir()} if self.folder.is_dir() else set()
            if names - {"corpus"} or (self.folder.exists() and not self.folder.is_dir()):
                raise TrainingError(f"{self.folder} exists and is no study; choose a new folder with -o")
            return None
        try:
            content = json.loads(self.file.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}")
            StudyPlan.from_dict(content["asked"])
            return content
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TrainingError(f"{self.file} cannot be used: {error}") from error

    def _resolve_plan(self, plan: StudyPlan | None, stored: dict[str, Any] | None) -> StudyPlan:
        if stored is None:
            if plan is None:
                raise TrainingError(f"there is no study {self.folder} to resume; start a new one with --sizes")
            return plan
        before = StudyPlan.from_dict(stored["asked"])
        if plan is None:
            return before
        if other := before.differences(plan):
            raise TrainingError(
                f"{self.folder} is another study, with other {' and '.join(other)}; choose a new folder with -o, "
                f"or resume that study with `glassbert scale -o {shlex.quote(str(self.folder))}`"
            )
        return plan

    def _confirmed(self, size: float) -> bool:
        """Whether an earlier call has trained this size, or started to."""
        return any((self.folder / "runs").glob(f"size-{size:g}-tokens-*/settings.json"))

    def _open_data(self, plan: StudyPlan) -> TrainingData:
        settings = plan.settings_of(Point(plan.sizes[0], 1, 0))
        return open_data(settings, self.folder)

    def _check_text(self, stored: dict[str, Any] | None) -> None:
        if stored and stored["fingerprint"] != self.data.fingerprint:
            raise TrainingError(
                f"the corpus or tokenizer of {self.folder} has changed since the study started; restore it, or start a "
                f"new study with -o"
            )

    # ---- training ---------------------------------------------------------------------------------------------------

    def run(self) -> Outcome | None:
        """Train the missing points and return the result; None if the training was interrupted."""
        trained = self._train(self.points)
        if trained is None:
            return None
        outcome = self._outcome(trained)
        self._write(outcome)  # the prediction is on disk before the predicted size is trained
        if outcome.law is None:
            return outcome
        checks = self._train(self.checks)
        if checks:
            outcome = self._outcome([*trained, *checks], outcome.standard_error)
            self._write(outcome)
        return None if checks is None else outcome

    def _train(self, points: Sequence[Point]) -> list[TrainedRun] | None:
        found = []
        for number, point in enumerate(points, 1):
            run = RunFolder(self.folder / "runs" / point.name)
            if read_result(run) is None:
                self.on_message(
                    f"Point {number} of {len(points)}: size {point.size:g}, {point.tokens:,} tokens, seed {point.seed}"
                )
                if self._trainer(point, run).train().stopped == "interrupted":
                    return None
            found.append(self._trained(point, run))
            if self.table is not None:
                with suppress(TrainingError):  # an objective whose losses are not comparable
                    add_rows([row_of(History.read(run))], self.table)
        return found

    def _trainer(self, point: Point, run: RunFolder) -> Trainer:
        display = self.display() if self.display else None
        settings = self.plan.settings_of(point)
        # The masks and the order of the training rows depend on the seed; the rest of the data is shared.
        data = self.data if point.seed == 0 else open_data(settings, self.folder)
        if run.settings_file.exists():
            return Trainer.resume(run.path, data=data, display=display)
        return Trainer(settings, run.path, data=data, display=display)

    def _trained(self, point: Point, run: RunFolder) -> TrainedRun:
        result = read_result(run)
        assert result is not None
        rate = self.plan.settings_of(point).learning_rate
        folder = str(run.path.relative_to(self.folder))
        return TrainedRun(point, folder, result["loss"], result["accuracy"], result["seconds"], rate)

    # ---- result -----------------------------------------------------------------------------------------------------

    def _outcome(self, trained: Sequence[TrainedRun], standard_error: float | None = None) -> Outcome:
        text = self.data.description.get("splits", {}).get("train", {}).get("tokens", 0)
        error = self._standard_error(trained) if standard_error is None else standard_error
        return Outcome(self.plan, self.shapes, trained, text, error)

    def _standard_error(self, trained: Sequence[TrainedRun]) -> float | None:
        """The standard error of the held-out loss, from single batches of the cheapest model."""
        cheapest = trained[0]
        settings = self.plan.settings_of(cheapest.point).replace(ema=None)  # the saved model is already the average
        components = TrainingComponents(settings, self.data)
        load_finished(components.model, self.folder / cheapest.run / "model")
        losses = [components.evaluate([batch]).loss for batch in self.data.held_out(ERROR_ROWS)]
        rows = min(self.data.held_out_rows(), settings.final_evaluation_rows)
        batches = rows / self.data.validation_rows
        return statistics.stdev(losses) / batches**0.5 if len(losses) > 1 else None

    def _write(self, outcome: Outcome) -> None:
        write_json(self.folder / "result.json", outcome.as_json())
        study_page(outcome, self.folder).write(self.folder / "report.html")
