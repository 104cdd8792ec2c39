"""Every registered family at toy size through the rest of the product, without a special case in any of it.

Heads, poolings, files, fine-tuning, adapters, evaluation, insight, `describe`, memory and FLOPs.
"""

import importlib.util

import numpy as np
import pytest

import glassbert
from glassbert import create_model
from glassbert.checkpoints.family import FAMILIES
from glassbert.evaluation import SUITES, Options, Subject
from glassbert.finetuning.low_rank import LowRank
from glassbert.finetuning.predictor import Predictor
from glassbert.insight import explain
from glassbert.insight.inputs import open_model
from glassbert.models.flops import forward_flops
from glassbert.models.memory import activation_numbers
from glassbert.models.model import Model
from glassbert.training.objectives import Objectives
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep
from tests.finetuning.toy import make_tokenizer, sentences, tune, write_csv, write_reviews

MEMBERS = [name for name, family in FAMILIES.items() if family.mini]
EVERY = pytest.mark.parametrize("family", MEMBERS)
HEADS = {"binary": 0, "multiclass": 3, "multilabel": 3, "regression": 0, "ordinal": 4, "token": 3, "span": 0}
MLX = pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed")
RNG = np.random.default_rng(0)
IDS = RNG.integers(5, 60, (4, 9))
MASK = (np.arange(9) < np.array([9, 6, 9, 4])[:, None]).astype(int)
IDS = np.where(MASK, IDS, 0)


def toy(family, **changes):
    """The Mini preset of a family with few, narrow layers."""
    preset = FAMILIES[family].presets[FAMILIES[family].mini]
    narrow = {} if preset.embedding_size in (None, preset.hidden_size) else {"embedding_size": 8}
    sizes = {
        "vocab_size": 120, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
        "pad_token_id": 0, **narrow,
    }  # fmt: skip
    return preset.replace(**{**sizes, **changes})


def labels_for(head, count):
    if head == "token":
        return np.where(MASK == 1, IDS % 3, -100)
    if head == "span":
        return np.array([[1, 3], [0, 2], [4, 4], [1, 1]])
    if head == "multilabel":
        return np.eye(4, 3)
    return {"binary": [0, 1, 1, 0], "multiclass": [0, 2, 1, 2], "regression": [0.5, -1.0, 2.0, 0.0],
            "ordinal": [0, 3, 1, 2]}[head]  # fmt: skip


@pytest.mark.parametrize("head", HEADS)
@EVERY
def test_heads_learn(family, head):
    model = create_model(
        f"{family}_with_head", head=head, num_labels=HEADS[head] or None, config=toy(family), engine="numpy", threads=2
    )
    step = TrainingStep(model, AdamW(model, 1e-2))
    losses = [float(step(IDS, labels_for(head, 4), MASK).loss) for _ in range(12)]
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "attention"])
@EVERY
def test_poolings(family, pooling, tmp_path):
    """One vector a text, the same after saving, for whichever layout the files have."""
    model = create_model(
        f"{family}_with_head", head="multiclass", num_labels=3, pooling=pooling, config=toy(family), engine="numpy"
    )
    expected = model.predict(IDS, MASK)
    model.save(tmp_path)
    np.testing.assert_array_equal(glassbert.load(tmp_path, engine="numpy").predict(IDS, MASK), expected)


@EVERY
def test_padding_has_no_influence(family):
    """The hidden states of a text are the same alone and beside a longer one."""
    model = Model(toy(family), None, engine="numpy", dtype="float64", threads=1)
    both = np.asarray(model.predict(IDS, MASK, skip_padding=False))
    alone = np.asarray(model.predict(IDS[1:2, :6], skip_padding=False))
    np.testing.assert_allclose(both[1:2, :6], alone, atol=1e-9)
    np.testing.assert_allclose(np.asarray(model.predict(IDS, MASK))[1:2, :6], alone, atol=1e-9)


@EVERY
def test_adapters_train_and_merge(family):
    base = create_model(f"{family}_with_head", head="multiclass", num_labels=3, config=toy(family), engine="numpy")
    model = LowRank(base, 2, 4.0, ("query", "value", "ffn"))
    before = {name: np.array(values) for name, values in base.parameters.items()}
    step = TrainingStep(model, AdamW(model, 1e-2))
    losses = [float(step(IDS, [0, 2, 1, 2], MASK).loss) for _ in range(12)]
    assert losses[-1] < losses[0]
    frozen = [name for name in before if name.startswith(("layers.", "embeddings.", "positions."))]
    assert all(np.array_equal(base.parameters[name], before[name]) for name in frozen)
    np.testing.assert_allclose(model.merge().predict(IDS, MASK), model.predict(IDS, MASK), atol=1e-5)


