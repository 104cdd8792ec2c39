"""Distillation: soft targets and hidden states of a teacher, in a step, over micro-batches, resumed; bad input."""

import importlib.util
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from glassbert.checkpoints import load
from glassbert.errors import TrainingError
from glassbert.families.bert import BertWithHead
from glassbert.models.inputs import check_inputs
from glassbert.ops.distillation import log_softmax
from glassbert.text import FastTokenizer, load_tokenizer
from glassbert.training.display import NoDisplay
from glassbert.training.distilling import distill
from glassbert.training.evaluate import evaluate
from glassbert.training.log import read_log
from glassbert.training.objectives import Objectives
from glassbert.training.optimizers import AdamW, Sophia
from glassbert.training.step import TrainingStep
from glassbert.training.teacher import Teacher, WordTeacher
from glassbert.training.trainer import Trainer
from tests.models.small import BERT, MODERN, batch, make
from tests.training.toy import make_trainer

LENGTHS = np.random.default_rng(1).integers(0, 10, 12)
NARROW = MODERN.replace(hidden_size=12, num_attention_heads=3, teacher_size=16)
MLX = pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Skip the report and the speed measurement, which are tested elsewhere."""
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    monkeypatch.setattr("glassbert.training.building.measure_mlx_matmul_rate", lambda *rest, **options: 100.0)
    monkeypatch.setattr("glassbert.training.finishing.write_report", lambda run, result=None: None)


def distilled(objective, teacher=MODERN, student=MODERN, physical_batch=None, temperature=3.0, **options):
    """The result of one step, and the gradients."""
    model = make(student, **options)
    taught = Teacher(make(teacher, seed=8, **options), temperature)
    objectives = Objectives.parse(objective)
    objectives = objectives.with_teacher(taught) if objective != "mlm" else objectives
    step = TrainingStep(model, AdamW(model), objective=objectives, physical_batch=physical_batch)
    ids, mask, labels = batch(student, LENGTHS)
    result = step(ids, labels, mask)
    return result, None if model.engine.compiles else step._gradients.flat.copy()


@pytest.mark.parametrize("student", [MODERN, MODERN.replace(hidden_size=12, num_attention_heads=3), BERT])
def test_the_gradient_of_a_sum_with_a_teacher_is_the_sum_of_gradients(student):
    """The output of the head is computed once for both, so this also checks the shared output."""
    words, dwords = distilled("mlm", student=student)
    soft, dsoft = distilled("distill", student=student)
    for objective in ("2*mlm+5*distill", "5*distill+2*mlm"):
        both, dboth = distilled(objective, student=student)
        assert both.losses == pytest.approx({"mlm": words.loss, "distill": soft.loss}, rel=1e-12)
        np.testing.assert_allclose(dboth, 2 * dwords + 5 * dsoft, atol=1e-12)


def test_hidden_states_are_added_to_it():
    (words, dwords), (soft, dsoft), (hidden, dhidden) = map(distilled, ("mlm", "distill", "hidden"))
    every, devery = distilled("mlm+0.5*distill+3*hidden")
    assert every.loss == pytest.approx(words.loss + 0.5 * soft.loss + 3 * hidden.loss, rel=1e-12)
    np.testing.assert_allclose(devery, dwords + 0.5 * dsoft + 3 * dhidden, atol=1e-12)


def test_the_losses_are_the_formulas():
    ids, mask, labels = batch(MODERN, LENGTHS)
    student, teacher = make(MODERN), make(MODERN, seed=8)
    chosen = labels != -100
    z, w = student.predict(ids, mask)[chosen] / 3.0, teacher.predict(ids, mask)[chosen] / 3.0
    divergence = (np.exp(log_softmax(w)) * (log_softmax(w) - log_softmax(z))).sum(-1).mean() * 9.0
    x, y = (m.run(check_inputs(MODERN, ids, mask)).encode()[mask == 1] for m in (student, teacher))
    cosine = (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)
    found = distilled("distill+hidden")[0].losses
    assert found == pytest.approx({"distill": divergence, "hidden": (1 - cosine).mean()}, rel=1e-9)


@pytest.mark.parametrize("physical_batch", [5, 1])
@pytest.mark.parametrize("threads", [1, 3])
def test_micro_batches_and_threads_give_the_whole_batch(physical_batch, threads):
    whole, expected = distilled("mlm+distill+hidden")
    pieces, found = distilled("mlm+distill+hidden", physical_batch=physical_batch, threads=threads)
    assert pieces.losses == pytest.approx(whole.losses, rel=1e-12)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_student_that_equals_its_teacher_has_nothing_to_learn():
    model = make(MODERN)
    objectives = Objectives.parse("distill+hidden").with_teacher(Teacher(make(MODERN)))
    step = TrainingStep(model, AdamW(model), objective=objectives)
    result = step(*(batch(MODERN, LENGTHS)[i] for i in (0, 2, 1)))
    assert result.losses == pytest.approx({"distill": 0.0, "hidden": 0.0}, abs=1e-10)
    assert result.gradient_norm < 1e-6


@pytest.mark.parametrize(("physical_batch", "threads"), [(5, 1), (1, 3)])
def test_micro_batches_of_a_narrow_student_give_the_whole_batch(physical_batch, threads):
    options = {"objective": "mlm+hidden+2*relations", "student": NARROW}
    whole, expected = distilled(**options)
    pieces, found = distilled(**options, physical_batch=physical_batch, threads=threads)
    assert pieces.losses == pytest.approx(whole.losses, rel=1e-12)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_projection_is_learned_and_left_out_at_the_end():
    """With the encoder frozen, the map alone brings the student nearer to the teacher."""
    student = make(NARROW.replace(teacher_size=None))
    objectives = Objectives.parse("hidden").with_teacher(Teacher(make(MODERN, seed=8)))
    taught = objectives.prepared_student(student)
    assert taught.config.teacher_size == 16 and taught.parameters["head.teacher.weight"].shape == (16, 12)
    optimizer = AdamW(taught, 3e-2, weight_decay=0.0)
    optimizer.rates = {name: float(name.startswith("head.teacher")) for name in taught.parameters}
    step = TrainingStep(taught, optimizer, objective=objectives)
    ids, mask, labels = batch(MODERN, LENGTHS)
    losses = [float(step(ids, labels, mask).loss) for _ in range(60)]
    assert losses[-1] < 0.7 * losses[0]
    kept = taught.head.finished(taught)[""]
    assert kept.config == student.config and kept.layout.shapes == student.layout.shapes
    for name, values in student.parameters.items():
        np.testing.assert_array_equal(kept.parameters[name], values)
    assert objectives.prepared_student(make(MODERN)).config.teacher_size is None  # equal widths need no map


@MLX
@pytest.mark.parametrize("physical_batch", [None, 5])
def test_mlx_equals_numpy(physical_batch):
    options = {"dtype": "float32", "teacher": BERT.replace(hidden_size=16), "student": NARROW}
    expected, _ = distilled("mlm+distill+hidden+relations", **options)
    found, _ = distilled("mlm+distill+hidden+relations", engine="mlx", physical_batch=physical_batch, **options)
    assert {k: float(v) for k, v in found.losses.items()} == pytest.approx(expected.losses, rel=1e-4)
    assert float(found.gradient_norm) == pytest.approx(expected.gradient_norm, rel=1e-4)


@MLX
def test_a_quantised_teacher_on_mlx_equals_numpy(monkeypatch):
    from glassbert.quantization import quantize_model

    monkeypatch.setattr("glassbert.quantization.settings.SMALLEST", 200)
    ids, mask, labels = batch(MODERN, LENGTHS)
    losses = []
    for engine in ("numpy", "mlx"):
        model = make(MODERN, engine=engine, dtype="float32")
        taught = quantize_model(make(MODERN, seed=8, engine=engine, dtype="float32"))
        assert taught.quantized
        objectives = Objectives.parse("mlm+distill+hidden").with_teacher(Teacher(taught))
        losses.append(TrainingStep(model, AdamW(model), objective=objectives)(ids, labels, mask).losses)
    assert losses[0] == pytest.approx({name: float(loss) for name, loss in losses[1].items()}, rel=1e-4)


@MLX
def test_bfloat16_on_mlx_is_near():
    expected, _ = distilled("mlm+distill", dtype="float32")
    found, _ = distilled("mlm+distill", dtype="bfloat16", engine="mlx")
    assert {k: float(v) for k, v in found.losses.items()} == pytest.approx(expected.losses, rel=0.05)


def test_a_sequence_head_learns_soft_targets_too():
    student, teacher = (make(BERT, "multiclass", 3, seed=seed) for seed in (3, 8))
    objectives = Objectives.parse("0.1*sequence+distill").with_teacher(Teacher(teacher))
    step = TrainingStep(student, AdamW(student, 1e-2), objective=objectives)
    ids, mask, _ = batch()
    labels = np.arange(len(ids)) % 3
    losses = [float(step(ids, labels, mask).losses["distill"]) for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]


def test_held_out_losses_leave_the_teacher_out():
    model = make(MODERN)
    ids, mask, labels = batch(MODERN, LENGTHS)
    held_out = [{"input_ids": ids, "attention_mask": mask, "labels": labels}]
    expected = evaluate(model, held_out)
    for objective in ("mlm+distill", "distill"):
        objectives = Objectives.parse(objective).with_teacher(Teacher(make(MODERN, seed=8)))
        assert evaluate(model, held_out, objective=objectives) == expected


# ---- runs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def teacher(corpus, tmp_path_factory):
    """A model of other width and depth than the student, trained on the same corpus."""
    folder = tmp_path_factory.mktemp("teacher") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
        patch.setattr("glassbert.training.finishing.write_report", lambda run, result=None: None)
        make_trainer(corpus, folder, steps=40, hidden_size=24, num_hidden_layers=2).train()
    return folder


def test_a_run_learns_from_a_wider_teacher(corpus, teacher, tmp_path):
    changes = {"steps": 40, "objective": "mlm+distill+hidden+relations", "teacher": str(teacher)}
    result = make_trainer(corpus, tmp_path / "run", **changes).train()
    inside = [line["metrics"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "inside"]
    assert result.stopped == "finished" and 0 < result.loss < 4.2
    assert {"mlm_loss", "distill_loss", "hidden_loss", "relations_loss"} <= inside[0].keys()
    kept = load(tmp_path / "run", engine="numpy")
    assert kept.config.teacher_size is None and "head.teacher.weight" not in kept.parameters


def test_distill_begins_with_a_student_of_its_own_shape(corpus, teacher, tmp_path):
    make_trainer(corpus, tmp_path / "first", steps=2).train()
    budget = {"steps": 3, "length": 16, "batch": 8, "engine": "numpy", "display": NoDisplay()}
    trainer = distill(str(teacher), str(corpus), str(tmp_path / "first"), run=tmp_path / "run", **budget)
    before = load(tmp_path / "first", engine="numpy")
    np.testing.assert_array_equal(trainer.model.parameters["layers.0.attention.qkv.weight"],
                                  before.parameters["layers.0.attention.qkv.weight"])  # fmt: skip
    assert trainer.train().stopped == "finished"
    assert load(tmp_path / "run", engine="numpy").config == before.config
    with pytest.raises(TrainingError, match="name it with --teacher"):
        distill("", str(corpus))


@pytest.mark.parametrize("engine", ["numpy", pytest.param("mlx", marks=MLX)])
def test_a_resumed_run_ends_with_identical_weights(corpus, teacher, tmp_path, monkeypatch, engine):
    changes = {
        "steps": 6, "checkpoint_every": 2, "objective": "mlm+distill+hidden", "teacher": str(teacher), "engine": engine,
        "threads": 2 if engine == "numpy" else None,
    }  # fmt: skip
    make_trainer(corpus, tmp_path / "whole", **changes).train()
    run = make_trainer(corpus, tmp_path / "killed", **changes)
    whole = Trainer.one_step

    def until(self):
        if self.state.step == 5:
            raise KeyboardInterrupt
        whole(self)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "one_step", until)
        run.train()
    Trainer.resume(tmp_path / "killed", display=NoDisplay()).train()
    one, two = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "killed"))
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])


def test_a_changed_teacher_is_refused_on_resume(corpus, teacher, tmp_path):
    copied = tmp_path / "teacher"
    shutil.copytree(teacher, copied)
    changes = {"steps": 4, "objective": "mlm+distill", "teacher": str(copied)}
    with make_trainer(corpus, tmp_path / "run", **changes).prepared():
        pass
    shutil.rmtree(copied)
    shutil.copytree(min((teacher / "checkpoints").iterdir()), copied)
    with pytest.raises(TrainingError, match=r"the teacher .* has changed since the run started"):
        Trainer.resume(tmp_path / "run", display=NoDisplay())


# ---- a teacher with a tokenizer of its own ---------------------------------------------------------------------------

WORDS = "the old king sees a red bird and the small green tree falls in a river of stones"


@pytest.fixture(scope="module")
def tokenizers():
    """Of the student, which cuts words into pieces, and of the teacher, which knows them whole."""
    return [FastTokenizer.train([WORDS] * 9, vocab_size=size, min_frequency=1) for size in (45, 75)]


def masked_rows(tokenizer):
    texts = ["the old king sees a red bird", "a tree", "the river and the stones"]
    rows = tokenizer.batch(texts)
    ids, mask = rows["input_ids"], rows["attention_mask"]
    chosen = np.random.default_rng(2).random(ids.shape) < 0.3
    labels = np.where(chosen & (ids > 4), ids, -100)
    return np.where(labels == -100, ids, tokenizer.mask_id), labels, mask


def taught_by_words(tokenizers, objective="mlm+2*hidden", physical_batch=None, **options):
    own, other = tokenizers
    model = make(NARROW.replace(vocab_size=own.vocab_size), **options)
    teacher = make(BERT.replace(vocab_size=other.vocab_size, hidden_size=16), None, seed=8, **options)
    objectives = Objectives.parse(objective).with_teacher(WordTeacher(teacher, other, own))
    step = TrainingStep(model, AdamW(model), objective=objectives, physical_batch=physical_batch)
    ids, labels, mask = masked_rows(own)
    return step(ids, labels, mask), None if model.engine.compiles else step._gradients.flat.copy()


def test_the_states_of_words_are_those_of_the_text(tokenizers):
    """Each token has the mean of the teacher's states of its word, in the text without masks."""
    own, other = tokenizers
    teacher = WordTeacher(make(BERT.replace(vocab_size=other.vocab_size), None), other, own)
    ids, labels, mask = masked_rows(own)
    assert (labels != -100).any()
    found = teacher(teacher.check(labels, input_ids=ids, attention_mask=mask), None, frozenset({"states"}))["states"]
    text = other.encode("the old king sees a red bird")
    states = teacher.model.predict([text.ids])[0]
    words = own.continues_word[np.where(labels == -100, ids, labels)[0]]
    of_word = np.cumsum(~words) - 1
    assert words.any() and (ids != own.unknown_id).all() and len(text.ids) == 9  # several pieces to a word, and one
    np.testing.assert_allclose(found[0], states[of_word], atol=1e-12)
    assert (found[mask == 0] == 0).all()


