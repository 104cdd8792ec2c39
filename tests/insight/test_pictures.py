"""Pictures: every built-in insight on a small model, skipped insights, and a user insight."""

import numpy as np
import pytest

from glassbert.errors import ConfigError, InputError
from glassbert.insight import Scene, View, draw_pictures, get_insights, insight, read_texts, untrained
from glassbert.insight.pictures import INSIGHTS
from glassbert.reports import figures
from glassbert.tasks import Table
from tests.insight.specimen import sentences, specimen
from tests.insight.test_syntax import annotated

pytestmark = pytest.mark.skipif(not figures.available(), reason="matplotlib is not installed")


@pytest.fixture(autouse=True)
def small_pictures_and_restored_registry(monkeypatch):
    monkeypatch.setattr("glassbert.insight.pictures.DPI", 30)
    get_insights()
    before = dict(INSIGHTS)
    yield
    INSIGHTS.clear()
    INSIGHTS.update(before)


def scene(**options):
    loaded = specimen(dtype="float32")
    table = annotated(90)
    table.columns["upos"] = [["NOUN" if i % 2 else "VERB" for i in range(len(row))] for row in table.columns["words"]]
    texts = [" ".join(words) for words in table.column("words")]
    given = {"texts": texts, "annotated": table, "sentence": "the [MASK] sings."}
    return Scene([loaded, untrained(loaded)], **{**given, **options})


def test_every_built_in_insight_is_drawn_and_its_arrays_are_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "to_png", lambda figure, path, **options: path.write_text("not drawn"))
    started = []
    drawn = draw_pictures(scene(), tmp_path, get_insights(), on_start=started.append)
    names = [one.insight.name for one in drawn]
    assert started == names == list(INSIGHTS)
    left_out = {one.insight.name: one.skipped_because for one in drawn if one.view is None}
    if "umap" in left_out:
        assert "pip install umap-learn" in left_out.pop("umap")
    assert set(left_out) == {"training", "evolution"} and "no run" in left_out["training"]
    there = [one.insight.name for one in drawn if one.view is not None]
    for name in there:
        assert {f"{name}.npz", f"{name}.png", f"{name}-dark.png"} <= {path.name for path in tmp_path.iterdir()}
        with np.load(tmp_path / f"{name}.npz", allow_pickle=False) as arrays:
            assert all(array.size for array in arrays.values())
    page = (tmp_path / "index.html").read_text()
    assert page.count("<figure>") == len(there) and page.count("Left out") == len(names) - len(there)
    shape = next(one for one in drawn if one.insight.name == "shape")
    assert "There is no intrinsic dimension: 10 different points" in shape.view.caption
    with np.load(tmp_path / "attention.npz", allow_pickle=False) as arrays:
        assert arrays["maps/specimen"].shape == (2, 2, 6, 6)
        assert arrays["maps/specimen"].sum(-1) == pytest.approx(np.ones((2, 2, 6)), abs=1e-5)


def test_one_model_alone_and_texts_without_annotations(tmp_path):
    alone = scene(annotated=None)
    alone = Scene(alone.models[:1], alone.texts, None, alone.sentence)
    chosen = get_insights(["syntax", "geometry", "likeness"])
    drawn = {one.insight.name: one for one in draw_pictures(alone, tmp_path, chosen)}
    assert "CoNLL-U" in drawn["syntax"].skipped_because
    assert drawn["geometry"].view is not None and drawn["likeness"].view is not None


def test_without_texts_only_attention_and_saliency_are_drawn(tmp_path):
    drawn = draw_pictures(scene(texts=(), annotated=None), tmp_path, get_insights())
    assert {one.insight.name for one in drawn if one.view} == {"attention", "saliency"}


def test_an_encoder_without_a_head_still_shows_attention_and_geometry(tmp_path):
    bare = Scene([specimen(head=None)], sentences(40), None, "the [MASK] sings.")
    chosen = get_insights(["attention", "saliency", "geometry", "flow"])
    drawn = draw_pictures(bare, tmp_path, chosen)
    assert {one.insight.name for one in drawn if one.view} == {"attention", "geometry"}


def test_a_user_insight(tmp_path):
    @insight("norms", title="Norms of the embeddings")
    def norms(scene):
        lengths = {one.name: np.linalg.norm(one.model.token_embeddings, axis=1) for one in scene.models}
        counts, edges = np.histogram(lengths["specimen"], 10)
        return View(lengths, lambda: figures.histogram(counts, edges), "Some are long.")

    (drawn,) = draw_pictures(scene(), tmp_path, get_insights(["norms"]))
    assert drawn.view is not None and (tmp_path / "norms.png").exists()
    assert "Norms of the embeddings" in (tmp_path / "index.html").read_text()
    with pytest.raises(ConfigError, match="already"):
        insight("norms", title="again")


@pytest.mark.parametrize("name", ["Norms", "a b", ""])
def test_names_are_lower_case_words(name):
    with pytest.raises(ConfigError, match="one lower-case word"):
        insight(name, title="x")


def test_an_unknown_insight_is_named():
    with pytest.raises(ConfigError, match="no insight 'geometri'; there are attention"):
        get_insights(["geometri"])


def test_an_insight_must_return_a_view():
    @insight("wrong", title="Wrong")
    def wrong(scene):
        return 3

    with pytest.raises(InputError, match="must return a View, got int"):
        wrong(scene())


def test_texts_come_from_lines_annotations_or_a_corpus(tmp_path):
    from tests.training.toy import make_corpus

    (tmp_path / "lines.txt").write_text("one two\n\n  three \n")
    assert read_texts(tmp_path / "lines.txt") == ["one two", "three"]
    row = "1\tKings\tking\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
    (tmp_path / "a.conllu").write_text("# text = Kings\n" + row)
    assert read_texts(tmp_path / "a.conllu") == ["Kings"]
    texts = read_texts(make_corpus(tmp_path / "corpus"), limit=7)
    assert len(texts) == 7 and all(text.strip() for text in texts)
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(Exception, match="empty"):
        read_texts(tmp_path / "empty.txt")


def test_a_table_without_tags_is_an_error(tmp_path):
    table = Table({"words": [["the"]], "head": [[0]], "deprel": [["root"]]}, "here", [1])
    (drawn,) = draw_pictures(scene(annotated=table, texts=["the"]), tmp_path, get_insights(["geometry"]))
    assert "upos" in drawn.skipped_because
