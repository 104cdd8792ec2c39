"""The glass in Python: what it shows is what the package computes, and every opened sum adds up to its cell."""

import json
import math

import numpy as np
import pytest

import glassbert
from glassbert.errors import InputError
from glassbert.insight import LoadedModel, open_model
from glassbert.insight.dynamics import saved_steps
from glassbert.insight.pruning import without_heads
from glassbert.learn.glass.cells import gradient_name
from glassbert.learn.glass.described import TABLE
from glassbert.learn.glass.formulas import FACTOR, parse
from glassbert.learn.glass.inputs import View
from glassbert.learn.glass.look import Look
from glassbert.learn.glass.recorder import record
from glassbert.learn.glass.session import METHODS, Glass
from glassbert.learn.glass.variants import plain_model
from glassbert.ops.activations import gelu_tanh, relu, tanh
from glassbert.ops.normal import normal_cdf
from glassbert.training.optimizers import OPTIMIZERS
from glassbert.training.step import TrainingStep
from tests.insight.specimen import CONFIGS, sentences, specimen, tokenizer
from tests.training.toy import make_corpus, make_trainer

TEXT = sentences(1, seed=5)[0]
VIEW = {"text": TEXT, "masked": [2, 3]}
KINDS = {
    "mini": {"config": "mini"},
    "bert": {"config": "bert"},
    "modernbert": {"config": "modernbert"},
    "pretraining": {"config": "bert", "head": "pretraining"},
    "classes": {"config": "bert", "head": "sequence", "num_labels": 3, "labels": ("low", "mid", "high")},
    "mean of tokens": {"config": "modernbert", "head": "sequence", "num_labels": 2, "pooling": "mean"},
    "binary": {"config": "mini", "head": "binary", "num_labels": 1},
    "number": {"config": "mini", "head": "regression", "num_labels": 1},
    "smoothed": {"config": "mini", "head": "sequence", "num_labels": 3, "loss_options": {"label_smoothing": 0.2}},
    "tags": {"config": "bert", "head": "token", "num_labels": 4},
    "span": {"config": "bert", "head": "span"},
}
FUNCTIONS = {
    "exp": math.exp, "log": math.log, "sqrt": math.sqrt, "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    "Phi": lambda x: float(normal_cdf(np.array([x]))[0]),
    "phi": lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "gelu": lambda x: x * float(normal_cdf(np.array([x]))[0]),
    **{f.__name__: lambda x, f=f: float(f(np.array([x]))[0][0]) for f in (relu, tanh, gelu_tanh)},
}  # fmt: skip


def make(kind: str, **more) -> LoadedModel:
    options = {**KINDS[kind], **more}
    pooling = options.pop("pooling", None)
    head = options.pop("head", "mlm")
    if head in ("binary", "regression"):
        loss = {"binary": "binary_cross_entropy", "regression": "mean_squared_error"}[head]
        return specimen(head="sequence", loss=loss, **options)
    if pooling:
        from glassbert import Model

        config = CONFIGS[options.pop("config")].replace(classifier_pooling=pooling, pooler=False)
        return LoadedModel("specimen", Model(config, head, engine="numpy", dtype="float64", **options), tokenizer())
    return specimen(head=head, **options)


def look(kind: str, view=VIEW, **more) -> Look:
    loaded = make(kind, **more)
    return Look(loaded, plain_model(loaded.model), View.of(view))


# ---- what is recorded is what the package computes -------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_values_and_gradients_are_those_of_a_traced_pass(kind):
    seen = look(kind)
    loss, cache = seen.model.loss(seen.tokens.ids, **seen.labels, trace=True)
    gradients = seen.model.backward(cache)
    assert seen.loss == float(loss)
    for name in cache:
        np.testing.assert_array_equal(seen.recording.values[name], cache[name], name)
    for name in gradients:
        np.testing.assert_array_equal(seen.array("gradients", name), gradients[name], name)


