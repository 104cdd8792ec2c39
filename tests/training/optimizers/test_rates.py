"""Factors on the learning rate by parameter: 0 freezes it, others scale its step; on both engines."""

import numpy as np
import pytest

from glassbert.engines.numpy_kernels import KERNELS
from glassbert.errors import TrainingError
from glassbert.layers.block import PostNormBlock
from glassbert.layers.embeddings import TokenEmbeddings
from glassbert.training.ema import EMA
from glassbert.training.optimizers import OPTIMIZERS, SGD, AdamW, make_optimizer
from glassbert.training.step import TrainingStep
from tests.models.small import BERT, CAUSAL, DROPOUT, MODERN, batch, make
from tests.training.test_optimizers import drive, fill, gradients_of
from tests.training.workers_in_threads import together

EACH = pytest.mark.parametrize("name", OPTIMIZERS)
LOWEST = ("embeddings.", "layers.0.")  # what is frozen in most of these tests


def frozen(model, places=LOWEST):
    return {name: 0.0 for name in model.layout.shapes if name.startswith(places)}


def copies(arrays):
    return {name: np.array(values) for name, values in arrays.items()}


def on_mlx(optimizer, model, steps):
    """`drive` with the pure functions of MLX."""
    import mlx.core as mx

    def arrays(t):
        learning = optimizer.trainable or model.layout.shapes
        return {n: mx.array(g.astype(np.float32)) for n, g in gradients_of(model, t).items() if n in learning}

    for t in range(1, steps + 1):
        if optimizer.curvature_every and (t - 1) % optimizer.curvature_every == 0:
            optimizer.state = optimizer.observed(optimizer.state, arrays(-t % 10_000))
        model.parameters, optimizer.state, norm, _ = optimizer.step_arrays(
            model.parameters, arrays(t), optimizer.state, mx.array(float(t)), mx.array(optimizer.learning_rates)
        )
        yield float(norm)


WAYS = {"numpy": drive, "mlx": on_mlx}


def prepared(name, engine, rates=None, **settings):
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    model = make(MODERN, dtype="float32", engine=engine, threads=2)
    optimizer = make_optimizer(name, model, **settings)
    optimizer.rates = rates
    return model, optimizer


@EACH
@pytest.mark.parametrize("engine", WAYS)
def test_frozen_parameters_and_their_buffers_do_not_change(name, engine):
    model, optimizer = prepared(name, engine, weight_decay=0.5)
    optimizer.rates = frozen(model)
    before = copies(model.parameters)
    list(WAYS[engine](optimizer, model, 3))
    for parameter, values in model.parameters.items():
        same = np.array_equal(np.array(values), before[parameter])
        assert same == parameter.startswith(LOWEST), parameter
    for place, values in optimizer.state_arrays().items():
        assert values.any() != place.partition("/")[2].startswith(LOWEST), place


@EACH
@pytest.mark.parametrize("engine", WAYS)
def test_a_factor_scales_the_learning_rate(name, engine):
    names = list(make(MODERN).layout.shapes)
    slow = dict.fromkeys(names[::2], 0.25)
    mixed, optimizer = prepared(name, engine, slow, clip=None, learning_rate=0.01)
    list(WAYS[engine](optimizer, mixed, 4))
    for rate, chosen in ((0.01, names[1::2]), (0.0025, names[::2])):
        model, optimizer = prepared(name, engine, clip=None, learning_rate=rate)
        list(WAYS[engine](optimizer, model, 4))
        for parameter in chosen:
            np.testing.assert_allclose(
                np.array(mixed.parameters[parameter]), np.array(model.parameters[parameter]), atol=1e-7
            )


@pytest.mark.parametrize("engine", WAYS)
def test_the_norm_leaves_out_frozen_parameters(engine):
    model, optimizer = prepared("sgd", engine, clip=0.5)
    optimizer.rates = frozen(model)
    expected = [
        np.sqrt(sum((g**2).sum() for n, g in gradients_of(model, t).items() if not n.startswith(LOWEST)))
        for t in (1, 2)
    ]
    np.testing.assert_allclose(list(WAYS[engine](optimizer, model, 2)), expected, rtol=1e-5)


