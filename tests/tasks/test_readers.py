"""Readers return what was written; broken files give an error with the line."""

import csv
import gzip
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassbert.errors import TextError
from glassbert.tasks import Table, read_table

# Any text in UTF-8 except NUL, which the csv module rejects.
cells = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
words = st.text(st.characters(codec="utf-8", exclude_categories=("Z", "C")), min_size=1, max_size=8)


def written(tmp_path_factory, name, content):
    path = tmp_path_factory.mktemp("read") / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(cells, min_size=n, max_size=n), min_size=1, max_size=6)))
@settings(max_examples=60, deadline=None)
def test_csv_round_trip(tmp_path_factory, rows):
    names = [f"c{index}" for index in range(len(rows[0]))]
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    table = read_table(written(tmp_path_factory, "t.csv", out.getvalue()), delimiter=",", header=True)
    assert list(table.columns) == names
    assert [list(row) for row in zip(*table.columns.values(), strict=True)] == rows


@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_tsv_without_quotes_round_trip(tmp_path_factory, rows):
    """A cell may contain anything except tabs and line feeds, including quotes and other line breaks."""
    clean = [[cell.replace("\t", " ").replace("\n", " ").rstrip("\r") for cell in row] for row in rows]
    text = "a\tb\n" + "".join("\t".join(row) + "\n" for row in clean)
    table = read_table(written(tmp_path_factory, "t.tsv", text), header=True)
    assert [list(row) for row in zip(table.columns["a"], table.columns["b"], strict=True)] == clean
    assert list(table.lines) == list(range(2, len(rows) + 2))


json_values = st.none() | st.booleans() | st.integers() | cells | st.lists(cells, max_size=3)


@given(
    st.lists(st.dictionaries(st.sampled_from(["text", "label", "x"]), json_values, min_size=1), min_size=1, max_size=6)
)
@settings(max_examples=60, deadline=None)
def test_jsonl_round_trip(tmp_path_factory, rows):
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    table = read_table(written(tmp_path_factory, "t.jsonl", text))
    for name, values in table.columns.items():
        assert values == [row.get(name) for row in rows]


sentences = st.lists(
    st.lists(st.tuples(words, st.sampled_from(["O", "B-x", "I-x"])), min_size=1, max_size=5), min_size=1, max_size=5
)


@given(sentences, st.sampled_from(["\n", "\t\n", "\n\n \n"]), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=60, deadline=None)
def test_conll_round_trip(tmp_path_factory, rows, gap, end):
    rows = [[(word, tag) for word, tag in row if word != "-DOCSTART-"] or [("a", "O")] for row in rows]
    text = gap.join("".join(f"{word}\t{tag}\n" for word, tag in row) for row in rows).replace("\n", end)
    table = read_table(written(tmp_path_factory, "t.conll", text))
    assert table.columns["words"] == [[word for word, _ in row] for row in rows]
    assert table.columns["tags"] == [[tag for _, tag in row] for row in rows]


CONLLU = """# sent_id = one
# text = I don't.
1\tI\tI\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tVERB\tVB\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t2:x\t_
4\t#\t#\tSYM\t.\t_\t2\tpunct\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t_\t_\t_\t_
"""


def test_conllu(tmp_path):
    (tmp_path / "t.conllu.gz").write_bytes(gzip.compress(CONLLU.encode()))
    table = read_table(tmp_path / "t.conllu.gz")
    assert table.columns["words"] == [["I", "do", "n't", "#"], ["Yes"]]
    assert table.columns["head"] == [[2, 0, 2, 2], [None]]
    assert table.columns["multiwords"] == [[(1, 2, "don't")], []]
    assert table.columns["text"] == ["I don't.", "Yes"]
    assert list(table.lines) == [3, 10]


def test_words_may_begin_with_a_hash(tmp_path):
    path = tmp_path / "t.conll"
    path.write_text("# a comment\n#love O\n# O\n\n-DOCSTART- O\n\nx O\n")
    assert read_table(path).columns["words"] == [["#love", "#"], ["x"]]


def test_minimal_pairs(tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("he go .\nhe goes .\n")
    assert read_table(path, "minimal-pairs").columns == {"bad": ["he go ."], "good": ["he goes ."]}
    path.write_text("he go .\nhe goes .\nshe\n")
    with pytest.raises(TextError, match="3 lines, an odd number"):
        read_table(path, "minimal-pairs")


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"text": ["a", "b"], "label": [1, None]}), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").columns == {"text": ["a", "b"], "label": [1, None]}
    (tmp_path / "t.parquet").write_bytes(b"no parquet")
    with pytest.raises(TextError, match="cannot be read as Parquet"):
        read_table(tmp_path / "t.parquet")


class Frame:
    """The part of the data frame interface that is used."""

    columns = ("text", "label")

    def __getitem__(self, name):
        return {"text": ["a", "b"], "label": [1.0, float("nan")]}[name]


