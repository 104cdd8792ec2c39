"""Low-rank adaptation: trained and frozen parameters, merging, and the files of adapters."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from glassbert.engines.numpy_kernels import KERNELS
from glassbert.errors import CheckpointError, ConfigError, GlassBertError
from glassbert.finetuning.low_rank import LowRank
from glassbert.finetuning.rates import layer_rates
from glassbert.models.model import Model
from glassbert.training.ema import EMA
from glassbert.training.optimizers import OPTIMIZERS, SGD, AdamW, make_optimizer
from glassbert.training.step import TrainingStep
from tests.models.small import BERT, DROPOUT, MINI, MODERN, batch, make
from tests.training.workers_in_threads import together

CONFIGS = {"bert": BERT, "modernbert": MODERN, "mini": MINI}
TARGETS = [("query", "value"), ("qkv", "output"), ("query", "key", "value", "ffn"), ("down",)]
EVERY = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def adapted(config=BERT, targets=("query", "value"), head="token", labels=3, spread=True, rank=2, **options):
    """A model with adapters and B not zero, so that no error is hidden."""
    model = LowRank(make(config, head, labels, **options), rank, 3.0, targets)
    if spread:
        rng = np.random.default_rng(4)
        for adapter in model.all_adapters:
            b = 0.3 * rng.standard_normal(model.layout.shapes[adapter.b])
            model.parameters[adapter.b] = model.engine.array(b)
    return model


def data(config=BERT):
    ids, mask, _ = batch(config)
    return ids, np.where(mask == 1, ids % 3, -100), mask


def copies(arrays):
    return {name: np.array(values) for name, values in arrays.items()}


@EVERY
def test_initially_it_computes_the_same_as_the_base_model(config):
    model = adapted(config, ("query", "output", "ffn"), spread=False)
    ids, _, mask = data(config)
    assert model.predict(ids, mask).tobytes() == model.base.predict(ids, mask).tobytes()
    firsts = [model.parameters[adapter.a] for adapter in model.all_adapters]
    assert all(a.any() for a in firsts) and not np.array_equal(firsts[0], firsts[1])


@pytest.mark.parametrize("targets", TARGETS)
@EVERY
def test_the_changed_matrices_are_those_of_the_formula(config, targets):
    model = adapted(config, targets)
    merged, size = model.merge(), config.hidden_size
    rows = {"query": slice(0, size), "key": slice(size, 2 * size), "value": slice(2 * size, None)}
    expected = copies(model.base.parameters)
    for adapter in model.all_adapters:
        change = 1.5 * model.parameters[adapter.b] @ model.parameters[adapter.a]
        expected[adapter.weight][rows.get(adapter.target, slice(None))] += change
    for name, values in merged.parameters.items():
        np.testing.assert_allclose(values, expected[name], atol=1e-14, err_msg=name)


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
@EVERY
def test_merging_changes_no_output(config, engine):
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    model = adapted(config, dtype="float32", engine=engine, threads=2)
    ids, _, mask = data(config)
    merged = model.merge()
    assert type(merged) is Model and list(merged.parameters) == list(model.base.parameters)
    assert np.array_equal(np.array(model.predict(ids, mask)), np.array(merged.predict(ids, mask)))
    assert not np.array_equal(np.array(merged.predict(ids, mask)), np.array(model.base.predict(ids, mask)))


@EVERY
def test_gradients_are_the_chain_rule_of_the_full_ones(config):
    model = adapted(config, ("query", "value", "ffn"), threads=3)
    ids, labels, mask = data(config)
    _, cache = model.loss(ids, labels, mask)
    found = copies(model.backward(cache))
    plain = model.merge()
    _, cache = plain.loss(ids, labels, mask)
    full = plain.backward(cache)
    for adapter in model.all_adapters:
        dweight = full[adapter.weight][adapter.rows]
        np.testing.assert_allclose(found[adapter.a], 1.5 * model.parameters[adapter.b].T @ dweight, atol=1e-12)
        np.testing.assert_allclose(found[adapter.b], 1.5 * dweight @ model.parameters[adapter.a].T, atol=1e-12)
    for name in model.fully_trained:
        np.testing.assert_allclose(found[name], full[name], atol=1e-12)
    assert set(found) == set(model.parameters)


WAYS = {
    "one thread": {},
    "three threads, dropout": {"threads": 3},
    "pieces": {},
    "checkpointing": {},
    "mlx": {"engine": "mlx"},
}


@pytest.mark.parametrize("way", WAYS)
def test_only_adapters_and_head_are_trained_and_have_optimizer_state(way):
    if way == "mlx":
        pytest.importorskip("mlx.core")
    config = BERT.replace(**DROPOUT) if "dropout" in way else BERT
    model = adapted(config, dtype="float32", **WAYS[way])
    model.set_training("dropout" in way)
    model.set_checkpointing(way == "checkpointing")
    base, before = copies(model.base.parameters), copies(model.parameters)
    optimizer = AdamW(model, 1e-2)
    step = TrainingStep(model, optimizer, physical_batch=2 if way == "pieces" else None, ema=EMA(model, 0.9))
    step.detailed = True
    losses = [float(step(*data()).loss) for _ in range(4)]
    assert losses[-1] < losses[0]
    for name, values in model.base.parameters.items():
        assert np.array(values).tobytes() == base[name].tobytes(), name
    assert all((np.array(values) != before[name]).any() for name, values in model.parameters.items())
    kept = {place.partition("/")[2] for place in optimizer.state_arrays()}
    assert kept == set(model.parameters) and not kept & (set(base) - set(model.fully_trained))


@pytest.fixture
def mlx_without_compilation():
    """Compiling takes seconds on a CPU; a step that is not compiled computes the same."""
    mx = pytest.importorskip("mlx.core")
    mx.disable_compile()
    yield
    mx.enable_compile()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_both_engines_take_the_same_steps(optimizer, mlx_without_compilation):
    trained = []
    for engine in ("numpy", "mlx"):
        model = adapted(MODERN, ("query", "ffn"), dtype="float32", engine=engine)
        step = TrainingStep(model, make_optimizer(optimizer, model, learning_rate=1e-3))
        trained.append([float(step(*data(MODERN)).loss) for _ in range(2)])
    assert trained[0][0] == pytest.approx(trained[1][0], rel=1e-5)
    assert trained[0][1] == pytest.approx(trained[1][1], rel=2e-3)


def test_no_gradient_of_a_whole_matrix_is_formed_but_that_of_the_classifier(monkeypatch):
    products, right = [], KERNELS["linear_backward"]

    def linear(*args, **options):
        products.append(args[1][1].shape)
        return right(*args, **options)

    monkeypatch.setitem(KERNELS, "linear_backward", linear)
    model = adapted(BERT, ("output",))
    TrainingStep(model, SGD(model, 0.1))(*data())
    assert products == [(3, 12)]  # only the classifier


def test_rates_by_layer_and_frozen_adapters():
    model = adapted(BERT)
    optimizer = SGD(model, 0.1, clip=None)
    optimizer.rates = layer_rates(model, decay=0.5, freeze=1)
    before = copies(model.parameters)
    result = TrainingStep(model, optimizer)(*data())
    for name, values in model.parameters.items():
        assert (values != before[name]).any() != name.startswith("layers.0."), name
    assert float(result.gradient_norm) > 0
    assert optimizer.rates["layers.1.low_rank.query.a"] == 0.5


def test_several_workers():
    ids, mask, _ = batch(BERT, lengths=[9, 4, 5, 7], width=9)
    labels = np.where(mask == 1, ids % 3, -100)

    def train(workers):
        model = adapted()
        step = TrainingStep(model, AdamW(model, 1e-2), workers=workers)
        share = 4 // workers.size
        rows = slice(workers.rank * share, (workers.rank + 1) * share)
        for _ in range(3):
            step(ids[rows], labels[rows], mask[rows])
        return model.parameters.flat.copy()

    (alone,) = together(1, train)
    for found in together(2, train):
        np.testing.assert_allclose(found, alone, atol=1e-9)


def test_several_adapters_share_one_model():
    base = make(BERT, "token", 3)
    one, other = LowRank(base, 2), LowRank(base, 1, targets=("ffn",), seed=7)
    TrainingStep(one, AdamW(one, 1e-2))(*data())
    assert np.array_equal(other.predict(*data()[::2]), base.predict(*data()[::2]))
    assert not np.array_equal(one.predict(*data()[::2]), base.predict(*data()[::2]))
    assert "query, value" in repr(one) and f"{one.get_parameter_count():,} of" in repr(one)
    assert one.token_embeddings is base.token_embeddings


# ---- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("targets", TARGETS)
@EVERY
def test_round_trip_of_adapters(config, targets, tmp_path):
    model = adapted(config, targets, head="sequence", dtype="float32")
    for name in model.fully_trained:
        model.parameters[name] = model.parameters[name] + 1
    model.save(tmp_path, base_model="somewhere/bert")
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["adapter_config.json", "adapter_model.safetensors", "checksums.json"]
    again = LowRank.load(model.base, tmp_path)
    assert again.adapters == model.adapters
    assert again.parameters.flat.tobytes() == model.parameters.flat.tobytes()
    fresh = adapted(config, targets, head="sequence", dtype="float32", spread=False)
    fresh.load_checkpoint(tmp_path)
    assert fresh.parameters.flat.tobytes() == model.parameters.flat.tobytes()
    assert json.loads((tmp_path / "adapter_config.json").read_text())["base_model_name_or_path"] == "somewhere/bert"


def test_the_names_are_those_of_peft(tmp_path):
    adapted(BERT, ("query", "output"), head="sequence").save(tmp_path / "bert")
    adapted(MODERN, ("query", "value", "up"), head="sequence").save(tmp_path / "modernbert")
    shapes = {
        family: {
            name: values.shape for name, values in load_file(tmp_path / family / "adapter_model.safetensors").items()
        }
        for family in ("bert", "modernbert")
    }
    assert shapes["bert"] == {
        **{
            f"base_model.model.bert.encoder.layer.{i}.attention.{module}.lora_{letter}.weight": shape
            for i in range(2)
            for module in ("self.query", "output.dense")
            for letter, shape in (("A", (2, 12)), ("B", (12, 2)))
        },
        "base_model.model.bert.pooler.dense.weight": (12, 12),
        "base_model.model.bert.pooler.dense.bias": (12,),
        "base_model.model.classifier.weight": (3, 12),
        "base_model.model.classifier.bias": (3,),
    }
    layer = "base_model.model.model.layers.0."
    assert shapes["modernbert"][layer + "attn.Wqkv.lora_A.weight"] == (4, 16)  # two adapters of rank 2
    assert shapes["modernbert"][layer + "attn.Wqkv.lora_B.weight"] == (48, 4)
    assert shapes["modernbert"][layer + "mlp.Wi.lora_B.weight"] == (40, 2)
    assert "base_model.model.head.dense.weight" in shapes["modernbert"]
    config = json.loads((tmp_path / "modernbert" / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA" and config["task_type"] == "SEQ_CLS" and not config["use_rslora"]
    assert config["modules_to_save"] == ["head", "classifier"]
    assert {config["r"], *config["rank_pattern"].values()} == {2, 4}
    alphas = {config["r"]: config["lora_alpha"]}
    alphas |= {rank: config["alpha_pattern"][module] for module, rank in config["rank_pattern"].items()}
    assert all(alpha / rank == 1.5 for rank, alpha in alphas.items())
    assert "model.layers.2.attn.Wqkv" in config["target_modules"]


def test_adapters_written_by_peft(tmp_path):
    """Without our header a module is one adapter, the head may be missing, and the scale is that of the config."""
    model = adapted(MODERN, ("query", "value"), head="sequence", dtype="float32")
    model.save(tmp_path)
    (tmp_path / "checksums.json").unlink()
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    save_file({n: v for n, v in tensors.items() if "lora" in n}, tmp_path / "adapter_model.safetensors")
    again = LowRank.load(model.base, tmp_path)
    assert {adapter.target for adapter in again.all_adapters} == {"qkv"}
    ids, _, mask = data(MODERN)
    np.testing.assert_allclose(again.predict(ids, mask), model.predict(ids, mask), atol=1e-6)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    changed = {**config, "use_rslora": True, "alpha_pattern": {"layers.0.attn.Wqkv": 10}}
    (tmp_path / "adapter_config.json").write_text(json.dumps(changed))
    scales = [adapter.scale for adapter in LowRank.load(model.base, tmp_path).all_adapters]
    assert scales == [10 / 2.0, 6 / 2.0, 6 / 2.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "the rank of adapters must be an integer of at least 1, got 0"),
        ({"rank": 2.5}, "the rank of adapters must be"),
        ({"alpha": 0}, "alpha must be a number above 0"),
        ({"targets": ("query", "head")}, r"no matrix 'head' to adapt; choose among query, key"),
        ({"targets": ()}, "targets is empty"),
        ({"targets": ("query", "qkv")}, "the targets query, qkv name a matrix twice"),
        ({"targets": ("up", "ffn")}, "name a matrix twice"),
    ],
)
def test_invalid_options(options, message):
    with pytest.raises(ConfigError, match=message):
        LowRank(make(), **options)


def test_adapters_on_adapters_and_names_in_transformers():
    model = adapted()
    with pytest.raises(ConfigError, match=r"already has adapters; merge\(\) them first"):
        LowRank(model)
    with pytest.raises(ConfigError, match="already has adapters"):
        LowRank.load(model, ".")
    assert LowRank(model.merge(), 1).base.config == BERT
    with pytest.raises(CheckpointError, match="names only in `peft`"):
        model.to_huggingface(model.parameters)
    assert "classifier.weight" in model.to_huggingface()


def broken(folder, **changes):
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, **changes}))


def test_folders_without_matching_adapters(tmp_path):
    model = adapted()
    with pytest.raises(CheckpointError, match=r"there is no adapter_config\.json in"):
        LowRank.load(model.base, tmp_path)
    model.save(tmp_path)
    other = adapted(BERT, ("ffn",))
    with pytest.raises(CheckpointError, match=r"has other adapters than this model: LowRank\(query, value"):
        other.load_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="these are adapters of another model"):
        LowRank.load(make(MODERN, "token", 3), tmp_path)
    with pytest.raises(CheckpointError, match=r"has the shape \[3\], but this model needs \[5\]"):
        LowRank.load(make(BERT, "token", 5), tmp_path)
    with pytest.raises(CheckpointError, match="a model of 1 layers cannot have"):
        LowRank.load(make(BERT.replace(num_hidden_layers=1), "token", 3), tmp_path)
    for changes, message in (
        ({"peft_type": "IA3"}, "adapters of the kind 'IA3'; GlassBERT supports 'LORA'"),
        ({"use_dora": True}, "use_dora is True; GlassBERT supports only False"),
        ({"bias": "all"}, "bias is 'all'"),
    ):
        model.save(tmp_path)
        broken(tmp_path, **changes)
        with pytest.raises(CheckpointError, match=r"adapter_config\.json has .* bytes"):
            LowRank.load(model.base, tmp_path)
        (tmp_path / "checksums.json").unlink()
        with pytest.raises(CheckpointError, match=message):
            LowRank.load(model.base, tmp_path)
    model.save(tmp_path)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    (tmp_path / "checksums.json").unlink()
    save_file({**tensors, "base_model.model.strange": np.zeros(3)}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"unknown tensors: base_model\.model\.strange"):
        LowRank.load(model.base, tmp_path)
    broken(tmp_path, lora_alpha="much")
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="has the rank 2 and lora_alpha 'much'"):
        LowRank.load(model.base, tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"123")
    with pytest.raises(CheckpointError, match="truncated or not a safetensors file"):
        LowRank.load(model.base, tmp_path)


def test_nothing_changes_where_a_file_does_not_fit(tmp_path):
    model = adapted()
    adapted(rank=3).save(tmp_path)
    before = model.parameters.flat.copy()
    with pytest.raises(GlassBertError):
        model.load_checkpoint(tmp_path)
    np.testing.assert_array_equal(model.parameters.flat, before)
