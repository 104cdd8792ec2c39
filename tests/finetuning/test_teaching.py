"""Fine-tuning with a teacher: every head, other tokenizers, stored answers, further texts, resume, bad input."""

import importlib.util
import json
import random
import shutil
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from glassbert.checkpoints import load
from glassbert.errors import ConfigError, TrainingError
from glassbert.finetuning.augmenting import replace_words
from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.display import progress_bar
from glassbert.finetuning.examples import encode_examples
from glassbert.finetuning.predictor import Predictor
from glassbert.finetuning.preparing import prepare
from glassbert.finetuning.run import finetune, reopen, resume_finetuning
from glassbert.finetuning.teaching import TaskTeacher, convert, further_texts, joined, mean_answers, taught
from glassbert.finetuning.tuner import FineTuner
from glassbert.text import FastTokenizer, load_tokenizer
from glassbert.training.display import NoDisplay
from glassbert.training.objectives import Objectives
from glassbert.training.objectives.distillation import GivenScores
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep
from tests.finetuning.toy import BAD, GOOD, QUICK, WORDS, Stop, make_model, sentences, settings, tune, write_csv
from tests.models.small import BERT, batch, make

MLX = pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Speeds are measured with one batch."""
    monkeypatch.setattr("glassbert.finetuning.distilled.SECONDS", 0.0)


@pytest.fixture(scope="module")
def larger(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("larger"), hidden_size=24, num_hidden_layers=2)


@pytest.fixture(scope="module")
def teacher(larger, reviews, tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher") / "run"
    tune(folder, larger, *reviews, epochs=6)
    return folder


# ---- the loss --------------------------------------------------------------------------------------------------------


def given(head, labels, scores, targets, soft=0.5, temperature=2.0, **options):
    """The result and the gradients of one step with these scores."""
    model = make(BERT, head, labels, **options)
    ((own, _),) = Objectives.of(model.head).terms
    terms = [(own, 1 - soft), (GivenScores(own.part, temperature), soft)]
    step = TrainingStep(model, AdamW(model), objective=Objectives([term for term in terms if term[1]]))
    ids, mask, _ = batch()
    result = step(ids[: len(scores)], targets, mask[: len(scores)], scores=scores)
    return result, None if model.engine.compiles else step._gradients.flat.copy(), model


def test_a_binary_score_is_a_choice_between_two():
    """T² · KL of the two probabilities, by its formula."""
    ids, mask, _ = batch()
    wanted = np.linspace(-3, 3, len(ids))[:, None]
    result, *_ = given("binary", 0, wanted, np.ones(len(ids)), soft=1.0)
    z = make(BERT, "binary").predict(ids, mask)
    q, p = (1 / (1 + np.exp(-x / 2.0)) for x in (z, wanted))
    expected = 4.0 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).mean()
    assert result.loss == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("head", "labels", "shape", "targets"),
    [("binary", 0, (4, 1), [0.0, 1.0, -100.0, 1.0]), ("multilabel", 3, (4, 3), np.full((4, 3), 0.5)),
     ("ordinal", 4, (4, 3), [0, 3, -100, 1]), ("multiclass", 3, (4, 3), [0, -100, 2, 1])],
)  # fmt: skip
def test_the_gradient_is_that_of_finite_differences(head, labels, shape, targets):
    rng = np.random.default_rng(0)
    scores = rng.standard_normal(shape)
    scores[1] = np.nan  # no answer for this text
    _, found, model = given(head, labels, scores, np.array(targets))
    ids, mask, _ = batch()

    def loss(name, index, change):
        other = make(BERT, head, labels)
        other.parameters[name].reshape(-1)[index] += change
        ((own, _),) = Objectives.of(other.head).terms
        step = TrainingStep(other, AdamW(other), objective=Objectives([(own, 0.5), (GivenScores(own.part), 0.5)]))
        return float(step(ids[:4], np.array(targets), mask[:4], scores=scores).loss)

    gradients = found
    for name in ("head.classifier.weight", "layers.0.attention.qkv.weight"):
        span = model.layout.span(name)
        index = int(np.argmax(np.abs(gradients[span])))
        difference = (loss(name, index, 1e-5) - loss(name, index, -1e-5)) / 2e-5
        assert gradients[span][index] == pytest.approx(difference, rel=1e-5)


@MLX
def test_mlx_equals_numpy():
    scores, targets = np.random.default_rng(1).standard_normal((4, 3)), np.array([0, 1, -100, 2])
    expected, *_ = given("multiclass", 3, scores, targets, dtype="float32")
    found, *_ = given("multiclass", 3, scores, targets, dtype="float32", engine="mlx")
    assert float(found.loss) == pytest.approx(expected.loss, rel=1e-4)
    assert float(found.gradient_norm) == pytest.approx(expected.gradient_norm, rel=1e-4)


def test_a_batch_without_scores_and_a_head_without_a_distribution_are_refused():
    model = make(BERT, "multiclass", 3)
    step = TrainingStep(model, AdamW(model), objective=Objectives([(GivenScores(), 1.0)]))
    ids, mask, _ = batch()
    with pytest.raises(TrainingError, match="needs the scores of a teacher in every batch"):
        step(ids, np.zeros(len(ids), int), mask)
    model = make(BERT, "regression", 1)
    with pytest.raises(TrainingError, match="distributions over classes"):
        Objectives.of(model.head, Objectives([(GivenScores(), 1.0)]))


# ---- answers in the form of the student ------------------------------------------------------------------------------


def card(head, labels=(), **options):
    return TaskCard(title="t", head=head, text="text", target="target", labels=labels, **options)


def test_labels_are_put_in_the_order_of_the_student():
    z = np.array([[1.0, 2.0, 4.0]])
    found = convert(z, card("multiclass", ("a", "b", "c")), card("multiclass", ("c", "a", "b")))
    assert found.tolist() == [[4.0, 1.0, 2.0]]
    binary = np.array([3.0])
    assert convert(binary, card("binary", ("no", "yes")), card("binary", ("yes", "no"))).tolist() == [-3.0]
    two = convert(np.array([[1.0, 5.0]]), card("multiclass", ("no", "yes")), card("binary", ("no", "yes")))
    assert two.tolist() == [4.0]
    unnamed = card("multiclass", ("LABEL_0", "LABEL_1"))
    assert convert(np.array([[1.0, 5.0]]), unnamed, card("binary", ("no", "yes"))).tolist() == [4.0]


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [(card("multiclass", ("a", "b")), card("multiclass", ("a", "c")), "predicts a, b, and the labels here are a, c"),
     (card("regression"), card("binary", ("a", "b")), r"predicts no labels \(its head is regression\), and"),
     (card("ordinal", ("1", "2", "3")), card("ordinal", ("3", "2", "1")), "its answers do not fit"),
     (card("embedding"), card("regression"), "has a embedding head, and this task is regression")],
)  # fmt: skip
def test_answers_that_do_not_fit_are_refused(theirs, ours, message):
    with pytest.raises(ConfigError, match=message):
        convert(None, theirs, ours)


# ---- runs ------------------------------------------------------------------------------------------------------------


def student(run, model, reviews, teacher, **changes):
    return tune(run, model, *reviews, teacher=str(teacher), **{"epochs": 2, **changes})


def test_a_student_learns_from_answers_alone(tmp_path, encoder, reviews, teacher):
    """With wrong labels and --soft 1 it still learns what the teacher knows."""
    rows = [(text, random.Random(text).choice(["bad", "good"])) for text, _ in sentences(96, 1)]
    wrong = write_csv(tmp_path / "wrong.csv", ["review", "verdict"], rows)
    tuned = student(tmp_path / "run", encoder, (wrong, reviews[1]), teacher, soft=1.0, epochs=8, learning_rate=1e-2)
    assert tuned.scores["auc"].value > 0.9
    models = tuned.distillation["models"]
    assert [one["name"] for one in models] == ["teacher", "student"]
    assert models[0]["score"] > 0.9 and models[0]["parameters"] > models[1]["parameters"]


def test_several_teachers_answer_with_their_mean(tmp_path, encoder, reviews, teacher):
    """Logits are averaged in the student's order of the labels, for training and in the report."""
    second = tmp_path / "second"
    tune(second, encoder, *reviews, epochs=1, seed=5)
    scores = tmp_path / "scores"
    both = {"further_teachers": (str(second),), "teacher_scores": str(scores), "epochs": 1}
    tuned = student(tmp_path / "run", encoder, reviews, teacher, **both)
    assert len(list(scores.iterdir())) == 4  # two teachers, training and held-out examples
    prepared = prepare(settings(encoder, *reviews, teacher=str(teacher), **both), progress_bar)
    texts = [text for text, _ in sentences(96, 1)]
    assert list(prepared.train.texts) == texts
    wanted = np.mean([Predictor.load(run).predict(texts).outputs for run in (teacher, second)], 0)
    np.testing.assert_allclose(prepared.train_examples.scores[:, 0], wanted, atol=1e-5)
    models = tuned.distillation["models"]
    assert [one["name"] for one in models] == ["2 teachers", "student"]
    sizes = [load(run / "model").get_parameter_count() for run in (teacher, second)]
    assert models[0]["parameters"] == sum(sizes) and tuned.distillation["teacher"] == f"{teacher}, {second}"
    assert reopen(tmp_path / "run").distillation == tuned.distillation


