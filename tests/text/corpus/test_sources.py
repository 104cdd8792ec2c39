"""Every kind of source gives the same documents, and errors name the file and the line."""

from __future__ import annotations

import builtins
import bz2
import csv
import gzip
import json
import lzma
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from glassbert.errors import TextError
from glassbert.text.corpus import Settings, blocks, documents, read_documents
from tests.text.corpus.sample_corpora import stories, write

STORIES = stories(5)


def read(*sources: Any, **settings: Any) -> list[str]:
    return [text for text in read_documents(sources, Settings(**settings)) if text.strip()]


def assert_error(*sources: Any, match: str, **settings: Any) -> str:
    with pytest.raises(TextError, match=match) as caught:
        read(*sources, **settings)
    return str(caught.value)


@pytest.mark.parametrize("break_", ["\n", "\r\n", "\r"])
def test_text(tmp_path: Path, break_: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(("\ufeff" + "\n\n  \n".join(STORIES)).replace("\n", break_).encode())
    assert [text.strip() for text in read(path)] == STORIES


def test_layouts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", ["one\ntwo", "three"])
    assert read(path) == ["one\ntwo", "three\n"]
    assert read(path, layout="lines") == ["one", "two", "three"]
    assert read(path, layout="file") == ["one\ntwo\n\nthree\n"]
    assert read(path, layout="wrapped") == ["one two\nthree "]


def rows_jsonl(path: Path) -> None:
    path.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(STORIES)) + "\n")


def rows_csv(path: Path) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([["id", "Text"], *([i, text] for i, text in enumerate(STORIES))])


def rows_parquet(path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"id": range(6), "text": [*STORIES, None]}), path, row_group_size=2)


@pytest.mark.parametrize("maker", [rows_jsonl, rows_csv, rows_parquet])
def test_rows(tmp_path: Path, maker: Any) -> None:
    path = tmp_path / f"a.{maker.__name__.removeprefix('rows_')}"
    maker(path)
    assert read(path) == STORIES == read(path, field="Text" if path.suffix == ".csv" else "text")
    assert_error(path, field="body", match="no field 'body'; it has 'id', '[Tt]ext'")


