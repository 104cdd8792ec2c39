"""Jobs over folders of files: every row once, resumed, and refused with a sentence where the input is wrong."""

import gzip
import json
import os
import pickle
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from glassbert.bulk.answers import with_answers
from glassbert.bulk.inputs import InputFile, Inputs, Reader, find_inputs, read_parquet_rows
from glassbert.bulk.job import DONE, JOB, Worker, here, run_job
from glassbert.bulk.storage import Storage, leading, matching
from glassbert.checkpoints.packaged import packaged_folder
from glassbert.cli import main
from glassbert.errors import InputError
from glassbert.finetuning.embedding import embedder, truncated


@pytest.fixture(scope="module")
def predictor():
    return embedder("mini", threads=1)


def write(path: Path, texts, **columns) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pyarrow.table({"text": pyarrow.array(texts, pyarrow.string()), **columns})
    pyarrow.parquet.write_table(table, path, row_group_size=3)


@pytest.fixture
def folder(tmp_path) -> Path:
    place = tmp_path / "in"
    write(place / "b.parquet", [f"hill {n}" for n in range(7)])
    write(place / "a" / "first.parquet", [f"river {n}" for n in range(5)])
    write(place / "c.parquet", [])
    (place / "_SUCCESS").write_text("")
    (place / ".hidden.parquet").write_text("not Parquet")
    return place


def test_pieces_cover_every_row_once():
    sizes = [0, 1, 4, 5, 9]
    inputs = Inputs(Storage("."), "parquet", tuple(InputFile(str(n), 0, n) for n in sizes), None, {})
    pieces = inputs.pieces(4)
    rows = [(piece.file, row) for piece in pieces for row in range(piece.start, piece.stop)]
    assert rows == [(file, row) for file, size in enumerate(sizes) for row in range(size)]
    assert [piece.number for piece in pieces] == list(range(len(pieces)))
    assert max(piece.rows for piece in pieces) == 4


def test_rows_of_a_parquet_file_across_row_groups(folder):
    for start in range(7):
        for stop in range(start + 1, 8):
            rows = read_parquet_rows(Storage(str(folder)), "b.parquet", start, stop)
            assert rows["text"].to_pylist() == [f"hill {n}" for n in range(start, stop)]


def test_a_folder_gives_the_vectors_of_single_texts(folder, tmp_path, predictor):
    done = run_job("embed", "mini", folder, tmp_path / "out", rows=4, threads=1, dimensions=16)
    assert (done.rows, done.parts, done.made_rows) == (12, 4, 12)
    table = pyarrow.parquet.read_table(tmp_path / "out").to_pydict()
    names = [("a/first.parquet", n) for n in range(1, 6)] + [("b.parquet", n) for n in range(1, 8)]
    assert list(zip(table["source_file"], table["source_row"], strict=True)) == names
    assert table["text"] == [f"river {n}" for n in range(5)] + [f"hill {n}" for n in range(7)]
    expected = truncated(predictor.predict(table["text"]).vectors, 16)
    assert np.abs(np.array(table["vector"]) - expected).max() < 1e-6


def test_a_job_goes_on_where_it_stopped(folder, tmp_path):
    out = tmp_path / "out"
    run_job("embed", "mini", folder, out, rows=4, threads=1)
    whole = {path.name: path.read_bytes() for path in out.iterdir()}
    again = run_job("embed", "mini", folder, out, rows=4, threads=1)
    assert again.made_rows == 0
    (out / DONE).unlink()
    (out / "part-000001.parquet").unlink()
    (out / "part-000002.parquet").write_bytes(whole["part-000002.parquet"][:50])
    assert run_job("embed", "mini", folder, out, rows=4, threads=1).made_rows == 1 + 4
    assert {path.name: path.read_bytes() for path in out.iterdir()} == whole