def test_with_one_tokenizer_it_is_the_ordinary_teacher(tokenizers):
    """Of a row without masks, in which every word has one piece."""
    _, other = tokenizers
    model = make(BERT.replace(vocab_size=other.vocab_size))
    rows = other.batch(["the old king sees a red bird", "a tree falls"])
    inputs = {"input_ids": rows["input_ids"], "attention_mask": rows["attention_mask"]}
    one, two = Teacher(model), WordTeacher(model, other, other)
    states = frozenset({"states"})
    expected, found = (teacher(teacher.check(None, **inputs), None, states)["states"] for teacher in (one, two))
    real = rows["attention_mask"] == 1
    np.testing.assert_allclose(found[real], expected[real], atol=1e-12)


@pytest.mark.parametrize("objective", ["mlm+2*hidden", "hidden+relations"])
@pytest.mark.parametrize(("physical_batch", "threads"), [(2, 1), (1, 3)])
def test_micro_batches_with_a_teacher_of_words_give_the_whole_batch(tokenizers, objective, physical_batch, threads):
    whole, expected = taught_by_words(tokenizers, objective)
    pieces, found = taught_by_words(tokenizers, objective, physical_batch, threads=threads)
    assert pieces.losses == pytest.approx(whole.losses, rel=1e-12)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@MLX