def test_tsv_and_lines_of_plain_json(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('sentence\tlabel\nit is "quoted\t1\n\nplain\t0\n')
    assert read(tmp_path / "a.tsv") == ['it is "quoted', "plain"]
    (tmp_path / "b.tsv").write_text("left\tright\na\tb\n")
    assert_error(tmp_path / "b.tsv", match=r"set --text to the text field \(fields: 'left', 'right'\)")
    (tmp_path / "c.jsonl").write_text('"one"\n"two"\n')
    assert read(tmp_path / "c.jsonl") == ["one", "two"]


@pytest.mark.parametrize("ending", ["gz", "xz", "bz2", "zst"])
def test_compressed(tmp_path: Path, ending: str) -> None:
    plain = "\n\n".join(STORIES).encode()
    if ending == "zst":
        squeeze = pytest.importorskip("zstandard").ZstdCompressor().compress
    else:
        squeeze = {"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}[ending]
    path = tmp_path / f"a.txt.{ending}"
    path.write_bytes(squeeze(plain) + squeeze(b"\n\nA second stream follows the first."))
    assert read(path) == [*STORIES, "A second stream follows the first."]
    path.with_suffix("").write_bytes(path.read_bytes())  # detected from its content
    assert len(read(path.with_suffix(""))) == 6
    whole = squeeze(plain * 30)
    path.write_bytes(whole[: len(whole) // 2])
    assert str(path) in assert_error(path, match="decompressed|truncated")
    path.write_bytes(plain)
    assert_error(path, match=f"is not {ending}-compressed")


def test_folders_and_globs(tmp_path: Path) -> None:
    for name in ("b.txt", "a/c.txt", "a/b.md", ".hidden.txt", "a/picture.png", "a/none.txt"):
        write(tmp_path / name, [] if "none" in name else [name])
    (tmp_path / "a/none.txt").write_bytes(b"")
    assert [text.strip() for text in read(tmp_path)] == ["a/b.md", "a/c.txt", "b.txt"]
    assert [text.strip() for text in read(f"{tmp_path}/**/*.txt")] == ["a/c.txt", "b.txt"]
    assert_error(f"{tmp_path}/*.doc", match=r"no file matches .*\*\.doc")
    assert_error(tmp_path / "b.txt", tmp_path / "b.txt", match=r"b\.txt occurs twice")
    (tmp_path / "empty").mkdir()
    assert_error(tmp_path / "empty", match="contains no text files")


@pytest.mark.parametrize("name", ["nothing.txt", "no/where"])
def test_missing(tmp_path: Path, name: str) -> None:
    assert_error(tmp_path / name, match=f"there is no file or folder .*{name}")


def test_empty(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"")
    assert_error(tmp_path / "a.txt", match=r"a\.txt is empty")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b""))
    assert_error(tmp_path / "b.txt.gz", match=r"b\.txt\.gz is empty")
    (tmp_path / "c.csv.gz").write_bytes(gzip.compress(b""))
    assert_error(tmp_path / "c.csv.gz", match=r"c\.csv\.gz is empty")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv"])
def test_bytes_that_are_not_utf8(tmp_path: Path, name: str) -> None:
    rows = {"a.txt": b"good\n\n%s\n\nlast", "a.jsonl": b'"good"\n"%s"\n"last"', "a.csv": b"text\ngood\n%s\nlast\n"}[
        name
    ]
    path = tmp_path / name
    path.write_bytes(rows % b"bad \xff\xfe")
    line = {"a.txt": 3, "a.jsonl": 2, "a.csv": 3}[name]
    assert_error(path, match=rf"{name}, line {line}: bytes that are not UTF-8 \(ff fe.*--on-bad-text")
    assert read(path, on_bad_text="replace") == ["good", "bad ��", "last"]
    assert read(path, on_bad_text="skip") == ["good", "last"]
    opened = [
        documents.open_block(block, Settings(on_bad_text="skip"))
        for block in blocks.read_blocks(
            0, documents.find_sources([path], Settings())[0], Settings(on_bad_text="skip"), documents.ByteCounter()
        )
    ]
    assert sum(one.unreadable for one in opened) == 1


def test_other_encodings_and_surrogates(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("wide".encode("utf-16"))
    assert read(tmp_path / "a.txt") == ["wide"]
    (tmp_path / "c.txt").write_bytes("Größe und Café".encode("cp1252"))
    assert read(tmp_path / "c.txt") == ["Größe und Café"]
    (tmp_path / "d.txt").write_bytes("Привет, мир".encode("cp1251"))
    assert_error(tmp_path / "d.txt", match="line 1: bytes that are not UTF-8 .* with --encoding")
    assert read(tmp_path / "d.txt", encoding="cp1251") == ["Привет, мир"]
    (tmp_path / "b.jsonl").write_text('"fine"\n"half \\ud800 pair"\n')
    assert_error(tmp_path / "b.jsonl", match="line 2: half of a surrogate pair")
    assert read(tmp_path / "b.jsonl", on_bad_text="replace") == ["fine", "half � pair"]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.jsonl", '{"text": "x"}\n{"text": \n', "line 2: not JSON"),
        ("a.jsonl", '{"text": 5}\n', "line 1: expected a string .* got int"),
        ("a.jsonl", "[" * 100_000, "line 1: not JSON"),
        ("a.csv", 'a,text\n1,"x\n', "not CSV"),
        ("a.csv", "a,text\n1\n", "line 2: 1 columns, but the text is in column 2"),
        ("a.parquet", "PAR1 this is none", "cannot be read as Parquet"),
    ],
)
def test_broken_rows(tmp_path: Path, name: str, content: str, match: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_text(content)
    assert name in assert_error(tmp_path / name, match=match)


def test_a_giant_line_is_cut_at_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 1 << 10)
    monkeypatch.setattr(blocks, "LONGEST", 1 << 13)
    words = [f"wörd{i}" for i in range(10_000)]
    path = tmp_path / "a.txt"
    path.write_text(" ".join(words), encoding="utf-8")
    settings = Settings()
    found = list(blocks.read_blocks(0, documents.find_sources([path], settings)[0], settings, documents.ByteCounter()))
    assert max(block.size for block in found) <= (1 << 13) + (1 << 10) and sum(block.cut for block in found) >= 9
    texts = read(path)
    assert " ".join("".join(texts).split()) == " ".join(words) and all(text[0] == "w" for text in texts)
    path.write_text("ä" * 30_000, encoding="utf-8")  # no space anywhere
    assert "".join(read(path)) == "ä" * 30_000


def test_documents_do_not_depend_on_the_size_of_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.txt", stories(40))
    whole = [text.strip() for text in read(path)]
    for size in (64, 300, 5000):
        monkeypatch.setattr(blocks, "BLOCK", size)
        assert [text.strip() for text in read(path)] == whole


# ---- missing packages and replacements for packages ----


@pytest.mark.parametrize(
    ("package", "name"), [("pyarrow", "a.parquet"), ("zstandard", "a.txt.zst"), ("datasets", "hf:some/set")]
)
def test_missing_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, name: str) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x")
    (tmp_path / "a.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd more")
    monkeypatch.delitem(sys.modules, package, raising=False)
    real = builtins.__import__

    def without(wanted: str, *args: Any, **kwargs: Any) -> Any:
        if wanted.split(".")[0] == package:
            raise ImportError(wanted)
        return real(wanted, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    source = name if name.startswith("hf:") else tmp_path / name
    assert_error(source, match=rf"pip install {package}$")


def fake_datasets(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load))


def test_hugging_face_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def load(path: str, config: str | None, split: str, streaming: bool) -> Any:
        calls.append((path, config, split, streaming))
        return ({"label": 1, "text": text} for text in STORIES)

    fake_datasets(monkeypatch, load)
    assert read("hf:some/set") == STORIES
    assert read("hf:some/set:small:test", field="text") == STORIES
    assert calls == [("some/set", None, "train", True), ("some/set", "small", "test", True)]
    assert_error("hf:some/set", field="label", match="'label' contains int")


def test_hub_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("no route to host")

    fake_datasets(monkeypatch, load)
    assert_error("hf:some/set", match="hf:some/set cannot be read: ConnectionError: no route")


def test_a_name_that_no_path_can_have():
    with pytest.raises(TextError, match="there is no file or folder"):
        list(read_documents(["x" * 5_000], Settings()))
