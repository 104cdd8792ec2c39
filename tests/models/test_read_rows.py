"""The last layer computes only the tokens that are read. Loss, gradients and outputs are those of the whole layer."""

import contextlib

import numpy as np
import pytest

from glassbert import PRESETS, Model, create_model
from glassbert.layers.attention import SelfAttention
from glassbert.models.heads import MaskedLanguageHead, SequenceHead
from glassbert.models.passes import Pass
from glassbert.models.read_rows import DropoutOfRows, among_packed, split_rows
from glassbert.training.evaluate import evaluate
from glassbert.training.objectives import Objectives
from glassbert.training.step import TrainingStep
from tests.models.small import BERT, CONFIGS, DROPOUT, LARGER, MODERN, batch, make

LONG = np.array([12, 9, 12, 5, 7, 12])
SMALL = {"vocab_size": 97, "num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 20}
ONE_PER_FAMILY = {config.family: name for name, config in reversed(list(PRESETS.items())) if config.series is None}


def few_labels(config=BERT, seed=0):
    """A ragged batch with a label on every fifth token."""
    ids, mask, _ = batch(config, LONG, 12, seed)
    chosen = (np.arange(ids.size).reshape(ids.shape) % 5 == 0) & (mask == 1)
    return ids, mask, np.where(chosen, ids, -100)


@contextlib.contextmanager
def all_rows():
    """Passes whose last layer computes every token."""
    keep = Pass._read_only
    Pass._read_only = lambda self, rows: None
    try:
        yield
    finally:
        Pass._read_only = keep


@contextlib.contextmanager
def counted():
    """The shapes of what goes through the output maps of attention layers, in order."""
    shapes, right = [], SelfAttention.take_read

    def take_read(self, x, scope, context):
        found = right(self, x, scope, context)
        if scope.prefix.endswith("attention."):
            shapes.append(found.shape)
        return found

    SelfAttention.take_read = take_read
    try:
        yield shapes
    finally:
        SelfAttention.take_read = right


def gradients_of(model, ids, labels, **inputs):
    model.dropout_seed = 0
    loss, cache = model.loss(ids, labels, **inputs)
    return float(loss), {name: np.array(g) for name, g in model.backward(cache).items()}


def assert_same(model, ids, labels, read, **inputs):
    """Loss and gradients with and without the rows left out; `read` tokens are computed in the last layer."""
    with counted() as shapes:
        loss, found = gradients_of(model, ids, labels, **inputs)
    last = [shape for shape in shapes if len(shape) == 2]
    assert sum(shape[0] for shape in last) == read
    with all_rows():
        expected_loss, expected = gradients_of(model, ids, labels, **inputs)
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_masked_rows_of_every_kind_of_block(name, threads):
    ids, mask, labels = few_labels(CONFIGS[name])
    assert_same(make(CONFIGS[name], threads=threads), ids, labels, (labels != -100).sum(), attention_mask=mask)


@pytest.mark.parametrize("config", [BERT.replace(**DROPOUT), MODERN.replace(**DROPOUT), LARGER], ids=str)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_dropout_masks_are_those_of_the_same_tokens(config, checkpointing):
    ids, mask, labels = few_labels(config)
    model = make(config, threads=2)
    model.set_training(True)
    model.set_checkpointing(checkpointing)
    with counted() as shapes:
        first = gradients_of(model, ids, labels, attention_mask=mask)[0]
    assert any(len(shape) == 2 for shape in shapes)
    with all_rows():
        loss, expected = gradients_of(model, ids, labels, attention_mask=mask)
    assert first == pytest.approx(loss, rel=1e-12)
    found = gradients_of(model, ids, labels, attention_mask=mask)[1]
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-12, err_msg=name)
    model.set_training(False)
    assert gradients_of(model, ids, labels, attention_mask=mask)[0] != pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("family", ONE_PER_FAMILY)