@pytest.mark.parametrize("kind", KINDS)
def test_every_sum_adds_up_to_its_cell(kind):
    seen = look(kind)
    rng, opened = np.random.default_rng(1), set()
    for name, node in seen.nodes.items():
        described = seen.described(name)
        for role in described.sums:
            array = described.arrays[role]
            for _ in range(4):
                index = [int(rng.integers(size)) for size in array.shape]
                answer = seen.terms(name, role, index)
                size = max([1e-30, *(abs(value) for group in answer["groups"] for value in group["values"])])
                assert answer["sum"] == pytest.approx(answer["value"], abs=1e-11 * max(size, 1)), (name, role, index)
                assert answer["value"] == array[tuple(index)]
                opened.add((node.operation, role))
        assert node.operation in TABLE or node.operation in ("gelu_tanh", "relu", "tanh"), node.operation
    assert {("linear", "y"), ("linear", "dweight"), ("layer_norm", "dx"), ("attention", "scores")} <= opened


@pytest.mark.parametrize("kind", KINDS)
def test_every_function_of_a_few_cells_gives_its_cell(kind):
    seen = look(kind)
    rng = np.random.default_rng(2)
    for name in seen.nodes:
        described = seen.described(name)
        for role, expression in described.functions.items():
            array = described.arrays[role]
            index = [int(rng.integers(size)) for size in array.shape]
            answer = seen.terms(name, role, index)
            cells = iter(answer["cells"])
            text = FACTOR.sub(lambda found, cells=cells: f"({next(cells)['value']!r})", expression)
            assert eval(text, {**FUNCTIONS}) == pytest.approx(answer["value"], rel=1e-6, abs=1e-12), (name, role)


@pytest.mark.parametrize("kind", ["mini", "modernbert", "pretraining"])
def test_whole_arrays_follow_from_their_formulas(kind):
    """Not only chosen cells: the formula evaluated with einsum is the array."""
    seen = look(kind)
    for name in seen.nodes:
        described = seen.described(name)
        for role, formula in described.sums.items():
            if any(not isinstance(axis, str) for p in (formula.left, *(f for q in formula.products for f in q.factors))
                   for axis in p.axes):  # fmt: skip
                continue
            total = np.zeros(described.arrays[role].shape)
            for product in formula.products:
                left = "".join(formula.left.axes)
                parts = ",".join("".join(f.axes) for f in product.factors)
                value = np.einsum(
                    f"{parts}->{''.join(x for x in left if x in parts)}",
                    *(np.asarray(described.arrays[f.name], np.float64) for f in product.factors),
                )
                shape = [n if x in parts else 1 for x, n in zip(left, total.shape, strict=True)]
                total += product.sign * value.reshape(shape)
            np.testing.assert_allclose(total, described.arrays[role], atol=1e-10, err_msg=f"{name} {role} {formula}")


def test_a_long_text_takes_tiled_attention_and_its_sums_add_up():
    config = CONFIGS["modernbert"].replace(max_position_embeddings=400)
    model = glassbert.Model(config, "mlm", engine="numpy", dtype="float64", seed=2)
    loaded = LoadedModel("long", model, tokenizer())
    seen = Look(loaded, plain_model(model), View.of({"text": " ".join(sentences(60)), "masked": [5]}))
    assert seen.nodes["layers.0.attention.attention"].operation == "tiled_attention"
    assert "first 400" in seen.tokens.note
    for role in ("scores", "context", "dscores", "dq", "dk", "dv"):
        answer = seen.terms("layers.1.attention.attention", role, [1, 300, 2])
        assert answer["sum"] == pytest.approx(answer["value"], abs=1e-12)


def test_an_activation_and_a_part_of_ones_own_are_shown():
    config = CONFIGS["mini"].replace(activation="gelu_tanh")
    loaded = LoadedModel("own", glassbert.Model(config, "mlm", engine="numpy", dtype="float64"), tokenizer())
    seen = Look(loaded, plain_model(loaded.model), View.of(VIEW))
    answer = seen.terms("layers.0.ffn.activation", "dx", [1, 2])
    assert answer["sum"] == pytest.approx(answer["value"])
    assert "gelu_tanh" in seen.operation("layers.0.ffn.activation")["source"]["forward"]["code"]