def test_a_teacher_of_words_on_mlx_equals_numpy(tokenizers):
    expected, _ = taught_by_words(tokenizers, dtype="float32")
    found, _ = taught_by_words(tokenizers, dtype="float32", engine="mlx")
    assert {k: float(v) for k, v in found.losses.items()} == pytest.approx(expected.losses, rel=1e-4)
    assert float(found.gradient_norm) == pytest.approx(expected.gradient_norm, rel=1e-4)


def test_a_run_learns_the_states_of_a_teacher_with_other_tokens(corpus, tmp_path, monkeypatch):
    """A sentence encoder has no head for masked words, and needs none."""
    monkeypatch.setattr("glassbert.training.monitor.Monitor.inspection_due", lambda monitor: True)
    other = FastTokenizer.train([WORDS * 3], vocab_size=60, min_frequency=1)
    make(BERT.replace(vocab_size=other.vocab_size, max_position_embeddings=24), None).save(
        tmp_path / "teacher", tokenizer=other
    )
    make_trainer(corpus, tmp_path / "first", steps=20).train()
    changes = {"steps": 30, "objective": "0.01*mlm+2*hidden", "teacher": str(tmp_path / "teacher")}
    result = make_trainer(corpus, tmp_path / "run", start_from=str(tmp_path / "first"), **changes).train()
    inside = [line["metrics"] for line in read_log(tmp_path / "run" / "log.jsonl") if line["kind"] == "inside"]
    assert result.stopped == "finished"
    assert (result.weights, result.weights_step) == ("last", 30)  # the lowest loss of words may be that of the start
    assert inside[-1]["hidden_loss"] < 0.9 * inside[0]["hidden_loss"]
    assert "head.teacher.weight" not in load(tmp_path / "run", engine="numpy").parameters