def test_a_gradient_of_a_frozen_parameter_need_not_be_finite():
    model = make()
    optimizer = AdamW(model)
    optimizer.rates = frozen(model)
    gradients = model.engine.gradients(model.layout)
    values = gradients_of(model, 1)
    values["layers.0.ffn.up.weight"][0, 0] = np.nan
    fill(gradients, values)
    assert np.isfinite(optimizer.update(model.parameters, gradients)) and optimizer.steps == 1


# ---- a training step -----------------------------------------------------------------------------------------------


@pytest.fixture
def mlx_without_compilation():
    mx = pytest.importorskip("mlx.core")
    mx.disable_compile()
    yield
    mx.enable_compile()


FREEZING = {
    "the lowest layer": LOWEST,
    "a layer in the middle": ("layers.1.",),
    "the embeddings": ("embeddings.",),
    "all but the last norm": ("embeddings.", "layers."),
    "the encoder": ("embeddings.", "layers.", "final_norm."),
    "weights, not biases": tuple(f"layers.{i}.{part}.weight" for i in (0, 1) for part in ("ffn.up", "attention.qkv")),
    "the head": ("head.",),
}


@pytest.mark.parametrize("what", FREEZING)
@pytest.mark.parametrize("config", [BERT, MODERN, CAUSAL], ids=["bert", "modernbert", "causal"])
@pytest.mark.parametrize("way", ["one thread", "three threads", "pieces", "checkpointing", "mlx", "mlx, pieces"])
def test_parameters_learn_the_same_when_others_are_frozen(what, config, way, request):
    if way.startswith("mlx"):
        request.getfixturevalue("mlx_without_compilation")
    places, trained = FREEZING[what], []
    for freeze in (False, True):
        model = make(
            config.replace(**(DROPOUT if way == "three threads" else {})), "token", 3,
            dtype="float32" if way.startswith("mlx") else "float64",
            engine="mlx" if way.startswith("mlx") else "numpy", threads=3 if way == "three threads" else 1,
        )  # fmt: skip
        model.set_training(way == "three threads")
        model.set_checkpointing(way == "checkpointing")
        optimizer = SGD(model, 0.1, momentum=0.0, clip=None)
        step = TrainingStep(model, optimizer, physical_batch=2 if way.endswith("pieces") else None)
        before = copies(model.parameters)
        if freeze:
            optimizer.rates = frozen(model, places)
        ids, mask, _ = batch(config)
        result = step(ids, np.where(mask == 1, ids % 3, -100), mask)
        assert not bool(result.skipped)
        trained.append(copies(model.parameters))
    for name, values in trained[1].items():
        expected = before[name] if name.startswith(places) else trained[0][name]
        if name.startswith(places):
            assert values.tobytes() == expected.tobytes(), name
        else:
            np.testing.assert_allclose(values, expected, atol=1e-6 if way.startswith("mlx") else 1e-12, err_msg=name)
            assert (values != before[name]).any(), name


def test_no_gradient_is_computed_for_frozen_parameters(monkeypatch):
    """Counts calls on two threads: the modules that backward enters, and the weight gradients that it computes."""
    places, products = [], []

    def counted(right, note):
        def call(*args, **options):
            note(args)
            return right(*args, **options)

        return call

    linear = counted(KERNELS["linear_backward"], lambda args: products.append(args[1][1].shape))
    monkeypatch.setitem(KERNELS, "linear_backward", linear)
    for part in (PostNormBlock, TokenEmbeddings):
        index = 2 if part is PostNormBlock else 3
        note = counted(part.backward, lambda args, index=index: places.append(args[index].prefix))
        monkeypatch.setattr(part, "backward", note)

    def count(still):
        places.clear(), products.clear()
        model = make(BERT.replace(num_hidden_layers=3), "token", 3, threads=2)
        optimizer = AdamW(model)
        optimizer.rates = frozen(model, still)
        ids, mask, _ = batch()
        TrainingStep(model, optimizer)(ids, np.where(mask == 1, ids % 3, -100), mask)
        return sorted(set(places)), len(products)

    layers = ["layers.0.", "layers.1.", "layers.2."]
    assert count(()) == (["embeddings.", *layers], 2 * 3 * 4 + 1)
    assert count(("embeddings.",)) == (layers, 2 * 3 * 4 + 1)
    assert count(("embeddings.", "layers.0.")) == (layers[1:], 2 * 2 * 4 + 1)
    assert count(("embeddings.", "layers.1.")) == (layers, 2 * 2 * 4 + 1)  # passed through, but no weight gradient
    assert count(("embeddings.", "layers.")) == ([], 1)


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
def test_unfreezing_during_training(engine):
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    model = make(BERT, "token", 3, dtype="float32", engine=engine, threads=2)
    optimizer = AdamW(model, 1e-2)
    step = TrainingStep(model, optimizer, ema=EMA(model, 0.5))
    step.detailed = True
    ids, mask, _ = batch()
    labels = np.where(mask == 1, ids % 3, -100)
    frozen_first = {name: 0.0 for name in model.layout.shapes if not name.startswith("head.")}
    for rates, learn in (
        (frozen_first, ("head.",)),
        (frozen(model), ("layers.1.", "head.")),
        (None, ("",)),
        (frozen(model), ("layers.1.", "head.")),
    ):
        optimizer.rates = rates
        before = copies(model.parameters)
        result = step(ids, labels, mask)
        for name, values in model.parameters.items():
            assert (np.array(values) != before[name]).any() == name.startswith(learn), name
        norms = result.norms.gradient_norms()
        assert all((norm > 0) == f"{place}.".startswith(learn) for place, norm in norms.items())
        total = np.sqrt(sum(norm**2 for norm in norms.values()))
        assert total == pytest.approx(float(result.gradient_norm), rel=1e-4)


