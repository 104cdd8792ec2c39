"""Parts of a run, tested separately: clock, budget, interval, allowance, log, forecast, entropy, display, folder."""

import errno
import importlib.metadata
import json
import math
import os

import numpy as np
import pytest
from rich.console import Console

import glassbert
from glassbert.errors import GlassBertError, TrainingError
from glassbert.training.budget import Allowance, Budget, Clock, Interval, times_in_a_run
from glassbert.training.checkpointing import read_state
from glassbert.training.display import (
    LiveDisplay,
    PlainDisplay,
    Status,
    distinct_words,
    duration,
    picture,
    plain_line,
    sparkline,
)
from glassbert.training.finishing import until_deadline
from glassbert.training.history import forecast_final_loss
from glassbert.training.log import RunLog, TensorBoard, read_log
from glassbert.training.monitor import entropy
from glassbert.training.run_folder import RunFolder, new_run_folder, versions


class FakeTime:
    """A time function that the test sets."""

    def __init__(self):
        self.time = 100.0

    def __call__(self):
        return self.time


def test_a_resumed_clock_continues():
    fake_time = FakeTime()
    clock = Clock(12.0, fake_time)
    fake_time.time += 3
    assert clock.elapsed == 15.0


def test_progress_by_steps_tokens_and_minutes():
    assert Budget("steps", 10).progress(5, 0, 0.0) == 0.5
    assert Budget("tokens", 1000).progress(0, 250, 0.0) == 0.25
    budget = Budget("minutes", 2, begun=10.0)
    budget.reserve = 10.0
    assert budget.progress(0, 0, 60.0) == 0.5
    assert budget.progress(0, 0, 110.0) == 1.0  # ten seconds are left for the end


def test_progress_never_decreases_when_the_reserve_changes():
    budget = Budget("minutes", 1, begun=0.0)
    budget.reserve = 30.0
    assert budget.progress(0, 0, 15.0) == 0.5
    budget.reserve = 0.0
    assert budget.progress(0, 0, 15.0) == 0.5


def test_a_reserve_larger_than_the_budget_ends_the_run_at_once():
    budget = Budget("minutes", 0.1, begun=1.0)
    budget.reserve = 10.0
    assert budget.progress(0, 0, 1.0) == 1.0


def test_the_learning_rate_is_read_in_the_middle_of_a_step():
    assert Budget("steps", 10).middle_of_step(0.2, 2, 0, 0, 0.0) == pytest.approx(0.25)
    assert Budget("minutes", 1).middle_of_step(0.2, 2, 0, 0, last_stride=0.02) == pytest.approx(0.21)
    assert Budget("minutes", 1).middle_of_step(0.0, 0, 0, 0, last_stride=0.0) > 0


def test_intervals_by_steps_and_by_share():
    assert [step for step in range(1, 10) if Interval(3, 0).due(step, 0, 0)] == [3, 6, 9]
    interval = Interval(None, 4)
    assert [i for i in range(1, 11) if interval.due(i, (i - 1) / 10, i / 10)] == [3, 5, 8, 10]


def test_short_runs_are_evaluated_rarely():
    assert times_in_a_run("steps", 60, 1, 20) == 2
    assert times_in_a_run("steps", 10_000, 1, 20) == 20
    assert times_in_a_run("tokens", 64 * 500, 64, 20) == 10


def test_an_allowance_spends_no_more_than_its_share():
    fake_time = FakeTime()
    clock, allowance, spent = Clock(0.0, fake_time), Allowance(0.02), 0.0
    for _ in range(10_000):
        fake_time.time += 0.05
        if allowance.permits(clock.elapsed):
            with allowance.spending(clock):
                fake_time.time += 0.3
                spent += 0.3
    assert 0.01 < spent / clock.elapsed <= 0.0201


def test_the_last_evaluation_ends_at_its_deadline_but_has_a_minimum_of_batches():
    fake_time = FakeTime()
    clock = Clock(now=fake_time)

    def batches():
        for i in range(9):
            fake_time.time += 1
            yield i

    assert list(until_deadline(batches(), clock, 4.0)) == [0, 1, 2, 3]
    assert list(until_deadline(batches(), clock, 4.0, least=3)) == [0, 1, 2]  # the deadline is past


