"""The index of texts: what it finds, what it refuses, and that a damaged or half-written one is noticed."""

import io
import json
import sys
from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import glassbert.search.index as index_module
from glassbert.cli import main
from glassbert.errors import InputError
from glassbert.files import atomic_write, locked_folder
from glassbert.finetuning.embedding import embedder, truncated, write_vectors
from glassbert.search.index import MANIFEST, VectorIndex, choose_expansion
from glassbert.search.vectors import TextVectors, gather_vectors

TEXTS = [f"{who} {what} the {thing}" for who in ("a bird", "the king", "rain") for what in ("saw", "left") for thing in
         ("river", "hill", "old town", "letter")]  # fmt: skip


def run(*arguments) -> int:
    try:
        main([str(one) for one in arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture(scope="module")
def predictor():
    return embedder("mini", threads=1)


@pytest.fixture(scope="module")
def found(predictor) -> TextVectors:
    return TextVectors(TEXTS, predictor.predict(TEXTS).vectors.astype(np.float32), "mini", "f" * 64, "texts.txt")


def random_vectors(count: int, dimensions: int = 24, seed: int = 0) -> TextVectors:
    vectors = np.random.default_rng(seed).normal(size=(count, dimensions))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return TextVectors([f"text {seed} {n}" for n in range(count)], vectors.astype(np.float32), "mini", "f" * 64, "some")


def test_a_text_finds_itself_first(found, tmp_path):
    index = VectorIndex.build(tmp_path / "index", found)
    hits = index.search(found.vectors, 3)
    assert [one[0].text for one in hits] == TEXTS
    assert all(abs(one[0].score - 1) < 1e-5 and one[0].source == "texts.txt" for one in hits)


def test_the_order_is_that_of_exact_search(tmp_path):
    some = random_vectors(600)
    index = VectorIndex.build(tmp_path / "index", some)
    queries = random_vectors(20, seed=9).vectors
    cosines = queries @ some.vectors.T
    for query, hits in enumerate(index.search(queries, 10)):
        assert [hit.number for hit in hits] == np.argsort(-cosines[query])[:10].tolist()
        assert np.allclose([hit.score for hit in hits], np.sort(cosines[query])[::-1][:10], atol=1e-5)
    assert index.manifest["recall"]["value"] >= 0.99


def test_recall_is_measured_and_the_search_is_widened():
    class Narrow:
        """A search that finds all neighbours only when it is wide."""

        expansion_search = 64

        def __init__(self, vectors):
            self.vectors = vectors

        def search(self, vector, count, threads):
            order = np.argsort(-(self.vectors @ vector))
            found = order[:count] if self.expansion_search >= 256 else order[::2][:count]
            return type("Matches", (), {"keys": found})

    vectors = random_vectors(100).vectors
    graph = Narrow(vectors)
    recall = choose_expansion(graph, vectors)
    assert (graph.expansion_search, recall["value"]) == (256, 1.0)
    Narrow.search = lambda self, vector, count, threads: type("Matches", (), {"keys": np.arange(count)})
    assert choose_expansion(Narrow(vectors), vectors)["value"] < 0.5


def test_added_texts_are_found_and_copies_are_not_doubled(tmp_path):
    first, second = random_vectors(50), random_vectors(30, seed=1)
    index = VectorIndex.build(tmp_path / "index", first)
    again = index.add(second).add(first)
    assert len(again) == 80
    assert again.manifest["left_out"] == 50
    assert again.search(second.vectors[:1], 1)[0][0].text == second.texts[0]
    assert sorted(path.name.split(".")[0] for path in (tmp_path / "index").iterdir()) == [
        *("index", "offsets", "texts", "vectors"),
    ]


def test_the_same_texts_give_the_same_files(found, tmp_path):
    for name in ("one", "two"):
        VectorIndex.build(tmp_path / name, found)
    contents = [{p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "two")]
    assert contents[0] == contents[1]


def test_a_change_that_is_interrupted_leaves_the_index_as_it_was(tmp_path, monkeypatch):
    index = VectorIndex.build(tmp_path / "index", random_vectors(20))

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("glassbert.search.index.write_json", full)
    with pytest.raises(OSError, match="No space"):
        index.add(random_vectors(5, seed=1))
    assert len(VectorIndex.open(tmp_path / "index")) == 20


def test_an_interrupted_build_is_begun_again(tmp_path):
    folder = tmp_path / "index"
    VectorIndex.build(folder, random_vectors(20))
    (folder / MANIFEST).unlink()  # the last file that is written
    (folder / ".vectors.1.usearch.abcdefgh.part").write_bytes(b"1")
    assert len(VectorIndex.build(folder, random_vectors(30))) == 30
    (folder / MANIFEST).unlink()
    (folder / "letter.txt").write_text("mine")
    with pytest.raises(InputError, match="something else than an index"):
        VectorIndex.build(folder, random_vectors(30))


def test_one_process_at_a_time_writes(tmp_path):
    some = random_vectors(20)
    index = VectorIndex.build(tmp_path / "index", some)
    with locked_folder(tmp_path / "index"), pytest.raises(InputError, match="another process is writing the index"):
        index.add(random_vectors(5, seed=1))
    index.add(random_vectors(5, seed=1))
    with pytest.raises(InputError, match="has changed since it was opened"):
        index.add(random_vectors(5, seed=2))
    assert len(VectorIndex.open(tmp_path / "index")) == 25


def test_an_open_index_stays_as_it_is_while_another_process_adds(tmp_path):
    some = random_vectors(20)
    opened = VectorIndex.build(tmp_path / "index", some)
    VectorIndex.open(tmp_path / "index").add(random_vectors(5, seed=1))
    assert [hits[0].text for hits in opened.search(some.vectors, 1)] == some.texts


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("t.csv", ["embed", "t.csv", "-o", "./t.csv"]),
        ("v.texts.jsonl", ["embed", "v.texts.jsonl", "-o", "v.npy"]),
        ("t.csv", ["predict", "mini", "--file", "t.csv", "--output", "link.csv"]),
        ("clusters.csv", ["cluster", "clusters.csv", "-o", "."]),
    ],
)
def test_the_input_is_not_replaced(name, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("text\nriver\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "t.csv")
    assert run(*command) == 2
    assert "is the input, and would be replaced" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "text\nriver\n"


def test_texts_that_are_cut_are_counted(predictor, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    length = predictor.model.config.max_length
    (tmp_path / "texts.txt").write_text(f"{'river ' * (length - 2)}\n{'river ' * (length - 1)}\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "texts.txt").write_bytes((tmp_path / "texts.txt").read_bytes())
    note = "Note: 1 texts are longer than the model reads at once"
    for command in (
        ["embed", "texts.txt", "-o", "v.npy"],
        ["index", "texts.txt", "-o", "i"],
        ["embed", "folder", "-o", "v"],
    ):
        assert run(*command, "--threads", "1") == 0
        assert note in capsys.readouterr().err


def test_texts_of_standard_input_in_another_encoding(tmp_path, monkeypatch, capsys):
    for options, content in (
        ([], "a café\nriver\n".encode("latin-1")),
        (["--encoding", "cp1251"], "река\n".encode("cp1251")),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert run("embed", "-", "-o", tmp_path / "v.jsonl", "--threads", "1", *options) == 0
    assert json.loads((tmp_path / "v.jsonl").read_text().splitlines()[0])["text"] == "река"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"river\n")))
    assert run("embed", "-", "-o", tmp_path / "v.jsonl", "--text", "body") == 2
    assert "stdin has one text per line; remove --text" in capsys.readouterr().err


@pytest.mark.parametrize("changes", [1, 100])
def test_an_index_that_changes_while_it_is_opened(changes, tmp_path, monkeypatch):
    VectorIndex.build(tmp_path / "index", random_vectors(20))
    left, read = [changes], index_module._read_manifest

    def read_and_change(folder):
        found = read(folder)
        if left[0] > 0:
            left[0] -= 1
            some = random_vectors(20, seed=left[0] + 1)
            index_module._write(folder, index_module._new_graph(some.dimensions), [], some)
        return found

    monkeypatch.setattr(index_module, "_read_manifest", read_and_change)
    if changes == 1:
        assert len(VectorIndex.open(tmp_path / "index")) == 20
    else:
        with pytest.raises(InputError, match="was changed 5 times while it was opened"):
            VectorIndex.open(tmp_path / "index")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": 3}'])
def test_a_broken_manifest_can_be_overwritten(content, tmp_path):
    VectorIndex.build(tmp_path / "index", random_vectors(20))
    (tmp_path / "index" / MANIFEST).write_text(content)
    with pytest.raises(InputError):
        VectorIndex.open(tmp_path / "index")
    assert len(VectorIndex.build(tmp_path / "index", random_vectors(5), overwrite=True)) == 5
    assert len(list((tmp_path / "index").iterdir())) == 4


@pytest.mark.parametrize(
    "changes",
    [{"files": None}, {"files": {"../a": {}, "b": {}, "c": {}}}, {"dimensions": -1}, {"dimensions": 7}, {"texts": 3},
     {"expansion": "x"}, {"model": None}],
)  # fmt: skip
def test_a_manifest_that_no_index_has_is_a_sentence(changes, tmp_path):
    VectorIndex.build(tmp_path / "index", random_vectors(20))
    path = tmp_path / "index" / MANIFEST
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_text(json.dumps({**content, **changes}))
    with pytest.raises(InputError, match=r"damaged|do not belong together"):
        VectorIndex.open(tmp_path / "index")


def test_what_does_not_fit_is_a_sentence(tmp_path):
    index = VectorIndex.build(tmp_path / "index", random_vectors(20))
    with pytest.raises(InputError, match="was built with another model"):
        index.add(replace(random_vectors(5), fingerprint="0" * 64))
    with pytest.raises(InputError, match="add --dimensions 24"):
        index.add(random_vectors(5, dimensions=8))
    with pytest.raises(InputError, match="vectors of 24 dimensions"):
        index.search(np.zeros((1, 8)))
    with pytest.raises(InputError, match="is an index already"):
        VectorIndex.build(tmp_path / "index", random_vectors(5))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="something else than an index"):
        VectorIndex.build(tmp_path / "other", random_vectors(5))
    with pytest.raises(InputError, match="is no index"):
        VectorIndex.open(tmp_path / "other")


@pytest.mark.parametrize("name", ["vectors.1.usearch", "texts.1.jsonl", "offsets.1.npy", MANIFEST])
def test_a_changed_file_is_noticed(name, tmp_path):
    VectorIndex.build(tmp_path / "index", random_vectors(20))
    path = tmp_path / "index" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError):
        VectorIndex.open(tmp_path / "index")
    path.unlink()
    with pytest.raises(InputError, match=r"is missing|is no index"):
        VectorIndex.open(tmp_path / "index")


