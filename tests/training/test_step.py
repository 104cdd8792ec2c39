"""A training step: all parameters change, the loss falls, and threads and MLX give the same result."""

import numpy as np
import pytest

from glassbert import MINI_BERT_CONFIG, MiniBERT
from glassbert.errors import TrainingError
from glassbert.training.ema import EMA
from glassbert.training.optimizers import OPTIMIZERS, AdamW, make_optimizer
from glassbert.training.step import TrainingStep
from tests.models.small import BERT, CONFIGS, DROPOUT, MINI, MODERN, batch, make

EVERY = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def train(model, data, steps, **options):
    step = TrainingStep(model, AdamW(model, 1e-2, **options))
    ids, mask, labels = data
    results = [step(ids, labels, mask) for _ in range(steps)]
    return [float(result.loss) for result in results], [float(result.gradient_norm) for result in results]


@EVERY
def test_one_step_changes_every_parameter(config):
    """Without decay, so that every change comes from a gradient."""
    model = make(config.replace(**DROPOUT), dtype="float32")
    model.set_training(True)
    before = {name: np.array(values) for name, values in model.parameters.items()}
    train(model, batch(config), 1, weight_decay=0.0)
    for name, values in model.parameters.items():
        assert (np.array(values) != before[name]).any(), f"{name} stood still"


@pytest.mark.parametrize("head", ["sequence", "token"])
def test_the_parameters_of_other_heads_change_too(head):
    for config in (BERT, MODERN):
        model = make(config, head, 3)
        ids, mask, _ = batch(config)
        labels = np.array([0, 1, 2, 0, 1]) if head == "sequence" else np.where(mask == 1, ids % 3, -100)
        before = {name: values.copy() for name, values in model.parameters.items()}
        train(model, (ids, mask, labels), 1, weight_decay=0.0)
        for name, values in model.parameters.items():
            assert (values != before[name]).any(), f"{name} stood still"


def test_embeddings_of_absent_tokens_do_not_change():
    config = BERT.replace(tie_word_embeddings=False)
    model = make(config)
    ids, mask, labels = batch(config)
    before = model.parameters["embeddings.token"].copy()
    train(model, (ids, mask, labels), 1, weight_decay=0.0)
    moved = (model.parameters["embeddings.token"] != before).any(1)
    assert set(np.flatnonzero(moved)) == set(ids[mask == 1].tolist()) - {0}


@EVERY
def test_a_model_overfits_one_batch(config):
    losses, norms = train(make(config, dtype="float32", threads=2), batch(config), 60)
    assert losses[-1] < 0.2 * losses[0]
    assert np.isfinite(norms).all()


def test_training_does_not_depend_on_the_number_of_threads():
    data, trained = batch(), []
    for threads in (1, 2, 3):
        model = make(BERT.replace(**DROPOUT), threads=threads)
        model.set_training(True)
        losses, _ = train(model, data, 5)
        trained.append((losses, {name: values.copy() for name, values in model.parameters.items()}))
    for losses, parameters in trained[1:]:
        np.testing.assert_allclose(losses, trained[0][0], rtol=1e-10)
        for name, values in parameters.items():
            np.testing.assert_allclose(values, trained[0][1][name], atol=1e-9, err_msg=name)


def test_the_same_run_twice_gives_the_same_model_to_the_last_bit():
    runs = []
    for _ in range(2):
        model = make(BERT.replace(**DROPOUT), dtype="float32", threads=2)
        model.set_training(True)
        train(model, batch(), 5)
        runs.append(model.parameters.flat.copy())
    np.testing.assert_array_equal(*runs)


@pytest.fixture
def mlx_without_compilation():
    """Compiling takes seconds on a CPU; a step that is not compiled computes the same."""
    mx = pytest.importorskip("mlx.core")
    mx.disable_compile()
    yield
    mx.enable_compile()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_mlx_trains_as_numpy_does(config, checkpointing, mlx_without_compilation):
    compare_engines(config, checkpointing)


def test_mlx_trains_as_numpy_does_when_its_step_is_compiled():
    pytest.importorskip("mlx.core")
    compare_engines(MODERN, False)


