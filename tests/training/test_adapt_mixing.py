"""What an adaptation keeps of its change: rows in two vocabularies, the choice of a share, mixed weights."""

import random

import numpy as np
import pytest

import glassbert
from glassbert.text.corpus import write_corpus
from glassbert.text.corpus.resplit import resplit
from glassbert.text.fast import FastTokenizer, load_tokenizer
from glassbert.text.masking import IGNORED
from glassbert.text.new_pieces import choose_pieces, extended
from glassbert.text.vocabulary_training import count_words
from glassbert.text.wordpiece_files import write
from glassbert.training.adapting import paired
from glassbert.training.adapting.extension import rows_of_tokens
from glassbert.training.adapting.mixing import STEPS, TRIALS, MixedWeights, Rise, choose_share, rise_of
from glassbert.training.adapting.paired import Measured, PairedRows
from glassbert.training.history import weights_sentence

# ---- rows ----


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """The same held-out text in old pieces and in new ones."""
    folder = tmp_path_factory.mktemp("pairs")
    rng = random.Random(3)
    words = ["kernel", "socket", "the", "of", "a", "thread", "runs", "ж"]
    documents = ["\n".join(" ".join(rng.choices(words, k=11)) + "." for _ in range(30)) for _ in range(40)]
    plain = [text.replace("kernel", "k lernex xl").replace("ж", "o") for text in documents]
    tokenizer = FastTokenizer.train(plain, vocab_size=48, min_frequency=1)
    description = tokenizer.description
    counts = count_words(iter(documents), description.normaliser).counts
    write(folder / "tokenizer", extended(description, choose_pieces(counts, description, 12)))
    new = write_corpus(folder / "new", load_tokenizer(folder / "tokenizer"), documents, validation=0.3)
    return resplit(new, description, folder / "old", ["validation"]), new


def words_in(corpus, ids):
    tokenizer = corpus.tokenizer
    tokens = [tokenizer.id_to_token(int(one)) for one in ids if one != tokenizer.pad_id]
    return " ".join(tokens).replace(" ##", "").split()


def test_a_row_has_the_same_words_in_both_vocabularies(corpora):
    rows = PairedRows(*corpora, 24)
    every = np.arange(len(rows.spans))
    old, new = (rows._ids(side, every) for side in ("old", "new"))
    lengths = [(ids != corpus.tokenizer.pad_id).sum() for ids, corpus in zip((old, new), corpora, strict=True)]
    assert lengths[1] < lengths[0]  # the new pieces are longer
    for one, other in zip(old, new, strict=True):
        words = [words_in(corpus, ids) for corpus, ids in zip(corpora, (one, other), strict=True)]
        assert words[0] == ["[UNK]" if word == "ж" else word for word in words[1]]
    held_out = corpora[1].split("validation").tokens
    assert (new != corpora[1].tokenizer.pad_id).sum() == held_out + 2 * len(every)  # no token is lost


def test_the_same_words_are_masked_whole_and_unknown_ones_never(corpora):
    rows = PairedRows(*corpora, 24)
    every = np.arange(len(rows.spans))
    chosen = {}
    for side, corpus in zip(("old", "new"), corpora, strict=True):
        batch, count = rows._masked_words(side, every)
        labels, tokenizer = batch["labels"], corpus.tokenizer
        assert (batch["input_ids"][labels != IGNORED] == tokenizer.mask_id).all()
        chosen[side] = [words_in(corpus, row[row != IGNORED]) for row in labels], count
        assert 0.1 * len(rows._maskable) < count < 0.25 * len(rows._maskable)
        # the piece after a masked word begins another word
        after = np.pad((labels != IGNORED)[:, :-1], ((0, 0), (1, 0))) & (labels == IGNORED)
        assert not tokenizer.continues_word[batch["input_ids"]][after].any()
    assert chosen["old"] == chosen["new"]
    assert not any("ж" in words for words in chosen["new"][0])  # unknown to the old vocabulary
    assert any("ж" in words_in(corpora[1], row) for row in rows._ids("new", every))


def test_short_documents_are_in_one_half_only(corpora, monkeypatch):
    monkeypatch.setattr(paired, "BLOCK", 4)
    rows = PairedRows(*corpora, 24)
    halves = [set(rows.half(number, 10**6).tolist()) for number in (0, 1)]
    assert halves[0].isdisjoint(halves[1]) and len(halves[0] | halves[1]) == len(rows.spans) and rows.separate
    blocks = [{int(rows.blocks[row]) for row in half} for half in halves]
    assert blocks[0].isdisjoint(blocks[1])
    for block in np.unique(rows.blocks):
        documents = rows.words["new"].documents[rows.spans[rows.blocks == block] - [0, 1]]
        assert len(np.unique(documents)) == 1
    assert max(np.bincount(rows.blocks)) == 4
    assert len(rows.half(0, 3)) == 3 and set(rows.half(0, 3).tolist()) < halves[0]


