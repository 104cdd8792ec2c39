"""Language modelling: published masks, measures of a unigram model, and kinds of text."""

import math

import numpy as np
import pytest

from glassbert.errors import TextError
from glassbert.evaluation import SUITES, Options, Subject
from glassbert.evaluation.held_out import MASKS_VERSION, held_out, published_masks, target_positions
from glassbert.evaluation.references import nearest, references
from glassbert.text import FastTokenizer
from glassbert.text.corpus import write_corpus
from tests.evaluation.subjects import subject, tokenizer
from tests.training.toy import make_corpus, make_trainer, texts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus") / "toy"
    write_corpus(folder, tokenizer(), texts(120), validation=0.3)
    return folder


@pytest.fixture(scope="module")
def unigram():
    """A model with equal scores for all words but "the", which gets two nats more."""
    one = subject()
    for name in ("head.decoder.weight", "head.decoder.bias"):
        one.model.parameters[name] = 0.0
    one.model.parameters["head.decoder.bias"][one.tokenizer.token_to_id("the")] = 2.0
    return one


def test_the_published_masks_do_not_change():
    """If this fails, the masks changed: raise MASKS_VERSION and note it in the changelog."""
    ids = (np.arange(240).reshape(4, 60) * 7 % 91 + 5).astype(np.int32)
    seen, labels = published_masks(ids, tokenizer())
    asked = target_positions(labels)
    assert MASKS_VERSION == 1
    assert asked.tolist() == PLACES
    assert {int(at): int(id) for at, id in zip(asked, seen.reshape(-1)[asked], strict=True) if id != 4} == NOT_HIDDEN


PLACES = [
    3, 9, 20, 24, 35, 39, 42, 45, 59, 65, 66, 71, 75, 79, 82, 87, 109, 116, 121, 129, 149, 157, 159, 163, 169, 175, 179,
    180, 194, 199, 202, 204, 213, 220, 222, 231,
]  # fmt: skip
NOT_HIDDEN = {79: 24, 116: 89, 121: 33, 157: 12, 222: 12}


def test_the_mask_of_a_row_does_not_depend_on_the_batch():
    rows = np.random.default_rng(0).integers(5, 96, (9, 30)).astype(np.int32)
    seen, labels = published_masks(rows, tokenizer())
    backwards, _ = published_masks(rows[::-1], tokenizer())
    np.testing.assert_array_equal(seen, backwards[::-1])
    np.testing.assert_array_equal(seen[4], published_masks(rows[4:5].astype(np.int64), tokenizer())[0][0])
    assert 0.1 < (labels != -100).mean() < 0.2


def test_measures_of_a_unigram_model(unigram, corpus):
    found = SUITES["language"](unigram, Options(text=corpus))
    text = held_out(unigram, Options(text=corpus))
    the = unigram.tokenizer.token_to_id("the")
    total = math.log(95 + math.exp(2.0))
    targets = np.concatenate([published_masks(row[None], unigram.tokenizer)[1][0] for row in text.rows])
    targets = targets[targets != -100]
    share = float((targets == the).mean())
    assert found["masked words right"].value == pytest.approx(share)
    assert found["cross-entropy"].value == pytest.approx(total - 2.0 * share, abs=1e-6)
    assert found["perplexity"].value == pytest.approx(math.exp(total - 2.0 * share), rel=1e-6)
    assert "by documents" not in found["masked words right"].note and "documents" in found["masked words right"].note
    low, high = found["cross-entropy"].interval
    assert low < found["cross-entropy"].value < high
    assert [finding.problem for finding in found.findings] == ["The model is worse than word frequencies."]


def test_breakdowns_add_up_to_the_total(unigram, corpus):
    found = SUITES["language"](unigram, Options(text=corpus))
    whole = found["masked words right"].sample
    for group in (
        "right, by frequency of the word",
        "right, by position in the row",
        "right, by what stood in the word's place",
    ):
        rows = found.groups[group]
        assert sum(row.sample.columns[0].sum() for row in rows) == whole.columns[0].sum()
        assert sum(row.sample.columns[1].sum() for row in rows) == whole.columns[1].sum()
    assert [row.name for row in found.groups["right, by position in the row"]][:2] == ["1 to 8", "9 to 16"]