def compare_engines(config, checkpointing):
    data, trained = batch(config), []
    config = config.replace(**dict.fromkeys(DROPOUT, 0.0))
    for engine in ("numpy", "mlx"):
        model = make(config, dtype="float32", engine=engine)
        model.set_checkpointing(checkpointing)
        before = {name: np.array(values) for name, values in model.parameters.items()}
        losses, norms = train(model, data, 3, weight_decay=0.0)
        assert all((np.array(values) != before[name]).any() for name, values in model.parameters.items())
        trained.append((losses, norms, {name: np.array(values) for name, values in model.parameters.items()}))
    (losses, norms, parameters), (mlx_losses, mlx_norms, mlx_parameters) = trained
    np.testing.assert_allclose(mlx_losses, losses, rtol=1e-4)
    np.testing.assert_allclose(mlx_norms, norms, rtol=1e-3)
    for name, values in parameters.items():  # if a gradient is nearly zero, Adam makes a full step of its noise
        assert np.abs(mlx_parameters[name] - values).mean() < 2e-3, name


def test_a_step_of_nothing_but_ignored_labels_only_decays():
    model = make()
    ids, mask, labels = batch()
    before = model.parameters.flat.copy()
    losses, norms = train(model, (ids, mask, np.full_like(labels, -100)), 1, weight_decay=0.0)
    assert losses == norms == [0.0]
    np.testing.assert_array_equal(model.parameters.flat, before)


def test_a_compiled_step_follows_changed_settings():
    pytest.importorskip("mlx.core")
    config = MINI_BERT_CONFIG.replace(
        vocab_size=30,
        hidden_size=8,
        num_attention_heads=2,
        intermediate_size=8,
        num_hidden_layers=1,
        hidden_dropout=0.5,
    )
    ids = np.arange(5, 21).reshape(2, 8)
    step = TrainingStep(model := MiniBERT(config, engine="mlx"), AdamW(model, 0.0))
    first, again = (float(step(ids, ids).loss) for _ in range(2))
    assert first == again
    model.set_training(True)
    assert float(step(ids, ids).loss) != first
    model.set_training(False)
    assert float(step(ids, ids).loss) == first


def test_a_step_that_mlx_cannot_compile_runs_uncompiled(monkeypatch):
    """On CUDA, ELECTRA's step ended with this error."""
    mx = pytest.importorskip("mlx.core")
    ids, mask, labels = batch()
    steps = [TrainingStep(model := make(BERT, dtype="float32", engine="mlx"), AdamW(model, 1e-2)) for _ in range(2)]
    losses = [float(steps[0](ids, labels, mask).loss) for _ in range(3)]

    def lost(function):
        def run(*arguments):
            raise IndexError(message)

        return run

    monkeypatch.setattr(mx, "compile", lost)
    message = "_Map_base::at"
    with pytest.warns(UserWarning, match="could not compile the training step") as warned:
        assert [float(steps[1](ids, labels, mask).loss) for _ in range(3)] == pytest.approx(losses, rel=1e-5)
    assert len(warned) == 1
    message = "list index out of range"  # of somebody's own part
    step = TrainingStep(model := make(BERT, dtype="float32", engine="mlx"), AdamW(model, 1e-2))
    with pytest.raises(IndexError, match="out of range"):
        step(ids, labels, mask)


def test_a_step_that_fails_changes_nothing(monkeypatch):
    pytest.importorskip("mlx.core")
    config = MINI_BERT_CONFIG.replace(
        vocab_size=30, hidden_size=8, num_attention_heads=2, intermediate_size=8, num_hidden_layers=1
    )
    step = TrainingStep(model := MiniBERT(config, engine="mlx"), AdamW(model, 0.1))
    names = list(model.parameters)

    def broken(*_):
        raise RuntimeError("no")

    monkeypatch.setattr(AdamW, "moved", broken)
    with pytest.raises(RuntimeError, match="no"):
        step(np.array([[5, 6]]), np.array([[5, 6]]))
    assert list(model.parameters) == list(step.optimizer.state["mean"]) == names
    assert step.optimizer.steps == 0
    monkeypatch.undo()
    assert float(step(np.array([[5, 6]]), np.array([[5, 6]])).loss) > 0