def test_the_mean_of_answers_about_words():
    found = mean_answers([[np.zeros((2, 3)), np.ones((1, 3))], [np.ones((2, 3)), np.ones((1, 3))]])
    assert [one.shape for one in found] == [(2, 3), (1, 3)] and found[0][0, 0] == 0.5 and found[1][0, 0] == 1.0


def test_teacher_and_student_may_have_other_tokenizers(tmp_path, reviews, teacher):
    tokenizer = FastTokenizer.train([text for text, _ in sentences(96, 1)], vocab_size=64, min_frequency=1)
    folder = make_model(tmp_path / "other", tokenizer)
    tuned = student(tmp_path / "run", folder, reviews, teacher)
    found = Predictor.load(teacher).predict([text for text, _ in sentences(32, 2)]).outputs
    assert load_tokenizer(tuned.model).vocabulary != load_tokenizer(teacher / "model").vocabulary
    assert tuned.distillation["models"][0]["score"] is not None and len(found) == 32


def test_compared_run_report_and_reopening(tmp_path, encoder, reviews, teacher):
    tuned = student(tmp_path / "run", encoder, reviews, teacher, compare=True, report=True)
    models = tuned.distillation["models"]
    assert [one["name"] for one in models] == ["teacher", "student", "student without teacher"]
    assert models[2]["score"] == reopen(tmp_path / "run" / "without-teacher").scores["auc"].value
    assert "Teacher and student" in (tmp_path / "run" / "report.html").read_text()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["distillation"] == tuned.distillation == reopen(tmp_path / "run").distillation


