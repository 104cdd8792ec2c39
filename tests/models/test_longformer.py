"""Longformer: linear memory, which tokens are global, weights for the reader, and clear errors."""

import tracemalloc

import numpy as np
import pytest

import glassbert
from glassbert.errors import CheckpointError, InputError
from glassbert.families.longformer import LONGFORMER_MINI

TINY = LONGFORMER_MINI.replace(
    vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, local_window=16,
    max_position_embeddings=5_000, initializer_range=0.3,
)  # fmt: skip


def model_of(head=None, **changes):
    return glassbert.Model(TINY.replace(**changes), head, 3 if head == "sequence" else 0, engine="numpy", threads=1)


def ids_of(rows, length, seed=0):
    return np.random.default_rng(seed).integers(5, 60, (rows, length))


def peak_of_a_pass(length):
    """The most memory that forward and backward hold at a time, in bytes."""
    model, ids = model_of("sequence"), ids_of(1, length)
    tracemalloc.start()
    _, cache = model.loss(ids, [1])
    model.backward(cache)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_grows_linearly_with_the_length():
    peak_of_a_pass(512)
    short, long = peak_of_a_pass(1_024), peak_of_a_pass(4_096)
    assert long < 5 * short  # quadratic: 16 times
    assert long < 4_096 * 4_096 * 4 / 2  # half a matrix of all pairs in float32, for one head


def test_no_array_of_a_pass_has_all_pairs():
    model, length = model_of("sequence"), 2_048
    _, cache = model.loss(ids_of(1, length), [1])
    sizes = []

    def collect(value):
        if isinstance(value, np.ndarray):
            sizes.append(value.size)
        elif isinstance(value, (tuple, list)):
            for one in value:
                collect(one)
        elif hasattr(value, "values") and not callable(value.values):
            collect(value.values)

    for part in cache.parts:
        for state in part.cache.states.values():
            collect(state)
    assert sizes and max(sizes) <= length * 3 * 16  # queries, keys and values together


def test_a_token_sees_its_window_and_the_global_tokens():
    model, length = model_of(), 60
    ids = ids_of(1, length)
    chosen = np.zeros((1, length), int)
    chosen[0, 40] = 1
    _, cache = model.forward(ids, global_attention_mask=chosen)
    weights = np.asarray(cache["layers.0.attention.weights"])[0]  # [heads, T, T]
    place = np.arange(length)
    near = np.abs(place[:, None] - place) <= 16
    seen = near | (place == 40)[None] | (place == 40)[:, None]
    np.testing.assert_array_equal(weights > 0, np.broadcast_to(seen, weights.shape))
    np.testing.assert_allclose(weights.sum(-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("head", [None, "mlm", "token", "sequence", "span"])
def test_which_tokens_are_global_by_default(head):
    model = glassbert.Model(TINY, head, 3 if head in ("sequence", "token") else 0, engine="numpy", threads=1)
    ids = ids_of(2, 50)
    ids[0, 7] = ids[1, 4] = ids[:, -1] = TINY.sep_token_id
    question = np.arange(50) < np.array([[7], [4]])
    wanted = {"sequence": np.arange(50) == np.zeros((2, 1)), "span": question}.get(head, np.zeros((2, 50)))
    given = model.forward(ids, global_attention_mask=wanted.astype(int))[0]
    np.testing.assert_array_equal(model.forward(ids)[0], given)


def test_a_row_without_a_question_has_no_global_token():
    model, ids = model_of("span"), ids_of(2, 20)
    ids[1, 4] = TINY.sep_token_id
    chosen = (np.arange(20) < 4) & (np.arange(2) == 1)[:, None]
    np.testing.assert_array_equal(
        model.forward(ids)[0], model.forward(ids, global_attention_mask=chosen.astype(int))[0]
    )


def test_padding_is_never_global_and_skipping_it_changes_nothing():
    model = model_of("sequence")
    mask = np.arange(40) < np.array([[40], [25]])
    ids = np.where(mask, ids_of(2, 40), 0)
    chosen = np.zeros((2, 40), int)
    chosen[:, [0, 30]] = 1
    here = model.forward(ids, mask, global_attention_mask=chosen)[0]
    chosen[1, 30] = 0
    np.testing.assert_array_equal(here, model.forward(ids, mask, global_attention_mask=chosen)[0])
    np.testing.assert_allclose(model.predict(ids, mask), model.forward(ids, mask)[0], atol=1e-6)


def test_clear_errors():
    model, ids = model_of(), ids_of(2, 12)
    with pytest.raises(InputError, match=r"must have the shape of input_ids, \[2, 12\], got \[2, 11\]"):
        model.forward(ids, global_attention_mask=np.ones((2, 11)))
    with pytest.raises(InputError, match="global_attention_mask must hold only 1"):
        model.forward(ids, global_attention_mask=np.full((2, 12), 2))
    with pytest.raises(InputError, match="global tokens go with an attention_mask"):
        model.forward(ids, np.ones((2, 12, 12)), global_attention_mask=np.ones((2, 12)))
    with pytest.raises(InputError, match="does not know the separator after a question; give global_attention_mask"):
        model_of("span", sep_token_id=None).forward(ids)
    with pytest.raises(InputError, match="this model takes no global_attention_mask"):
        glassbert.MiniBERT(engine="numpy").forward(ids, global_attention_mask=np.ones((2, 12)))
    with pytest.raises(InputError, match="this model takes no memry; its attention takes global_attention_mask"):
        model.forward(ids, memry=1)
    with pytest.raises(glassbert.ConfigError, match="counts positions from pad_token_id"):
        TINY.replace(pad_token_id=None)


@pytest.mark.parametrize("theirs", ["bert", "xlnet", "longformer", "modernbert"])
@pytest.mark.usefixtures("without_checksums")
def test_a_checkpoint_of_one_family_opened_as_another(theirs, tmp_path):
    """The tensors of a GPT-2 under the config of another family."""
    small = {
        "vocab_size": 60,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 24,
    }
    glassbert.create_model("gpt2_with_head", head="causal", config=glassbert.Gpt2Config(**small)).save(
        tmp_path / "gpt2"
    )
    config = glassbert.FAMILIES[theirs].config_class(**small, pad_token_id=0)
    other = glassbert.create_model(f"{theirs}_with_head", head="mlm", config=config)
    other.save(tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").write_bytes((tmp_path / "gpt2" / "model.safetensors").read_bytes())
    with pytest.raises(
        CheckpointError, match=r"tensors are missing from the file|tensors that this model does not have"
    ):
        glassbert.load(tmp_path / "other")
    with pytest.raises(CheckpointError):
        other.load_checkpoint(tmp_path / "gpt2")
    with pytest.raises(CheckpointError, match="family"):
        glassbert.load(tmp_path / "gpt2").load_checkpoint(tmp_path / "other")
