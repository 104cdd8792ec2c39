"""Complete runs on a toy corpus: training, saving, stopping, exact resuming, errors."""

import importlib.util
import json
import math
import os
import shutil
from contextlib import contextmanager

import numpy as np
import pytest
from safetensors.numpy import load_file

import glassbert
from glassbert.errors import GlassBertError, TextError, TrainingError
from glassbert.text import FastTokenizer, load_tokenizer
from glassbert.text.corpus import write_corpus
from glassbert.training import trainer as trainer_module
from glassbert.training.checkpointing import write_snapshot
from glassbert.training.display import NoDisplay
from glassbert.training.evaluate import Evaluation
from glassbert.training.finishing import finish
from glassbert.training.history import find_runs
from glassbert.training.log import read_log
from glassbert.training.planning.timing import random_data
from glassbert.training.report import write_report
from glassbert.training.settings import TrainingSettings
from glassbert.training.step_results import explain_bad_step
from glassbert.training.trainer import LargerBERTTrainer, Trainer
from glassbert.training.verification import accept_changes
from tests.training.toy import SETTINGS, make_trainer


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Skip slow parts that are tested elsewhere: reports, and the speed measurement."""
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    monkeypatch.setattr("glassbert.training.building.measure_mlx_matmul_rate", lambda *rest, **options: 100.0)
    if "everything" not in request.node.name:
        monkeypatch.setattr("glassbert.training.finishing.write_report", lambda run, result=None: None)


class Stop(Exception):
    """Simulates a killed process."""


def killed_at(step, monkeypatch):
    """Make runs stop before this step, without saving."""
    whole = Trainer.one_step

    def until(self):
        if self.state.step == step:
            raise Stop
        whole(self)

    monkeypatch.setattr(Trainer, "one_step", until)


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_a_run_learns_and_writes_everything(corpus, tmp_path):
    result = make_trainer(corpus, tmp_path / "run", steps=60, evaluate_every=20).train()
    lines = list(read_log(tmp_path / "run" / "log.jsonl"))
    held_out = [line["loss"] for line in lines if line["kind"] == "evaluation"]
    assert held_out[0] == pytest.approx(math.log(64), abs=0.3)
    assert result.loss < held_out[0] - 0.3
    assert result.stopped == "finished" and result.steps == 60 and result.tokens == 60 * 8 * 16
    assert [line["step"] for line in lines if line["kind"] == "train"] == list(range(1, 61))
    assert {"sample", "inside", "final"} <= {line["kind"] for line in lines}
    for name in ("report.html", "result.json", "settings.json", "model/README.md", "model/tokenizer.json"):
        assert (tmp_path / "run" / name).exists()
    model = glassbert.load(tmp_path / "run", engine="numpy")
    assert model.config.hidden_size == 16


def test_a_resumed_run_ends_with_identical_weights(corpus, tmp_path, monkeypatch):
    changes = {"ema": 0.9, "dropout": 0.1, "physical_batch": 4, "short_length": 8, "short_share": 0.5,
               "final_mask_rate": 0.3, "checkpoint_every": 5, "evaluate_every": 7}  # fmt: skip
    make_trainer(corpus, tmp_path / "whole", **changes).train()
    with monkeypatch.context() as patch:
        killed_at(9, patch)
        with pytest.raises(Stop):
            make_trainer(corpus, tmp_path / "killed", **changes).train()
    resumed = Trainer.resume(tmp_path / "killed", display=NoDisplay())
    resumed.train()
    one, two = weights(tmp_path / "whole" / "model"), weights(tmp_path / "killed" / "model")
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])

    def curve(run):
        return [
            (x["step"], x["loss"], x["tokens"]) for x in read_log(tmp_path / run / "log.jsonl") if x["kind"] == "train"
        ]

    assert curve("whole") == curve("killed")


def test_a_run_killed_while_saving_resumes_from_the_previous_checkpoint(corpus, tmp_path, monkeypatch):
    whole = trainer_module.write_checkpoint

    def dies(run, step, *rest):
        if step == 8:
            (run.checkpoints / ".writing-step-00000008").mkdir()
            (run.checkpoints / ".writing-step-00000008" / "model.safetensors").write_bytes(b"half")
            raise Stop
        return whole(run, step, *rest)

    monkeypatch.setattr(trainer_module, "write_checkpoint", dies)
    with pytest.raises(Stop):
        make_trainer(corpus, tmp_path / "run", checkpoint_every=4).train()
    monkeypatch.setattr(trainer_module, "write_checkpoint", whole)
    trainer = Trainer.resume(tmp_path / "run", display=NoDisplay())
    assert trainer.run.steps()[-1] == 4
    assert trainer.train().steps == 12
    assert not list((tmp_path / "run" / "checkpoints").glob(".writing-*"))


def test_old_checkpoints_are_pruned_and_the_best_is_kept(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run", checkpoint_every=1, evaluate_every=100, keep=2)
    trainer.train()
    assert trainer.run.steps() == [11, 12]  # the last evaluation was the best


def test_a_run_killed_while_it_wrote_its_tokenizer_has_it_after_resuming(corpus, tmp_path, monkeypatch):
    left = tmp_path / "run" / "tokenizer" / ".tokenizer.json.abcd0123.part"

    def killed(folder):
        folder.mkdir()
        left.write_text("{")
        raise Stop

    trainer = make_trainer(corpus, tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(trainer.data.tokenizer, "save", killed)
        trainer.train()
    Trainer.resume(tmp_path / "run", display=NoDisplay()).train()
    assert not left.exists()
    assert load_tokenizer(left.parent).fingerprint == load_tokenizer(corpus).fingerprint


def test_ctrl_c_saves_and_the_run_can_be_resumed(corpus, tmp_path, monkeypatch):
    class StopAfterSixLooks(trainer_module.Interrupts):
        def __init__(self):
            super().__init__()
            self.checks = 0

        @property
        def requested(self):
            self.checks += 1
            return self.checks > 6

        @requested.setter
        def requested(self, value):
            pass

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "Interrupts", StopAfterSixLooks)
        result = make_trainer(corpus, tmp_path / "run").train()
    assert result.stopped == "interrupted" and 0 < result.steps < 12
    assert not (tmp_path / "run" / "model").exists()
    assert Trainer.resume(tmp_path / "run", display=NoDisplay()).run.steps()[-1] == result.steps
    assert Trainer.resume(tmp_path / "run", display=NoDisplay()).train().steps == 12


def found_loss(loss):
    return Evaluation(loss, {"mlm": loss}, {"mlm": 0.1}, {"mlm": 10}, loss)


def test_patience_ends_a_run_without_improvement(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run", steps=50, learning_rate=1e-12, evaluate_every=2, patience=3)
    evaluate, losses = trainer.components.evaluate, iter([1.0, *[2.0] * 50])
    trainer.components.evaluate = lambda batches: found_loss(next(losses))
    result = trainer.train()
    del evaluate
    assert result.stopped == "early" and result.steps == 6


def test_a_bad_step_is_skipped_counted_and_explained(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run")
    run, calls = trainer.components.step.run, []

    def sabotaged(prepared):
        calls.append(1)
        table = trainer.model.parameters["embeddings.token"]
        if len(calls) == 4:
            healthy, table[:] = table.copy(), 1e30
            result = run(prepared)
            table[:] = healthy
            return result
        return run(prepared)

    trainer.components.step.run = sabotaged
    assert trainer.train().skipped == 1
    events = [line["text"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "event"]
    assert events and events[0].startswith("Step 4 was skipped: loss nan")


def test_rotary_models_ignore_the_positions_of_packed_pieces(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run", model={"positions": "rotary"})
    batch = trainer.data.sources[16].batch(0, 0)
    assert (batch.position_ids[:, 1:] == 0).any(), "some row must hold several pieces"
    inputs = trainer.components.inputs(batch)
    assert "position_ids" not in inputs
    counted, _ = trainer.model.forward(**without_labels(inputs), position_ids=batch.position_ids)
    through, _ = trainer.model.forward(**without_labels(inputs))
    np.testing.assert_allclose(through, counted, atol=1e-5)


def without_labels(inputs):
    return {name: value for name, value in inputs.items() if name != "labels"}


def test_too_many_bad_steps_end_the_run_and_its_checkpoint_is_complete(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run", steps=50, checkpoint_every=3)
    one_step = trainer.one_step

    def poisoned():
        one_step()
        if trainer.state.step == 7:
            trainer.model.parameters["layers.0.ffn.up.weight"][0, 0] = np.nan

    trainer.one_step = poisoned
    with pytest.raises(TrainingError, match="The checkpoint of step 6 is complete"):
        trainer.train()
    events = [line["text"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "event"]
    assert "the parameter layers.0.ffn.up.weight" in events[0]
    assert all(np.isfinite(array).all() for array in weights(trainer.run.checkpoint(6)).values())


def test_a_finished_run_is_not_resumed(corpus, tmp_path):
    make_trainer(corpus, tmp_path / "run").train()
    with pytest.raises(TrainingError, match="is finished"):
        Trainer.resume(tmp_path / "run")


def test_a_folder_with_a_run_is_not_overwritten(corpus, tmp_path):
    make_trainer(corpus, tmp_path / "run").train()
    before = (tmp_path / "run" / "result.json").read_text()
    with pytest.raises(TrainingError, match="already contains a run"):
        make_trainer(corpus, tmp_path / "run").train()
    assert (tmp_path / "run" / "result.json").read_text() == before


def test_two_processes_cannot_write_to_one_run(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run")
    with trainer.run.locked(), pytest.raises(TrainingError, match=r"another process .process"):
        make_trainer(corpus, tmp_path / "run").train()


def test_another_corpus_or_model_is_refused_on_resume(corpus, tmp_path, monkeypatch):
    killed_at(2, monkeypatch)
    with pytest.raises(Stop):
        make_trainer(corpus, tmp_path / "run").train()
    path = tmp_path / "run" / "settings.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_text(json.dumps({**content, "fingerprint": "other"}))
    with pytest.raises(TrainingError, match="has changed since the run started"):
        Trainer.resume(tmp_path / "run")
    monkeypatch.setattr("glassbert.training.trainer.TrainingComponents", None)  # nothing is built before
    content["settings"]["model"]["hidden_size"] = 32
    path.write_text(json.dumps(content))
    with pytest.raises(TrainingError, match="hidden_size 16, but its settings now give 32"):
        Trainer.resume(tmp_path / "run")
    monkeypatch.setattr("glassbert.training.trainer.open_data", None)
    content["settings"]["corpus"] = []
    for kind in ("given", ["a list"]):
        content["data"]["sources"][0]["kind"] = kind
        path.write_text(json.dumps(content))
        with pytest.raises(TrainingError, match="it names no corpus, but the run began with one"):
            Trainer.resume(tmp_path / "run")


def test_a_full_disk_is_detected_before_the_run(corpus, tmp_path, monkeypatch):
    trainer = make_trainer(corpus, tmp_path / "run")
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("glassbert.training.run_folder.shutil.disk_usage", lambda path: usage)
    with pytest.raises(TrainingError, match="free some space"):
        trainer.train()


def test_a_disk_that_fills_up_does_not_damage_checkpoints(corpus, tmp_path, monkeypatch):
    import errno

    from glassbert.training import checkpointing

    trainer = make_trainer(corpus, tmp_path / "run", checkpoint_every=4)
    save_file = checkpointing.save_file

    def full(tensors, path, *rest):
        if "00000008" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        save_file(tensors, path, *rest)

    monkeypatch.setattr(checkpointing, "save_file", full)
    with pytest.raises(TrainingError, match=r"disk is full; the checkpoint of step 4 is complete.*glassbert resume"):
        trainer.train()
    monkeypatch.setattr(checkpointing, "save_file", save_file)
    assert Trainer.resume(tmp_path / "run", display=NoDisplay()).train().steps == 12


def test_initial_weights_that_are_not_finite_are_refused(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run")
    trainer.model.parameters["final_norm.weight"][:] = np.inf
    trainer.model.save(tmp_path / "bad")
    with pytest.raises(GlassBertError, match=r"final_norm\.weight"):
        make_trainer(corpus, tmp_path / "run", start_from=str(tmp_path / "bad"))


def test_a_run_may_start_from_another(corpus, tmp_path):
    make_trainer(corpus, tmp_path / "one").train()
    second = make_trainer(corpus, tmp_path / "two", start_from=str(tmp_path / "one"))
    before = glassbert.load(tmp_path / "one", engine="numpy").parameters["embeddings.token"]
    np.testing.assert_array_equal(second.model.parameters["embeddings.token"], before)


def test_the_larger_trainer_has_the_larger_preset(corpus, tmp_path):
    trainer = LargerBERTTrainer(None, tmp_path / "run", corpus=str(corpus), steps=1, batch=4, length=32, hidden_size=48)
    assert trainer.model.config.num_hidden_layers == 6 and trainer.settings.preset == "larger"


def test_a_wall_clock_budget_is_kept(corpus, tmp_path):
    """Each step counts as one second, so the run must end after about sixty steps."""
    trainer = make_trainer(corpus, tmp_path / "run", steps=None, minutes=1)
    trainer.budget.reserve = 0.0
    clock = type("Clock", (), {"elapsed": property(lambda self: float(trainer.state.step))})()
    trainer.components.costs.of_ending = lambda settings: 6.0
    make_clock = trainer_module.Clock
    trainer_module.Clock = lambda elapsed, started: clock
    try:
        result = trainer.train()
    finally:
        trainer_module.Clock = make_clock
    assert result.steps == 54
    rates = [line["learning_rate"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "train"]
    assert rates[-1] < 0.1 * max(rates)  # the schedule ends when the time does


def test_the_best_checkpoint_is_kept_and_its_weights_are_chosen(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run", checkpoint_every=2, evaluate_every=4, keep=1)
    losses = iter([9.0, 1.0, 2.0, 3.0, 1.0])  # before the first step, at 4, at 8, at the end, and of the chosen weights
    trainer.components.evaluate = lambda batches: found_loss(next(losses))
    assert trainer.train().weights == "best"
    assert trainer.run.steps() == [4, 12]
    chosen = weights(trainer.run.model)
    for name, array in weights(trainer.run.checkpoint(4)).items():
        np.testing.assert_array_equal(array, chosen[name])


def test_held_out_rows_follow_the_curriculum_and_the_best_loss_is_reset(corpus, tmp_path):
    changes = {"short_length": 8, "short_share": 0.5, "checkpoint_every": 2, "evaluate_every": 4}
    trainer = make_trainer(corpus, tmp_path / "run", **changes)
    losses, seen = iter([9.0, 1.0, 3.0, 2.0, 2.0]), []  # the 1.0 of short rows is not comparable

    def evaluate(batches):
        seen.append([batch.input_ids.shape for batch in batches])
        return found_loss(next(losses))

    trainer.components.evaluate = evaluate
    assert trainer.train().weights == "last"
    assert seen == [[(32, 8)], [(32, 8)], [(16, 16)], [(16, 16)], [(32, 16)]]  # as many tokens
    events = [line["text"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "event"]
    assert events == ["Rows of 16 tokens from here on, held-out rows too."]


def test_held_out_rows_are_as_many_as_are_asked_for():
    settings = TrainingSettings.from_dict({**SETTINGS, "short_length": 8, "final_evaluation_rows": 150})
    data = random_data(settings)  # three batches of 64 rows
    sizes = {rows: [len(batch) for batch in data.held_out(rows)] for rows in (3, 64, 100, 10**6)}
    assert sizes == {3: [3], 64: [64], 100: [64, 36], 10**6: [64, 64, 64]}
    assert [batch.input_ids.shape for batch in data.held_out(70, length=8)] == [(128, 8), (12, 8)]  # as many tokens


def test_few_held_out_rows_are_the_first_of_many(corpus, tmp_path):
    data = make_trainer(corpus, tmp_path / "run").data
    (few,), (many,) = data.held_out(3), data.held_out(64)
    assert len(few) == 3 < len(many)
    for name, rows in few.as_inputs().items():
        np.testing.assert_array_equal(rows, many.as_inputs()[name][:3])


def test_no_evaluation_has_more_rows_than_are_asked_for(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run", evaluation_rows=3, final_evaluation_rows=2)
    trainer.data.validation_by_source = {"one": trainer.data.validation[16], "two": trainer.data.validation[16]}
    evaluate, rows = trainer.components.evaluate, []

    def count_and_evaluate(batches):
        given = list(batches)
        rows.append(sum(map(len, given)))
        return evaluate(given)

    trainer.components.evaluate = count_and_evaluate
    trainer.train()
    assert rows == [3, 3, 2, 2, 2]  # before the first step, after the last one, each source, the chosen weights


def test_the_inside_is_not_logged_twice_in_a_row(corpus, tmp_path):
    """Whether it may be was asked again before its cost was counted."""
    make_trainer(corpus, tmp_path / "run").train()
    steps = [line["step"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "inside"]
    assert steps[0] == 1 and 2 not in steps


def test_an_evaluation_uses_the_row_length_of_the_last_step(corpus, tmp_path):
    changes = {"short_length": 8, "short_share": 0.5, "evaluate_every": 6}  # of 12 steps
    make_trainer(corpus, tmp_path / "run", **changes).train()
    lines = [line for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "evaluation"]
    assert [(line["step"], line["length"]) for line in lines] == [(0, 8), (6, 8), (12, 16)]


def test_the_last_evaluation_may_exceed_the_budget_by_half_a_percent(corpus, tmp_path):
    costs = make_trainer(corpus, tmp_path / "run").components.costs
    costs.seconds.update(save=2.0, report=1.0)
    assert costs.evaluation_deadline(TrainingSettings(minutes=10)) == pytest.approx(603.0 - 1.0 - 1.0)
    assert costs.evaluation_deadline(TrainingSettings(steps=10)) == math.inf


def test_costs_are_estimated_from_the_available_held_out_rows(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run", evaluation_rows=10**6, final_evaluation_rows=10**6)
    costs, rows = trainer.components.costs, trainer.data.held_out_rows()
    assert rows < 1_000
    costs.seconds.update(row=0.5, save=2.0, report=1.0, step=4.0)
    assert costs.of_ending(trainer.settings) == 0.5 * 2 * rows + 3.0 + 1.0 + 2.0
    with trainer.prepared():
        assert costs.seconds["row"] > 1e-6  # per evaluated row, not per requested row


@pytest.mark.parametrize("changes", [{"tensorboard": True}, {"wandb": "project"}])
def test_a_missing_package_is_reported_before_anything_is_written(corpus, tmp_path, monkeypatch, changes):
    monkeypatch.setattr("glassbert.training.log.find_spec", lambda package: None)
    with pytest.raises(TrainingError, match=r"pip install (tensorboardX|wandb)"):
        make_trainer(corpus, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


class Wandb:
    """A fake of the package: it fails until `ready`, then records the numbers of a run."""

    class Error(Exception):
        pass

    def __init__(self):
        self.ready, self.given, self.logged, self.ended = False, {}, [], 0

    def Settings(self, **given):
        return given

    def init(self, **given):
        if not self.ready:
            raise self.Error("No API key configured.")
        self.given = given
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.ended += 1


def test_weights_and_biases_gets_the_numbers_and_a_failure_leaves_no_files(corpus, tmp_path, monkeypatch):
    wandb = Wandb()
    monkeypatch.setattr("glassbert.training.log.find_spec", lambda package: package)
    monkeypatch.setattr("glassbert.training.log.import_module", lambda package: wandb)
    with pytest.raises(TrainingError, match=r"No API key configured\. Set WANDB_MODE=offline"):
        make_trainer(corpus, tmp_path / "run", wandb="project").train()
    wandb.ready = True
    make_trainer(corpus, tmp_path / "run", wandb="project").train()  # the folder can be used again
    assert wandb.given["project"] == "project" and wandb.given["config"]["batch"] == 8 and wandb.ended == 1
    losses = {step: values["train/loss"] for step, values in wandb.logged if "train/loss" in values}
    assert list(losses) == list(range(1, 13))


def test_the_first_bad_number_is_named(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run", num_hidden_layers=2)
    inputs = trainer.components.inputs(trainer.data.sources[16].batch(0, 0))
    seed = trainer.model.dropout_seed
    assert "none found when the batch was computed again" in explain_bad_step(trainer.model, inputs)
    trainer.model.parameters["layers.1.ffn.up.weight"][:] = 1e38
    found = explain_bad_step(trainer.model, inputs)
    assert found.startswith("the activation layers.1.ffn.") and "reached" in found
    trainer.model.parameters["layers.0.attention.output.bias"][3] = np.nan
    assert explain_bad_step(trainer.model, inputs) == "the parameter layers.0.attention.output.bias"
    assert trainer.model.dropout_seed == seed


def test_a_run_with_sentence_order_prediction(corpus, tmp_path):
    pairs = {"objective": "mlm+0.5*sop", "length": 96, "max_position_embeddings": 96, "batch": 4, "type_vocab_size": 2}
    result = make_trainer(corpus, tmp_path / "run", **pairs).train()
    assert result.stopped == "finished"


@pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed")
def test_mlx_resumes_identically(corpus, tmp_path, monkeypatch):
    changes = {"engine": "mlx", "optimizer": "muon", "steps": 6, "checkpoint_every": 2, "threads": None, "ema": 0.9}
    make_trainer(corpus, tmp_path / "whole", **changes).train()
    with monkeypatch.context() as patch:
        killed_at(5, patch)
        with pytest.raises(Stop):
            make_trainer(corpus, tmp_path / "killed", **changes).train()
    Trainer.resume(tmp_path / "killed", display=NoDisplay()).train()
    one, two = weights(tmp_path / "whole" / "model"), weights(tmp_path / "killed" / "model")
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])


@pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed")
def test_compiling_is_not_measured_as_evaluating(corpus, tmp_path, monkeypatch):
    """On a new GPU it takes a minute, which was multiplied by the rows of the end: short budgets were refused."""
    trainer = make_trainer(corpus, tmp_path / "run", engine="mlx", threads=None, steps=1)
    components, measured, calls = trainer.components, [], []
    evaluate = components.evaluate

    @contextmanager
    def measuring(name, units=1):
        measured.append(name)
        yield
        measured.pop()

    def note_and_evaluate(batches):
        calls.append(list(measured))
        return evaluate(batches)

    monkeypatch.setattr(components.costs, "measuring", measuring)
    monkeypatch.setattr(components, "evaluate", note_and_evaluate)
    trainer.train()
    assert calls[:2] == [[], ["row"]]


@pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed")
def test_compiling_a_step_changes_nothing(corpus, tmp_path):
    changes = {"engine": "mlx", "optimizer": "muon", "threads": None, "ema": 0.9, "dropout": 0.1}
    trainer = make_trainer(corpus, tmp_path / "run", **changes)
    components = trainer.components

    def everything():
        arrays = {
            **components.state_arrays(),
            **{f"model/{n}": np.array(a) for n, a in trainer.model.parameters.items()},
        }
        return arrays, components.state_numbers()

    before, numbers = everything()
    components.compile_step(trainer.data.sources[16].batch(0, 0))
    after, numbers_after = everything()
    assert numbers == numbers_after and before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name], err_msg=name)
    assert not components.step.detailed


def test_a_resumed_run_logs_what_has_changed(corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        killed_at(3, patch)
        with pytest.raises(Stop):
            make_trainer(corpus, tmp_path / "run").train()
    path = tmp_path / "run" / "settings.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    content["engine"]["threads"] = 64
    path.write_text(json.dumps(content))
    Trainer.resume(tmp_path / "run", display=NoDisplay()).train()
    events = [line["text"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "event"]
    assert events[1] == "The run will not be identical bit by bit to an uninterrupted one: threads was 64 and is 2."


def test_a_folder_that_cannot_be_written_raises_a_clear_error(corpus, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(GlassBertError, match="cannot write"):
        make_trainer(corpus, tmp_path / "file" / "run").train()


def test_a_damaged_last_checkpoint_is_set_aside(corpus, tmp_path, monkeypatch):
    make_trainer(corpus, tmp_path / "whole", checkpoint_every=2).train()
    with monkeypatch.context() as patch:
        killed_at(5, patch)
        with pytest.raises(Stop):
            make_trainer(corpus, tmp_path / "run", checkpoint_every=2).train()
    for name in ("model.safetensors", "training.safetensors", "state.json", "config.json", "checksums.json"):
        copy = tmp_path / name
        shutil.copytree(tmp_path / "run", copy)
        path = copy / "checkpoints" / "step-00000004" / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
        display = Saying()
        Trainer.resume(copy, display=display).train()
        assert any("damaged checkpoint was set aside" in text and name in text for text in display.said)
        assert "Resumed from step 2." in display.said
        assert (copy / "checkpoints" / "damaged-step-00000004").is_dir()
        for tensor, values in weights(tmp_path / "whole" / "model").items():
            np.testing.assert_array_equal(values, weights(copy / "model")[tensor])


def test_without_an_intact_checkpoint_the_damaged_file_is_named(corpus, tmp_path, monkeypatch):
    killed_at(1, monkeypatch)
    with pytest.raises(Stop):
        make_trainer(corpus, tmp_path / "run").train()
    path = tmp_path / "run" / "checkpoints" / "step-00000000" / "training.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(TrainingError, match=r"no checkpoint of .* can be used: .*training\.safetensors has"):
        Trainer.resume(tmp_path / "run", display=NoDisplay()).train()


def test_changed_settings_are_noticed_and_can_be_accepted(corpus, tmp_path, monkeypatch):
    killed_at(1, monkeypatch)
    with pytest.raises(Stop):
        make_trainer(corpus, tmp_path / "run").train()
    path = tmp_path / "run" / "settings.json"
    path.write_text(path.read_text().replace('"learning_rate": 0.003', '"learning_rate": 0.004'))
    with pytest.raises(TrainingError, match=r"settings\.json has changed .*glassbert verify .* --accept"):
        Trainer.resume(tmp_path / "run")
    assert accept_changes(tmp_path / "run") == [str(path)]
    assert Trainer.resume(tmp_path / "run", display=NoDisplay()).settings.learning_rate == 0.004


def test_a_changed_shard_stops_the_run(corpus, tmp_path):
    shutil.copytree(corpus, tmp_path / "corpus")
    path = tmp_path / "corpus" / "train-00000.tokens.npy"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(TrainingError, match=r"train-00000\.tokens\.npy has changed since it was written"):
        make_trainer(tmp_path / "corpus", tmp_path / "run").train()
    assert not (tmp_path / "run" / "model").exists()


def test_a_truncated_corpus_is_a_sentence(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("GLASSBERT_VERIFY", "0")
    shutil.copytree(corpus, tmp_path / "corpus")
    trainer = make_trainer(tmp_path / "corpus", tmp_path / "run", steps=400)
    with trainer.prepared():
        trainer.one_step()
        os.truncate(tmp_path / "corpus" / "train-00000.tokens.npy", 200)
        with pytest.raises(GlassBertError, match=r"was truncated while it was in use: it has 200 bytes"):
            for _ in range(20):
                trainer.one_step()


def test_a_run_stops_when_its_folder_is_replaced(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run", steps=400)
    with trainer.prepared():
        trainer.one_step()
        shutil.rmtree(tmp_path / "run")
        second = make_trainer(corpus, tmp_path / "run", learning_rate=1e-4)
        with second.prepared():
            settings = (tmp_path / "run" / "settings.json").read_text()
            for act in (trainer.save, lambda: finish(trainer), lambda: write_snapshot(trainer.run, 1, trainer.model)):
                with pytest.raises(TrainingError, match="no longer the folder of this run"):
                    act()
            trainer.run._checked = 0.0
            with pytest.raises(TrainingError, match="removed or replaced"):
                trainer.one_step()
        assert (tmp_path / "run" / "settings.json").read_text() == settings
        assert not (tmp_path / "run" / "model").exists()


def test_a_run_whose_folder_is_gone_writes_nothing(corpus, tmp_path):
    trainer = make_trainer(corpus, tmp_path / "run", steps=400)
    with trainer.prepared():
        trainer.one_step()
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(TrainingError, match="no longer the folder of this run"):
            trainer.save()
    assert not (tmp_path / "run").exists()


class Saying(NoDisplay):
    """Remembers what a run says."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def test_a_diverged_run_finishes_and_is_listed(corpus, tmp_path):
    display = Saying()
    trainer = make_trainer(corpus, tmp_path / "run", steps=8, learning_rate=1e20, evaluate_every=2)
    trainer.display = display
    result = trainer.train()
    assert math.isfinite(result.loss) and result.weights == "best"
    assert any("The held-out loss after step" in text and "lower --learning-rate" in text for text in display.said)
    content = json.loads((tmp_path / "run" / "result.json").read_text(), parse_constant=pytest.fail)
    assert content["stopped"] == "finished"
    (history,) = find_runs(tmp_path)
    assert history.state == "finished" and history.held_out == (result.loss, result.accuracy)
    assert any(math.isnan(line["loss"]) for line in history.kind("evaluation"))
    write_report(trainer.run)
    model = glassbert.load(tmp_path / "run", engine="numpy")
    assert all(np.isfinite(array).all() for array in model.parameters.values())