def test_an_interrupted_job_keeps_its_parts(folder, tmp_path):
    out = tmp_path / "out"

    @contextmanager
    def broken(work, predictor):
        def make_some(pieces):
            yield from map(Worker(work, predictor).make, pieces[:2])
            raise KeyboardInterrupt

        yield make_some

    with pytest.raises(KeyboardInterrupt):
        run_job("embed", "mini", folder, out, rows=4, threads=1, executor=broken)
    assert sorted(path.name for path in out.iterdir()) == [JOB, "part-000000.parquet", "part-000001.parquet"]
    assert run_job("embed", "mini", folder, out, rows=4, threads=1).made_rows == 12 - 5


def test_a_lost_part_is_an_error_and_not_a_finished_job(folder, tmp_path):
    @contextmanager
    def forgetful(work, predictor):
        yield lambda pieces: map(Worker(work, predictor).make, pieces[1:])

    with pytest.raises(ValueError, match="1 parts are missing"):
        run_job("embed", "mini", folder, tmp_path / "out", rows=4, threads=1, executor=forgetful)
    assert not (tmp_path / "out" / DONE).exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rows": 5}, "rows_per_part was 4 and is 5"),
        ({"dimensions": 8}, "dimensions was None and is 8"),
        ({"model": "other"}, "another model"),
        ({"given": "other"}, "input files were others"),
        ({"given": "rewritten"}, "input files were others"),
    ],
)
def test_another_job_in_the_same_folder(folder, tmp_path, change, sentence, monkeypatch):
    settings = {"kind": "embed", "model": "mini", "given": folder, "output": tmp_path / "out", "rows": 4, "threads": 1}
    run_job(**settings)
    if change == {"model": "other"}:
        monkeypatch.setattr("glassbert.bulk.job.fingerprint", lambda *_: "0" * 64)
        change = {}
    if change == {"given": "other"}:
        write(folder / "d.parquet", ["a new file"])
        change = {}
    if change == {"given": "rewritten"}:  # with as many bytes and rows
        before = (folder / "b.parquet").stat()
        write(folder / "b.parquet", [f"bill {n}" for n in range(7)])
        os.utime(folder / "b.parquet", ns=(before.st_atime_ns, before.st_mtime_ns + 1000))
        assert (folder / "b.parquet").stat().st_size == before.st_size
        change = {}
    with pytest.raises(InputError, match=sentence):
        run_job(**settings | change)
    assert run_job(**settings | change, overwrite=True).made_rows >= 12
    parts = {path.name for path in (tmp_path / "out").glob("part-*")}
    assert len(parts) == json.loads((tmp_path / "out" / DONE).read_text())["parts"]


