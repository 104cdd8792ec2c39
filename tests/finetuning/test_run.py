"""Complete runs: every head, several seeds, interruption and resumption, cross-validation."""

import importlib.util
import json
import random
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

import glassbert
from glassbert.cli.finetune import show
from glassbert.errors import InputError, TrainingError
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.cross_validation import cross_validate
from glassbert.finetuning.display import progress_bar
from glassbert.finetuning.examples import encode_examples
from glassbert.finetuning.preparing import prepare
from glassbert.finetuning.run import finetune, reopen, resume
from glassbert.finetuning.scoring import score_examples
from glassbert.finetuning.seeds import Spread
from glassbert.finetuning.tuner import FineTuner
from glassbert.training.display import NoDisplay
from glassbert.training.history import find_runs
from glassbert.training.log import read_log
from glassbert.training.run_folder import FINETUNING, kind_of_run
from tests.finetuning.toy import Stop, sentences, settings, tune, write_csv


def killed_at(step, monkeypatch, seed=0):
    whole = FineTuner.one_step

    def until(self):
        if self.state.step == step and self.seed == seed:
            raise Stop
        whole(self)

    monkeypatch.setattr(FineTuner, "one_step", until)


def test_run_writes_all_files(tmp_path, encoder, reviews):
    tuned = tune(tmp_path / "run", encoder, *reviews, epochs=8, learning_rate=1e-2, baseline=True, report=True)
    assert tuned.stopped == "finished" and tuned.scores["auc"].value > 0.9
    assert tuned.scores["auc"].low is not None
    for name in ("settings.json", "log.jsonl", "predictions.jsonl", "result.json", "report.html", "model/task.json",
                 "model/tokenizer.json", "model/model.safetensors", "model/README.md"):  # fmt: skip
        assert (tmp_path / "run" / name).exists(), name
    assert not list((tmp_path / "run").glob("seed-*/*step-*"))
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["scores"]["auc"]["value"] == tuned.scores["auc"].value and result["examples"]["train"] == 96
    assert result["baseline"]["scores"]["accuracy"]["value"] > 0.9
    rows = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    assert len(rows) == 32 and {"text", "answer", "truth", "probabilities"} <= set(rows[0])


def test_saved_model_gives_the_outputs_of_the_run(tmp_path, encoder, reviews):
    tuned = tune(tmp_path / "run", encoder, *reviews, epochs=2)
    card, model = TaskCard.load(tuned.run), glassbert.load(tuned.run, engine="numpy")
    data = card.read(reviews[1], with_targets=True)
    examples = encode_examples(data, glassbert.load_tokenizer(tuned.model), card)
    np.testing.assert_allclose(score_examples(model, examples), tuned.outcome.outputs, atol=1e-5)
    assert card.labels == ("bad", "good") and card.max_length == 24


def pairs():
    rng = random.Random(0)
    rows = []
    for text, label in sentences(48):
        rows.append([text, rng.choice(sentences(48, 5))[0], 5 if label == "good" else 1])
    return rows


