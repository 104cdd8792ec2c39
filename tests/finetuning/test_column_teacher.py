"""Simple models of the columns as a teacher: unseen rows, mixed cells, weights, training and resuming."""

import json

import numpy as np
import pytest

import glassbert
from glassbert.errors import ConfigError, TrainingError
from glassbert.files import SEAL, write_json
from glassbert.finetuning import column_teacher
from glassbert.finetuning.display import progress_bar
from glassbert.finetuning.examples import truth_of
from glassbert.finetuning.preparing import prepare
from glassbert.finetuning.run import resume_finetuning
from glassbert.finetuning.tuner import FineTuner
from glassbert.training.display import NoDisplay
from glassbert.training.objectives.distillation import GivenScores
from tests.finetuning.toy import Stop, settings, tune, write_csv

COLUMNS = ["house", "river", "bird", "verdict"]
WORDS = {"binary": ("bad", "good"), "multiclass": ("bad", "fair", "good")}


def rows(target, count=130, noise=0.0):
    """The target grows with a number; a share of the targets is replaced by random ones."""
    rng = np.random.default_rng(3)
    found = []
    for i in range(count):
        size = round(float(rng.uniform(0, 100)), 2)
        other = rng.uniform(0, 100) if rng.random() < noise else size
        answers = {"binary": WORDS["binary"][int(other > 50)], "multiclass": WORDS["multiclass"][int(other // 34)],
                   "ordinal": int(other // 25), "regression": round(other / 7, 3)}  # fmt: skip
        found.append([size, "" if i % 5 == 0 else i % 7, "king" if i % 2 else "stone", answers[target]])
    return found


def ready(tmp_path, encoder, target, noise=0.0, **changes):
    file = write_csv(tmp_path / f"{target}.csv", COLUMNS, rows(target, noise=noise))
    return prepare(settings(encoder, file, text=None, template="auto", head=target, **changes), progress_bar)


@pytest.mark.parametrize("target", ["binary", "multiclass", "ordinal", "regression"])
def test_every_head_gets_answers_that_follow_the_column(tmp_path, encoder, target):
    found = ready(tmp_path, encoder, target)
    answers = column_teacher.teach(found.train, found.card, 1, 0)
    size = np.array([float(value) for value in found.train.table.column("house")])
    for data, given in ((found.train, answers.answers), (answers.mixed[0], answers.mixed_answers[0])):
        assert np.isfinite(given).all() and len(given) == len(data) == len(found.train)
    level = {"binary": lambda z: z, "regression": lambda z: z, "multiclass": lambda z: z[:, 2] - z[:, 0],
             "ordinal": lambda z: z[:, 1]}[target]  # fmt: skip
    assert np.corrcoef(np.argsort(np.argsort(size)), np.argsort(np.argsort(level(answers.answers))))[0, 1] > 0.8
    mixed = np.array([float(value) for value in answers.mixed[0].table.column("house")])
    assert (mixed != size).mean() > 0.1
    assert np.corrcoef(mixed, np.argsort(np.argsort(level(answers.mixed_answers[0]))))[0, 1] > 0.75
    assert "simple models of the columns" in answers.note


def test_no_answer_comes_from_a_model_that_saw_the_row_or_a_copy_of_it(tmp_path, encoder):
    found = ready(tmp_path, encoder, "binary", noise=1.0)  # labels at random: only memory could know them
    twice = found.train.select([*range(len(found.train)), *range(len(found.train))])
    truth = truth_of(twice, found.card)
    answers = column_teacher.teach(twice, found.card, 0, 0).answers
    sides = np.where(truth == 1, answers, -answers)
    assert sides.mean() < 0.2  # models that saw the copies are right about nearly every row, by 2 and more


def test_mixed_rows_keep_their_columns(tmp_path, encoder):
    train = ready(tmp_path, encoder, "binary").train
    mixed = column_teacher.mix_rows(train, [0, 0])
    assert mixed.targets is None and mixed.texts != train.texts
    changed = []
    for name in COLUMNS[:3]:
        before, after = train.table.column(name), mixed.table.column(name)
        assert set(after) <= set(before)
        changed.append(np.mean([a != b for a, b in zip(before, after, strict=True)]))
    assert 0.15 < changed[0] < 0.45
    assert column_teacher.mix_rows(train, [0, 1]).texts != mixed.texts


def test_on_by_default_for_tables_with_numbers(tmp_path, encoder):
    found = ready(tmp_path, encoder, "binary")
    assert found.settings.column_teacher == column_teacher.WEIGHT and found.train_examples.scores is not None
    terms = found.objective(found.model(0)).terms
    assert [weight for _, weight in terms] == [1 - column_teacher.WEIGHT, column_teacher.WEIGHT]
    assert isinstance(terms[1][0], GivenScores) and terms[1][0].temperature == 1.0
    assert any("simple models of the columns" in note for note in found.notes)
    plain = ready(tmp_path, encoder, "binary", column_teacher=0)
    assert plain.train_examples.scores is None and plain.objective(plain.model(0)) is None
    assert found.settings.mixed_rows == 2 and plain.settings.mixed_rows == 0
    assert ready(tmp_path, encoder, "ordinal").settings.column_teacher == 0
    digits = ready(tmp_path, encoder, "binary", numbers="text")
    assert digits.settings.column_teacher == 0 and digits.train_examples.scores is None


def test_few_or_many_rows_and_a_missing_package_leave_the_labels_alone(tmp_path, encoder, monkeypatch):
    few = ready(tmp_path, encoder, "binary", limit=column_teacher.LEAST - 1)
    assert few.settings.column_teacher == 0
    assert column_teacher.default_weight(few.card, column_teacher.MOST)[0] == column_teacher.WEIGHT
    assert column_teacher.default_weight(few.card, column_teacher.MOST + 1) == (0.0, "")
    monkeypatch.setattr(column_teacher, "find_spec", lambda name: None)
    without = ready(tmp_path, encoder, "binary")
    assert without.settings.column_teacher == 0 and any("scikit-learn" in note for note in without.notes)
    with pytest.raises(ConfigError, match="scikit-learn"):
        ready(tmp_path, encoder, "binary", column_teacher=0.5)


def test_numbers_are_mixed_into_the_labels(tmp_path, encoder):
    found = ready(tmp_path, encoder, "regression", noise=0.3, column_teacher=0.4, mixed_rows=0)
    plain = ready(tmp_path, encoder, "regression", noise=0.3, column_teacher=0)
    answers = column_teacher.teach(found.train, found.card, 0, found.settings.seed).answers
    expected = 0.6 * plain.train_examples.labels + 0.4 * answers
    np.testing.assert_allclose(found.train_examples.labels, expected)
    assert found.train_examples.scores is None


def test_fewer_copies_of_more_rows():
    assert [column_teacher.default_copies(count) for count in (500, 3_001, 40_000)] == [2, 1, 0]


def test_mixed_rows_have_answers_and_no_labels(tmp_path, encoder):
    found = ready(tmp_path, encoder, "ordinal", column_teacher=0.8, mixed_rows=2)
    count = len(found.train)
    assert len(found.train_examples) == 3 * count
    assert (found.train_examples.labels[count:] == -100).all() and (found.train_examples.labels[:count] >= 0).all()
    assert np.isfinite(found.train_examples.scores).all()


def test_train_predict_and_go_on(tmp_path, encoder):
    file = write_csv(tmp_path / "t.csv", COLUMNS, rows("binary", noise=0.1))
    changes = {"text": None, "template": "auto", "epochs": 12, "learning_rate": 1e-2, "dropout": 0.0}
    tuned = tune(tmp_path / "run", encoder, file, report=True, **changes)
    stored = json.loads((tuned.run / "settings.json").read_text())
    assert stored["settings"]["column_teacher"] == column_teacher.WEIGHT
    assert any("simple models" in note for note in stored["notes"])
    predictor = glassbert.Predictor.load(tuned.run, engine="numpy")
    new = [{"house": size, "river": 1, "bird": "king"} for size in (99, 2)]
    assert predictor.predict(new).answers() == ["good", "bad"]


@pytest.mark.parametrize("older", [False, True])
def test_a_killed_run_goes_on_with_its_answers(tmp_path, encoder, monkeypatch, older):
    """An `older` run began before there was a column teacher: its settings do not name it."""
    file = write_csv(tmp_path / "t.csv", COLUMNS, rows("binary", noise=0.1))
    changes = {"text": None, "template": "auto", "epochs": 2, **({"column_teacher": 0} if older else {})}
    whole = tune(tmp_path / "whole", encoder, file, **changes)
    with monkeypatch.context() as patch:
        one_step = FineTuner.one_step

        def until(self):
            if self.state.step == 25:
                raise Stop
            one_step(self)

        patch.setattr(FineTuner, "one_step", until)
        with pytest.raises(Stop):
            tune(tmp_path / "killed", encoder, file, **changes)
    if older:
        content = json.loads((tmp_path / "killed" / "settings.json").read_text())
        del content["settings"]["column_teacher"], content["settings"]["mixed_rows"]
        del content[SEAL]
        write_json(tmp_path / "killed" / "settings.json", content, sealed=True)
    monkeypatch.setattr(column_teacher, "_fit", None)  # stored answers are used
    again = resume_finetuning(tmp_path / "killed", display=NoDisplay())
    ours, theirs = (glassbert.load(one.model, engine="numpy").parameters for one in (again, whole))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_stored_answers_are_read_again(tmp_path, encoder, monkeypatch):
    found = ready(tmp_path, encoder, "multiclass", column_teacher=0)
    first = column_teacher.teach(found.train, found.card, 1, 0, tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(column_teacher, "_fit", None)
        again = column_teacher.teach(found.train, found.card, 1, 0, tmp_path / "run")
    assert np.array_equal(first.answers, again.answers) and first.share == again.share
    assert np.array_equal(first.mixed_answers[0], again.mixed_answers[0])
    (file,) = (tmp_path / "run").iterdir()
    file.write_bytes(b"damaged")
    assert np.array_equal(column_teacher.teach(found.train, found.card, 1, 0, tmp_path / "run").answers, first.answers)


def test_the_models_of_a_fold_see_its_training_rows_alone(tmp_path, encoder, monkeypatch):
    asked = []
    real = column_teacher.teach
    monkeypatch.setattr(column_teacher, "teach", lambda train, *rest: asked.append(train) or real(train, *rest))
    found = ready(tmp_path, encoder, "regression", folds=5, fold=1)
    assert len(asked) == 1 and asked[0].texts == found.train.texts
    assert not set(found.train.texts) & set(found.dev.texts)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [({"column_teacher": 1.5}, TrainingError, r"column_teacher must be in \[0, 1\]"),
     ({"teacher": "T", "column_teacher": 0.5}, TrainingError, "remove one of them"),
     ({"mixed_rows": 1, "column_teacher": 0}, TrainingError, "answered for by the column teacher"),
     ({"numbers": "text", "column_teacher": 0.5}, ConfigError, "tables with numbers"),
     ({"numbers": "text", "mixed_rows": 1}, ConfigError, "tables with numbers")],
)  # fmt: skip
def test_bad_settings(tmp_path, encoder, changes, error, message):
    with pytest.raises(error, match=message):
        ready(tmp_path, encoder, "binary", **changes)