def test_every_family(family):
    """Attentions with passes of their own compute every token; all give the same."""
    config = PRESETS[ONE_PER_FAMILY[family]].replace(**SMALL, max_position_embeddings=32, pad_token_id=0)
    config = config.replace(embedding_size=16) if config.embedding_size else config
    head = "causal" if config.causal else "mlm"
    model = Model(config, head, engine="numpy", dtype="float64", threads=2)
    ids, mask, labels = few_labels(config)
    inputs = {"attention_mask": mask}
    if config.attention == "two_streams":
        inputs["prediction_order"] = (labels != -100).astype(int)
    elif not config.causal:
        inputs["skip_padding"] = True
    scored = (labels[:, 1:] != -100).sum() if config.causal else (labels != -100).sum()
    assert_same(model, ids, labels, scored if model.encoder.selects_rows else 0, **inputs)


@pytest.mark.parametrize("preset", ["deberta-mini", "deberta-v2-xlarge"])
def test_a_mask_decoder_and_a_block_with_a_convolution(preset):
    config = PRESETS[preset].replace(**SMALL, max_position_embeddings=32, pad_token_id=0)
    ids, mask, labels = few_labels(config)
    model = Model(config, "mlm", engine="numpy", dtype="float64")
    assert_same(model, ids, labels, (labels != -100).sum(), attention_mask=mask)


@pytest.mark.parametrize("threads", [1, 2])
def test_padding_left_out(threads):
    ids, mask, labels = few_labels()
    model = make(threads=threads)
    assert_same(model, ids, labels, (labels != -100).sum(), attention_mask=mask, skip_padding=True)
    labels[1, 11] = 3  # a label of padding, which was left out: every token is computed
    assert_same(model, ids, labels, 0, attention_mask=mask, skip_padding=True)


def test_packed_documents():
    ids, _, labels = few_labels()
    segments = np.repeat([[1, 1, 1, 2, 2, 2, 2, 3, 3, 0, 0, 0]], len(ids), 0)
    assert_same(make(threads=2), ids, labels, (labels != -100).sum(), segment_ids=segments)


def test_a_part_without_a_label_and_labels_on_most_tokens_compute_every_token():
    ids, mask, labels = few_labels()
    labels[3:] = -100
    assert_same(make(threads=2), ids, labels, 0, attention_mask=mask)
    assert_same(make(threads=2), ids, np.where(mask == 1, ids, -100), 0, attention_mask=mask)
    assert_same(make(), ids, np.full_like(ids, -100), 0, attention_mask=mask)


@pytest.mark.parametrize(("pooling", "read"), [("cls", 6), ("mean", 0), ("max", 0), ("attention", 0), ("last", 0)])
@pytest.mark.parametrize("head", ["sequence", "embedding"])
def test_a_classifier_reads_the_first_tokens_or_all(pooling, read, head):
    ids, mask, _ = few_labels()
    config = BERT.replace(classifier_pooling=pooling, pooler=head == "sequence", **DROPOUT)
    labels = [0, 1, 2, 0, 1, 2] if head == "sequence" else [0.3, 0.3, -0.5, -0.5, 1.0, 1.0]
    model = make(config, head, 3 if head == "sequence" else 0, threads=2)
    assert_same(model, ids, labels, read, attention_mask=mask)
    model.set_training(True)
    assert_same(model, ids, labels, read, attention_mask=mask)
    assert_same(model, ids, labels, read, attention_mask=mask)


def test_other_heads_read_every_token():
    ids, mask, labels = few_labels()
    pairs = {"pair_labels": [0, 1, 0, 1, 1, 0]}
    assert_same(make(BERT, "pretraining"), ids, labels, 0, attention_mask=mask, **pairs)
    assert_same(make(BERT, "token", 3), ids, np.where(mask == 1, 1, -100), 0, attention_mask=mask)
    assert_same(make(BERT, "span"), ids, [[1, 2]] * 6, 0, attention_mask=mask)
    segments = np.repeat([[1, 1, 2, 2, 2]], 6, 0)
    assert_same(make(BERT, "aligned", 3), ids[:, :5], [0, 1, 2] * 2, 0, segment_ids=segments)