# ---- steps that are not finite -------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("physical_batch", [None, 2])
def test_a_step_that_is_not_finite_is_skipped(engine, optimizer, physical_batch, request):
    if engine == "mlx":
        request.getfixturevalue("mlx_without_compilation")
    model = make(dtype="float32", engine=engine)
    ids, mask, labels = batch()
    ema = EMA(model, 0.5)
    step = TrainingStep(model, make_optimizer(optimizer, model), physical_batch=physical_batch, ema=ema)
    assert not step(ids, labels, mask).skipped
    good = np.array(model.parameters["embeddings.token"])
    poisoned = good.copy()
    poisoned[ids[0, 0]] = np.nan
    model.parameters["embeddings.token"] = model.engine.array(poisoned)
    before, kept, average = (everything(x) for x in (model.parameters, step.optimizer.state_arrays(), ema.parameters))
    result = step(ids, labels, mask)
    assert bool(result.skipped) and not np.isfinite(float(result.loss))
    assert step.optimizer.steps == 1 and step.optimizer.attempts == 2
    assert_equal(model.parameters, before)
    assert_equal(step.optimizer.state_arrays(), kept)
    assert_equal(ema.parameters, average)
    model.parameters["embeddings.token"] = model.engine.array(good)
    assert not step(ids, labels, mask).skipped
    assert step.optimizer.steps == 2 and np.isfinite(np.array(model.parameters["embeddings.token"])).all()


def test_a_compiled_step_skips_too():
    pytest.importorskip("mlx.core")
    model = make(MINI, dtype="float32", engine="mlx")
    ids, mask, labels = batch(MINI)
    step = TrainingStep(model, AdamW(model))
    step(ids, labels, mask)
    bias = np.array(model.parameters["head.decoder.bias"])
    model.parameters["head.decoder.bias"] = model.engine.array(np.full_like(bias, np.inf))
    before, kept = everything(model.parameters), everything(step.optimizer.state_arrays())
    assert bool(step(ids, labels, mask).skipped) and step.optimizer.steps == 1
    assert_equal(model.parameters, before)
    assert_equal(step.optimizer.state_arrays(), kept)


def everything(arrays):
    return {name: np.array(array) for name, array in arrays.items()}


def assert_equal(arrays, expected):
    for name, values in expected.items():
        np.testing.assert_array_equal(np.array(arrays[name]), values, err_msg=name)


# ---- norms and metrics ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
@pytest.mark.parametrize("physical_batch", [None, 2])
def test_a_detailed_step_reports_norms_by_module_and_update_ratios(engine, physical_batch, request):
    if engine == "mlx":
        request.getfixturevalue("mlx_without_compilation")
    model = make(dtype="float32", engine=engine)
    ids, mask, labels = batch()
    step = TrainingStep(model, AdamW(model, 1e-2), physical_batch=physical_batch)
    assert step(ids, labels, mask).norms is None
    before = everything(model.parameters)
    _, cache = model.loss(ids, labels, mask)
    gradients = everything(model.backward(cache))
    step.detailed = True
    result = step(ids, labels, mask)
    norms, ratios = result.norms.gradient_norms(), result.norms.update_ratios()
    assert list(norms) == list(ratios) == ["embeddings", "layers.0", "layers.1", "head"]
    assert np.sqrt(sum(norm**2 for norm in norms.values())) == pytest.approx(float(result.gradient_norm), rel=1e-4)
    for place, norm in norms.items():
        mine = [name for name in gradients if name.startswith(f"{place}.")]
        assert norm == pytest.approx(np.sqrt(sum((gradients[n] ** 2).sum() for n in mine)), rel=1e-3)
        moved = sum(((np.array(model.parameters[n]) - before[n]) ** 2).sum() for n in mine)
        assert ratios[place] == pytest.approx(np.sqrt(moved / sum((before[n] ** 2).sum() for n in mine)), rel=1e-3)
    assert 0 <= float(result.metrics["mlm_accuracy"]) <= 1


def test_an_optimizer_of_another_model_is_refused():
    with pytest.raises(TrainingError, match="created for another model"):
        TrainingStep(make(), AdamW(make()))
    with pytest.raises(TrainingError, match="physical_batch must be a number of rows"):
        TrainingStep(model := make(), AdamW(model), physical_batch=0)
