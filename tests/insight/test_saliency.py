"""Gradients at the embeddings against finite differences, and attributions that add up."""

import numpy as np
import pytest

from glassbert.errors import InputError
from glassbert.insight import Aim, baseline_ids, gradient_x_input, integrated_gradients, logit_lens
from glassbert.insight.aims import SCORES
from glassbert.insight.saliency import embedding_sums, forward_backward, scores
from tests.insight.specimen import specimen

IDS = np.array([[2, 9, 4, 12, 30, 9, 3]])
HEADS = {
    "word": ({}, Aim(17, position=2)),
    "class": ({"head": "sequence", "num_labels": 3}, Aim(2)),
    "calibrated": ({"head": "sequence", "num_labels": 3}, Aim(1, temperature=1.7)),
    "yes": ({"head": "sequence", "num_labels": 1, "loss": "binary_cross_entropy"}, Aim(0)),
    "no": ({"head": "sequence", "num_labels": 2, "loss": "binary_cross_entropy"}, Aim(1, yes=False)),
    "rank": ({"head": "sequence", "num_labels": 4, "loss": "ordinal"}, Aim(1)),
    "last rank": ({"head": "sequence", "num_labels": 4, "loss": "ordinal"}, Aim(3)),
    "number": (
        {"head": "sequence", "num_labels": 1, "loss_options": {"target_mean": [5.0], "target_scale": [2.5]}},
        Aim(0),
    ),
}


@pytest.mark.parametrize("config", ["bert", "mini", "modernbert"])
@pytest.mark.parametrize("kind", HEADS)
def test_the_gradient_at_the_embeddings_is_that_of_finite_differences(config, kind):
    options, aim = HEADS[kind]
    model = specimen(config, **options).model
    sums = embedding_sums(model, IDS)
    gradient = forward_backward(model, sums, aim).gradient
    rng = np.random.default_rng(0)
    for _ in range(3):
        direction = rng.standard_normal(sums.shape)
        step = 3e-6
        rise = scores(model, sums + step * direction, aim) - scores(model, sums - step * direction, aim)
        slope = (gradient * direction).sum()
        assert slope == pytest.approx(rise[0] / (2 * step), abs=1e-6 * np.linalg.norm(gradient))


@pytest.mark.parametrize("config", ["bert", "mini", "modernbert"])
def test_a_pass_from_the_embeddings_gives_the_output_of_the_model(config):
    model = specimen(config).model
    logits = model.predict(IDS)[0, 2]
    expected = logits[17] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    assert scores(model, embedding_sums(model, IDS), Aim(17, 2)) == pytest.approx([expected], abs=1e-10)


@pytest.mark.parametrize("kind", [kind for kind in HEADS if kind != "word"])
def test_scores_are_the_logarithm_of_what_the_head_decodes(kind):
    options, aim = HEADS[kind]
    model = specimen(**options).model
    decoded = model.head.decode(model.predict(IDS) / aim.temperature)[0]
    chance = decoded[aim.target] if aim.yes else 1 - decoded[aim.target]
    expected = chance if kind == "number" else np.log(chance)
    assert scores(model, embedding_sums(model, IDS), aim) == pytest.approx([expected], abs=1e-10)


def test_every_loss_of_a_sequence_head_has_a_score():
    assert set(specimen(head="sequence", num_labels=2).model.head.losses) == set(SCORES)


