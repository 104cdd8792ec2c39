"""The explanation of one prediction: its parts, its page, and its errors."""

import json
import re

import numpy as np
import pytest

from glassbert.errors import InputError
from glassbert.finetuning.card import TaskCard
from glassbert.insight import explain, integrated_gradients, open_model, prediction_page, without_heads
from glassbert.insight.aims import Aim
from glassbert.insight.saliency import embedding_sums, scores
from glassbert.training.fill_mask import fill_mask
from tests.insight.specimen import specimen

TEXT = "the [MASK] river sings in the night."


def softmax(z):
    weights = np.exp(z - z.max())
    return weights / weights.sum()


def test_answers_are_those_of_fill_mask():
    loaded = specimen()
    found = explain(loaded, TEXT, top=5)
    (expected,) = fill_mask(loaded.model, loaded.tokenizer, TEXT, 5)
    assert [one.name for one in found.answers] == [one.word for one in expected]
    # fill_mask renormalises over words; here the probabilities include [SEP] and [UNK].
    ratios = [one.chance / other.chance for one, other in zip(found.answers, expected, strict=True)]
    assert ratios == pytest.approx([ratios[0]] * 5) and ratios[0] <= 1
    assert found.answer == found.answers[0]


def test_the_change_without_each_head():
    loaded = specimen()
    found = explain(loaded, TEXT)
    ids = np.array([loaded.tokenizer.encode(TEXT).ids])
    aim = Aim(found.answer.number, found.position)
    sums = embedding_sums(loaded.model, ids)
    whole = scores(loaded.model, sums, aim)[0]
    for head in np.ndindex(2, 2):
        logits = without_heads(loaded.model, [head]).predict(ids)[0, found.position]
        expected = np.log(softmax(logits)[found.answer.number]) - whole
        assert found.change_without_head[head] == pytest.approx(expected, abs=1e-9)
    order = [abs(one.change) for one in found.heads]
    assert len(found.heads) == 4 and order == sorted(order, reverse=True)
    strongest = found.heads[0]
    _, cache = loaded.model.forward(ids, trace=True)
    weights = cache[f"layers.{strongest.layer}.attention.weights"][0, strongest.head]
    assert strongest.weights == pytest.approx(weights, abs=1e-9)
    for link in strongest.links:
        assert link.weight == pytest.approx(weights[link.query, link.key], abs=1e-9)


def test_attributions_add_up_and_the_mask_gets_none():
    found = explain(specimen(), TEXT)
    assert abs(found.integrated.error) < 0.011 * max(1, abs(found.integrated.difference))
    assert found.integrated.attributions[found.position] == 0
    assert found.integrated.score == pytest.approx(np.log(found.answer.chance))
    assert len(found.tokens) == len(found.integrated.attributions) == len(found.gradient_x_input)


def test_the_last_layer_gives_the_answer():
    found = explain(specimen(), TEXT)
    assert [layer.name for layer in found.layers] == ["embeddings", "layers.0", "layers.1"]
    assert found.layers[-1].rank == 1 and found.layers[-1].chance == pytest.approx(found.answer.chance)


def test_another_answer_and_another_mask():
    loaded = specimen()
    text = "the [MASK] sings in the [MASK]."
    first, second = explain(loaded, text), explain(loaded, text, mask=2, answer="river")
    assert first.position == 2 and second.position == 6
    assert list(first.other_masks) == [6] and list(second.other_masks) == [2]
    assert second.answer.name == "river" and second.layers[-1].rank > 1
    aim = Aim(loaded.tokenizer.token_to_id("river"), 6)
    ids = np.array([loaded.tokenizer.encode(text).ids])
    assert second.integrated.score == pytest.approx(scores(loaded.model, embedding_sums(loaded.model, ids), aim)[0])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("the river sings.", {}, r"must contain \[MASK\]"),
        (TEXT, {"mask": 2}, r"the text has 1 \[MASK\]"),
        (TEXT, {"answer": "rivers and stones"}, "not a single token"),
        (TEXT, {"answer": "[SEP]"}, "not a single token"),
        ("the [MASK] " * 20, {}, "the model reads 24"),
    ],
)
def test_wrong_input_gives_an_error_message(text, options, message):
    with pytest.raises(InputError, match=message):
        explain(specimen(), text, **options)