def test_the_last_evaluation_is_logged_once(corpus, tmp_path, monkeypatch):
    make_trainer(corpus, tmp_path / "early", steps=50, patience=1, evaluate_every=2, learning_rate=10.0).train()
    with monkeypatch.context() as patch:
        patch.setattr("glassbert.training.finishing._write_model", lambda trainer: (_ for _ in ()).throw(Stop))
        with pytest.raises(Stop):
            make_trainer(corpus, tmp_path / "killed", steps=4, checkpoint_every=4).train()
    Trainer.resume(tmp_path / "killed", display=NoDisplay()).train()
    for run in ("early", "killed"):
        steps = [line["step"] for line in read_log(tmp_path / run / "log.jsonl") if line["kind"] == "evaluation"]
        assert len(steps) == len(set(steps)) and len(steps) > 1


def test_another_number_of_workers_is_said(corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        killed_at(3, patch)
        with pytest.raises(Stop):
            make_trainer(corpus, tmp_path / "run", checkpoint_every=2).train()
    path = tmp_path / "run" / "settings.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_text(json.dumps({**content, "workers": 4}))
    display = Saying()
    Trainer.resume(tmp_path / "run", display=display).train()
    assert any("not be identical bit by bit" in text and "workers was 4 and is 1" in text for text in display.said)


@pytest.mark.parametrize("damage", ["{", "[]", '"x"', "null", '{"settings": 3}', "[" * 100_000, '{"a": 1e999}', "\xff"])
@pytest.mark.parametrize("name", ["settings.json", "result.json"])
def test_one_damaged_run_does_not_hide_the_others(corpus, tmp_path, name, damage):
    make_trainer(corpus, tmp_path / "good", steps=1).train()
    shutil.copytree(tmp_path / "good", tmp_path / "bad")
    (tmp_path / "bad" / name).write_text(damage, encoding="latin-1")
    problems = []
    names = [history.run.name for history in find_runs(tmp_path, problems)]
    if name == "settings.json":
        assert names == ["good"] and problems and "bad" in problems[0]
    assert "good" in names
    with pytest.raises(GlassBertError):
        Trainer.resume(tmp_path / "bad")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "mlm+sop"}, "'sop' needs 2 token types: add --type-vocab-size 2"),
        ({"objective": "nsp", "type_vocab_size": 1}, "'nsp' needs 2 token types"),
        ({"objective": "plm"}, "'plm' needs a model of two streams: choose --family xlnet"),
        ({"objective": "clm"}, "'clm' needs a causal model: add --causal, or choose --family gpt2"),
        ({"objective": "mlm+span"}, "'span' learns from labelled examples, and a corpus has none.*glassbert finetune"),
        ({"objective": "forecast"}, "'forecast' learns from labelled examples"),
        ({"segments": 2}, "'self' takes no padding beside a memory.*2 segments; choose --family xlnet"),
    ],
)
def test_a_model_without_the_parts_that_a_run_needs(corpus, tmp_path, changes, message):
    with pytest.raises(TrainingError, match=message):
        make_trainer(corpus, tmp_path / "run", **{"length": 64, "max_position_embeddings": 64, **changes})
    assert not (tmp_path / "run" / "settings.json").exists()