def test_layers_that_share_parameters_collect_all_their_gradients():
    config = CONFIGS["bert"].replace(layer_groups=1)
    model = glassbert.Model(config, "mlm", engine="numpy", dtype="float64", seed=4)
    seen = Look(LoadedModel("shared", model, tokenizer()), plain_model(model), View.of(VIEW))
    answer = seen.terms("gradients", "layers.0.ffn.up.weight", [3, 4])
    assert [part["node"] for part in answer["parts"]] == ["layers.0.ffn.up", "layers.1.ffn.up"]
    assert answer["sum"] == pytest.approx(answer["value"], rel=1e-12)


def test_the_gradient_of_a_tied_table_has_two_parts():
    config = CONFIGS["bert"].replace(tie_word_embeddings=True)
    model = glassbert.Model(config, "mlm", engine="numpy", dtype="float64", seed=4)
    seen = Look(LoadedModel("tied", model, tokenizer()), plain_model(model), View.of(VIEW))
    word = int(seen.tokens.ids[0, 1])
    answer = seen.terms("gradients", "embeddings.token", [word, 3])
    assert {part["node"] for part in answer["parts"]} == {"embeddings.token", "head.decoder"}
    assert answer["sum"] == pytest.approx(answer["value"], rel=1e-12)
    for part in answer["parts"]:
        opened = seen.terms(part["node"], part["role"], [word, 3])
        assert opened["sum"] == pytest.approx(part["value"], rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_every_gradient_of_a_parameter_is_the_sum_of_its_uses(kind):
    seen = look(kind)
    rng = np.random.default_rng(3)
    for name, array in seen.model.parameters.items():
        index = [int(rng.integers(size)) for size in array.shape]
        answer = seen.terms("gradients", name, index)
        if name == "embeddings.token_type" and answer["sum"] == 0.0:
            continue  # row 0 is added as a whole, without an operation
        assert answer["sum"] == pytest.approx(answer["value"], rel=1e-9, abs=1e-15), name


# ---- the map ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_map_names_every_operation_once_and_every_input_comes_before(kind):
    seen = look(kind).map()
    names = [entry["name"] for entry in seen["forward"]]
    assert len(set(names)) == len(names)
    known = set()
    for entry in seen["forward"]:
        assert set(entry["inputs"]) <= known, entry
        known.add(entry["name"])
    assert seen["backward"][0]["operation"] in ("cross_entropy", "binary_cross_entropy", "mean_squared_error")
    assert seen["backward"][-1]["group"] == "embeddings"
    json.dumps(seen)


def test_residual_sums_stand_in_the_map_with_both_terms():
    entries = {entry["name"]: entry for entry in look("mini").map()["forward"]}
    assert entries["layers.1.attention.sum"]["inputs"] == ["layers.0.ffn.norm", "layers.1.attention.output"]
    assert entries["layers.0.ffn.sum"]["operation"] == "add"


def test_names_are_those_of_the_pass():
    seen = look("mini")
    shown = {entry["role"]: entry for entry in seen.operation("layers.1.attention.attention")["arrays"]["backward"]}
    assert shown["weights"]["name"] == "layers.1.attention.weights"
    assert shown["dq"]["name"] == "layers.1.attention.d_q"
    assert shown["dweights"]["name"] == "layers.1.attention.d_weights"
    assert gradient_name("layers.0.ffn.up.weight") == "layers.0.ffn.up.d_weight"
    assert gradient_name("output") == "d_output"


def test_the_lines_that_ran_are_shown_with_file_and_line():
    shown = look("mini").operation("layers.0.ffn.up")["source"]
    assert shown["forward"]["file"] == "glassbert/ops/linear.py"
    assert "y = rows @ weight.T" in shown["forward"]["code"]
    assert "dweight = dy_rows.T @ x_rows" in shown["backward"]["code"]


# ---- windows of numbers ----------------------------------------------------------------------------------------------


def decode(answer):
    import base64

    return np.frombuffer(base64.b64decode(answer["data"]), "<f4").reshape(answer["size"])


def test_a_window_holds_the_numbers_of_the_array_and_names_its_rows():
    seen = look("mini")
    answer = seen.values("layers.0.attention.attention", "weights", [1], 1, 2, 3, 4)
    expected = seen.recording.values["layers.0.attention.weights"][0, 1, 1:4, 2:6]
    np.testing.assert_array_equal(decode(answer), expected.astype(np.float32))
    assert answer["rows"] == [seen.shown_token(i) for i in (1, 2, 3)]
    assert answer["columns"][0] == "[MASK]"
    logits = seen.values("head.decoder", "y", [], 0, 30, 2, 3)
    assert logits["columns"] == [seen.word(i) for i in (30, 31, 32)]
    assert logits["rows"] == ["[MASK]", "[MASK]"]
    assert decode(seen.values("head.loss", "loss", [], 0, 0, 1, 1))[0, 0] == np.float32(seen.loss)
    assert seen.values("layers.0.ffn.up", "bias", [], 0, 19, 1, 8)["size"] == [1, 1]


def test_a_small_picture_keeps_the_largest_values():
    seen = look("mini")
    weights = np.random.default_rng(0).standard_normal((500, 700))
    seen.model.parameters = {**seen.model.parameters, "big": weights}
    answer = seen.overview("parameters", "big", [])
    assert answer["size"] == [96, 192]
    assert np.abs(decode(answer)).max() == np.float32(np.abs(weights).max()) == np.float32(answer["largest"])


@pytest.mark.parametrize(
    ("method", "arguments", "words"),
    [
        ("values", {"name": "layers.0.ffn.up", "role": "nothing"}, "no array 'nothing'"),
        ("values", {"name": "nothing", "role": "y"}, "no operation 'nothing'"),
        ("values", {"name": "layers.0.ffn.up", "role": "y", "height": 10_000, "width": 10_000}, "cells"),
        ("values", {"name": "layers.0.attention.attention", "role": "q", "leading": [7]}, "outside"),
        ("terms", {"name": "layers.0.ffn.up", "role": "y", "index": [0]}, "no cell"),
        ("terms", {"name": "layers.0.ffn.up", "role": "y", "index": [0, 99]}, "no cell"),
        ("nudge", {"parameter": "nothing", "index": [0], "epsilon": 1e-3}, "no parameter"),
        ("nudge", {"parameter": "layers.0.ffn.up.bias", "index": [0], "epsilon": 0}, "ε"),
        ("nothing", {}, "no question"),
        ("terms", {"wrong": 1}, "not understood"),
        ("terms", {"name": "layers.0.ffn.up", "role": "y", "index": [0.5, 1]}, "not understood"),
        ("terms", {"name": "layers.0.ffn.up", "role": "y", "index": ["a", 1]}, "not understood"),
        ("nudge", {"parameter": "layers.0.ffn.up.bias", "index": [1.5], "epsilon": 1e-3}, "not understood"),
        ("rotation", {"layer": 0, "head": 0, "token": 0}, "does not rotate"),
        ("attention", {"layer": 9}, "no attention weights"),
        ("saliency", {"position": 1, "target": 1, "method": "gradient"}, "masked"),
    ],
)
def test_a_question_that_cannot_be_answered_gets_a_sentence(method, arguments, words):
    glass = Glass([make("mini")])
    given = {"view": VIEW, **arguments}
    if method == "values":
        given = {"leading": [], "row": 0, "column": 0, "height": 2, "width": 2, **given}
    assert words in glass.ask(method, given)["error"]


# ---- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ({"text": " \n"}, "empty"),
        ({"text": "x" * 100_001}, "100,000"),
        ({"text": 3}, "string"),
        ({"text": TEXT, "wrong": 1}, "no field 'wrong'"),
        ({"text": TEXT, "masked": ["a"]}, "whole number"),
        ({"text": TEXT, "model": 4}, "no model 4"),
        ({"text": TEXT, "snapshot": 4}, "no snapshot"),
        ({"text": TEXT, "silenced": [[9, 9]]}, "no head 9"),
        ({"text": TEXT, "masked": [2], "targets": {"2": 9999}}, "vocabulary"),
        ({"text": TEXT, "masked": [2], "step": {"optimizer": "magic"}}, "optimizer"),
        ({"text": TEXT, "masked": [2], "step": {"learning_rate": -1}}, "learning rate"),
        ({"text": TEXT, "masked": [2], "step": {"count": 1000}}, "number of steps"),
        ({"text": TEXT, "step": {"count": 1}}, "mask a word"),
        (7, "object"),
    ],
)
def test_a_view_that_cannot_be_shown_gets_a_sentence(view, words):
    assert words in Glass([make("mini")]).ask("look", {"view": view})["error"]