def test_other_factors_of_the_same_groups_need_no_compilation():
    pytest.importorskip("mlx.core")
    model = make(BERT, "token", 3, dtype="float32", engine="mlx")
    optimizer = SGD(model, 0.1, momentum=0.0, clip=None)
    step = TrainingStep(model, optimizer)
    ids, mask, _ = batch()
    labels = np.where(mask == 1, ids % 3, -100)
    before, moved = copies(model.parameters), []
    for factor in (0.5, 0.25):
        optimizer.rates = {**frozen(model), **{n: factor for n in model.layout.shapes if n.startswith("layers.1.")}}
        model.parameters = {name: model.engine.array(values) for name, values in before.items()}
        step(ids, labels, mask)
        moved.append(np.abs(np.array(model.parameters["layers.1.ffn.up.weight"]) - before["layers.1.ffn.up.weight"]))
        assert len(step._compiled._compiled) == 1
    assert moved[1].sum() / moved[0].sum() == pytest.approx(0.5, rel=1e-3)
    optimizer.rates = None
    step(ids, labels, mask)
    assert len(step._compiled._compiled) == 2


def test_freezing_with_several_workers():
    ids, mask, _ = batch(BERT, lengths=[9, 4, 5, 7], width=9)
    labels = np.where(mask == 1, ids % 3, -100)

    def train(workers):
        model = make(BERT, "token", 3)
        optimizer = AdamW(model, 1e-2)
        step = TrainingStep(model, optimizer, workers=workers)
        share = 4 // workers.size
        rows = slice(workers.rank * share, (workers.rank + 1) * share)
        norms = []
        for rates in (None, frozen(model), None):
            optimizer.rates = rates
            norms.append(float(step(ids[rows], labels[rows], mask[rows]).gradient_norm))
        return norms, model.parameters.flat.copy()

    (norms, weights), *_ = together(1, train)
    for found in together(2, train):
        np.testing.assert_allclose(found[0], norms, rtol=1e-10)
        np.testing.assert_allclose(found[1], weights, atol=1e-9)


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"layers.0.ffn.upp.weight": 1.0}, r"not a parameter of this model; did you mean 'layers.0.ffn.up.weight'"),
        ({"head.norm.bias": -1.0}, r"the rate of 'head.norm.bias' must be a number of at least 0, got -1.0"),
        ({"head.norm.bias": float("nan")}, "must be a number of at least 0, got nan"),
        ({"head.norm.bias": True}, "must be a number of at least 0, got True"),
        ("nothing", "every rate is 0, so nothing would be trained"),
    ],
)
def test_impossible_rates(rates, message):
    model = make()
    optimizer = AdamW(model)
    rates = dict.fromkeys(model.layout.shapes, 0) if rates == "nothing" else rates
    with pytest.raises(TrainingError, match=message):
        optimizer.rates = rates
    assert optimizer.rates is None