@pytest.mark.parametrize("also", [{}, {"general": "corpus", "general_share": 0.5}])
def test_resuming_where_the_corpus_is_not(corpus, tmp_path, monkeypatch, also):
    (tmp_path / "begun").mkdir()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "begun")
    shutil.copytree(corpus, "corpus")
    trainer = make_trainer("corpus", tmp_path / "run", **also)
    with trainer.prepared():
        trainer.one_step()
        trainer.save()
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(TrainingError, match=r"the corpus corpus, which is not there.*or resume from the folder"):
        Trainer.resume(tmp_path / "run", display=NoDisplay())
    monkeypatch.chdir(tmp_path / "begun")
    assert Trainer.resume(tmp_path / "run", display=NoDisplay()).settings.steps == 12


def test_commands_in_errors_can_be_pasted(corpus, tmp_path):
    run = tmp_path / "my run"
    make_trainer(corpus, run, steps=1).train()
    for call, option in ((make_trainer, "glassbert resume"), (None, "--start-from")):
        with pytest.raises(TrainingError, match=f"{option} '.*/my run'"):
            call(corpus, run, steps=1).train() if call else Trainer.resume(run)


def test_a_corpus_that_holds_nothing_out(tmp_path):
    documents = ["the red house stands in the night."] * 30
    write_corpus(tmp_path / "corpus", FastTokenizer.train(documents, 64, 1), documents, validation=0)
    with pytest.raises(TextError, match="the validation split has no tokens; build the corpus with a larger --valid"):
        make_trainer(tmp_path / "corpus", tmp_path / "run")


def test_a_batch_larger_than_the_corpus_names_the_flags(corpus, tmp_path):
    with pytest.raises(TextError, match=r"fewer than a batch.*smaller --batch or a smaller --length"):
        make_trainer(corpus, tmp_path / "run", batch=100_000)