def test_from_memory():
    expected = {"text": ["a", "b"], "label": [1.0, None]}
    assert read_table(Frame()).columns == expected
    assert read_table({"text": ["a", "b"], "label": [1.0, float("nan")]}).columns == expected
    assert read_table([{"text": "a", "label": 1.0}, {"text": "b"}]).columns == expected
    assert read_table([("a", 1), ("b", 2)]).columns == {"column 1": ["a", "b"], "column 2": [1, 2]}
    assert read_table(["a", "b"]).columns == {"text": ["a", "b"]}
    assert isinstance(read_table(read_table(["a"])), Table)
    for nothing in (3, [], {}, {"a": [1], "b": []}, [1, 2]):
        with pytest.raises(TextError):
            read_table(nothing)


GUESSES = [
    ("a;b\n1,5;2\n", ["a", "b"], "semicolons"),
    ("sentence\tlabel\nwell , it 's fine\t1\n\"odd , quote\t0\n", ["sentence", "label"], "tabs"),
    ("1,2\n3,4\n", ["column 1", "column 2"], "no header"),
    ("__l1\tgood film\n__l2\tbad film\n__l1\tfine\n", ["column 1", "column 2"], "occur again"),
    ("text,label\ngood film,pos\nbad film,neg\n", ["text", "label"], "looks like names"),
    ("just words\nand more, of them\n", ["just words"], "single column"),
    (",x\n0,5\n1,6\n", ["column 1", "x"], "commas"),
]


@pytest.mark.parametrize(("text", "names", "note"), GUESSES)
def test_guesses_are_in_the_notes(text, names, note, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    table = read_table(tmp_path / "t.csv")
    assert list(table.columns) == names
    assert any(note in other for other in table.notes), table.notes


BROKEN = [
    ("t.csv", "a,b\n1,2\n3\n", r"line 3: 1 columns where 2 are expected.*--ragged skip"),
    ("t.csv", 'a,b\n"1,2\n3,4\n', r"line 2: .*quote"),
    ("t.csv", "a,a\n1,x\n", "two columns called 'a'"),
    ("t.csv", "", "is empty"),
    ("t.csv", "text,label\n", "a header and no rows"),
    ("t.csv", b"a,b\n1,\xff\xfe\n", r"line 2: bytes that are not UTF-8 \(ff fe"),
    ("t.jsonl", '{"a": 1}\n{"a": \n', "line 2: not JSON"),
    ("t.jsonl", '{"a": 1}\n7\n', "line 2: an object is expected, got int"),
    ("t.json", '[{"a": 1}', "t.json: not JSON"),
    ("t.conll", "a\tO\nb\n", "line 2: 1 columns where 2 are expected"),
    ("t.conll", "a\tO\n\tO\n", "line 2: there is no word"),
    ("t.conllu", "1\tI\tI\n", "line 1: 3 columns where CoNLL-U has 10"),
    ("t.conllu", "2" + "\t_" * 9 + "\n", "line 1: the word has the number '2' where 1 is expected"),
    ("t.conllu", "1" + "\t_" * 5 + "\t7" + "\t_" * 3 + "\n", "line 1: the head '7' is no word"),
    ("t.conllu", "# text = nothing\n\n", "contains no sentence"),
    ("t.xyz", "a", "set --format to one of csv"),
    ("t.csv.gz", "plain", "not gz-compressed"),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN)
def test_broken_files(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(TextError, match=message):
        read_table(path)


def test_ragged_rows_on_request(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3,4,5\n6\n")
    skipped = read_table(path, ragged="skip")
    assert skipped.columns == {"a": ["1"], "b": ["2"]} and "2 rows" in skipped.notes[-1]
    with pytest.raises(TextError, match="line 4: 1 columns"):
        read_table(path, ragged="cut")
    path.write_text("a,b\n1,2\n3,4,5\n")
    assert read_table(path, ragged="cut").columns == {"a": ["1", "3"], "b": ["2", "4"]}


def test_a_single_line_of_text(tmp_path):
    (tmp_path / "t.txt").write_text("one sentence, and no more\n")
    table = read_table(tmp_path / "t.txt", delimiter="\t")
    assert table.columns == {"column 1": ["one sentence, and no more"]}


def test_missing_files_and_columns(tmp_path):
    with pytest.raises(TextError, match=r"there is no file .*nothing\.csv"):
        read_table(tmp_path / "nothing.csv")
    with pytest.raises(TextError, match="is a folder"):
        read_table(tmp_path, "csv")
    with pytest.raises(TextError, match=r"no column 'lable'.*did you mean 'label'"):
        read_table({"text": ["a"], "label": [1]}).column("lable")
    (tmp_path / "t.jsonl").write_text("{}")
    with pytest.raises(TextError, match="--delimiter does not apply to jsonl files"):
        read_table(tmp_path / "t.jsonl", delimiter=",")


def test_cells_above_the_csv_limit(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\n" + "word " * 60_000 + ",1\nshort,0\n")
    assert len(read_table(tmp_path / "t.csv").columns["text"][0]) == 300_000
