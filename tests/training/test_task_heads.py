"""Every task's head learns: through the training step, in pieces, on both engines."""

import numpy as np
import pytest

from glassbert import MINI_BERT_CONFIG, create_model
from glassbert.errors import TrainingError
from glassbert.training.evaluate import evaluate
from glassbert.training.optimizers import SGD, AdamW, Sophia
from glassbert.training.step import TrainingStep

CONFIG = MINI_BERT_CONFIG.replace(
    vocab_size=30, hidden_size=16, num_attention_heads=2, intermediate_size=24, num_hidden_layers=1
)
IDS = np.random.default_rng(0).integers(1, 30, (8, 6))
MASK = np.arange(6) < np.array([6, 4, 5, 6, 2, 6, 3, 6])[:, None]
# name -> (head type, labels, options, answers)
TASKS = {
    "binary, focal, max": ("binary", None, {"focal_gamma": 1.0, "pooling": "max"}, [1, 0, 1, 1, 0, 0, 1, 0]),
    "multiclass, weights": ("multiclass", 3, {"class_weights": [1, 2, 3]}, [0, 1, 2, 1, 0, -100, 2, 2]),
    "multilabel": ("multilabel", 2, {"positive_weights": [2, 3]}, [[1, 0], [0, 1]] * 4),
    "regression": ("regression", None, {"target_mean": [50], "target_scale": [9]}, [51, 40, 60, 55, 44, 49, 66, 50]),
    "ordinal, attention": ("ordinal", 4, {"pooling": "attention"}, [0, 1, 2, 3, 3, 2, -100, 0]),
    "token": ("token", 3, {"label_smoothing": 0.1}, np.where(MASK, IDS % 3, -100)),
    "span": ("span", None, {}, [[0, 1], [1, 2], [2, 4], [-100, -100], [0, 1], [3, 5], [1, 2], [5, 5]]),
    "cosine": ("embedding", None, {}, [0.9, 0.9, -0.9, -0.9, 0.1, 0.1, 0.5, 0.5]),
    "contrastive": ("embedding", None, {"loss": "contrastive", "temperature": 0.5}, [1, 1, 1, 1, 1, 1, -100, -100]),
    "ranking": ("embedding", None, {"loss": "ranking"}, [0.9, 0.9, 0.1, 0.1, 0.5, 0.5, -100, -100]),
}


def made(task, engine="numpy"):
    head_type, labels, options, _ = TASKS[task]
    return create_model(
        "bert_with_head", head_type=head_type, num_labels=labels, config=CONFIG, engine=engine, **options
    )


def answers(task):
    return np.array(TASKS[task][3])


@pytest.mark.parametrize("task", TASKS)
def test_a_head_learns_its_batch(task):
    model = made(task)
    step = TrainingStep(model, AdamW(model, 1e-2))
    losses = [step(IDS, answers(task), MASK).loss for _ in range(30)]
    assert losses[-1] < 0.8 * losses[0]
    batch = {"input_ids": IDS, "labels": answers(task), "attention_mask": MASK}
    found = evaluate(model, [batch])
    assert found.loss == pytest.approx(float(model.loss(**batch)[0]), rel=1e-4)


@pytest.mark.parametrize("task", [task for task in TASKS if task not in ("contrastive", "ranking")])
def test_a_batch_in_pieces_teaches_the_same(task):
    """But for the losses whose questions are made of the batch."""
    whole, cut = made(task), made(task)
    for model, rows in ((whole, None), (cut, 2)):
        TrainingStep(model, SGD(model, 1e-1), physical_batch=rows)(IDS, answers(task), MASK)
    for name, value in whole.parameters.items():
        assert np.allclose(value, cut.parameters[name], atol=1e-6), name


@pytest.mark.parametrize("task", ["multiclass, weights", "ordinal, attention", "span", "contrastive", "ranking"])
def test_both_engines_take_the_same_step(task):
    pytest.importorskip("mlx.core")
    results = {}
    for engine in ("numpy", "mlx"):
        model = made(task, engine)
        step = TrainingStep(model, AdamW(model, 1e-3))
        results[engine] = [float(step(IDS, answers(task), MASK).loss) for _ in range(2)]
    assert results["mlx"] == pytest.approx(results["numpy"], rel=2e-3)
    assert results["mlx"][0] == pytest.approx(results["numpy"][0], rel=1e-5)


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
def test_ranks_are_counted_and_their_curvature_is_drawn(engine):
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    task = "ordinal, attention"
    model, ranks = made(task, engine), answers(task)
    assert not TrainingStep(model, Sophia(model, 1e-3))(IDS, ranks, MASK).skipped
    found = evaluate(model, [{"input_ids": IDS, "labels": ranks, "attention_mask": MASK}])
    chances = model.head.decode(model.engine.to_numpy(model.predict(IDS, MASK)))
    middle = (np.cumsum(chances, -1) < 0.5).sum(-1)  # the median: the first rank that half of the chances reach
    assert found.accuracy == pytest.approx((middle == ranks)[ranks != -100].mean())


def test_the_curvature_of_pairs_is_refused():
    pairs = made("cosine")
    with pytest.raises(TrainingError, match="labels cannot be sampled for the loss 'cosine'"):
        TrainingStep(pairs, Sophia(pairs, 1e-3))(IDS, answers("cosine"), MASK)