def test_one_block_is_both_halves(corpora, monkeypatch):
    rows = PairedRows(*corpora, 24)
    monkeypatch.setattr(rows, "blocks", np.zeros_like(rows.blocks))
    assert not rows.separate and np.array_equal(rows.half(0, 9), rows.half(1, 9))


def test_a_word_that_is_too_long_for_a_row_is_left_out():
    widths, documents = np.array([1, 2, 9, 1, 1, 4, 2]), np.array([0, 0, 0, 0, 0, 1, 1])
    spans, blocks = paired._cut(widths, documents, 5)
    assert spans.tolist() == [[0, 2], [3, 5], [5, 6], [6, 7]] and blocks.tolist() == [0, 0, 1, 1]
    assert len(paired._cut(np.array([9]), np.array([0]), 5)[0]) == 0


# ---- the choice ----


def rises(curve, error=0.0):
    asked = []

    def measure(share):
        asked.append(share)
        return Rise(share, curve(share), error)

    return measure, asked


@pytest.mark.parametrize("limit", [0.0, 0.01, 0.05, 0.09])
@pytest.mark.parametrize("error", [0.0, 0.004])
def test_the_largest_share_within_the_limit_is_found(limit, error):
    measure, asked = rises(lambda share: 0.12 * share**2 - 0.01 * share, error)
    found, tried = choose_share(measure, limit)
    within = [n / STEPS for n in range(STEPS + 1) if 0.12 * (n / STEPS) ** 2 - 0.01 * n / STEPS + error <= limit]
    assert found.share == max(within, default=found.share) and found.keeps(limit) == bool(within)
    assert [one.share for one in tried] == asked and len(asked) <= TRIALS


def test_all_of_the_change_needs_one_evaluation():
    measure, asked = rises(lambda share: -0.2 * share)
    assert choose_share(measure, 0.05)[0].share == 1 and asked == [1.0]


def test_the_start_itself_keeps_a_limit_of_0():
    measure, asked = rises(lambda share: share)
    found, _ = choose_share(measure, 0.0)
    assert found.share == 0 and found.keeps(0.0) and len(asked) <= TRIALS


def test_where_no_share_keeps_the_limit_the_lowest_rise_is_taken():
    measure, _ = rises(lambda share: 0.3 + (share - 0.2) ** 2)
    found, tried = choose_share(measure, 0.05)
    assert not found.keeps(0.05) and found.rise == min(one.rise for one in tried) and found.share < 0.5


def test_a_rise_has_the_error_of_its_groups():
    words = np.array([10, 10, 10, 10])
    before = Measured(np.array([20.0, 30, 20, 30]), words)
    found = rise_of(0.5, before, Measured(before.nats + np.array([1.0, 3, 1, 3]), words))
    assert found.rise == pytest.approx(0.2)
    assert found.error == pytest.approx(np.std([0.1, 0.3, 0.1, 0.3], ddof=1) / 2)
    assert rise_of(1.0, Measured(before.nats[:1], words[:1]), Measured(before.nats[:1], words[:1])).error == 0


# ---- the weights ----


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
@pytest.mark.parametrize("tied", [False, True])
def test_weights_are_mixed_exactly_at_the_ends(engine, tied):
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    config = glassbert.MINI_BERT_CONFIG.replace(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        tie_word_embeddings=tied,
    )  # fmt: skip
    first, second = (glassbert.BertWithHead(config, "mlm", engine=engine, seed=seed) for seed in (1, 2))
    start, trained = ({n: np.array(m.engine.to_numpy(a)) for n, a in m.parameters.items()} for m in (first, second))
    mixed = MixedWeights(second, start)
    for share, wanted in ((0.0, start), (0.25, None), (1.0, trained)):
        mixed.set(share)
        for name, values in second.parameters.items():
            expected = 0.75 * start[name] + 0.25 * trained[name] if wanted is None else wanted[name]
            found = second.engine.to_numpy(values)
            np.testing.assert_allclose(found, expected, rtol=0 if wanted else 1e-5, atol=0 if wanted else 1e-7)


def test_the_sentence_about_the_weights():
    result = {"weights": "last", "weights_step": 9, "steps": 9}
    plain = weights_sentence(result)
    assert weights_sentence({**result, "weights_share": 1.0}) == plain == weights_sentence({**result})
    assert "0.35 of the change" in weights_sentence({**result, "weights_share": 0.35})


@pytest.mark.parametrize("tied", [False, True])
def test_parameters_with_a_row_for_every_token_are_found_by_shape(tied):
    config = glassbert.MINI_BERT_CONFIG.replace(
        vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        tie_word_embeddings=tied,
    )  # fmt: skip
    found = rows_of_tokens(glassbert.BertWithHead(config, "mlm", engine="numpy"))  # many have 16 rows
    assert set(found) == {"embeddings.token", "head.decoder.bias", *([] if tied else ["head.decoder.weight"])}