# ---- bad input -----------------------------------------------------------------------------------------------------


def test_objectives_and_teacher_go_together():
    model = make(MODERN)
    with pytest.raises(TrainingError, match="'distill' compares with a teacher; name its folder with --teacher"):
        TrainingStep(model, AdamW(model), objective="mlm+distill")
    with pytest.raises(TrainingError, match="'mlm' does not use a teacher; add one of distill, hidden"):
        Objectives.parse("mlm").with_teacher(Teacher(make(MODERN)))
    objectives = Objectives.parse("mlm+distill").with_teacher(Teacher(make(MODERN, None)))
    with pytest.raises(TrainingError, match="learns the scores of a teacher, and this one has no head"):
        TrainingStep(model, AdamW(model), objective=objectives)
    with pytest.raises(TrainingError, match="temperature must be a number above 0, got 0"):
        Teacher(make(MODERN), 0)


def test_a_teacher_that_does_not_fit():
    def step(objective, teacher, student=None, optimizer=AdamW):
        student = student or make(MODERN)
        objectives = Objectives.parse(objective).with_teacher(Teacher(teacher))
        return TrainingStep(student, optimizer(student), objective=objectives)

    with pytest.raises(TrainingError, match="the teacher scores 40 classes, but the student 31"):
        step("mlm+distill", make(MODERN.replace(vocab_size=40)))
    with pytest.raises(TrainingError, match=r"the teacher has 12 and the student 16; .* teacher_size=12"):
        step("mlm+hidden", make(BERT))
    with pytest.raises(TrainingError, match="sampled labels"):
        step("mlm+distill", make(MODERN), optimizer=Sophia)
    with pytest.raises(TrainingError, match=r"distributions over classes.* is mean_squared_error"):
        step("sequence+distill", make(BERT, "regression", 1), make(BERT, "regression", 1))