# ---- files of vectors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".jsonl", ".csv", ".tsv"])
def test_vectors_of_every_format_come_back(ending, found, predictor, tmp_path):
    path = tmp_path / f"v{ending}"
    write_vectors(path, found.texts, truncated(found.vectors, 16), made_by={"model": "mini"})
    back = gather_vectors(path, "mini", predictor=predictor)
    assert back.texts == found.texts
    assert back.dimensions == 16
    assert np.abs(back.vectors - truncated(found.vectors, 16)).max() < 1e-6
    assert np.allclose(np.linalg.norm(back.vectors, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("ending", [".npy", ".parquet", ".jsonl", ".csv", ".tsv"])
def test_texts_of_vectors_are_those_that_were_written(ending, predictor, tmp_path):
    for number, texts in enumerate(
        (['say "yes"', '"quoted"', "a\tb", "two\nlines", 'end "', 'the word "vector"'], ["1,5", "2,25", "1.234,5"])
    ):
        path = tmp_path / f"{number}{ending}"
        write_vectors(path, [*texts, " "], predictor.predict([*texts, " "]).vectors)
        back = gather_vectors(path, "mini", predictor=predictor)
        assert back.texts == texts
        assert back.notes == ("1 empty texts are left out",)


def test_a_text_about_a_vector_is_a_text(predictor, tmp_path):
    lines = [{"text": "vector"}, {"text": "another", "vector": "mosquito"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert gather_vectors(tmp_path / "a.jsonl", "mini", predictor=predictor).texts == [one["text"] for one in lines]


def test_vectors_of_another_model_are_noticed(found, predictor, tmp_path):
    turned = found.vectors[:, ::-1]
    for name, vectors, sentence in (
        ("a.npy", turned, "are not those of mini"),
        ("b.npy", np.concatenate([turned, turned], 1), "384 dimensions, and mini has 192"),
    ):
        write_vectors(tmp_path / name, found.texts, vectors)
        with pytest.raises(InputError, match=sentence):
            gather_vectors(tmp_path / name, "mini", predictor=predictor)


def test_files_of_vectors_that_cannot_be_used(found, tmp_path):
    np.save(tmp_path / "alone.npy", found.vectors)
    write_vectors(tmp_path / "cut.npy", found.texts[1:], found.vectors)
    write_vectors(tmp_path / "nan.npy", found.texts, found.vectors * np.nan)
    pyarrow.parquet.write_table(
        pyarrow.table({"text": ["a", "b"], "vector": [[1.0], [1.0, 2.0]]}), tmp_path / "r.parquet"
    )
    (tmp_path / "folder").mkdir()
    (tmp_path / "gap.csv").write_text("text,v0,v1\nriver,1,0\nhill,,1\n")
    (tmp_path / "word.tsv").write_text("text\tv0\tv1\nriver\t1\tnone\n")
    table = pyarrow.table({"text": ["a"], "vector": [[1.0]]})
    for name, content in (("list", "[1]"), ("broken", "{")):
        pyarrow.parquet.write_table(table.replace_schema_metadata({"glassbert": content}), tmp_path / f"{name}.parquet")
    (tmp_path / "lost").mkdir()
    (tmp_path / "lost" / "_job.json").write_text('{"kind": "embed"}')
    (tmp_path / "lost" / "_done.json").write_text("{}")
    for name, sentence in (
        ("gap.csv", "line 3: the column v0 must hold a number, got ''"),
        ("word.tsv", "line 2: the column v1 must hold a number, got 'none'"),
        ("list.parquet", "the metadata 'glassbert' are no JSON object"),
        ("broken.parquet", "the metadata 'glassbert' are no JSON object"),
        ("lost", "has no parts"),
        ("alone.npy", "has no texts"),
        ("cut.npy", "24 vectors and 23 texts"),
        ("nan.npy", "not finite"),
        ("r.parquet", "lists of one length"),
        ("folder", "is no folder that glassbert embed wrote"),
        ("nowhere.txt", "there is no file"),
    ):
        with pytest.raises(ValueError, match=sentence):
            gather_vectors(tmp_path / name, "mini")


def test_dimensions_are_cut_and_have_unit_length(found):
    cut = truncated(found.vectors, 10)
    first = found.vectors[:, :10]
    assert np.allclose(cut, first / np.linalg.norm(first, axis=1, keepdims=True), atol=1e-6)
    for wrong in (0, 193):
        with pytest.raises(InputError, match="from 1 to 192"):
            truncated(found.vectors, wrong)


# ---- commands --------------------------------------------------------------------------------------------------------


def test_from_a_file_to_an_answer(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with atomic_write("texts.txt") as file:
        file.write("\n".join([*TEXTS, TEXTS[0]]))
    assert run("embed", "texts.txt", "-o", "v.parquet", "--dimensions", "32", "--threads", "1") == 0
    assert run("index", "v.parquet", "-o", "index", "--threads", "1") == 0
    shown = capsys.readouterr().out
    assert "24 texts (24 added, 1 were there already), 32 dimensions" in shown
    assert "recall@10 against exact search: 100.0%" in shown
    assert run("search", "index", TEXTS[3], TEXTS[5], "-k", "2", "--json", "--threads", "1") == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["hits"][0]["text"] for one in answers] == [TEXTS[3], TEXTS[5]]
    assert all(len(one["hits"]) == 2 for one in answers)
    (tmp_path / "more.txt").write_text("a ship of the line\n")
    assert run("index", "more.txt", "-o", "index", "--add", "--threads", "1") == 0
    assert run("search", "index", "a ship of the line", "-k", "1", "--threads", "1") == 0
    assert "1.000  a ship of the line" in capsys.readouterr().out
    assert run("index", "texts.txt", "-o", "index") == 2
    assert "--add adds to it" in capsys.readouterr().err
    assert run("search", "index", " ") == 2
    (tmp_path / "empty.csv").write_text('text,n\n"",1\n"",2\n')
    assert run("index", "empty.csv", "-o", "other") == 2
    assert "has no text: all 2 rows are empty" in capsys.readouterr().err


def test_questions_from_standard_input(tmp_path, monkeypatch, capsys, found, predictor):
    from glassbert.finetuning.embedding import fingerprint

    VectorIndex.build(tmp_path / "index", replace(found, fingerprint=fingerprint(predictor, "mini")))
    given = f"{TEXTS[1]}\n\n{TEXTS[2]}\ncafé\n".encode("latin-1")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert run("search", tmp_path / "index", "-k", "1", "--json", "--threads", "1") == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["hits"][0]["text"] for one in answers[:2]] == TEXTS[1:3]
    assert answers[2]["question"] == "café"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"river\n\x81\xff\n")))
    assert run("search", tmp_path / "index", "-k", "1", "--threads", "1") == 2
    assert "line 2 of standard input is not UTF-8" in capsys.readouterr().err
    VectorIndex.build(tmp_path / "other", found)
    assert run("search", tmp_path / "other", "a question") == 2
    assert "was built with another model (mini) than mini" in capsys.readouterr().err


def test_a_plain_install_names_the_package(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "usearch", None)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    (tmp_path / "texts.txt").write_text("one\n")
    assert run("index", tmp_path / "texts.txt", "-o", tmp_path / "index") == 2
    assert "an index needs usearch: pip install usearch" in capsys.readouterr().err
