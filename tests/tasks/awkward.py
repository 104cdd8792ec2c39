"""Awkward files: the bytes of each, the options, and what must come out or the sentence that must be said.

`TABLES` are read by `read_table`, `TASKS` by `TaskData.of`, `CORPORA` by `read_documents`.
"""

import bz2
import datetime
import gzip
import io
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """`columns`: the table; `note`: a part of its notes; `error`: a pattern of the error text."""

    about: str
    file: str
    content: bytes | Callable[[], bytes]
    options: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, list[Any]] | None = None
    note: str = ""
    error: str = ""


def excel(*sheets: list[list[Any]], names: tuple[str, ...] = ("first", "second", "third")) -> Callable[[], bytes]:
    def made() -> bytes:
        import openpyxl

        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in zip(names, sheets, strict=False):
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(row)
        out = io.BytesIO()
        book.save(out)
        return out.getvalue()

    return made


def parquet(**columns: Any) -> Callable[[], bytes]:
    def made() -> bytes:
        import pyarrow
        import pyarrow.parquet

        out = io.BytesIO()
        arrays = {name: one() if callable(one) else one for name, one in columns.items()}
        pyarrow.parquet.write_table(pyarrow.table(arrays), out)
        return out.getvalue()

    return made


def arrow(values: list[Any], kind: str, *arguments: Any) -> Callable[[], Any]:
    def made() -> Any:
        import pyarrow

        return pyarrow.array(values, getattr(pyarrow, kind)(*arguments))

    return made


def zst(data: bytes) -> Callable[[], bytes]:
    def made() -> bytes:
        import zstandard

        return zstandard.ZstdCompressor().compress(data)

    return made


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


PLAIN = {"text": ["good film", "bad film"], "label": ["1", "0"]}
CSV = "text,label\ngood film,1\nbad film,0\n"
GERMAN = "Text;Größe\nschöner Tag;1\nmüder Tag;0\n"
GERMAN_COLUMNS = {"Text": ["schöner Tag", "müder Tag"], "Größe": ["1", "0"]}
PRICES = {"name": ["a b", "c d"], "price": ["12.50", "1234.5"]}