def test_further_texts_and_replaced_words_are_taught(tmp_path, encoder, reviews, teacher, larger):
    (tmp_path / "more.txt").write_text("\n".join(text for text, _ in sentences(20, 9)) + "\n")
    changes = {"texts": (str(tmp_path / "more.txt"),), "augment": 2, "augment_model": str(larger)}
    tuned = student(tmp_path / "run", encoder, reviews, teacher, **changes)
    assert tuned.distillation["examples"] == {"labelled": 96, "all": 96 * 3 + 20}


@pytest.mark.parametrize("engine", ["numpy", pytest.param("mlx", marks=MLX)])
def test_hidden_states_of_a_wider_teacher(tmp_path, encoder, reviews, teacher, engine):
    weights = {"hidden": 1.0, "relations": 0.5, "engine": engine}
    tuned = student(tmp_path / "run", encoder, reviews, teacher, epochs=1, **weights)
    plain = student(tmp_path / "plain", encoder, reviews, teacher, epochs=1, engine=engine)
    ours, theirs = (load(one.model, engine="numpy") for one in (tuned, plain))
    assert ours.config == theirs.config and ours.layout.shapes == theirs.layout.shapes  # no projection is left
    assert any(not np.array_equal(ours.parameters[name], theirs.parameters[name]) for name in theirs.parameters)


