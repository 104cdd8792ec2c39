"""Grammar: choices of a model with known probabilities, formats, broken rows, ties."""

import json

import numpy as np
import pytest

from glassbert.errors import TextError
from glassbert.evaluation import SUITES, Options
from glassbert.evaluation.grammar import half_for_ties, mean_of_means, read_pairs
from tests.evaluation.subjects import subject


@pytest.fixture(scope="module")
def unigram():
    """A unigram model: "sings" is probable and "falls" is not, in every context."""
    one = subject()
    for name in ("head.decoder.weight", "head.decoder.bias"):
        one.model.parameters[name] = 0.0
    for word, score in (("sings", 3.0), ("falls", -3.0)):
        one.model.parameters["head.decoder.bias"][one.tokenizer.token_to_id(word)] = score
    return one


def zorro(folder, name, *pairs):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.txt").write_text("".join(f"{bad}\n{good}\n" for good, bad in pairs), encoding="utf-8")


def blimp(folder, name, *rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_the_more_probable_sentence_is_chosen_and_ties_are_halves(unigram, tmp_path):
    zorro(tmp_path / "zorro", "agreement_subject_verb-simple", *[("the bird sings .", "the bird falls .")] * 6)
    zorro(tmp_path / "zorro", "word-order", *[("the bird sings .", "bird the sings .")] * 6)
    zorro(tmp_path / "zorro", "wrong-way", *[("a tree falls .", "a tree sings .")] * 6)
    found = SUITES["grammar"](unigram, Options(data=tmp_path))
    values = {row.name: row.value for row in found.groups["right, by phenomenon"]}
    assert values == {"agreement subject verb, simple": 1.0, "word, order": 0.5, "wrong, way": 0.0}
    assert found["accuracy"].value == 0.5
    assert "18 of 18 pairs of 3 phenomena" in found.notes[0]
    worst = next(table for table in found.tables if "largest margin" in table.title)
    assert worst.rows[0][1:] == ("wrong, way", "a tree falls .", "a tree sings .")


def test_phenomena_have_equal_weight(unigram, tmp_path):
    zorro(tmp_path / "zorro", "a-few", *[("a bird sings .", "a bird falls .")] * 5)
    zorro(tmp_path / "zorro", "b-many", *[("a bird falls .", "a bird sings .")] * 50)
    assert SUITES["grammar"](unigram, Options(data=tmp_path))["accuracy"].value == 0.5


def test_the_score_of_the_changed_words(tmp_path):
    """The score uses the changed word only; in a contextual model the other words change too."""
    one = subject(seed=3)
    zorro(tmp_path / "zorro", "x-y", ("the red house stands .", "the green house stands ."), ("a king .", "king ."))
    found = SUITES["grammar"](one, Options(data=tmp_path))
    pll = {}
    for text in ("the red house stands .", "the green house stands ."):
        ids = np.array(one.tokenizer.encode(text).ids)
        hidden = ids.copy()
        hidden[2] = one.tokenizer.mask_id
        logits = one.model.predict(hidden[None])[0, 2].astype(np.float64)
        pll[text] = logits[ids[2]] - np.log(np.exp(logits).sum())
    first = float(pll["the red house stands ."] > pll["the green house stands ."])
    assert found["accuracy, changed words only"].sample.columns[0][0] == first


def test_blimp_rows_that_are_no_pair_are_counted(unigram, tmp_path):
    good = {"sentence_good": "the bird sings", "sentence_bad": "the bird falls"}
    blimp(tmp_path / "blimp", "wh_island", *[good] * 6, {"sentence_good": "alone"}, {**good, "sentence_bad": "  "},
          {"sentence_good": "same", "sentence_bad": "same"})  # fmt: skip
    found = SUITES["grammar"](unigram, Options(data=tmp_path))
    assert found["accuracy"].value == 1.0
    assert any("3 rows are no pair of two different sentences" in note and "line 7" in note for note in found.notes)


def test_sentences_longer_than_the_model_are_counted(unigram, tmp_path):
    long = "the bird sings and " * 20
    zorro(tmp_path / "zorro", "long-ones", (f"{long} sings .", f"{long} falls ."))
    zorro(tmp_path / "zorro", "short-ones", *[("the bird sings .", "the bird falls .")] * 5)
    found = SUITES["grammar"](unigram, Options(data=tmp_path))
    assert found["right, by phenomenon/long, ones"].reason == "none of its pairs could be scored"
    assert found["accuracy"].value == 1.0
    assert any("2 sentences are longer" in note for note in found.notes)


def test_missing_pairs_and_heads_are_reported(unigram, tmp_path):
    assert "no minimal pairs" in SUITES["grammar"](unigram, Options(data=tmp_path)).skipped_because
    assert "this model has no head" in SUITES["grammar"](subject(None), Options(data=tmp_path)).skipped_because
    with pytest.raises(TextError, match="there is no file or folder"):
        SUITES["grammar"](unigram, Options(pairs=tmp_path / "nowhere"))
    (tmp_path / "odd.txt").write_text("one\ntwo\nthree\n")
    with pytest.raises(TextError, match="an odd number"):
        read_pairs(tmp_path / "odd.txt")
    with pytest.raises(TextError, match="no file of minimal pairs can be used; the first: "):
        SUITES["grammar"](unigram, Options(pairs=tmp_path / "odd.txt"))


def test_a_broken_file_is_a_row_of_the_report(unigram, tmp_path):
    zorro(tmp_path / "zorro", "a-good", *[("a bird sings .", "a bird falls .")] * 5)
    (tmp_path / "zorro" / "b-empty.txt").write_text("")
    (tmp_path / "zorro" / "c-odd.txt").write_text("one\ntwo\nthree\n")
    found = SUITES["grammar"](unigram, Options(data=tmp_path))
    assert found["accuracy"].value == 1.0
    assert found["b, empty"].reason.endswith("is empty") and "an odd number" in found["c, odd"].reason


def test_a_quick_evaluation_uses_a_sample_and_notes_it(unigram, tmp_path):
    zorro(tmp_path / "zorro", "a-b", *[(f"the bird sings {'and ' * (i % 5)}.", "a bird falls .") for i in range(100)])
    found = SUITES["grammar"](unigram, Options(data=tmp_path, quick=True))
    assert found.notes[0] == "60 of 100 pairs of 1 phenomena, a sample"


def test_ties_and_means_of_groups():
    assert half_for_ties(np.array([1.0, -1.0, 0.0, 1e-9])).tolist() == [1.0, 0.0, 0.5, 0.5]
    values, group = np.array([1.0, 1.0, 1.0, 0.0]), np.array([0, 0, 0, 1])
    assert mean_of_means(values, group) == 0.5
    np.testing.assert_allclose(mean_of_means(values, group, np.array([[1, 1, 1, 1], [2, 0, 0, 0.0]])), [0.5, 1.0])