TABLES = [
    # ---- encodings ----
    Case("UTF-8 with a mark", "t.csv", CSV.encode("utf-8-sig"), columns=PLAIN, note="byte order mark"),
    Case("UTF-16 with a mark", "t.csv", GERMAN.encode("utf-16"), columns=GERMAN_COLUMNS, note="UTF-16, by its byte"),
    Case("UTF-16, big end first", "t.csv", b"\xfe\xff" + CSV.encode("utf-16-be"), columns=PLAIN, note="UTF-16"),
    Case("UTF-32 with a mark", "t.csv", CSV.encode("utf-32"), columns=PLAIN, note="UTF-32"),
    Case("cp1252 by its bytes", "t.csv", GERMAN.encode("cp1252"), columns=GERMAN_COLUMNS, note="Windows-1252"),
    Case(
        "cp1252 with curly quotes and a euro sign",
        "t.csv",
        "text,label\n“fine” – 5 €,1\nit’s bad,0\n".encode("cp1252"),
        columns={"text": ["“fine” – 5 €", "it’s bad"], "label": ["1", "0"]},
        note="--encoding sets another",
    ),
    Case("UTF-16 without a mark", "t.csv", CSV.encode("utf-16-le"), error="--encoding utf-16-le or utf-16-be"),
    Case("UTF-16 named", "t.csv", CSV.encode("utf-16-le"), {"encoding": "utf-16-le"}, PLAIN),
    Case("UTF-16 named, with a mark", "t.csv", CSV.encode("utf-16"), {"encoding": "utf-16-le"}, PLAIN),
    Case(
        "Cyrillic is not taken for cp1252",
        "t.csv",
        "text,label\nхороший фильм,1\nплохой фильм,0\n".encode("cp1251"),
        error=r"line 2: bytes that are not UTF-8 \(f5 .*--encoding, such as cp1252, cp1251",
    ),
    Case(
        "Cyrillic named",
        "t.csv",
        "text,label\nхороший,1\nплохой,0\n".encode("cp1251"),
        {"encoding": "cp1251"},
        {"text": ["хороший", "плохой"], "label": ["1", "0"]},
    ),
    Case(
        "Shift-JIS named",
        "t.tsv",
        "text\tlabel\n良い映画\t1\n".encode("shift_jis"),
        {"encoding": "shift_jis", "header": True},
        {"text": ["良い映画"], "label": ["1"]},
    ),
    Case(
        "UTF-8 with one broken byte is not cp1252",
        "t.csv",
        b"text,label\n" + "größer, weiß, schön\n".replace(",", " ").encode() * 3 + b"\xe9,1\n",
        error="line 5: bytes that are not UTF-8",
    ),
    Case("the wrong encoding", "t.csv", GERMAN.encode("cp1252"), {"encoding": "utf-8"}, error="not UTF-8 .*--encoding"),
    Case(
        "no such encoding", "t.csv", CSV.encode(), {"encoding": "latin-99"}, error="no encoding 'latin-99'; --encoding"
    ),
    Case("a codec that is no encoding", "t.csv", CSV.encode(), {"encoding": "zlib"}, error="no encoding 'zlib'"),
    Case("binary data", "t.csv", bytes(range(256)) * 4, error="not UTF-8|looks like UTF-16"),
    Case("zeros", "t.csv", b"\0" * 1000, error="looks like UTF-16 without"),
    # ---- compression ----
    Case("gz", "t.csv.gz", gzip.compress(CSV.encode()), columns=PLAIN),
    Case("xz", "t.csv.xz", lzma.compress(CSV.encode()), columns=PLAIN),
    Case("bz2", "t.csv.bz2", bz2.compress(CSV.encode()), columns=PLAIN),
    Case("zst", "t.csv.zst", zst(CSV.encode()), columns=PLAIN),
    Case("compressed without saying so", "t.csv", gzip.compress(CSV.encode()), columns=PLAIN),
    Case("cut off", "t.csv.gz", gzip.compress(CSV.encode() * 99)[:-9], error="cannot be decompressed"),
    Case("not compressed", "t.csv.xz", CSV.encode(), error="is not xz-compressed"),
    # ---- separators, quotes, line ends ----
    Case("semicolons", "t.csv", CSV.replace(",", ";").encode(), columns=PLAIN, note="semicolons"),
    Case("bars", "t.csv", CSV.replace(",", "|").encode(), columns=PLAIN, note="bars"),
    Case("tabs in a CSV file", "t.csv", CSV.replace(",", "\t").encode(), columns=PLAIN, note="tabs"),
    Case("a named delimiter", "t.csv", CSV.replace(",", "^").encode(), {"delimiter": "^"}, PLAIN),
    Case("a spelled delimiter", "t.txt", CSV.replace(",", "\t").encode(), {"delimiter": "tab"}, PLAIN),
    Case("a delimiter of two characters", "t.csv", CSV.encode(), {"delimiter": "::"}, error="--delimiter must be one"),
    Case("old Macintosh line ends", "t.csv", CSV.replace("\n", "\r").encode(), columns=PLAIN),
    Case("Windows line ends", "t.tsv", CSV.replace(",", "\t").replace("\n", "\r\n").encode(), columns=PLAIN),
    Case("no line end at the end", "t.csv", CSV.strip().encode(), columns=PLAIN),
    Case("blank lines between rows", "t.csv", CSV.replace("\n", "\n\n").encode(), columns=PLAIN),
    Case(
        "quoted cells with line ends",
        "t.csv",
        b'text,label\n"two\nlines, ""quoted""",1\nplain,0\n',
        columns={"text": ['two\nlines, "quoted"', "plain"], "label": ["1", "0"]},
    ),
    Case("a missing quote", "t.csv", b'text,label\n"never closed,1\nx,0\n', error=r"line 2: not CSV.*--no-quoting"),
    Case(
        "quotes that are text",
        "t.csv",
        b'text,label\n"never closed,1\nx,0\n',
        {"quoting": False},
        {"text": ['"never closed', "x"], "label": ["1", "0"]},
    ),
    Case(
        "a first line for Excel",
        "t.csv",
        b"sep=;\r\ntext;label\r\ngood film;1\r\nbad film;0\r\n",
        columns=PLAIN,
        note="its first line says that the delimiter is ';'",
    ),
    Case("Excel under another name", "t.csv", excel([["a"], ["b"]]), error="set --format excel"),
    Case("an archive", "t.csv.zip", b"PK", error="is an archive of files; unpack it"),
    # ---- headers ----
    Case(
        "years as names, one of them named",
        "t.csv",
        b"2019,2020\n1,2\n3,4\n",
        {"named": ["2020"]},
        {"2019": ["1", "3"], "2020": ["2", "4"]},
        note="it holds '2020'",
    ),
    Case("years as names", "t.csv", b"2019,2020\n1,2\n", {"header": True}, {"2019": ["1"], "2020": ["2"]}),
    Case(
        "words that are no names",
        "t.csv",
        b"good,pos\nbad,neg\n",
        {"header": False},
        {"column 1": ["good", "bad"], "column 2": ["pos", "neg"]},
    ),
    Case("given names", "t.csv", b"1,2\n3,4\n", {"columns": ["a", "b"]}, {"a": ["1", "3"], "b": ["2", "4"]}),
    Case("new names", "t.csv", b"x,y\n1,2\n", {"columns": ["a", "b"], "header": True}, {"a": ["1"], "b": ["2"]}),
    Case("too few names", "t.csv", b"1,2\n", {"columns": ["a"]}, error="2 columns, and --columns gives 1 names"),
    Case("the same name twice", "t.csv", b"a,a\n1,2\n", error="two columns called 'a'; give all names with --columns"),
    Case("a header alone", "t.csv", b"text,label\n", error="a header and no rows below it.*--no-header"),
    Case(
        "row names without a name",
        "t.csv",
        b"text,label\nr1,good,1\nr2,bad,0\n",
        columns={"column 1": ["r1", "r2"], "text": ["good", "bad"], "label": ["1", "0"]},
        note="one column more than the header; the first one",
    ),
    Case(
        "a delimiter at the end of every row",
        "t.csv",
        b"text;label\ngood;1;\nbad;0;\n",
        columns={"text": ["good", "bad"], "label": ["1", "0"], "column 3": ["", ""]},
        note="the last one",
    ),
    # ---- ragged rows ----
    Case("a short row", "t.csv", b"a,b\n1,2\n3\n", error="line 3: 1 columns where 2 are expected.*--ragged skip"),
    Case("short rows left out", "t.csv", b"a,b\n1,2\n3\n", {"ragged": "skip"}, {"a": ["1"], "b": ["2"]}, "1 rows had"),
    Case("long rows cut", "t.csv", b"a,b\n1,2\n3,4,5\n", {"ragged": "cut"}, {"a": ["1", "3"], "b": ["2", "4"]}),
    Case("no such way", "t.csv", CSV.encode(), {"ragged": "pad"}, error="--ragged must be one of error, skip, cut"),
    # ---- numbers ----
    Case("decimal commas", "t.csv", b"name;price\na b;12,50\nc d;1234,5\n", columns=PRICES, note="decimal commas"),
    Case("points for thousands", "t.csv", b"name;price\na b;12,50\nc d;1.234,5\n", columns=PRICES),
    Case("spaces for thousands", "t.csv", "name;price\na b;12,50\nc d;1\u00a0234,5\n".encode(), columns=PRICES),
    Case("commas for thousands", "t.tsv", b"name\tprice\na b\t12.50\nc d\t1,234.5\n", columns=PRICES, note="thousands"),
    Case("apostrophes for thousands", "t.tsv", b"name\tprice\na b\t12.50\nc d\t1'234.5\n", columns=PRICES),
    Case(
        "1.234 beside 12,5",
        "t.csv",
        b"people;share\n1.234;12,5\n5.678;3\n",
        columns={"people": ["1234", "5678"], "share": ["12.5", "3"]},
    ),
    Case("1,234 alone is a thousand", "t.tsv", b"n\n1,234\n5,678\n", columns={"n": ["1234", "5678"]}),
    Case("1,234 with semicolons is one", "t.csv", b"n;m\n1,234;1\n", columns={"n": ["1.234"], "m": ["1"]}),
    Case("or as is said", "t.csv", b"n;m\n1,234;1\n", {"decimal": "."}, {"n": ["1234"], "m": ["1"]}),
    Case(
        "numbers without a header",
        "t.csv",
        b"1,5;2,5\n3,5;4\n",
        columns={"column 1": ["1.5", "3.5"], "column 2": ["2.5", "4"]},
    ),
    Case(
        "versions are no numbers", "t.csv", b"v;n\n1.2.3;a\n1,2;b\n", columns={"v": ["1.2.3", "1,2"], "n": ["a", "b"]}
    ),
    Case("no such decimal mark", "t.csv", CSV.encode(), {"decimal": "·"}, error="--decimal must be a point or a comma"),
    Case(
        "codes keep their zeros",
        "t.csv",
        b"code,n\n007,1\n01,2\n1e3,3\n",
        columns={"code": ["007", "01", "1e3"], "n": ["1", "2", "3"]},
    ),
    # ---- columns left out ----
    Case("a column left out", "t.csv", CSV.encode(), {"drop": ["label"]}, {"text": PLAIN["text"]}),
    Case(
        "a column that is not there",
        "t.csv",
        CSV.encode(),
        {"drop": ["lable"]},
        error="no column 'lable'.*did you mean 'label'",
    ),
    # ---- JSON ----
    Case("a list of objects", "t.json", json.dumps([{"a": 1}, {"a": 2}], indent=1).encode(), columns={"a": [1, 2]}),
    Case("an object of columns", "t.json", b'{"a": [1, 2], "b": ["x", "y"]}', columns={"a": [1, 2], "b": ["x", "y"]}),
    Case(
        "an object of rows",
        "t.json",
        b'{"a": {"0": 1, "1": 2}, "b": {"0": "x", "1": "y"}}',
        columns={"a": [1, 2], "b": ["x", "y"]},
    ),
    Case("records inside an object", "t.json", b'{"version": 1, "data": [{"a": 1}, {"a": 2}]}', columns={"a": [1, 2]}),
    Case("lines in a JSON file", "t.json", lines({"a": 1}, {"a": 2}), columns={"a": [1, 2]}),
    Case("one line of lists is one row", "t.jsonl", b'{"words": ["a", "b"]}', columns={"words": [["a", "b"]]}),
    Case(
        "missing keys and nulls", "t.jsonl", lines({"a": None}, {"b": 1}), columns={"a": [None, None], "b": [None, 1]}
    ),
    Case("half a surrogate pair", "t.jsonl", b'{"a": "x\\ud800y"}', columns={"a": ["x\ufffdy"]}, note="U+FFFD"),
    Case("deep nesting", "t.jsonl", b"[" * 100_000 + b"]" * 100_000, error="nested too deeply"),
    Case("nesting of 30 levels", "t.jsonl", b'{"a": ' + b"[" * 30 + b"]" * 30 + b"}", error="deeper than 20 levels"),
    Case("a number of 5,000 digits", "t.jsonl", b'{"a": ' + b"9" * 5000 + b"}", error="line 1: not JSON.*digits"),
    Case("a number of 400 digits", "t.jsonl", b'{"a": ' + b"9" * 400 + b"}", columns={"a": [int("9" * 400)]}),
    Case("NaN", "t.jsonl", b'{"a": NaN}\n{"a": 1}', columns={"a": [None, 1]}),
    Case("not JSON", "t.jsonl", b'{"a": 1}\n{"a": \n', error="line 2: not JSON"),
    Case("numbers instead of objects", "t.jsonl", b"1\n2\n", error="line 1: an object is expected, got int"),
    Case(
        "an option of another format", "t.jsonl", b'{"a": 1}', {"sheet": "x"}, error="--sheet does not apply to jsonl"
    ),
    # ---- Parquet ----
    Case("Parquet", "t.parquet", parquet(a=["x", "y"], b=[1, None]), columns={"a": ["x", "y"], "b": [1, None]}),
    Case(
        "Parquet with lists, structs and times",
        "t.parquet",
        parquet(
            a=[["x"], []],
            b=[{"k": 1}, None],
            c=arrow([10**18, None], "timestamp", "ns"),
            d=arrow([10**17, 1], "timestamp", "ms"),
            e=arrow([b"ab", b"\xff"], "binary"),
        ),
        columns={
            "a": [["x"], []],
            "b": [{"k": 1}, None],
            "c": ["2001-09-09 01:46:40.000000000", None],
            "d": ["<value out of range: 100000000000000000>", "1970-01-01 00:00:00.001"],
            "e": ["ab", "\ufffd"],
        },
    ),
    Case("no Parquet", "t.parquet", b"PAR1 this is none", error="cannot be read as Parquet"),
    # ---- Excel ----
    Case(
        "Excel",
        "t.xlsx",
        excel([["text", "label"], ["good", 1], ["bad", 0]]),
        columns={"text": ["good", "bad"], "label": [1, 0]},
    ),
    Case(
        "Excel, the second sheet",
        "t.xlsx",
        excel([["a"]], [["b", "c"], ["x", 1.5]]),
        {"sheet": "second"},
        {"b": ["x"], "c": [1.5]},
    ),
    Case(
        "Excel, a sheet by number",
        "t.xlsx",
        excel([["a"]], [["b", "c"], ["x", 1.5]]),
        {"sheet": "2"},
        {"b": ["x"], "c": [1.5]},
    ),
    Case(
        "Excel, no such sheet",
        "t.xlsx",
        excel([["a"]]),
        {"sheet": "data"},
        error="no sheet 'data'; --sheet takes 'first'",
    ),
    Case(
        "Excel with empty cells, dates and empty rows",
        "t.xlsx",
        excel([["day", "text", "n"], [datetime.date(2024, 5, 1), "x", None], [], ["", "y", 2]]),
        columns={"day": ["2024-05-01", None], "text": ["x", "y"], "n": [None, 2]},
    ),
    Case("an empty sheet", "t.xlsx", excel([]), error="the sheet has no cells; --sheet"),
    Case("Excel of before 2007", "t.xls", b"\xd0\xcf\x11\xe0" + b"\0" * 600, error="save it as .xlsx"),
    Case("no Excel", "t.xlsx", b"text,label", error="is no Excel file"),
    Case("a broken archive", "t.xlsx", b"PK\x03\x04" + b"\0" * 100, error="no Excel file|cannot be read as Excel"),
    # ---- CoNLL and lines ----
    Case(
        "CoNLL in cp1252",
        "t.conll",
        "Köln B-LOC\nist O\n".encode("cp1252"),
        columns={"words": [["Köln", "ist"]], "tags": [["B-LOC", "O"]]},
    ),
    Case(
        "one text per line",
        "t.txt",
        "eins\n\nzwei, drei\n".encode("utf-16"),
        {"format": "lines"},
        {"text": ["eins", "zwei, drei"]},
    ),
    Case("no format", "t.dat", b"a", error="set --format to one of csv"),
    Case("an empty file", "t.csv", b"", error="is empty"),
    Case("spaces alone", "t.csv", b" \n \n", error="is empty"),
]