def test_hidden_states_need_one_tokenizer(tmp_path, reviews, teacher):
    other = FastTokenizer.train([text for text, _ in sentences(96, 1)], vocab_size=64, min_frequency=1)
    folder = make_model(tmp_path / "other", other)
    with pytest.raises(ConfigError, match="another tokenizer than the student: remove --hidden and --relations"):
        student(tmp_path / "run", folder, reviews, teacher, hidden=1.0)
    longer = make_model(tmp_path / "longer", max_position_embeddings=40)
    with pytest.raises(ConfigError, match="at most 24 tokens, and the student's have 40; give --max-length 24"):
        student(tmp_path / "run", longer, reviews, teacher, relations=1.0)


def test_answers_are_computed_once(tmp_path, encoder, reviews, teacher, monkeypatch):
    kept = {"teacher_scores": str(tmp_path / "kept")}
    first = student(tmp_path / "a", encoder, reviews, teacher, **kept)
    monkeypatch.setattr("glassbert.finetuning.distilled.texts_per_second", lambda *given: 1.0)

    def refuse(*given, **options):
        raise AssertionError("the teacher was asked again")

    monkeypatch.setattr(Predictor, "predict", refuse)
    second = student(tmp_path / "b", encoder, reviews, teacher, **kept)
    np.testing.assert_array_equal(first.outcome.outputs, second.outcome.outputs)
    for file in (tmp_path / "kept").iterdir():
        file.write_bytes(file.read_bytes()[:40])  # damaged: asked again
    with pytest.raises(AssertionError, match="asked again"):
        student(tmp_path / "c", encoder, reviews, teacher, **kept)


@pytest.mark.parametrize("engine", ["numpy", pytest.param("mlx", marks=MLX)])
def test_a_killed_run_resumes_with_the_same_weights(tmp_path, encoder, reviews, teacher, larger, monkeypatch, engine):
    changes = {"augment": 1, "augment_model": str(larger), "evaluations": 2, "engine": engine}
    whole = student(tmp_path / "whole", encoder, reviews, teacher, **changes)
    with monkeypatch.context() as patch:
        one_step = FineTuner.one_step

        def until(self):
            if self.state.step == 30:
                raise Stop
            one_step(self)

        patch.setattr(FineTuner, "one_step", until)
        with pytest.raises(Stop):
            student(tmp_path / "killed", encoder, reviews, teacher, **changes)
    again = resume_finetuning(tmp_path / "killed", display=NoDisplay())
    ours, theirs = (load(one.model, engine="numpy").parameters for one in (again, whole))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_changed_teacher_is_noticed(tmp_path, encoder, reviews, teacher, larger, monkeypatch):
    shutil.copytree(teacher, tmp_path / "teacher")
    with monkeypatch.context() as patch:

        def stop(self):
            raise Stop

        patch.setattr(FineTuner, "one_step", stop)
        with pytest.raises(Stop):
            student(tmp_path / "run", encoder, reviews, tmp_path / "teacher")
    shutil.rmtree(tmp_path / "teacher")
    tune(tmp_path / "teacher", larger, *reviews, epochs=1)
    with pytest.raises(TrainingError, match="have changed since the run started"):
        resume_finetuning(tmp_path / "run", display=NoDisplay())


def pairs():
    rng = random.Random(0)
    return [[a, rng.choice(sentences(40, 5))[0], 5 if label == "good" else 1] for a, label in sentences(40)]


