"""Snapshots: when they are taken, that they do not change the run, and that a resumed run takes the same ones."""

import pytest
from safetensors.numpy import load_file

import glassbert
from glassbert.errors import TrainingError
from glassbert.training.checkpointing import (
    drop_later_snapshots,
    find_snapshots,
    snapshot_due,
    write_checkpoint,
    write_snapshot,
)
from glassbert.training.run_folder import RunFolder
from glassbert.training.settings import TrainingSettings
from glassbert.training.trainer import Trainer
from tests.models.small import make
from tests.training.toy import make_trainer

pytestmark = pytest.mark.usefixtures("quick_runs")


def weights(folder):
    return {name: array.tobytes() for name, array in load_file(folder / "model.safetensors").items()}


def test_snapshots_are_taken_at_powers_of_one_half():
    steps = 64
    taken = [s for s in range(1, steps + 1) if snapshot_due(5, (s - 1) / steps, s / steps)]
    assert taken == [4, 8, 16, 32]
    assert not any(snapshot_due(1, (s - 1) / steps, s / steps) for s in range(1, steps + 1))
    assert snapshot_due(4, 0.1, 0.9)  # one long step that passes several snapshots takes one


def test_snapshots_do_not_change_the_run(corpus, tmp_path):
    make_trainer(corpus, tmp_path / "plain").train()
    make_trainer(corpus, tmp_path / "watched", snapshots=3).train()
    assert weights(tmp_path / "plain" / "model") == weights(tmp_path / "watched" / "model")
    assert not (tmp_path / "plain" / "snapshots").exists()
    found = find_snapshots(RunFolder(tmp_path / "watched"))
    assert list(found) == [0, 3, 6]
    assert sorted(path.name for path in found[3].iterdir()) == ["checksums.json", "config.json", "model.safetensors"]
    assert glassbert.load(found[3]).head.kind == "mlm"


def test_an_interrupted_run_takes_the_same_snapshots_again(corpus, tmp_path, monkeypatch):
    make_trainer(corpus, tmp_path / "whole", snapshots=3, checkpoint_every=4).train()
    step = Trainer.one_step

    def until_seven(self):
        if self.state.step == 7:
            raise KeyboardInterrupt("killed")
        step(self)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt, match="killed"):
        patch.setattr(Trainer, "one_step", until_seven)
        make_trainer(corpus, tmp_path / "cut", snapshots=3, checkpoint_every=4).train()
    run = RunFolder(tmp_path / "cut")
    assert list(find_snapshots(run)) == [0, 3, 6] and run.steps()[-1] == 4
    trainer = Trainer.resume(run.path, display=make_trainer(corpus, tmp_path / "unused").display)
    with trainer.prepared():
        assert list(find_snapshots(run)) == [0, 3]  # that of step 6 was taken after the checkpoint
    trainer = Trainer.resume(run.path, display=trainer.display)
    trainer.train()
    for number, folder in find_snapshots(RunFolder(tmp_path / "whole")).items():
        assert weights(folder) == weights(find_snapshots(run)[number])
    assert weights(run.model) == weights(tmp_path / "whole" / "model")


def test_a_run_killed_after_a_checkpoint_has_the_snapshot_of_its_step(corpus, tmp_path, monkeypatch):
    """An evaluation saves a checkpoint when the loss is the lowest so far; a resumed run begins after it."""

    def killed_after_six(run, step, *rest):
        write_checkpoint(run, step, *rest)
        if step == 6:
            raise KeyboardInterrupt("killed")

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt, match="killed"):
        patch.setattr("glassbert.training.trainer.write_checkpoint", killed_after_six)
        make_trainer(corpus, tmp_path, snapshots=3, checkpoint_every=100, evaluate_every=6).train()
    run = RunFolder(tmp_path)
    assert run.steps()[-1] == 6 and list(find_snapshots(run)) == [0, 3, 6]


def test_an_incomplete_snapshot_is_ignored(tmp_path):
    run = RunFolder(tmp_path)
    write_snapshot(run, 5, make())
    (tmp_path / "snapshots" / ".writing-step-00000009").mkdir()
    (tmp_path / "snapshots" / "notes.txt").write_text("mine")
    assert list(find_snapshots(run)) == [5]
    drop_later_snapshots(run, 5)
    assert list(find_snapshots(run)) == [5]
    drop_later_snapshots(run, 4)
    assert list(find_snapshots(run)) == []


def test_the_number_of_snapshots_is_checked():
    with pytest.raises(TrainingError, match="snapshots must be a whole number"):
        TrainingSettings(snapshots=-1)


def test_a_run_killed_after_the_checkpoint_of_a_snapshots_step_keeps_the_snapshot(corpus, tmp_path, monkeypatch):
    """An evaluation saves the best weights; the snapshot of the same step is taken before it."""

    class Killed(Exception):
        pass

    options = {"steps": 16, "snapshots": 3, "evaluate_every": 8, "checkpoint_every": 100}
    make_trainer(corpus, tmp_path / "whole", **options).train()
    trainer = make_trainer(corpus, tmp_path / "cut", **options)
    save = trainer.save

    def save_and_die():
        save()
        if trainer.state.step == 8:
            raise Killed

    monkeypatch.setattr(trainer, "save", save_and_die)
    with pytest.raises(Killed):
        trainer.train()
    Trainer.resume(tmp_path / "cut").train()
    whole, cut = (find_snapshots(RunFolder(tmp_path / name)) for name in ("whole", "cut"))
    assert 8 in whole and list(cut) == list(whole)
    assert all(weights(cut[step]) == weights(whole[step]) for step in whole)