def test_a_cluster_that_does_not_answer_costs_no_result(folder, tmp_path):
    @contextmanager
    def unreachable(work, predictor):
        raise InputError("no Ray cluster answers")
        yield

    out = tmp_path / "out"
    run_job("embed", "mini", folder, out, rows=4, threads=1)
    whole = {path.name: path.read_bytes() for path in out.iterdir()}
    for place in (out, tmp_path / "new"):
        with pytest.raises(InputError, match="no Ray cluster answers"):
            run_job("embed", "mini", folder, place, rows=5, executor=unreachable, overwrite=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == whole
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("steps", range(6))
def test_a_job_that_is_killed_while_it_overwrites(steps, folder, tmp_path, monkeypatch):
    """After so many changes of the folder. The same command must work, and no old part may be taken for a new one."""
    out, left = tmp_path / "out", [steps]
    run_job("embed", "mini", folder, out, rows=4, threads=1)
    settings = {"kind": "embed", "model": "mini", "given": folder, "output": out, "threads": 1, "dimensions": 8}

    def limited(change):
        def step(*given):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return change(*given)

        return step

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        for name in ("remove", "write"):
            patch.setattr(Storage, name, limited(getattr(Storage, name)))
        run_job(**settings, rows=4, overwrite=True)
    assert (out / JOB).exists()
    assert (out / DONE).exists() is (steps == 0)
    run_job(**settings, rows=4, overwrite=True)
    assert {len(vector) for vector in pyarrow.parquet.read_table(out)["vector"].to_pylist()} == {8}


def test_parts_without_a_description_can_be_overwritten(folder, tmp_path):
    out = tmp_path / "out"
    run_job("embed", "mini", folder, out, rows=4, threads=1)
    (out / JOB).unlink()
    with pytest.raises(InputError, match=r"without _job\.json; use another folder, or --overwrite"):
        run_job("embed", "mini", folder, out, rows=100, threads=1)
    assert run_job("embed", "mini", folder, out, rows=100, threads=1, overwrite=True).parts == 2
    assert len(list(out.glob("part-*"))) == 2


def test_predictions_keep_the_columns_of_the_input(tmp_path, predictor):
    write(tmp_path / "in" / "a.parquet", ["one", "two"], source_row=pyarrow.array([7, None]), id=["x", "y"])
    inputs = find_inputs(tmp_path / "in", predictor, {})
    data, rows = Reader(inputs, predictor).read(inputs.pieces(10)[0])
    table = with_answers(rows, predictor.predict(data), "a.parquet", 0)
    assert table.column_names == ["text", "source_row", "id", "source_file", "source_row 2", "vector"]
    assert table["source_row"].to_pylist() == [7, None]
    assert table["source_row 2"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda place: place.mkdir(), "holds no files to read"),
        (lambda place: None, "there is no file or folder"),
        (lambda place: write(place / "a.parquet", []), "has no rows"),
        (
            lambda place: (write(place / "a.parquet", ["x"]), write(place / "b.parquet", ["y"], more=[1])),
            "b.parquet has other columns than a.parquet: it also has 'more'",
        ),
        (
            lambda place: (write(place / "a.parquet", ["x"], n=[1]), write(place / "b.parquet", ["y"], n=["1"])),
            "'n' is string there and int64 here",
        ),
        (
            lambda place: (write(place / "a.parquet", ["x"]), (place / "b.csv").write_text("text\nx\n")),
            "files of several formats",
        ),
        (lambda place: (place.mkdir(), (place / "a.parquet").write_text("no")), "cannot be read as Parquet"),
    ],
)
def test_inputs_that_cannot_be_used(make, sentence, tmp_path, predictor):
    make(tmp_path / "in")
    with pytest.raises(InputError, match=sentence):
        find_inputs(tmp_path / "in", predictor, {})


def test_a_column_that_is_not_there_is_found_before_any_work(folder, tmp_path):
    with pytest.raises(ValueError, match="lacks the column 'review'"):
        run_job("embed", "mini", folder, tmp_path / "out", text="review")
    assert not (tmp_path / "out").exists()


def test_an_output_folder_with_other_files(folder, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"holds other files, such as notes\.txt"):
            run_job("embed", "mini", folder, tmp_path / "out", overwrite=overwrite)
    with pytest.raises(InputError, match="is a file"):
        run_job("embed", "mini", folder, tmp_path / "out" / "notes.txt")


@pytest.mark.parametrize("name", ["a.txt", "a.TXT", "a.txt.gz", "a.TXT.GZ"])
def test_lines_of_text_by_the_name(name, tmp_path, predictor):
    content = b"one, two\nthree, four\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.lower().endswith("gz") else content)
    assert predictor.read(tmp_path / name).texts == ["one, two", "three, four"]