TASKS = {
    "multiclass": (["review", "verdict"], [[t, "abc"[i % 3]] for i, (t, _) in enumerate(sentences(48))], {}),
    "ordinal": (["review", "verdict"], [[t, i % 4] for i, (t, _) in enumerate(sentences(48))], {"head": "ordinal"}),
    "multilabel": (["review", "verdict"], [[t, "a,b"[: 1 + 2 * (i % 2)]] for i, (t, _) in enumerate(sentences(48))],
                   {"head": "multilabel"}),
    "regression": (["review", "verdict"], [[t, i + 0.5] for i, (t, _) in enumerate(sentences(48))], {}),
    "regression of pairs": (["a", "b", "verdict"], pairs(), {"head": "regression", "text": "a", "pair": "b"}),
    "embedding": (["a", "b", "verdict"], pairs(), {"head": "embedding", "text": "a", "pair": "b"}),
    "embedding without scores": (["a", "b", "verdict"], pairs(),
                                 {"head": "embedding", "text": "a", "pair": "b", "target": None}),
    "span": (["question", "context", "answer"], [["what", t, t.split()[2]] for t, _ in sentences(48)],
             {"head": "span", "text": None, "target": None}),
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_every_head(tmp_path, encoder, name):
    columns, rows, changes = TASKS[name]
    path = write_csv(tmp_path / "task.csv", columns, rows)
    tuned = tune(tmp_path / "run", encoder, path, epochs=1, **changes)
    assert tuned.stopped == "finished" and tuned.outcome is not None
    card = TaskCard.load(tuned.run)
    assert card.head == (changes.get("head") or name)
    assert len(tuned.outcome.answers()) == len(tuned.outcome)
    assert (card.thresholds is not None) == (card.head == "multilabel")
    assert (card.cuts is not None) == (card.head == "ordinal")
    assert glassbert.load(tuned.model, engine="numpy").head is not None


def test_token_head(tmp_path, encoder):
    path = tmp_path / "x.conll"
    path.write_text("".join("".join(f"{w}\t{'B-X' if w == 'king' else 'O'}\n" for w in t.split()) + "\n"
                            for t, _ in sentences(64)))  # fmt: skip
    tuned = tune(tmp_path / "run", encoder, path, epochs=6, learning_rate=1e-2, text=None, target="tags")
    assert tuned.metric == "span_f1" and tuned.scores["accuracy"].value > 0.9


def test_several_seeds(tmp_path, encoder, reviews):
    tuned = tune(tmp_path / "run", encoder, *reviews, seeds=3, seed=4, epochs=2, choose="reported")
    assert [result.seed for result in tuned.seeds] == [4, 5, 6]
    scores = [result.score for result in tuned.seeds]
    assert tuned.spread.mean == pytest.approx(np.mean(scores)) and tuned.spread.seeds == 3
    assert tuned.seeds[tuned.best - 4].score == max(scores) == tuned.outcome.main.value
    assert len({line["seed"] for line in read_log(tuned.run / "log.jsonl")}) == 3
    assert Spread.of([0.5]).deviation == 0.0


@pytest.mark.parametrize(("step", "seed"), [(7, 0), (3, 1)])
def test_resumed_run_is_bit_identical(tmp_path, encoder, reviews, monkeypatch, step, seed):
    changes = {"seeds": 2, "dropout": 0.1, "epochs": 2}
    whole = tune(tmp_path / "whole", encoder, *reviews, **changes)
    with monkeypatch.context() as patch:
        killed_at(step, patch, seed)
        with pytest.raises(Stop):
            tune(tmp_path / "killed", encoder, *reviews, **changes)
    assert kind_of_run(tmp_path / "killed") == FINETUNING and not (tmp_path / "killed" / "model").exists()
    assert not list(find_runs(tmp_path))  # `glassbert runs` compares pretraining runs
    resumed = resume(tmp_path / "killed", display=NoDisplay())
    one, two = (load_file(tuned.model / "model.safetensors") for tuned in (whole, resumed))
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert [r.score for r in whole.seeds] == [r.score for r in resumed.seeds]

    def lines(run):
        return [{k: v for k, v in line.items() if k != "seconds"} for line in read_log(run / "log.jsonl")]

    assert lines(whole.run) == lines(resumed.run)


def test_a_damaged_last_checkpoint_is_set_aside(tmp_path, encoder, reviews, monkeypatch):
    tune(tmp_path / "whole", encoder, *reviews)
    with monkeypatch.context() as patch:
        killed_at(26, patch)
        with pytest.raises(Stop):
            tune(tmp_path / "run", encoder, *reviews)
    steps = sorted((tmp_path / "run" / "seed-0").glob("step-*"))
    assert len(steps) == 2
    path = steps[-1] / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-9] ^= 2
    path.write_bytes(content)
    display = Saying()
    resume(tmp_path / "run", display=display)
    assert any("damaged checkpoint was set aside" in text and "weights.safetensors" in text for text in display.said)
    assert f"Resuming from step {int(steps[0].name[5:]):,}." in display.said
    whole, again = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("whole", "run"))
    assert whole.keys() == again.keys() and all(np.array_equal(whole[name], again[name]) for name in whole)