REVIEWS = "review;note\n{}"
TEXTS = ["ein sehr schöner Film", "ein sehr müder Film", "ein ganz guter Film", "ein Film"]


def reviews(*targets: str) -> bytes:
    rows = "".join(f"{TEXTS[i % 4]} {i};{target}\n" for i, target in enumerate(targets))
    return f"review;note\n{rows}".encode()


@dataclass(frozen=True)
class Task:
    """What `TaskData.of` makes of a file: the kind of target, the labels or numbers."""

    about: str
    file: str
    content: bytes
    options: dict[str, Any]
    kind: str = ""
    labels: tuple[str, ...] | None = None
    values: list[float] | None = None
    error: str = ""


TASKS = [
    Task("codes", "t.csv", reviews("007", "01", "007"), {"target": "note"}, "binary", ("01", "007")),
    Task(
        "three codes",
        "t.csv",
        reviews("007", "7", "1e3", "1000"),
        {"target": "note", "kind": "multiclass"},
        "multiclass",
        ("007", "7", "1000", "1e3"),
    ),
    Task("1.0 and 1 are one label", "t.csv", reviews("1.0", "1", "0"), {"target": "note"}, "binary", ("0", "1")),
    Task(
        "versions",
        "t.csv",
        reviews("1.0", "1.1", "2.0"),
        {"target": "note", "kind": "multiclass"},
        "multiclass",
        ("1.0", "1.1", "2.0"),
    ),
    Task(
        "numbers with commas",
        "t.csv",
        reviews("1,5", "2,25", "3", "1.000,5"),
        {"target": "note"},
        "regression",
        values=[1.5, 2.25, 3, 1000.5],
    ),
    Task(
        "grades with commas, as labels",
        "t.csv",
        reviews("1,0", "1,3", "1,0"),
        {"target": "note", "kind": "binary"},
        "binary",
        ("1,0", "1,3"),
    ),
    Task(
        "several labels",
        "t.tsv",
        b"text\ty\n" + b"a b c\t4,27\nd e f\t4\ng h i\t27\n" * 5,
        {"target": "y"},
        "multilabel",
        ("4", "27"),
    ),
    Task(
        "several labels, given",
        "t.csv",
        reviews("4,27", "4", "27,4"),
        {"target": "note", "kind": "multilabel", "separator": ","},
        "multilabel",
        ("4", "27"),
    ),
    Task(
        "decimal commas between tabs",
        "t.tsv",
        b"text\ty\na b c\t4,25\nd e f\t4,5\ng h i\t27,125\n",
        {"target": "y"},
        "regression",
        values=[4.25, 4.5, 27.125],
    ),
    Task(
        "objects as targets",
        "t.jsonl",
        lines({"text": "a b c", "y": {"k": 1}}),
        {"target": "y"},
        error="holds objects.*--target",
    ),
    Task(
        "a list where one label is due",
        "t.jsonl",
        lines({"text": "a", "y": [1]}),
        {"target": "y", "kind": "binary"},
        error=r"line 1: the target \[1\] is no label",
    ),
    Task(
        "a list as a text",
        "t.jsonl",
        lines({"text": ["a"], "y": 1}),
        {"text": "text", "target": "y"},
        error="line 1: the column 'text' holds a list, not a text.*--text",
    ),
    Task(
        "numbers as words",
        "t.jsonl",
        lines({"words": [1, 2], "y": ["A", "B"]}),
        {"words": "words", "target": "y"},
        error="a list of words.*--words",
    ),
    Task(
        "words in one string",
        "t.jsonl",
        lines({"words": "a b", "y": "A B"}),
        {"words": "words", "target": "y"},
        "tokens",
        ("A", "B"),
    ),
    Task(
        "two texts and no choice",
        "t.csv",
        b"a,b,y\none two three,four five six,1\nx y z,u v w,0\n",
        {"target": "y"},
        error="two text columns, 'a' and 'b'; read them as a pair with --text and --pair",
    ),
    Task(
        "the second of two texts is given",
        "t.csv",
        b"a,b,y\none two three,four five six,1\nx y z,u v w,0\n",
        {"target": "y", "pair": "b"},
        "binary",
        ("0", "1"),
    ),
    Task(
        "a name and no header",
        "t.csv",
        b"1,2\n3,4\n",
        {"target": "label"},
        error="no column 'label'; its columns are 'column 1', 'column 2'; if its first row .*--header",
    ),
    Task(
        "commas in one column, points in the target",
        "t.csv",
        b"text;n;y\na b c;1,5;0.75\nd e f;2,5;1.25\ng h i;3,25;2\n",
        {"target": "y"},
        "regression",
        values=[0.75, 1.25, 2],
    ),
    Task(
        "the decimal mark is given",
        "t.csv",
        reviews("1,234", "2,345", "3"),
        {"target": "note", "decimal": "."},
        "regression",
        values=[1234, 2345, 3],
    ),
    Task("a header of numbers", "t.csv", b"2019,text\n1,a\n0,b\n", {"target": "2019"}, "binary", ("0", "1")),
    Task(
        "no target in a row",
        "t.csv",
        reviews("1,5", "", "2"),
        {"target": "note"},
        error="line 3 has no target.*--drop-missing",
    ),
    Task(
        "a word among numbers",
        "t.csv",
        reviews("1,5", "viel", "2"),
        {"target": "note", "kind": "regression"},
        error="line 3: the target 'viel' is no number.*--head",
    ),
    Task(
        "a very long value is cut",
        "t.csv",
        reviews("1", "x" * 5000, "2"),
        {"target": "note", "kind": "regression"},
        error=r"the target 'x{40,80}\.\.\.' is no number",
    ),
]