def test_gradient_x_input_is_the_slope_of_scaling_one_embedding():
    model, aim = specimen().model, Aim(17, 2)
    sums = embedding_sums(model, IDS)
    found = gradient_x_input(model, IDS, aim)
    for token in range(IDS.shape[1]):
        grown, shrunk = sums.copy(), sums.copy()
        grown[0, token] *= 1 + 1e-5
        shrunk[0, token] *= 1 - 1e-5
        slope = (scores(model, grown, aim) - scores(model, shrunk, aim)) / 2e-5
        assert found[token] == pytest.approx(slope[0], rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("config", ["bert", "mini", "modernbert"])
@pytest.mark.parametrize("kind", ["word", "class", "rank"])
def test_integrated_gradients_add_up_to_the_difference(config, kind):
    options, aim = HEADS[kind]
    model = specimen(config, **options).model
    baseline = baseline_ids(IDS, 4, (0, 1, 2, 3, 4))
    found = integrated_gradients(model, IDS, baseline, aim)
    ends = [scores(model, embedding_sums(model, ids), aim)[0] for ids in (IDS, baseline)]
    assert (found.score, found.baseline_score) == pytest.approx(tuple(ends))
    assert found.attributions.sum() == pytest.approx(ends[0] - ends[1], abs=0.01 * max(1, abs(ends[0] - ends[1])))
    assert found.error == pytest.approx(found.attributions.sum() - found.difference)
    assert (found.attributions[[0, 2, 6]] == 0).all()  # [CLS], [MASK] and [SEP] are the same in both


def test_an_abrupt_change_on_the_path_is_found():
    """Sharp attention makes the score change abruptly: evenly spaced points would miss it."""
    model, aim = specimen().model, Aim(17, 2)
    for layer in range(2):
        model.parameters[f"layers.{layer}.attention.qkv.weight"] *= 6
    baseline = baseline_ids(IDS, 4, (0, 1, 2, 3, 4))
    found = integrated_gradients(model, IDS, baseline, aim)
    assert abs(found.error) <= 0.011 * max(1, abs(found.difference))
    assert found.points > 60


def test_a_baseline_masks_only_words():
    assert baseline_ids(IDS, 4, (0, 1, 2, 3, 4)).tolist() == [[2, 4, 4, 4, 4, 4, 3]]


def test_the_text_as_its_own_baseline_gives_zeros():
    found = integrated_gradients(specimen().model, IDS, IDS, Aim(17, 2))
    assert (found.attributions == 0).all() and found.difference == pytest.approx(0, abs=1e-12)


def test_lengths_must_agree_and_texts_come_one_by_one():
    model = specimen().model
    with pytest.raises(InputError, match="7 tokens and its baseline 3"):
        integrated_gradients(model, IDS, [[2, 4, 3]], Aim(17, 2))
    with pytest.raises(InputError, match="one text at a time"):
        gradient_x_input(model, np.repeat(IDS, 2, 0), Aim(17, 2))


@pytest.mark.parametrize("head", [None, "token", "span"])
def test_heads_without_explanations_name_the_alternative(head):
    model = specimen(head=head, num_labels=2 if head == "token" else 0).model
    with pytest.raises(InputError, match="--pictures"):
        scores(model, embedding_sums(model, IDS), Aim(0))


def test_the_last_layer_of_the_logit_lens_is_the_model():
    model = specimen().model
    lens = logit_lens(model, IDS, 2)
    logits = model.predict(IDS)[0, 2]
    among = np.ones(96, bool)
    assert lens.names == ["embeddings", "layers.0", "layers.1"]
    assert np.exp(lens.log_probabilities).sum(1) == pytest.approx(np.ones(3))
    assert lens.log_probabilities[-1] - logits == pytest.approx(np.full(96, (lens.log_probabilities[-1] - logits)[0]))
    best = lens.best(-1, 5, among)
    assert best == np.argsort(-logits)[:5].tolist()
    assert lens.rank(best[3], among)[-1] == 4
    among[best[0]] = False
    assert lens.rank(best[3], among)[-1] == 3 and lens.best(-1, 1, among) == [best[1]]


def test_the_logit_lens_applies_the_last_norm():
    model = specimen().model
    _, cache = model.forward(IDS, trace=True)
    x = cache["layers.0.output"][0, 2]
    eps = model.config.layer_norm_eps
    normed = (x - x.mean()) / np.sqrt(x.var() + eps) * model.parameters["final_norm.weight"]
    normed += model.parameters["final_norm.bias"]
    table = model.parameters[model.head.table]
    logits = table @ normed + model.parameters["head.decoder.bias"]
    found = logit_lens(model, IDS, 2).log_probabilities[1]
    assert found - logits == pytest.approx(np.full(96, (found - logits)[0]), abs=1e-9)


def test_both_engines_agree():
    pytest.importorskip("mlx.core")
    ours, theirs = specimen(dtype="float32").model, specimen(dtype="float32", engine="mlx").model
    baseline, aim = baseline_ids(IDS, 4, (0, 1, 2, 3, 4)), Aim(17, 2)
    assert gradient_x_input(theirs, IDS, aim) == pytest.approx(gradient_x_input(ours, IDS, aim), abs=2e-4)
    here, there = (integrated_gradients(model, IDS, baseline, aim) for model in (ours, theirs))
    assert there.attributions == pytest.approx(here.attributions, abs=5e-3)
    assert there.score == pytest.approx(here.score, abs=1e-4)
