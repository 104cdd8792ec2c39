"""Probes: labels, control tasks, baselines, measures and the suite."""

import numpy as np
import pytest

from glassbert import MINI_BERT_CONFIG, Model
from glassbert.errors import ConfigError, InputError
from glassbert.evaluation import SUITES, Options, Subject
from glassbert.evaluation.probes import (
    TASKS,
    Features,
    Scorer,
    column_task,
    fit_linear,
    get_task,
    probe,
    probe_task,
    word_vectors,
)
from glassbert.evaluation.probes.fitting import Extent, Vectors, best_layer, some_sentences
from glassbert.evaluation.probes.questions import control, control_heads, majority, majority_heads, make_questions
from glassbert.evaluation.probes.results import ALL, HIDDEN, MIX, RANDOM, TRAINED
from glassbert.evaluation.probes.softmax_regression import BASELINE_TOLERANCE
from glassbert.tasks import read_table
from glassbert.tasks.table import Table
from glassbert.text import WordPieceTokenizer

NOUNS, VERBS, NAMES = ["bird", "tree", "river", "stone"], ["sings", "falls", "stands", "runs"], ["anna", "paul"]


def annotated(count, seed, extra=()):
    """Sentences such as "the bird sings", whose labels follow from words and order."""
    generator = np.random.default_rng(seed)
    blocks = []
    for _ in range(count):
        noun, verb = generator.choice(NOUNS), generator.choice(VERBS)
        rows = [("the", "DET", 2, "det"), (noun, "NOUN", 3, "nsubj"), (verb, "VERB", 0, "root")]
        if generator.random() < 0.5:
            rows += [(str(generator.choice(NAMES)), "PROPN", 3, "obj:x")]
        blocks.append(rows)
    blocks += extra
    return "\n\n".join(
        "\n".join(f"{i}\t{w}\t_\t{t}\t_\t_\t{h}\t{r}\t_\t_" for i, (w, t, h, r) in enumerate(rows, 1))
        for rows in blocks
    )