DOCUMENTS = ["Der erste Text ist schön.", "Der zweite Text ist größer."]
DELIMITED = "".join(f"{i};{text}\n" for i, text in enumerate(DOCUMENTS))

CORPORA = [
    ("cp1252", "a.txt", "\n\n".join(DOCUMENTS).encode("cp1252"), {}),
    ("UTF-16", "a.txt", "\n\n".join(DOCUMENTS).encode("utf-16"), {}),
    ("cp1252, lines", "a.txt", "\r\n".join(DOCUMENTS).encode("cp1252"), {"layout": "lines"}),
    ("semicolons", "a.csv", f"id;text\n{DELIMITED}".encode(), {}),
    ("semicolons in cp1252", "a.csv", f"id;text\n{DELIMITED}".encode("cp1252"), {}),
    ("no header", "a.csv", DELIMITED.encode(), {"field": "column 2"}),
    ("a header of numbers", "a.csv", f"1;2\n{DELIMITED}".encode(), {"field": "2"}),
    ("another delimiter", "a.csv", f"id^text\n{DELIMITED.replace(';', '^')}".encode(), {"delimiter": "^"}),
    ("a short row", "a.csv", f"id;text\n{DELIMITED}7\n".encode(), {"ragged": "skip"}),
    ("a list of strings", "a.json", json.dumps(DOCUMENTS).encode(), {}),
    ("a list of objects", "a.json", json.dumps([{"text": text} for text in DOCUMENTS], indent=1).encode("utf-16"), {}),
    ("JSON lines in cp1252", "a.jsonl", "".join(f'{{"text": "{text}"}}\n' for text in DOCUMENTS).encode("cp1252"), {}),
    ("Excel", "a.xlsx", excel([["id", "text"], *enumerate(DOCUMENTS)]), {}),
    ("Shift-JIS has no ß, so GB 18030", "a.txt", "\n\n".join(DOCUMENTS).encode("gb18030"), {"encoding": "gb18030"}),
]