def tagged():
    words = [(text.split(), label) for text, label in sentences(40)]
    return [json.dumps({"words": w, "tags": ["X" if x in GOOD + BAD else "O" for x in w]}) for w, _ in words]


TASKS = {
    "multiclass": (["review", "verdict"], [[t, "abc"[i % 3]] for i, (t, _) in enumerate(sentences(40))], {}),
    "ordinal": (["review", "verdict"], [[t, i % 4] for i, (t, _) in enumerate(sentences(40))], {"head": "ordinal"}),
    "multilabel": (["review", "verdict"], [[t, "a,b"[: 1 + 2 * (i % 2)]] for i, (t, _) in enumerate(sentences(40))],
                   {"head": "multilabel"}),
    "regression": (["review", "verdict"], [[t, i + 0.5] for i, (t, _) in enumerate(sentences(40))], {}),
    "embedding": (["a", "b", "verdict"], pairs(), {"head": "embedding", "text": "a", "pair": "b"}),
    "embedding without scores": (["a", "b"], [row[:2] for row in pairs()],
                                 {"head": "embedding", "text": "a", "pair": "b", "target": None}),
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_every_head_learns_from_a_teacher(tmp_path, encoder, larger, task):
    columns, rows, changes = TASKS[task]
    train = write_csv(tmp_path / "train.csv", columns, rows)
    asked = {"train": str(train), "text": "review", "target": "verdict", "epochs": 1, "batch": 8, **QUICK, **changes}
    asked = {name: value for name, value in asked.items() if value is not None}
    finetune(run=tmp_path / "teacher", model=str(larger), display=NoDisplay(), **asked)
    further = {"teacher": str(tmp_path / "teacher"), "augment": 1, "augment_model": str(larger)}
    tuned = finetune(run=tmp_path / "run", model=str(encoder), display=NoDisplay(), **asked, **further)
    assert tuned.stopped == "finished" and len(tuned.distillation["models"]) == 2
    count = tuned.distillation["examples"]
    assert count["all"] == 2 * count["labelled"]


def test_words_of_a_token_task_learn_from_a_teacher(tmp_path, encoder, larger):
    """Answers belong to words, so tokenizers may differ; only the first piece of a word has a score."""
    train = tmp_path / "train.jsonl"
    train.write_text("\n".join(tagged()) + "\n")
    asked = {"train": str(train), "words": "words", "target": "tags", "head": "token", "batch": 8, **QUICK}
    finetune(run=tmp_path / "teacher", model=str(larger), epochs=8, learning_rate=1e-2, display=NoDisplay(), **asked)
    letters = FastTokenizer.train([" ".join(WORDS)], vocab_size=48, min_frequency=1)
    folder = make_model(tmp_path / "other", letters, max_position_embeddings=64)
    further = {"teacher": str(tmp_path / "teacher"), "augment": 1, "augment_model": str(larger), "soft": 1.0}
    tuned = finetune(
        run=tmp_path / "run", model=str(folder), epochs=6, learning_rate=1e-2, display=NoDisplay(), **asked, **further
    )
    assert tuned.distillation["models"][0]["score"] > 0.95
    assert tuned.scores["accuracy"].value > 0.8


def test_rows_are_not_padded_beyond_the_model(encoder):
    tokenizer, one = load_tokenizer(encoder), card("binary", ("bad", "good"), max_length=24)
    data = one.read([{"text": text, "target": y} for text, y in [("the house " * 20, "bad"), ("the", "good")]])
    examples = encode_examples(data, tokenizer, one)
    assert examples.inputs(np.arange(len(examples.rows)), 16)["input_ids"].shape[1] == 24
    assert examples.inputs(np.array([len(examples.rows) - 1]), 16)["input_ids"].shape[1] == 16


def test_joined_examples_are_those_of_their_parts(encoder):
    tokenizer, one = load_tokenizer(encoder), card("binary", ("bad", "good"), max_length=8)
    data = [one.read([{"text": t, "target": y} for t, y in sentences(n, n)], with_targets=True) for n in (5, 3)]
    first, second = (encode_examples(part, tokenizer, one) for part in data)
    unlabelled = encode_examples(replace(data[1], targets=None), tokenizer, one)
    both = joined([taught(first, np.arange(5.0), 0.5), taught(unlabelled, np.arange(3.0), 0.5)])
    units = len(first.rows)
    inside = both.inputs(np.arange(len(both.rows)))
    np.testing.assert_array_equal(inside["labels"], [*first.labels, *[-100.0] * len(second.rows)])
    np.testing.assert_array_equal(inside["scores"][:, 0], [*first.rows.owners, *second.rows.owners])
    np.testing.assert_array_equal(inside["input_ids"][units:], second.inputs(np.arange(len(second.rows)))["input_ids"])
    assert len(both) == 8


# ---- words replaced by others ----------------------------------------------------------------------------------------


def test_replaced_words_keep_everything_else(encoder):
    model, tokenizer = load(encoder, engine="numpy"), load_tokenizer(encoder)
    texts = ["The house, the river!", "?!", "", "lovely " * 60]
    first, second = replace_words(texts, 2, model, tokenizer, seed=1)
    assert first != second and first == replace_words(texts, 1, model, tokenizer, seed=1)[0]
    assert first[1:3] == ["?!", ""]  # no word to replace
    assert first[0] != texts[0] and first[0][0].isupper() and "," in first[0] and first[0].endswith("!")
    assert len(first[0].split()) == 4 and len(first[3].split()) == 60
    assert first[3].split().count("lovely") < 60


def test_replaced_words_belong_to_the_weights_that_chose_them(tmp_path, encoder, reviews, teacher, larger):
    predictor = Predictor.load(teacher, engine="numpy", threads=1)
    given = settings(encoder, *reviews, teacher=str(teacher), augment=1, augment_model=str(tmp_path / "words"))
    train = predictor.read([text for text, _ in sentences(3)])
    model = load(larger, engine="numpy")
    for change in (0, 0, 1):
        model.parameters["embeddings.token"] = model.parameters["embeddings.token"] + change
        model.save(tmp_path / "words", tokenizer=load_tokenizer(larger))
        taught_by = TaskTeacher("teacher", predictor, predictor.card)
        further_texts(taught_by, given, train, tmp_path, lambda what: nullcontext())
    assert len(list(tmp_path.glob("words-*.json"))) == 2


def test_words_need_a_masked_language_model(teacher):
    model = load(teacher, engine="numpy")
    with pytest.raises(Exception, match="no head for masked words"):
        replace_words(["the house"], 1, model, load_tokenizer(teacher / "model"))


# ---- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"texts": ("a.txt",)}, "--texts needs a --teacher"), ({"hidden": 1.0}, "--hidden needs a --teacher"),
     ({"teacher": "T", "hidden": 1.0, "low_rank": 2}, "remove --low-rank"),
     ({"further_teachers": ("T",)}, "--further-teachers needs a --teacher"),
     ({"teacher": "T", "further_teachers": "U", "relations": 1.0}, "compare with one teacher"),
     ({"augment": 3}, "--augment needs a --teacher"),
     ({"compare": True}, "--compare needs a --teacher"),
     ({"teacher": "T", "folds": 3}, "has seen the examples of every fold"),
     ({"teacher": "T", "soft": 0.0}, r"soft must be in \(0, 1\]"),
     ({"teacher": "T", "temperature": 0}, "temperature must be a number above 0")],
)  # fmt: skip
def test_settings_that_need_a_teacher(encoder, reviews, tmp_path, changes, message):
    with pytest.raises(TrainingError, match=message):
        tune(tmp_path / "run", encoder, reviews[0], **changes)


def test_a_model_without_a_head_cannot_teach(tmp_path, encoder, reviews, larger):
    with pytest.raises(Exception, match="has a head of type mlm, so it cannot predict; fine-tune it first"):
        student(tmp_path / "run", encoder, reviews, larger)
    assert not (tmp_path / "run").exists()