@pytest.mark.parametrize(
    ("objective", "head", "read"),
    [("mlm", "mlm", True), ("mlm", "pretraining", True), ("mlm+nsp", "pretraining", False), ("rtd", "rtd", None)],
)
def test_objectives(objective, head, read):
    """A sum over several parts reads every token; the generator of ELECTRA only the masked ones."""
    ids, mask, labels = few_labels()
    config = BERT if head != "rtd" else PRESETS["electra-mini"].replace(**SMALL, pad_token_id=0)
    model = make(config, head)
    step = TrainingStep(model, _Nothing(model), objective=objective)
    pairs = {"pair_labels": [0, 1, 0, 1, 1, 0]} if "nsp" in objective else {}

    def gradients():
        result = step(ids, labels, mask, **pairs)
        return result.loss, {name: g.copy() for name, g in step._gradients.items()}

    with counted() as shapes:
        loss, found = gradients()
    few = [shape for shape in shapes if len(shape) == 2]
    assert bool(few) == (read is not False)
    assert read is not None or (len(few) == 1 and len(shapes) > 2)  # of the generator, not of the discriminator
    with all_rows():
        expected_loss, expected = gradients()
    assert loss == pytest.approx(expected_loss, rel=1e-12)
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-9, atol=1e-12, err_msg=name)


def test_terms_of_one_part_read_the_same_rows():
    model = make()
    rows = np.array([1, 7])
    terms = Objectives.parse("mlm+distill")
    run = model.run(model.check(np.ones((2, 8), int)))
    assert terms.rows_read(model.head, run.batch, {"mlm": {"rows": rows}, "distill": {"rows": rows}}) is rows
    hidden = Objectives.parse("mlm+hidden")
    assert hidden.rows_read(model.head, run.batch, {"mlm": {"rows": rows}, "hidden": {}}) is None


class _Nothing:
    """An optimizer that moves nothing."""

    curvature_every, attempts, trainable, name = 0, 0, None, "nothing"

    def __init__(self, model):
        self.layout = model.layout

    def gradient_norm(self, gradients):
        return 1.0

    def move(self, *arguments):
        pass


def test_evaluation_and_inference_leave_rows_out_too():
    ids, mask, labels = few_labels()
    model = make(threads=2)
    with counted() as shapes:
        found = evaluate(model, [{"input_ids": ids, "labels": labels, "attention_mask": mask}])
    assert any(len(shape) == 2 for shape in shapes)
    with all_rows():
        expected = evaluate(model, [{"input_ids": ids, "labels": labels, "attention_mask": mask}])
    assert found.loss == pytest.approx(expected.loss, rel=1e-12) and found.accuracy == expected.accuracy
    classifier = make(BERT, "sequence", 3)
    with counted() as shapes:
        outputs = classifier.predict(ids, mask)
    assert shapes[-1] == (6, 12)
    np.testing.assert_allclose(outputs, classifier.forward(ids, mask)[0], rtol=1e-9)


def test_one_pass_answers_for_other_rows_and_for_all():
    ids, mask, _ = few_labels()
    model = make(threads=2)
    run = model.run(model.check(ids, mask), inference=True)
    whole = model.forward(ids, mask)[0].reshape(ids.size, -1)
    for rows in ([1, 40], [2, 3, 50], [50, 3, 3], None):
        given = None if rows is None else np.array(rows)
        found = np.asarray(run.output(given))
        np.testing.assert_allclose(found.reshape(-1, whole.shape[1]), whole if rows is None else whole[rows], rtol=1e-9)


def test_who_looks_sees_every_token():
    ids, mask, labels = few_labels()
    model = make(threads=2)
    _, cache = model.loss(ids, labels, mask, trace=True)
    assert cache["output"].shape == cache["layers.1.ffn.output"].shape == (6, 12, 12)
    _, cache = model.forward(ids, mask)
    assert cache["layers.1.ffn.activated"].shape == (6, 12, 20)
    run = model.run(model.check(ids, mask), inference=True, keep=["layers.1.ffn.output"])
    run.output(np.array([1, 40]))
    assert run["layers.1.ffn.output"].shape == (6, 12, 12)