def test_another_vocabulary_is_refused(corpus, teacher, tmp_path):
    words = "some other words entirely, jumping over quick lazy foxes by a vivid dozen of boxes "
    other = FastTokenizer.train([words * 3], vocab_size=64, min_frequency=1)
    folder = tmp_path / "teacher"
    make(MODERN.replace(vocab_size=64)).save(folder, tokenizer=other)
    with pytest.raises(TrainingError, match="is not that of the corpus"):
        make_trainer(corpus, tmp_path / "run", objective="mlm+distill", teacher=str(folder))
    run = tmp_path / "other"  # in a run the tokenizer is in RUN/model
    shutil.copytree(folder, run / "model")
    (run / "settings.json").write_text("{}")
    with pytest.raises(TrainingError, match="is not that of the corpus"):
        make_trainer(corpus, tmp_path / "run", objective="mlm+distill", teacher=str(run))
    make(MODERN).save(tmp_path / "small")
    with pytest.raises(TrainingError, match="a vocabulary of 31, but that of the corpus has 64"):
        make_trainer(corpus, tmp_path / "run", objective="mlm+distill", teacher=str(tmp_path / "small"))
    with pytest.raises(TrainingError, match="rows of 16 tokens do not fit the 8 positions"):
        make(BERT.replace(vocab_size=64, max_position_embeddings=8)).save(tmp_path / "short")
        make_trainer(corpus, tmp_path / "run", objective="mlm+distill", teacher=str(tmp_path / "short"))