NEW = [[("wolves", "NOUN", 2, "nsubj"), ("howl", "VERB", 0, "root"), ("!", "SYM", 2, "punct")]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("treebank")
    (folder / "x-train.conllu").write_text(annotated(60, 0), encoding="utf-8")
    (folder / "x-dev.conllu").write_text(annotated(12, 1, NEW), encoding="utf-8")
    tagged = "anna B-PER\nsings O\n\nthe O\nriver B-LOC\nfalls I-LOC\nruns O\n\n"
    (folder / "y-train.conll").write_text(tagged * 10, encoding="utf-8")
    (folder / "y-dev.conll").write_text(tagged * 3, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def tables(folder):
    return read_table(folder / "x-train.conllu"), read_table(folder / "x-dev.conllu")


@pytest.fixture(scope="module")
def subject():
    words = ["the", *NOUNS, *VERBS, *NAMES]
    tokenizer = WordPieceTokenizer.train([" ".join(words), "wolves howl !"] * 3, 60, min_frequency=1)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = MINI_BERT_CONFIG.replace(vocab_size=tokenizer.vocab_size, max_position_embeddings=16, **sizes)
    return Subject("toy", Model(config, "mlm", engine="numpy", threads=1), tokenizer)


# ---- questions ---------------------------------------------------------------------------------------------------


def test_questions_share_labels_and_types(tables):
    train, dev = make_questions(TASKS["pos"], *tables)
    assert train.names == ("DET", "NOUN", "PROPN", "VERB")
    assert dev.unseen == 1  # SYM
    assert len(np.unique(train.types)) == 11
    assert dev.types.max() == 13  # three forms more


def test_words_without_a_label_are_skipped(tables):
    train, _ = make_questions(TASKS["relations"], *tables)
    assert train.names == ("det", "nsubj", "obj")  # subtypes cut, the root left out
    assert (train.heads != train.words).all()


def test_control_labels_are_per_word_type(tables):
    train, dev = make_questions(TASKS["pos"], *tables)
    drawn, dev_drawn = control(train, dev, seed=3)
    for kind in np.unique(drawn.types):
        assert len(np.unique(drawn.labels[drawn.types == kind])) == 1
        assert set(dev_drawn.labels[dev_drawn.types == kind]) <= set(drawn.labels[drawn.types == kind])
    again, _ = control(train, dev, seed=3)
    np.testing.assert_array_equal(drawn.labels, again.labels)
    assert (control(train, dev, seed=4)[0].labels != drawn.labels).any()


def test_control_heads_are_self_first_or_last(tables):
    train, dev = make_questions(TASKS["heads"], *tables)
    drawn, _ = control_heads(train, dev)
    place = train.words - train.starts[train.sentences]
    last = np.diff(train.starts)[train.sentences] - 1
    assert ((drawn.labels == place) | (drawn.labels == 0) | (drawn.labels == last)).all()


def test_majority_by_word_type(tables):
    train, dev = make_questions(TASKS["pos"], *tables)
    answers = majority(train, dev)
    known = np.isin(dev.types, train.types)
    assert (answers[known] == dev.labels[known]).all()
    assert set(answers[~known]) == {np.bincount(train.labels).argmax()}  # the commonest of all


def test_majority_of_heads_is_a_distance(tables):
    train, dev = make_questions(TASKS["heads"], *tables)
    answers = majority_heads(train, dev)
    known = np.isin(dev.types, train.types)
    assert (answers == dev.labels)[known].mean() == 1
    sizes = np.diff(dev.starts)[dev.sentences]
    assert ((answers >= 0) & (answers < sizes)).all()


def test_whole_sentences_are_sampled(tables):
    train, _ = make_questions(TASKS["pos"], *tables)
    some = some_sentences(train, 40, seed=0)
    assert 40 <= len(some) <= 44
    for sentence in np.unique(some.sentences):
        assert (some.sentences == sentence).sum() == (train.sentences == sentence).sum()


@pytest.mark.parametrize("value", ["x", None])
def test_a_single_label_is_an_error(tables, value):
    task = column_task("upos")
    same = Table(
        {**tables[0].columns, "upos": [[value] * len(w) for w in tables[0].column("words")]}, "f", tables[0].lines
    )
    with pytest.raises(InputError, match=r"f: .* needs at least two labels and finds (only 'x'|none)"):
        make_questions(task, same, tables[1])


# ---- user tasks --------------------------------------------------------------------------------------------------


def test_a_probe_is_one_function(tables):
    @probe("long-words", title="Is the word long?")
    def long_words(table):
        return [["long" if len(word) > 4 else "short" for word in words] for words in table.column("words")]

    try:
        assert get_task("long-words") is long_words
        assert make_questions(long_words, *tables)[0].names == ("long", "short")
        with pytest.raises(ConfigError, match="already"):
            probe("long-words", title="")
    finally:
        del TASKS["long-words"]


def test_a_column_is_a_task(tables):
    assert make_questions(get_task("deprel", tables[0]), *tables)[0].names == ("det", "nsubj", "obj:x", "root")
    with pytest.raises(ConfigError, match="there are pos, ner"):
        get_task("sentiment", tables[0])


def test_labels_must_fit_the_words(tables):
    @probe("wrong", title="")
    def wrong(table):
        return [words[1:] for words in table.column("words")]

    try:
        with pytest.raises(InputError, match=r"line 1: .* gives 2 labels for 3 words|gives 3 labels for 4 words"):
            make_questions(wrong, *tables)
    finally:
        del TASKS["wrong"]


# ---- all together ------------------------------------------------------------------------------------------------


def test_all_probes_of_a_task(tables, subject):
    vectors = {
        name: Vectors(*(word_vectors(who.model, who.tokenizer, table.column("words")) for table in tables))
        for name, who in ((TRAINED, subject), (RANDOM, subject.untrained()))
    }
    calls = []
    found = probe_task(TASKS["pos"], *tables, vectors, progress=lambda *given: calls.append(given))
    assert [(one.view, one.probe) for one in found.probed if one.encoder == RANDOM] == [
        *((view, "linear") for view in ("embeddings", "layer 1", "layer 2", MIX, ALL))
    ]
    assert found.of(MIX, HIDDEN) is not None and found.of(ALL, HIDDEN) is None
    assert all((one.control is not None) == (one.encoder == TRAINED) for one in found.probed)
    assert calls[-1][:2] == (100, 100) and [done for done, _, _ in calls] == sorted(done for done, _, _ in calls)
    scorer = Scorer(found, resamples=50)
    linear = found.of("embeddings")
    measured = scorer.accuracy(linear.answers)
    assert measured.value == pytest.approx((linear.answers == found.dev.labels).mean())
    assert measured.value > 0.9 and measured.interval is not None
    chosen = scorer.selectivity(linear)
    assert chosen.value == pytest.approx(measured.value - (linear.control == found.control.labels).mean())
    drawn, _ = control(found.train, found.dev)
    again = fit_linear(
        Features.of(vectors[TRAINED].train.layers[:1]), drawn.labels, len(drawn.names), found.l2, BASELINE_TOLERANCE
    )
    expected = again.scores(Features.of(vectors[TRAINED].dev.layers[:1])).argmax(1)
    np.testing.assert_array_equal(linear.control, expected)
    unknown = scorer.unknown(linear.answers)
    assert unknown.value == pytest.approx((linear.answers == found.dev.labels)[~found.known].mean())
    assert any("1 words have labels" in note for note in found.notes)


@pytest.mark.parametrize("name", ["pos", "heads"])
def test_a_usual_evaluation_fits_controls_and_random_weights_on_one_view(tables, subject, name):
    vectors = {
        name: Vectors(*(word_vectors(who.model, who.tokenizer, table.column("words")) for table in tables))
        for name, who in ((TRAINED, subject), (RANDOM, subject.untrained()))
    }
    calls = []
    few = probe_task(TASKS[name], *tables, vectors, extent=Extent(every_layer=False),
                     progress=lambda *given: calls.append(given))  # fmt: skip
    every = probe_task(TASKS[name], *tables, vectors)
    view = ALL if name == "pos" else best_layer(every)
    done = [given[0] for given in calls]
    assert done == sorted(done) and done[-1] == 100
    assert {one.view for one in few.probed if one.encoder == RANDOM} == {view}
    assert {one.view for one in few.probed if one.control is not None} == {view}
    assert {one.view for one in few.probed if one.probe == HIDDEN} == ({MIX} if name == "pos" else set())
    for one in few.probed:  # what is fitted is the same
        same = every.of(one.view, one.probe, one.encoder)
        np.testing.assert_array_equal(one.answers, same.answers)
        if one.control is not None:
            np.testing.assert_array_equal(one.control, same.control)


def test_scores_of_spans(folder, subject):
    tables = [read_table(folder / f"y-{name}.conll") for name in ("train", "dev")]
    pair = Vectors(*(word_vectors(subject.model, subject.tokenizer, table.column("words")) for table in tables))
    found = probe_task(TASKS["ner"], *tables, {TRAINED: pair}, extent=Extent(hidden_on_mix=False))
    scorer = Scorer(found, resamples=20)
    assert scorer.main(found.dev.labels, "all").value == 1
    outside = np.full(len(found.dev), found.dev.names.index("O"))
    assert scorer.main(outside, "none").value == 0
    half = np.where(found.dev.labels == found.dev.names.index("B-PER"), found.dev.names.index("O"), found.dev.labels)
    assert scorer.main(half, "half").value == pytest.approx(2 / 3)


def test_the_suite(folder, subject):
    found = SUITES["probes"](subject, Options(data=folder, resamples=20))
    assert not found.skipped_because
    names = [row.name for row in found.main]
    assert {f"{task}: best layer" for task in ("pos", "ner", "relations", "heads")} <= set(names)
    assert {"pos: all layers", "pos: mix", "pos: selectivity", "pos: random weights", "pos: unknown words"} <= set(
        names
    )
    assert found["heads: undirected tree"].value is not None
    assert len(found.tables) == 4 and len(found.figures) == 5
    assert found.as_json()["measures"]


def test_quick_uses_a_sample_and_notes_it(folder, subject):
    found = SUITES["probes"](subject, Options(data=folder, quick=True, resamples=20))
    assert all(row.name.startswith("pos") or row.group.startswith("pos") for row in found.rows)
    assert any(note.startswith("quick:") for note in found.notes)


def test_missing_and_broken_files_are_reported(tmp_path, subject):
    assert "--data" in SUITES["probes"](subject, Options()).skipped_because
    (tmp_path / "a-train.conllu").write_text("1\tonly three\tcolumns\n", encoding="utf-8")
    (tmp_path / "a-dev.conllu").write_text(annotated(2, 0), encoding="utf-8")
    found = SUITES["probes"](subject, Options(data=tmp_path, quick=True))
    assert "line 1: 3 columns" in found.rows[0].reason
    assert found.rows[0].value is None


def test_pictures_are_drawn(folder, subject):
    pytest.importorskip("matplotlib")
    found = SUITES["probes"](subject, Options(data=folder, quick=True, resamples=20))
    for picture in found.figures:
        assert picture.draw().axes and picture.caption


def test_the_command(folder, subject, tmp_path, capsys):
    from glassbert.cli.probe import run

    subject.model.save(tmp_path / "model")
    subject.tokenizer.save(tmp_path / "model")
    files = {"train": folder / "x-train.conllu", "dev": folder / "x-dev.conllu"}
    options = {"quick": True, "details": True, "resamples": 100, "engine": "numpy", "threads": 1}
    run(str(tmp_path / "model"), only=["upos"], output=tmp_path / "report", **files, **options)
    shown = capsys.readouterr().out
    assert "upos: best layer" in shown and "layer 2" in shown
    assert list((tmp_path / "report").glob("*.html"))
    with pytest.raises(ConfigError, match="columns are words"):
        run(str(tmp_path / "model"), only=["nothing"], output=None, **files, **options)