@EVERY
def test_describe_memory_and_flops(family, capsys):
    head = Objectives.parse(FAMILIES[family].objective).head_type
    model = Model(toy(family), head, engine="numpy", threads=1)
    text = model.describe(4, 9)
    number = f"{model.get_parameter_count():,}"
    assert number in text and number in capsys.readouterr().out
    flops = forward_flops(model.config, 4, 9, head=head)
    per_layer = 2 * 36 * (4 * 16 * 16 + 2 * 16 * 24)
    assert sum(flops.values()) > 2 * per_layer
    assert all(number >= 0 for number in activation_numbers(model.config, 4, 9, head).values())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder for each family with a model as it is pretrained, and a tokenizer."""
    folders = {}
    tokenizer = make_tokenizer()
    for family in MEMBERS:
        head = Objectives.parse(FAMILIES[family].objective).head_type
        config = toy(family, vocab_size=tokenizer.vocab_size)
        folders[family] = tmp_path_factory.mktemp(family)
        Model(config, head, engine="numpy", threads=1, seed=3).save(folders[family])
        tokenizer.save(folders[family])
    return folders


@pytest.mark.parametrize("low_rank", [None, 2])
@EVERY
def test_fine_tuning(family, low_rank, saved, tmp_path):
    tune(tmp_path / "run", saved[family], *write_reviews(tmp_path, 48, 16), epochs=1, low_rank=low_rank)
    answers = Predictor.load(tmp_path / "run").predict(["the lovely bird sings"])
    assert len(answers) == 1


@EVERY
def test_fine_tuning_on_pairs(family, saved, tmp_path):
    """Two texts in a row, also for members with one token type or none."""
    rows = [(one, other, a == b) for (one, a), (other, b) in zip(sentences(40), sentences(40, 1), strict=True)]
    data = write_csv(tmp_path / "pairs.csv", ["first", "second", "verdict"], rows)
    tune(tmp_path / "run", saved[family], data, epochs=1, text="first", pair="second")
    answers = Predictor.load(tmp_path / "run").predict([{"first": "the bird sings", "second": "a king falls"}])
    assert len(answers) == 1


@EVERY
def test_evaluation_measures_or_says_why_not(family, saved, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(" ".join(s for s, _ in sentences(4, seed)) for seed in range(12)), encoding="utf-8")
    subject = Subject.open(saved[family], engine="numpy", threads=1)
    for name in ("language", "cost"):
        result = SUITES[name](subject, Options(text=text, quick=True, resamples=20))
        assert result.rows or len(result.skipped_because) > 20


@EVERY
def test_insight_explains_an_answer_or_says_why_not(family, saved):
    loaded = open_model(saved[family], engine="numpy")
    try:
        found = explain(loaded, "the [MASK] sings")
    except glassbert.GlassBertError as reason:
        assert "explain" in str(reason)
        return
    assert found.answers


@MLX
@EVERY
def test_a_step_on_mlx(family):
    results = {}
    for engine in ("numpy", "mlx"):
        model = create_model(
            f"{family}_with_head", head="multiclass", num_labels=3, config=toy(family), engine=engine, seed=5
        )
        results[engine] = TrainingStep(model, AdamW(model, 1e-3))(IDS, [0, 2, 1, 2], MASK)
    assert float(results["mlx"].loss) == pytest.approx(float(results["numpy"].loss), abs=1e-4)
    assert float(results["mlx"].gradient_norm) == pytest.approx(float(results["numpy"].gradient_norm), rel=1e-3)


@pytest.mark.parametrize("threads", [1, 2])
@EVERY
def test_every_value_can_be_read_after_the_backward(family, threads):
    """Of the last layer only the first tokens are computed here; tables of positions are no tokens."""
    model = create_model(
        f"{family}_with_head", head="multiclass", num_labels=3, config=toy(family), engine="numpy", threads=threads
    )
    _, cache = model.loss(IDS, [0, 2, 1, 2], MASK)
    model.backward(cache)
    for name in cache:
        value = cache[name]
        if getattr(value, "ndim", 0) == 3 and name.endswith(("output", "input")):
            assert value.shape == (4, 9, 16), name


@MLX
@pytest.mark.parametrize("trace", [False, True])
@EVERY
def test_bfloat16_stays_bfloat16(family, trace):
    """A float32 array among the inputs of a product would make everything behind it float32."""
    import mlx.core as mx

    name = f"{family}_with_head"
    model = create_model(name, head="multiclass", num_labels=3, config=toy(family), engine="mlx", dtype="bfloat16")
    _, cache = model.loss(IDS, [0, 2, 1, 2], MASK, trace=trace)
    model.backward(cache)
    wide = [name for name in cache if getattr(cache[name], "dtype", None) == mx.float32 and not name.endswith("loss")]
    assert not wide, f"float32 in a bfloat16 pass: {', '.join(wide)}"