def test_a_student_of_another_vocabulary_is_refused(corpus, teacher, tmp_path):
    make_trainer(corpus, tmp_path / "first", steps=2).train()
    model = tmp_path / "first" / "model"
    budget = {"steps": 1, "length": 16, "batch": 8, "engine": "numpy", "display": NoDisplay()}
    shutil.copytree(model, tmp_path / "bare", ignore=shutil.ignore_patterns("*token*", "vocab.txt", "checksums.json"))
    distill(str(teacher), str(corpus), str(tmp_path / "bare"), run=tmp_path / "allowed", **budget)
    words = "some other words entirely, jumping over quick lazy foxes by a vivid dozen of boxes "
    load(model, engine="numpy").save(model, tokenizer=FastTokenizer.train([words * 3], vocab_size=64, min_frequency=1))
    with pytest.raises(TrainingError, match=r"distill' compares scores of tokens.*--objective mlm\+3\*hidden"):
        distill(str(teacher), str(corpus), str(tmp_path / "first"), run=tmp_path / "run", **budget)
    with pytest.raises(TrainingError, match="its weights belong to other tokens; give text files as --corpus and"):
        distill(str(teacher), str(corpus), str(tmp_path / "first"), run=tmp_path / "run", objective="hidden", **budget)


@pytest.mark.parametrize(
    ("objective", "message"),
    [("mlm+2*distill", r"the teacher .* has another vocabulary than the student"), ("mlm", "does not use a teacher")],
)
def test_a_wrong_objective_is_refused_before_texts_are_encoded(corpus, tmp_path, objective, message):
    """Vocabularies of different sizes were compared by the files of weights, after the corpus was built."""
    make_trainer(corpus, tmp_path / "student", steps=1).train()
    other = FastTokenizer.train([WORDS * 3], vocab_size=60, min_frequency=1)
    make(BERT.replace(vocab_size=other.vocab_size)).save(tmp_path / "teacher", tokenizer=other)
    (tmp_path / "text.txt").write_text(f"{WORDS}.\n\n" * 9)
    with pytest.raises(TrainingError, match=message):
        distill(
            str(tmp_path / "teacher"), str(tmp_path / "text.txt"), str(tmp_path / "student"), run=tmp_path / "run",
            objective=objective, steps=1, engine="numpy", display=NoDisplay(),
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_weights_of_a_vocabulary_of_another_size_are_refused_by_name(corpus, tmp_path):
    other = FastTokenizer.train([WORDS * 3], vocab_size=60, min_frequency=1)
    trainer = make_trainer(corpus, tmp_path / "first", steps=1)
    config = trainer.model.config.replace(vocab_size=other.vocab_size)
    BertWithHead(config, "mlm", engine="numpy").save(tmp_path / "start", tokenizer=other)
    with pytest.raises(TrainingError, match=r"vocabulary of .*start is not that of the corpus"):
        make_trainer(corpus, tmp_path / "run", start_from=str(tmp_path / "start"))


def test_a_teacher_without_a_head_has_no_scores(corpus, teacher, tmp_path):
    """Its head was made of random numbers, which the student learned."""
    tokenizer = load_tokenizer(corpus)
    load(teacher, head="core", engine="numpy").save(tmp_path / "headless", tokenizer=tokenizer)
    with pytest.raises(TrainingError, match="has no head, and a model that predicts masked words is needed"):
        make_trainer(corpus, tmp_path / "run", objective="mlm+distill", teacher=str(tmp_path / "headless"))