KINDS = {
    "classes": ({"num_labels": 3}, ("good", "bad", "so-so")),
    "yes or no": ({"num_labels": 1, "loss": "binary_cross_entropy"}, ("no", "yes")),
    "labels": ({"num_labels": 2, "loss": "binary_cross_entropy"}, ("red", "old")),
    "ranks": ({"num_labels": 4, "loss": "ordinal"}, ()),
    "number": ({"num_labels": 1}, ()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_classifiers_answer_is_explained_too(kind):
    options, labels = KINDS[kind]
    loaded = specimen("bert", "sequence", labels=labels, **options)
    text = "the river sings."
    found = explain(loaded, text)
    decoded = loaded.model.head.decode(loaded.model.predict([loaded.tokenizer.encode(text).ids]))[0]
    assert abs(found.integrated.error) < 0.011 * max(1, abs(found.integrated.difference))
    assert found.position is None and found.layers == []
    if kind == "number":
        assert found.answer.chance is None and found.integrated.score == pytest.approx(decoded[0])
        return
    chances = [1 - decoded[0], decoded[0]] if len(decoded) == 1 else decoded
    best = int(np.argmax(chances))
    assert found.answer.name == (labels[best] if labels else f"label {best}")
    assert found.answer.chance == pytest.approx(chances[best])
    assert np.exp(found.integrated.score) == pytest.approx(chances[best])
    other = explain(loaded, text, answer=found.answers[-1].name)
    assert np.exp(other.integrated.score) == pytest.approx(other.answer.chance)


def test_probabilities_use_the_temperature_of_the_card(tmp_path):
    plain = specimen("bert", "sequence", num_labels=3, dtype="float32")
    plain.model.save(tmp_path)
    plain.tokenizer.save(tmp_path)
    TaskCard(title="Birds", head="multiclass", labels=("a", "b", "c"), temperature=2.5).save(tmp_path)
    loaded = open_model(tmp_path, engine="numpy")
    assert loaded.labels == ("a", "b", "c") and loaded.temperature == 2.5
    found = explain(loaded, "the river sings.")
    logits = plain.model.predict([plain.tokenizer.encode("the river sings.").ids])[0]
    assert found.answer.chance == pytest.approx(softmax(logits / 2.5).max(), abs=1e-5)
    assert found.integrated.score == pytest.approx(np.log(found.answer.chance), abs=1e-5)
    assert abs(found.integrated.error) < 0.011


def test_an_unknown_label_is_an_error():
    loaded = specimen("bert", "sequence", num_labels=2, labels=("good", "bad"))
    with pytest.raises(InputError, match="its answers are"):
        explain(loaded, "the river", answer="ugly")
    with pytest.raises(InputError, match="the text is empty"):
        explain(loaded, "  ")


def test_the_page_has_no_links_and_escapes_text():
    found = explain(specimen(), "<b>the</b> [MASK] sings & falls.")
    page = prediction_page(found).render()
    assert "<b>the" not in page and "&lt;b&gt;the" in page
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert page.count('class="tokens"') == 2 + len(found.heads)
    assert f"{found.integrated.attributions.sum():.3f}" in page


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_the_page_of_a_classifier(kind):
    options, labels = KINDS[kind]
    page = prediction_page(explain(specimen("bert", "sequence", labels=labels, **options), "the river sings.")).render()
    assert "Attributions of the words" in page and "Answers by layer" not in page


def test_everything_is_json():
    found = explain(specimen(), TEXT)
    again = json.loads(json.dumps(found.as_dict()))
    assert again["integrated_gradients"]["attributions"] == pytest.approx(found.integrated.attributions.tolist())
    assert np.array(again["heads"][0]["weights"]).shape == (len(found.tokens),) * 2
    assert again["explained"]["name"] == found.answer.name


def test_saliency_does_not_depend_on_the_number_of_threads():
    one, two = specimen(), specimen()
    two.model.engine.threads = 2
    ids, baseline = [[2, 9, 4, 12, 3]], [[2, 4, 4, 4, 3]]
    found = [integrated_gradients(loaded.model, ids, baseline, Aim(9, 2)).attributions for loaded in (one, two)]
    assert found[0] == pytest.approx(found[1], abs=1e-12)