def test_all_of_a_text_file_is_held_out(unigram, tmp_path):
    path = tmp_path / "held-out.txt"
    path.write_text("\n\n".join(texts(30)), encoding="utf-8")
    found = SUITES["language"](unigram, Options(text=path, quick=True))
    assert any("all of held-out.txt counts as held out" in note for note in found.notes)
    assert found["masked words right"].sample is not None and len(found["masked words right"].sample) == 30


def test_few_documents_are_resampled_by_rows(unigram, tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("\n".join(texts(30)), encoding="utf-8")
    found = SUITES["language"](unigram, Options(text=path))
    assert "rows" in found["masked words right"].note


def test_a_corpus_of_another_tokenizer_is_tokenized_again(unigram, tmp_path):
    other = FastTokenizer.train(texts(), vocab_size=80, min_frequency=1)
    write_corpus(tmp_path / "corpus", other, texts(60), validation=0.5)
    found = SUITES["language"](unigram, Options(text=tmp_path / "corpus"))
    assert any("another tokenizer" in note for note in found.notes)
    assert found["perplexity"].value > 1


def test_parts_of_speech_from_a_treebank_and_from_a_broken_one(unigram, corpus, tmp_path):
    sentence = "".join(
        f"{i}\t{word}\t_\t{tag}\t_\t_\t0\troot\t_\t_\n"
        for i, (word, tag) in enumerate([("the", "DET"), ("bird", "NOUN"), ("sings", "VERB")], 1)
    )
    (tmp_path / "toy-dev.conllu").write_text(f"{sentence}\n" * 25 + "1\thello\t_\tINTJ\t_\t_\t0\troot\t_\t_\n\n")
    rows = SUITES["language"](unigram, Options(text=corpus, data=tmp_path)).groups["right, by part of speech"]
    values = {row.name: row.value for row in rows}
    assert values["DET"] == 1.0 and values["NOUN"] == 0.0 and values["INTJ"] is None
    assert next(row for row in rows if row.name == "INTJ").reason == "1 words are too few"
    (tmp_path / "toy-dev.conllu").write_text("1\tthe\tDET\n\n")
    broken = SUITES["language"](unigram, Options(text=corpus, data=tmp_path)).groups["right, by part of speech"]
    assert "line 1" in broken[0].reason and broken[0].value is None


def test_missing_text_and_heads_are_reported(unigram, corpus, tmp_path):
    assert "no held-out text" in SUITES["language"](unigram, Options()).skipped_because
    assert "this model has no head" in SUITES["language"](subject(None), Options(text=corpus)).skipped_because
    with pytest.raises(TextError, match="there is no text"):
        SUITES["language"](unigram, Options(text=tmp_path / "nowhere"))
    write_corpus(tmp_path / "all", tokenizer(), texts(3), validation=0.0)
    assert "the validation split of" in SUITES["language"](unigram, Options(text=tmp_path / "all")).skipped_because


def test_every_reference_has_a_source():
    for kind in ("language", "zorro", "similarity"):
        assert all(one.source and one.model for one in references(kind))
    assert "Mini" in nearest(subject()).model


@pytest.mark.usefixtures("quick_runs")
def test_it_says_why_the_report_of_the_run_has_other_figures(tmp_path):
    run = tmp_path / "run"
    make_trainer(make_corpus(tmp_path / "toy"), run).train()
    opened = Subject.open(run, engine="numpy", threads=2)
    found = SUITES["language"](opened, Options(quick=True, resamples=20))
    loss = opened.history.held_out[0]
    assert any(f"held-out loss of {loss:.3f}" in note and "other masks" in note for note in found.notes)