def test_objects_without_fields_become_text(tmp_path, predictor):
    (tmp_path / "in").mkdir()
    lines = [{"text": "one", "a": {}, "b": [{}], "c": {"x": {}}}, {"text": "two", "a": None, "b": [], "c": {"x": None}}]
    (tmp_path / "in" / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    inputs = find_inputs(tmp_path / "in", predictor, {})
    rows = Reader(inputs, predictor).read(inputs.pieces(10)[0])[1]
    Storage(str(tmp_path)).write("rows.parquet", rows)
    back = pyarrow.parquet.read_table(tmp_path / "rows.parquet").to_pydict()
    assert back == {"text": ["one", "two"], "a": ["{}", None], "b": ["[{}]", "[]"], "c": ['{"x": {}}', '{"x": null}']}


def test_parts_do_not_depend_on_their_size(tmp_path, predictor):
    texts = ["1,5", "2,5", "1,234", "a river", "1.234,5"]
    write(tmp_path / "in" / "a.parquet", texts)
    for rows in (1, 2, 5):
        run_job("embed", "mini", tmp_path / "in", tmp_path / str(rows), rows=rows, threads=1)
        assert pyarrow.parquet.read_table(tmp_path / str(rows))["text"].to_pylist() == texts
    write(tmp_path / "numbers.parquet", texts[:3])
    assert predictor.read(tmp_path / "numbers.parquet").texts == texts[:3]
    with pytest.raises(InputError, match="--decimal does not apply to the Parquet files"):
        find_inputs(tmp_path / "in", predictor, {"decimal": ","})


@pytest.mark.parametrize("kind", ["csv", "jsonl", "txt"])
def test_other_formats_and_globs(kind, tmp_path, capsys):
    lines = {
        "csv": ["text,n", "one,1", "two,2", "three,"],
        "jsonl": ['{"text": "one", "n": 1}', '{"text": "two", "n": null}', '{"text": "three"}'],
        "txt": ["one", "two", "three"],
    }[kind]
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.{kind}").write_text("\n".join(lines) + "\n")
    (tmp_path / "in" / "c.md").write_text("not read")
    main_ok(["embed", str(tmp_path / "in" / f"*.{kind}"), "-o", str(tmp_path / "out"), "--rows-per-part", "2"])
    assert "6 rows in 4 parts" in capsys.readouterr().out
    table = pyarrow.parquet.read_table(tmp_path / "out").to_pydict()
    assert table["text"] == ["one", "two", "three"] * 2
    assert table["source_row"] == [1, 2, 3] * 2


def main_ok(arguments) -> None:
    try:
        main(arguments)
    except SystemExit as end:
        assert end.code in (0, None)


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("*.parquet", "a.parquet", True),
        ("*.parquet", "x/a.parquet", False),
        ("**/*.parquet", "x/y/a.parquet", True),
        ("**/*.parquet", "a.parquet", True),
        ("part-[0-3].csv", "part-2.csv", True),
        ("part-?.csv", "part-10.csv", False),
        ("a+b.csv", "aab.csv", False),
        ("[!a].csv", "b.csv", True),
        ("[!a].csv", "a.csv", False),
        ("x[!a]y", "x/y", False),
        ("[]a].csv", "].csv", True),
        ("[a^-].csv", "^.csv", True),
        ("[b-a].csv", "b.csv", False),
        ("[].csv", "[].csv", True),
    ],
)
def test_globs(pattern, name, matches):
    assert bool(matching(pattern).fullmatch(name)) is matches


@pytest.mark.parametrize(
    ("pattern", "entered", "not_entered"),
    [
        ("*.txt", [], ["a", "a/b"]),
        ("a*/x.txt", ["a", "ab"], ["b", "a/b"]),
        ("a/**/x.txt", ["a", "a/b", "a/b/c"], ["b"]),
        ("a**.txt", ["a", "ab/c"], ["b"]),
    ],
)
def test_folders_that_a_glob_reads(pattern, entered, not_entered):
    found = leading(pattern)
    assert [name for name in [*entered, *not_entered] if found.fullmatch(name)] == entered


def names_of(given, predictor, **settings) -> list[str]:
    return [file.name for file in find_inputs(given, predictor, {}, **settings).files]


def test_links_do_not_double_rows(tmp_path, predictor):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "in" / "deep" / "loop").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "broken.txt").symlink_to(tmp_path / "nowhere")
    assert names_of(tmp_path / "in", predictor) == ["deep/a.txt"]