@pytest.mark.parametrize(
    "text", ["😀😀 [MASK] 🎉", "שלום עולם [MASK]", "[MASK] " * 10, "é" * 40, "a\u202eb [MASK]", "\x00 [MASK]"]
)
def test_odd_texts_are_shown(text):
    answer = Glass([make("mini")]).ask("look", {"view": {"text": text}})
    assert "error" not in answer
    assert len(answer["answers"]) == text.count("[MASK]")
    json.dumps(answer, allow_nan=False)


def test_a_text_without_a_mask_is_shown_without_a_way_back():
    answer = Glass([make("mini")]).ask("look", {"view": {"text": TEXT}})
    assert answer["loss"] is None and "Click a word" in answer["why_no_loss"]
    assert answer["map"]["backward"] == [] and answer["map"]["forward"]


def test_a_model_without_a_head_is_shown_without_answers():
    answer = Glass([specimen("bert", None)]).ask("look", {"view": VIEW})
    assert answer["answers"] == [] and "no head" in answer["why_no_loss"]


def test_a_head_for_embeddings_is_shown_without_a_loss():
    answer = Glass([specimen("bert", "embedding")]).ask("look", {"view": VIEW})
    assert "embedding head" in answer["why_no_loss"]


def test_answers_are_those_of_fill_mask():
    loaded = make("mini")
    text = TEXT.replace(TEXT.split()[1], "[MASK]", 1)
    answer = Glass([loaded]).ask("look", {"view": {"text": text}})["answers"]
    expected = glassbert.fill_mask(loaded.model, loaded.tokenizer, text)
    for one, words in zip(answer, expected, strict=True):
        assert [(w["word"], pytest.approx(w["chance"])) for w in one["best"]] == [tuple(w) for w in words]
        assert one["target"]["id"] == one["best"][0]["id"]  # nobody knows the word that was typed as [MASK]