@pytest.mark.parametrize("skip_padding", [False, True])
def test_values_of_a_loss_have_the_shape_of_the_batch_with_zeros_where_nothing_is_read(skip_padding):
    ids, mask, labels = few_labels()
    model = make(threads=2)
    _, cache = model.loss(ids, labels, mask, skip_padding=skip_padding)
    _, whole = model.loss(ids, labels, mask, trace=True)
    for name in ("layers.1.ffn.activated", "layers.1.ffn.hidden"):
        read = labels != -100
        assert cache[name].shape == whole[name].shape == (6, 12, 20)
        np.testing.assert_allclose(cache[name][read], whole[name][read], rtol=1e-9)
        assert not cache[name][~read].any()
    assert cache["layers.0.ffn.activated"][mask == 1].all(-1).any()


def test_an_attention_of_a_subclass_with_its_own_forward_gets_every_token():
    class Own(SelfAttention):
        def forward(self, x, scope, context):
            assert context.rows is None
            return super().forward(x, scope, context)

    ids, mask, labels = few_labels()
    model = make()
    model.encoder.blocks[-1].attention = Own(model.config)
    assert_same(model, ids, labels, 0, attention_mask=mask)


@pytest.mark.parametrize(("parent", "kind", "labels"), [(MaskedLanguageHead, "mlm", 0), (SequenceHead, "sequence", 3)])
def test_a_head_of_a_subclass_with_its_own_forward_gets_every_token(parent, kind, labels):
    class Own(parent):
        def forward(self, hidden, batch, scope, rows=None):
            assert hidden.ndim == 3
            return super().forward(hidden, batch, scope, rows)

    ids, mask, wanted = few_labels()
    model = make(BERT, kind, labels)
    model.head.__class__ = Own
    assert_same(model, ids, [0, 1, 2] * 2 if labels else wanted, 0, attention_mask=mask)


def test_an_xlnet_of_an_earlier_version_opens():
    config = PRESETS["xlnet-mini"].replace(**SMALL, pad_token_id=0)
    ids, mask, _ = few_labels()
    old = Model(config.replace(norm_position="post_two_streams"), engine="numpy", dtype="float64", seed=1)
    new = Model(config, engine="numpy", dtype="float64", seed=1)
    np.testing.assert_array_equal(old.predict(ids, mask), new.predict(ids, mask))


def test_indices_of_parts_and_of_packed_tokens():
    pieces = split_rows(np.array([0, 3, 8, 9, 21]), [0, 8, 16, 24])
    assert [piece.tolist() for piece in pieces] == [[0, 3], [0, 1], [5], []]
    index = np.array([0, 1, 4, 5, 9])
    assert among_packed(np.array([1, 5, 9]), index).tolist() == [1, 3, 4]
    assert among_packed(np.array([1, 6]), index) is None
    assert among_packed(np.array([11]), index) is None


def test_dropout_of_rows_leaves_other_masks_alone():
    source = make().engine.dropout(5).from_row(2)
    few = DropoutOfRows(source, np.array([1, 7]), (2, 4))
    whole = source.mask("a", (2, 4, 6), 0.5).reshape(8, 6)
    np.testing.assert_array_equal(few.mask("a", (2, 6), 0.5), whole[[1, 7]])
    np.testing.assert_array_equal(few.mask("a", (2, 3, 4, 4), 0.5), source.mask("a", (2, 3, 4, 4), 0.5))
    np.testing.assert_array_equal(few.uniform("a", (2, 4)), source.uniform("a", (2, 4)))
    assert few.for_all_rows().first_row == 0 and few.from_row(3).source.first_row == 5


def test_mlx_with_padded_rows():
    pytest.importorskip("mlx.core")
    rng = np.random.default_rng(1)
    ids = rng.integers(1, 31, (16, 16))
    labels = np.where(rng.random(ids.shape) < 0.15, ids, -100)
    model = create_model("bert_with_head", head="mlm", config=BERT, engine="mlx", seed=1)
    with counted() as shapes:
        loss, cache = model.loss(ids, labels)
        found = {name: np.array(g) for name, g in model.backward(cache).items()}
    assert shapes[-1] == (64, 12)
    with all_rows():
        expected_loss, cache = model.loss(ids, labels)
        expected = {name: np.array(g) for name, g in model.backward(cache).items()}
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-4, atol=1e-6, err_msg=name)