def test_only_the_folders_that_are_needed_are_read(tmp_path, predictor, monkeypatch):
    for name in ("a.txt", "b.txt", "other/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one\n")
    read, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: read.append(Path(path)) or scandir(path))
    assert names_of(tmp_path / "*.txt", predictor) == ["a.txt", "b.txt"]
    assert names_of(tmp_path / "o*" / "*.txt", predictor) == ["other/c.txt"]
    assert read == [tmp_path, tmp_path, tmp_path / "other"]
    read.clear()
    assert names_of(tmp_path / "b.txt", predictor) == ["b.txt"]
    assert not read


def test_an_output_folder_inside_the_input_folder(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\ntwo\n")
    for made in (2, 0):
        assert run_job("embed", "mini", tmp_path / "in", tmp_path / "in" / "out", threads=1).made_rows == made
    with pytest.raises(InputError, match=r"holds other files, such as a\.txt"):
        run_job("embed", "mini", tmp_path / "in" / "*.txt", tmp_path / "in")


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux alone")
def test_a_name_that_is_not_utf8_is_a_sentence(tmp_path, predictor):
    for name in ("in", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("one\n")
    (tmp_path / "in" / os.fsdecode(b"\xff.txt")).write_text("one\n")
    (tmp_path / "other" / os.fsdecode(b"\xff.md")).write_text("one\n")
    with pytest.raises(InputError, match=r"the name '.udcff\.txt' is not UTF-8; rename it"):
        find_inputs(tmp_path / "in", predictor, {})
    with pytest.raises(InputError, match="is not UTF-8"):
        Storage(os.fsdecode(b"folder-\xff"))
    assert names_of(tmp_path / "other", predictor) == ["a.txt"]


@pytest.mark.parametrize("given", ["in [1]", "in [1]/a[2].txt", "in [1]/a*.txt", "in [1]/*[[]2[]].txt"])
def test_what_exists_is_no_glob(given, tmp_path, predictor):
    (tmp_path / "in [1]").mkdir()
    (tmp_path / "in [1]" / "a[2].txt").write_text("one\n")
    assert names_of(tmp_path / given, predictor) == ["a[2].txt"]


def test_an_address_with_options_is_no_glob(monkeypatch, predictor):
    places = []
    monkeypatch.setattr(Storage, "files", lambda self, enter=None: places.append(self.place) or [])
    monkeypatch.setattr(Storage, "file", lambda self, name: places.append((self.place, name)))
    for given in ("s3://bucket/folder?region=eu-west-1", "s3://bucket/folder/a?.csv?region=eu&scheme=http"):
        with pytest.raises(InputError, match=r"there is no file or folder|no file matches"):
            find_inputs(given, predictor, {})
    assert places == [
        *(("s3://bucket/folder?region=eu-west-1", ""), "s3://bucket/folder?region=eu-west-1"),
        "s3://bucket/folder?region=eu&scheme=http",
    ]


def test_an_address_of_files(tmp_path, predictor):
    write(tmp_path / "in" / "a.parquet", ["one"])
    for given in ("in", "in/a.parquet", "in/*.parquet"):
        assert names_of(f"file://{tmp_path}/{given}", predictor) == ["a.parquet"]


def test_an_address_of_an_unknown_kind(predictor):
    with pytest.raises(InputError, match="cannot be opened"):
        find_inputs("nowhere://bucket/folder", predictor, {})


def test_paths_that_travel_to_a_worker_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("in/a.parquet"), ["one"])
    Path("model").symlink_to(packaged_folder("mini"))
    works = []

    def seen(work, predictor):
        works.append(pickle.loads(pickle.dumps(work)))
        return here(work, predictor)

    run_job("embed", "model", "in", "out", threads=1, executor=seen)
    work = works[0]
    assert (work.model, work.inputs.storage.place, work.output.place) == tuple(
        str(tmp_path / name) for name in ("model", "in", "out")
    )
    run_job("embed", "mini", "in", "other", threads=1, executor=seen)
    assert works[1].model == "mini"


def test_a_storage_travels_without_its_connection(tmp_path):
    storage = Storage(str(tmp_path))
    storage.files()
    copy = pickle.loads(pickle.dumps(storage))
    assert copy == storage
    assert vars(copy) == {"place": str(tmp_path)}
