"""Snapshots: when they are taken, that they do not change the run, and that a resumed run takes the same ones."""

import pytest
from safetensors.numpy import load_file

import glassbert
from glassbert.errors import TrainingError
from glassbert.training.checkpointing import drop_later_snapshots, find_snapshots, snapshot_due, write_snapshot
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