def test_a_log_is_truncated_to_the_length_in_its_checkpoint(tmp_path):
    path = tmp_path / "log.jsonl"
    log = RunLog(path)
    log.write("train", 1, 0.1, loss=2.0)
    position = log.sync()
    log.write("train", 2, 0.2, loss=float("nan"))
    log.close()
    assert [line["loss"] for line in read_log(path)] == [2.0, "nan"]
    log = RunLog(path, position)
    log.write("train", 2, 0.3, loss=1.5)
    log.close()
    assert [line["loss"] for line in read_log(path)] == [2.0, 1.5]
    with pytest.raises(TrainingError, match="is shorter than the 10000 bytes in the checkpoint"):
        RunLog(path, 10_000)


def test_an_incomplete_line_is_ignored(tmp_path):
    (tmp_path / "log").write_bytes(b'{"kind": "train"}\n{"kind": "tra')
    assert list(read_log(tmp_path / "log")) == [{"kind": "train"}]


def test_sinks_get_nested_numbers(tmp_path):
    class Recorder(list):
        def numbers(self, step, values):
            self.append((step, values))

        def close(self):
            pass

    recorder = Recorder()
    RunLog(tmp_path / "log", sinks=[recorder]).write(
        "inside", 3, 0.0, gradient_norm={"layers.0": 1.5}, text="x", ok=True
    )
    assert recorder == [(3, {"inside/gradient_norm/layers.0": 1.5})]


def test_tensorboard_writes(tmp_path):
    pytest.importorskip("tensorboardX")
    board = TensorBoard(tmp_path)
    board.numbers(1, {"train/loss": 2.0})
    board.close()
    assert list(tmp_path.glob("events*"))


def evaluated(progress, losses, length=64):
    return [
        {"progress": float(p), "loss": float(loss), "length": length} for p, loss in zip(progress, losses, strict=True)
    ]


@pytest.mark.parametrize("slope", [-0.08, -0.15, -0.22])
def test_the_forecast_of_a_power_law_is_within_its_range(slope):
    rng = np.random.default_rng(0)
    progress = np.linspace(0, 1, 21)
    losses = 4.0 * np.maximum(progress, 0.001) ** slope * np.exp(rng.normal(0, 0.003, 21))
    first, later = (
        forecast_final_loss(evaluated(progress[:3], losses[:3])),
        forecast_final_loss(evaluated(progress[:13], losses[:13])),
    )
    assert first.low <= 4.0 <= first.high and first.high - first.low < 2.2
    assert abs(later.loss - 4.0) < 0.1 and later.high - later.low < 0.6
    assert (first.loss < 4.0) == (slope > -0.15) or slope == -0.15  # moved towards PRIOR_SLOPE


def test_a_forecast_needs_a_tenth_of_the_run_and_one_evaluation():
    assert forecast_final_loss([]) is None
    assert forecast_final_loss(evaluated([0.0, 0.05], [9.0, 6.0])) is None
    assert forecast_final_loss(evaluated([0.0, 0.25], [9.0, 6.0])).loss == pytest.approx(6.0 * 0.25**0.15)


def test_a_forecast_uses_rows_of_one_length():
    short, long = evaluated([0.4, 0.5], [2.0, 1.9], 64), evaluated([0.6, 0.7], [3.0, 2.9], 128)
    assert forecast_final_loss(short + long) == forecast_final_loss(long)


@pytest.mark.parametrize("bad", [math.inf, math.nan, "nan"])
def test_a_forecast_ignores_losses_that_are_not_finite(bad):
    lines = evaluated([0.1, 0.15, 0.2], [6.0, 5.0, 4.8])
    lines[1]["loss"] = bad
    assert math.isfinite(forecast_final_loss(lines).loss)
    assert forecast_final_loss(lines[:2]) is None


def test_entropy_of_attention():
    even = np.full((1, 1, 4, 4), 0.25)
    assert entropy(even) == pytest.approx(1.0)
    assert entropy(np.eye(4)[None, None]) == 0.0
    masked = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert entropy(masked) == pytest.approx(1.0)  # a row without keys is left out


STATUS = Status(
    title="mini", step=120, progress=0.4, seconds=61.0, left=90.0, tokens=500_000, loss=4.2, smoothed=4.3,
    curve=[9.0, 7.0, 5.0], held_out=[(9.0, 0.0), (4.4, 0.31)], tokens_per_second=51_000.0, matmul_share=0.6,
    gradient_norm=0.8, learning_rate=1e-3, sentence="Paris is the [MASK] of France.", answers=[("capital", 0.6)],
    history=[(0.0, "the"), (0.1, "the"), (0.4, "capital")], skipped=2,
)  # fmt: skip