def test_a_run_stops_when_its_folder_is_gone(tmp_path, encoder, reviews, monkeypatch):
    step = FineTuner.one_step

    def remove(self):
        step(self)
        if self.state.step == 5:
            shutil.rmtree(tmp_path / "run")
            self.folder._checked = 0.0

    monkeypatch.setattr(FineTuner, "one_step", remove)
    with pytest.raises(TrainingError, match="no longer the folder of this run"):
        tune(tmp_path / "run", encoder, *reviews)
    assert not (tmp_path / "run").exists()


class Saying(NoDisplay):
    """Remembers what a run says."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def test_error_for_resuming_a_finished_run_or_changed_examples(tmp_path, encoder, reviews, monkeypatch):
    tune(tmp_path / "done", encoder, *reviews, epochs=1)
    with pytest.raises(TrainingError, match="is finished"):
        resume(tmp_path / "done", display=NoDisplay())
    train = write_csv(tmp_path / "train.csv", ["review", "verdict"], sentences(40))
    with monkeypatch.context() as patch:
        killed_at(3, patch)
        with pytest.raises(Stop):
            tune(tmp_path / "killed", encoder, train, reviews[1])
    write_csv(tmp_path / "train.csv", ["review", "verdict"], sentences(40, 9))
    with pytest.raises(TrainingError, match="have changed since the run started"):
        resume(tmp_path / "killed", display=NoDisplay())
    train.unlink()
    with pytest.raises(InputError, match=r"killed are read from .*train\.csv, and there is no such file here"):
        resume(tmp_path / "killed", display=NoDisplay())


def test_no_files_after_bad_input(tmp_path, encoder, reviews):
    with pytest.raises(ValueError, match="no column"):
        tune(tmp_path / "run", encoder, *reviews, target="nothing")
    assert not (tmp_path / "run").exists()
    tune(tmp_path / "run", encoder, *reviews, epochs=1)
    with pytest.raises(TrainingError, match="already holds a run"):
        tune(tmp_path / "run", encoder, *reviews)


def test_the_model_of_a_low_rank_run_is_a_plain_one(tmp_path, encoder, reviews):
    tuned = tune(tmp_path / "run", encoder, *reviews, epochs=1, low_rank=2)
    model = glassbert.load(tuned.model, engine="numpy")
    assert not any("adapter" in name for name in model.parameters)
    examples = prepare(settings(encoder, *reviews), progress_bar).dev_examples
    np.testing.assert_allclose(score_examples(model, examples), tuned.outcome.outputs, atol=1e-5)


def test_settings_as_keywords(tmp_path, encoder, reviews):
    given = settings(encoder, *reviews, epochs=1).to_dict()
    tuned = finetune(run=tmp_path / "run", display=NoDisplay(), **given)
    assert tuned.model.exists()


@pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="needs MLX")
def test_engines_agree(tmp_path, encoder, reviews):
    changes = {"epochs": 1, "dropout": 0.0, "layer_decay": 0.8, "batch": 32}
    numpy, mlx = (tune(tmp_path / name, encoder, *reviews, engine=name, **changes) for name in ("numpy", "mlx"))
    np.testing.assert_allclose(numpy.outcome.outputs, mlx.outcome.outputs, atol=2e-3)


def test_examples_from_memory_are_saved(tmp_path, encoder, monkeypatch):
    rows = [{"review": text, "verdict": label} for text, label in sentences(60)]
    given = {
        k: v for k, v in settings(encoder, tmp_path / "x.csv", epochs=1).to_dict().items() if k not in ("train", "dev")
    }
    with monkeypatch.context() as patch:
        killed_at(3, patch)
        with pytest.raises(Stop):
            finetune(run=tmp_path / "run", display=NoDisplay(), **given, train=rows)
    assert resume(tmp_path / "run", display=NoDisplay()).stopped == "finished"
    again = reopen(tmp_path / "run")
    assert again.scores.as_json() == json.loads((tmp_path / "run" / "result.json").read_text())["scores"]
    with pytest.raises(ValueError, match="no column"):
        finetune(run=tmp_path / "bad", display=NoDisplay(), **{**given, "target": "z"}, train=rows)
    assert not (tmp_path / "bad").exists()


def test_third_file_is_reported_and_the_dev_file_chooses(tmp_path, encoder, reviews):
    test = write_csv(tmp_path / "test.csv", ["review", "verdict"], sentences(40, 9))
    tuned = tune(tmp_path / "run", encoder, *reviews, test=str(test), epochs=2, seeds=2)
    assert len(tuned.outcome) == 40 and tuned.outcome.data.source == str(test)
    counts = {"train": 96, "choice": 32, "reported": 40}
    result = json.loads((tuned.run / "result.json").read_text())
    assert result["examples"] == counts == TaskCard.load(tuned.run).examples
    assert "chosen on 32 other examples" in result["note"] and tuned.outcome.card.chosen_apart
    chosen = {one.seed: one.score for one in tuned.seeds}
    assert tuned.best == max(chosen, key=chosen.get)  # by the dev file, not by the reported examples
    assert reopen(tuned.run).scores["auc"].value == tuned.scores["auc"].value


def test_inner_split_chooses_where_there_are_enough_examples(tmp_path, encoder, reviews):
    train = write_csv(tmp_path / "many.csv", ["review", "verdict"], sentences(2_050, 3))
    ready = prepare(settings(encoder, train, reviews[1]), progress_bar)
    counts = ready.card.examples
    assert 195 <= counts["choice"] <= 215 and counts["train"] + counts["choice"] == 2_050 and counts["reported"] == 32
    assert ready.card.chosen_on == "other" and len(ready.choosing[1]) == counts["choice"]
    small = tune(tmp_path / "small", encoder, *reviews, epochs=2, choose="reported")
    assert small.outcome.card.examples["choice"] == 0 and not small.outcome.card.unbiased
    assert "chosen on these same examples" in json.loads((small.run / "result.json").read_text())["note"]
    asked = tune(tmp_path / "asked", encoder, *reviews, epochs=1, inner=0.25)
    assert asked.outcome.card.examples == {"train": 72, "choice": 24, "reported": 32}


def test_few_examples_choose_nothing(tmp_path, encoder, reviews):
    last = tune(tmp_path / "last", encoder, *reviews, epochs=2)
    assert last.outcome.card.chosen_on == "nothing" and last.outcome.card.unbiased
    assert last.seeds[0].epoch == 2.0 and last.seeds[0].score == last.outcome.main.value
    assert "last one" in json.loads((last.run / "result.json").read_text())["note"]


def test_multilabel_thresholds_come_from_the_choosing_examples(tmp_path, encoder):
    rows = [[t, "a,b" if "the" in t else "a"] for t, _ in sentences(80)]
    path = write_csv(tmp_path / "t.csv", ["review", "verdict"], rows)
    tuned = tune(tmp_path / "run", encoder, path, head="multilabel", epochs=1, inner=0.3)
    assert tuned.outcome.card.thresholds == TaskCard.load(tuned.run).thresholds is not None


def test_soup_of_seeds(tmp_path, encoder, reviews, monkeypatch, capsys):
    always = lambda self, other, metric: other is None or self.score >= 0  # noqa: E731
    monkeypatch.setattr("glassbert.finetuning.averaging.Measured.better", always)
    tuned = tune(tmp_path / "run", encoder, *reviews, seeds=3, soup=True, epochs=1, choose="reported", report=True)
    assert sorted(json.loads((tuned.run / "result.json").read_text())["soup"]) == [0, 1, 2]
    assert sorted(tuned.soup) == sorted(reopen(tuned.run).soup) == [0, 1, 2]
    show(tuned)
    assert "the average of the seeds 0, 1, 2 is saved" in " ".join(capsys.readouterr().out.split())
    assert "their average, kept" in tuned.report.read_text(encoding="utf-8")
    ready = prepare(settings(encoder, *reviews, seeds=3, soup=True), progress_bar)
    one, two = ready.model(0), ready.model(1)
    name = "head.classifier.weight"
    np.testing.assert_array_equal(one.parameters[name], two.parameters[name])  # the same initial weights
    assert one.dropout_seed != two.dropout_seed
    with pytest.raises(TrainingError, match="--seeds 3"):
        settings(encoder, *reviews, soup=True)


def test_folds_in_python_leave_a_report_and_a_usable_model(tmp_path, encoder):
    rows = [{"review": text, "verdict": label} for text, label in sentences(60)]
    tuned = finetune(
        run=tmp_path / "run", display=NoDisplay(), model=str(encoder), train=rows, text="review", target="verdict",
        folds=3, epochs=1, learning_rate=3e-3, batch=8, engine="numpy", threads=1, resamples=50,
    )  # fmt: skip
    assert len(tuned.folds) == 3 and len(tuned.outcome) == 60 and tuned.spread.seeds == 3
    assert tuned.report.exists() and "fold 2" in tuned.report.read_text()
    assert len(glassbert.Predictor.load(tuned.run).predict(["the lovely bird"]).answers()) == 1
    assert TaskCard.load(tuned.run).examples["reported"] == 60 and tuned.baseline is not None
    assert TaskCard.load(tuned.run).examples["train"] > 54  # the saved model saw more than those of the folds
    assert reopen(tuned.run).scores["auc"].value == tuned.scores["auc"].value
    with pytest.raises(TrainingError, match="already holds a run"):
        finetune(run=tmp_path / "run", display=NoDisplay(), model=str(encoder), train=rows, target="verdict", folds=3)


def test_interrupted_cross_validation_is_resumed(tmp_path, encoder, monkeypatch):
    train = write_csv(tmp_path / "t.csv", ["review", "verdict"], sentences(60))
    with monkeypatch.context() as patch:
        killed_at(3, patch)
        with pytest.raises(Stop):
            finetune(settings(encoder, train, epochs=1, folds=2), tmp_path / "run", display=NoDisplay())
    if not (tmp_path / "run" / "settings.json").exists():  # killed in the first fold
        tuned = cross_validate(settings(encoder, train, epochs=1, folds=2), tmp_path / "run", display=NoDisplay())
    else:
        tuned = resume(tmp_path / "run", display=NoDisplay())
    assert tuned.stopped == "finished" and len(tuned.folds) == 2


def test_cross_validation(tmp_path, encoder, monkeypatch):
    train = write_csv(tmp_path / "t.csv", ["review", "verdict"], sentences(60))
    asked = settings(encoder, train, epochs=1, folds=3)
    with monkeypatch.context() as patch:
        whole = FineTuner.one_step

        def until(self):
            if "fold-1" in str(self.folder.path) and self.state.step == 3:
                raise Stop
            whole(self)

        patch.setattr(FineTuner, "one_step", until)
        with pytest.raises(Stop):
            cross_validate(asked, tmp_path / "run", display=NoDisplay())
    found = cross_validate(asked, tmp_path / "run", display=NoDisplay())
    assert sorted(t for one in found.folds for t in one.outcome.data.texts) == sorted(t for t, _ in sentences(60))
    assert found.spread.seeds == 3 and found.scores["auc"].low is not None
    assert (tmp_path / "run" / "result.json").exists()


def test_aligned_pairs_in_training_and_prediction(tmp_path, encoder):
    path = write_csv(tmp_path / "pairs.csv", ["a", "b", "verdict"], pairs())
    tuned = tune(tmp_path / "run", encoder, path, epochs=1, head="regression", text="a", pair="b")
    card = TaskCard.load(tuned.run)
    assert card.aligned and card.pair == "b"
    predictor = glassbert.Predictor.load(tuned.run, engine="numpy")
    both = list(zip(tuned.outcome.data.texts, tuned.outcome.data.pairs, strict=True))
    np.testing.assert_allclose(predictor.predict(both).outputs, tuned.outcome.outputs, rtol=1e-4)
    long = predictor.predict([("the house " * 30, "a bird " * 60), ("", "bird")])  # windows; an empty text
    assert np.isfinite(np.asarray(long.outputs)).all()