def test_the_target_and_the_label_can_be_chosen():
    glass = Glass([make("mini")])
    usual = glass.ask("look", {"view": VIEW})
    chosen = glass.ask("look", {"view": {**VIEW, "targets": {"2": 40}}})
    assert chosen["answers"][0]["target"]["id"] == 40
    assert chosen["loss"] != usual["loss"]
    classes = Glass([make("classes")])
    losses = [classes.ask("look", {"view": {"text": TEXT, "label": label}})["loss"] for label in (0, 1, 2)]
    assert len(set(losses)) == 3
    best = classes.ask("look", {"view": {"text": TEXT}})
    assert best["loss"] == min(losses)
    assert {one["word"] for one in best["answers"][0]["best"]} == {"low", "mid", "high"}
    assert "outside" in classes.ask("look", {"view": {"text": TEXT, "label": 3}})["error"]


# ---- experiments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mini", "modernbert"])
def test_a_nudge_agrees_with_the_gradient_to_three_digits(kind):
    """One hundred random weights of a float32 model, as the page shows them."""
    loaded = make(kind, dtype="float32")
    glass, rng = Glass([loaded]), np.random.default_rng(8)
    names = list(loaded.model.parameters)
    for _ in range(100):
        name = names[rng.integers(len(names))]
        index = [int(rng.integers(size)) for size in loaded.model.parameters[name].shape]
        answer = glass.ask("nudge", {"view": VIEW, "parameter": name, "index": index, "epsilon": 1e-4})
        shown = glass.look_at(VIEW).array("gradients", name)[tuple(index)]
        assert answer["predicted"] == pytest.approx(answer["measured"], rel=1e-3, abs=2e-14), (name, index)
        assert answer["gradient"] == pytest.approx(float(shown), rel=1e-3, abs=1e-6)
    assert glass.ask("nudge", {"view": VIEW, "parameter": name, "index": index, "epsilon": 1e-4}) == answer


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_step_of_the_page_is_a_step_in_python(optimizer):
    loaded = make("mini")
    glass = Glass([loaded])
    before = {name: array.copy() for name, array in loaded.model.parameters.items()}
    view = {**VIEW, "step": {"optimizer": optimizer, "learning_rate": 0.01, "count": 2}}
    answer = glass.ask("look", {"view": view})
    first = glass.look_at(VIEW)

    other = make("mini").model
    step = TrainingStep(other, OPTIMIZERS[optimizer](other, 0.01))
    for _ in range(2):
        step(first.tokens.ids, **first.labels)
    loss, _ = other.loss(first.tokens.ids, **first.labels)
    assert answer["loss"] == pytest.approx(float(loss), rel=1e-12)
    for name, array in glass.look_at(view).model.parameters.items():
        np.testing.assert_allclose(array, other.parameters[name], atol=1e-12, err_msg=name)
        np.testing.assert_array_equal(loaded.model.parameters[name], before[name])  # the model itself is unchanged
    moved = glass.ask("moved", {"view": VIEW, "other": view})
    top = moved["weights"][0]
    change = max(float(np.abs(other.parameters[name] - before[name]).max()) for name in before)
    assert abs(top["change"]) == pytest.approx(change, rel=1e-9)