def test_the_panel_shows_all_numbers():
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(picture(STATUS))
    shown = console.export_text()
    for part in ("40%", "1:30 left", "4.300", "now 4.200", "4.400", "31.0%", "51,000 tokens/s",
                 "60% of the matmul rate", "gradient norm 0.80", "capital", "the → capital", "2 steps were skipped",
                 ):  # fmt: skip
        assert part in shown, part


def test_the_panel_of_an_empty_status():
    console = Console(width=100, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(picture(Status()))
    with LiveDisplay(console) as display:
        display.update(Status())


def test_plain_lines_come_every_twentieth(capsys):
    display = PlainDisplay(Console())
    for step in range(101):
        display.update(Status(step=step, progress=step / 100))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 21
    assert "held-out 4.400, accuracy 31.0%" in plain_line(STATUS)


def test_durations_words_and_sparklines():
    assert duration(95) == "1:35" and duration(3700) == "1:01:40"
    assert distinct_words([(0, "a"), (1, "a"), (2, "b"), (3, "a")]) == ["a", "b", "a"]
    assert sparkline([3.0, 2.0, 1.0, 0.0], 4) == "█▆▃▁"
    assert len(sparkline([float(i) for i in range(100)], 20)) == 20
    assert sparkline([1.0], 10) == "▁"


def test_errors_of_a_run_folder(tmp_path):
    with pytest.raises(TrainingError, match="there is no run"):
        RunFolder.existing(tmp_path / "none")
    with pytest.raises(TrainingError, match="it has no settings"):
        RunFolder.existing(tmp_path)
    (tmp_path / "settings.json").write_text("{}")
    with pytest.raises(TrainingError, match="cannot be used"):
        RunFolder.existing(tmp_path).read_settings()
    (tmp_path / "settings.json").write_text(json.dumps({"settings": {"steps": 1}}))
    assert RunFolder.existing(tmp_path).read_settings()["settings"] == {"steps": 1}


def test_only_complete_checkpoints_are_listed(tmp_path):
    run = RunFolder(tmp_path)
    for name in ("step-00000003", "step-00000012", ".writing-step-00000020", "step-x"):
        (run.checkpoints / name).mkdir(parents=True)
    assert run.steps() == [3, 12]


def test_new_runs_get_unused_names(tmp_path):
    first = new_run_folder(tmp_path, "mini")
    first.path.mkdir()
    assert new_run_folder(tmp_path, "mini").path != first.path
    assert not new_run_folder(tmp_path, "x" * 5_000).path.exists()  # a name that fits into a path


def test_every_line_of_a_run_is_read_again(corpus, tmp_path, quick_runs):
    """The speed is not known in the first lines, which are whole all the same; damaged lines are left out."""
    from glassbert.training.log import read_run_log
    from tests.training.toy import make_trainer

    make_trainer(corpus, tmp_path / "run", steps=5).train()
    path = tmp_path / "run" / "log.jsonl"
    whole = list(read_log(path))
    assert [line["kind"] for line in read_run_log(path)] == [line["kind"] for line in whole]
    with open(path, "ab") as file:
        file.write(b'[1]\n"x"\n{"kind": 3}\n{"kind": "train", "step": null}\n{"kind": "evaluation", "step": 1}\n\xff\n')
        file.write(b"[" * 100_000 + b"\n")
    assert len(list(read_run_log(path))) == len(whole)


@pytest.mark.parametrize("name", ["1" * 5_000, "\ud800", "a\0b"])
def test_a_checkpoint_that_lists_a_file_with_an_impossible_name_is_damaged(tmp_path, name):
    folder = tmp_path / "step-00000004"
    folder.mkdir()
    (folder / "state.json").write_text(json.dumps({"format": 1, "step": 4, "files": {name: 1}}))
    with pytest.raises(TrainingError, match="is damaged or missing"):
        read_state(folder)


def test_a_lock_that_cannot_be_written_is_explained(tmp_path, monkeypatch):
    def refuse(descriptor, content):
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(os, "write", refuse)
    run = RunFolder(tmp_path / "run")
    with pytest.raises(GlassBertError, match=r"cannot write .*larger than the limit on file sizes"), run.locked():
        pass
    monkeypatch.undo()
    with RunFolder(tmp_path / "run").locked():
        assert (tmp_path / "run" / ".lock").read_text() == f"process {os.getpid()}\n"


def test_versions_of_a_package_that_runs_from_its_source_folder(monkeypatch):
    def not_installed(package):
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    assert versions()["glassbert"] == glassbert.__version__