def test_a_silenced_head_is_a_model_without_it():
    loaded = make("modernbert")
    glass = Glass([loaded])
    answer = glass.ask("look", {"view": {**VIEW, "silenced": [[1, 0]]}})
    seen = glass.look_at(VIEW)
    loss, _ = without_heads(loaded.model, [(1, 0)]).loss(seen.tokens.ids, **seen.labels)
    assert answer["loss"] == pytest.approx(float(loss), rel=1e-12)
    grid = glass.ask("heads", {"view": VIEW})
    assert grid["without"][1][0] == pytest.approx(answer["loss"], rel=1e-12)
    assert np.shape(grid["rise"]) == (2, 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
        patch.setattr("glassbert.training.finishing.write_report", lambda run, result=None: None)
        make_trainer(make_corpus(folder / "corpus"), folder / "run", steps=12, snapshots=3).train()
    return folder / "run"


def test_snapshots_of_a_run_are_variants_of_its_model(run):
    loaded = open_model(run, "numpy")
    glass = Glass([loaded])
    view = {"text": "the red bird sings.", "masked": [3]}
    steps = glass.ask("about", {})["models"][0]["snapshots"]
    assert len(steps) >= 3
    losses = [glass.ask("summary", {"view": {**view, "snapshot": step}})["loss"] for step in steps]
    assert losses[-1] == pytest.approx(glass.ask("summary", {"view": view})["loss"], rel=1e-6)
    assert len(set(losses)) == len(losses)
    first = glassbert.load(saved_steps(loaded.run)[steps[0]], engine="numpy")
    seen = glass.look_at(view)
    assert losses[0] == pytest.approx(float(first.loss(seen.tokens.ids, **seen.labels)[0]), rel=1e-5)


def test_saliency_is_that_of_the_package():
    glass = Glass([make("mini")])
    target = glass.ask("look", {"view": VIEW})["answers"][0]["best"][0]["id"]
    for method in ("gradient", "integrated"):
        answer = glass.ask("saliency", {"view": VIEW, "position": 2, "target": target, "method": method})
        assert "error" not in answer
        assert len(answer["values"]) == len(glass.look_at(VIEW).tokens.tokens)
    assert answer["sum"] == pytest.approx(answer["score"] - answer["baseline"], abs=0.02)


def test_a_rotation_turns_every_pair_by_its_angle():
    answer = Glass([make("modernbert")]).ask("rotation", {"view": VIEW, "layer": 1, "head": 1, "token": 3})
    before, after, angle = (np.array(answer[name]) for name in ("before", "after", "angle"))
    turned = np.stack(
        [
            before[:, 0] * np.cos(angle) - before[:, 1] * np.sin(angle),
            before[:, 1] * np.cos(angle) + before[:, 0] * np.sin(angle),
        ],
        1,
    )
    np.testing.assert_allclose(turned, after, atol=1e-6)


def test_looks_are_kept_and_the_oldest_are_dropped():
    glass = Glass([make("mini")])
    seen = glass.look_at(VIEW)
    assert glass.look_at(dict(VIEW)) is seen
    for position in range(1, 8):
        glass.look_at({"text": TEXT + " again", "masked": [position]})
    assert glass.look_at(VIEW) is not seen


def test_every_question_answers_json():
    glass = Glass([make("modernbert")])
    given = {
        "about": {},
        "look": {"view": VIEW},
        "summary": {"view": VIEW},
        "operation": {"view": VIEW, "name": "layers.0.ffn.up"},
        "values": {"view": VIEW, "name": "gradients", "role": "layers.0.ffn.up.weight", "leading": [], "row": 0,
                   "column": 0, "height": 2, "width": 2},
        "overview": {"view": VIEW, "name": "parameters", "role": "layers.0.ffn.up.weight", "leading": []},
        "terms": {"view": VIEW, "name": "layers.0.ffn.up", "role": "y", "index": [0, 0]},
        "nudge": {"view": VIEW, "parameter": "final_norm.weight", "index": [0], "epsilon": 0.01},
        "moved": {"view": VIEW, "other": {**VIEW, "step": {}}},
        "attention": {"view": VIEW, "layer": 0},
        "heads": {"view": VIEW},
        "saliency": {"view": VIEW, "position": 2, "target": 7, "method": "integrated"},
        "rotation": {"view": VIEW, "layer": 0, "head": 0, "token": 1},
    }  # fmt: skip
    assert set(given) == set(METHODS)
    for method, arguments in given.items():
        answer = glass.ask(method, arguments)
        assert "error" not in answer, answer
        json.dumps(answer, allow_nan=False)


def test_a_model_of_series_is_refused_and_so_is_no_model():
    with pytest.raises(InputError, match="at least one model"):
        Glass([])


def test_a_loss_that_is_not_finite_is_shown_as_none():
    loaded = make("mini", dtype="float32")
    loaded.model.parameters["layers.0.ffn.up.bias"] = np.inf
    with np.errstate(all="ignore"):
        answer = Glass([loaded]).ask("summary", {"view": VIEW})
    assert answer["loss"] is None
    json.dumps(answer, allow_nan=False)


def test_a_large_model_keeps_fewer_looks(monkeypatch):
    monkeypatch.setattr("glassbert.learn.glass.session.KEPT_NUMBERS", 1)
    glass = Glass([make("mini")])
    for position in (1, 2, 3):
        glass.look_at({"text": TEXT, "masked": [position]})
    assert len(glass._looks) == 2


def test_a_formula_is_read_and_written():
    formula = parse("y[t,o] = x[t,i] weight[o,i] - bias[o]")
    assert str(formula) == "y[t,o] = Σi x[t,i] · weight[o,i] − bias[o]"
    assert str(parse("dtable[ids(t),h] = dy[t,h]")) == "dtable[ids(t),h] = Σt dy[t,h]"
    with pytest.raises(ValueError, match="cell"):
        parse("y = x[t]")


def test_recording_leaves_no_trace_in_the_model():
    loaded = make("mini")
    engine = loaded.model.engine
    record(loaded.model, np.array([[2, 7, 8, 3]]), None)
    assert loaded.model.engine is engine
    output, _ = loaded.model.forward(np.array([[2, 7, 8, 3]]))
    assert type(output) is np.ndarray
