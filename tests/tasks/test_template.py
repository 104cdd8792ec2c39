"""Table rows as sentences."""

import json

import pytest

from glassbert.errors import ConfigError, InputError, TextError
from glassbert.tasks import Template, auto_template, parse_template, read_table
from glassbert.tasks.template import readable_name

N = 40
TABLE = {
    "RowId": list(range(100, 100 + N)),
    "HomeTown": ["New_York" if n % 3 else "Rome" for n in range(N)],
    "Age": [None if n % 5 == 0 else 20 + n for n in range(N)],
    "Fare": [7.25 + n * 1.3333 for n in range(N)],
    "Alone": ["True" if n % 2 else "False" for n in range(N)],
    "Ship": ["Titanic"] * N,
    "Cabin": ["" if n % 4 else f"C{n}" for n in range(N)],
    "Ticket": [f"PC {17000 + n}" for n in range(N)],
    "Notes": [f"came aboard with {n} trunks" for n in range(N)],
    "Rare": ["x" if n % 2 else "y" for n in range(N - 1)] + [None],
    "Survived": [n % 2 for n in range(N)],
}


def test_auto_template():
    table = read_table(TABLE)
    template = auto_template(table, "Survived")
    assert template.apply(table)[1] == (
        "home town is New York, age is 21, fare is 8.6, alone is yes, cabin is unknown, rare is x, "
        "notes: came aboard with 1 trunks"
    )
    assert template.apply(table)[0].startswith(
        "home town is Rome, age is unknown, fare is 7.2, alone is no, cabin is known"
    )
    assert "rare" not in template.apply(table)[-1]  # rarely missing in training: left out
    shown = {row[0]: row for row in template.rows(table)}
    assert shown["RowId"][1:3] == ("id", "left out") and shown["Ship"][1:3] == ("constant", "left out")
    assert shown["Ticket"][1:3] == ("code", "left out") and "20%" in shown["Age"][3]


def test_stored_template_gives_the_same_sentences():
    table = read_table(TABLE)
    template = auto_template(table, "Survived", drop=["Notes"], numbers="both")
    again = Template.from_json(json.loads(json.dumps(template.as_json())))
    assert again == template and again.apply(table) == template.apply(table)
    one = read_table([{**{name: values[3] for name, values in TABLE.items()}, "HomeTown": "Bath"}])
    assert again.apply(one)[0].startswith("home town is Bath, age is 23 very low, fare is 11.2 very low")
    with pytest.raises(ConfigError, match="not a stored template"):
        Template.from_json({"parts": [{"colour": 1}]})


def test_missing_column_in_prediction():
    table = read_table(TABLE)
    with pytest.raises(TextError, match="no column 'Age'"):
        auto_template(table, "Survived").apply(read_table({"HomeTown": ["Rome"]}))


def test_parse_template():
    table = read_table({"Age": [38, None], "a.b": ["x", "y"], "sex": ["male", "female"]})
    template = parse_template("A {sex} passenger of {Age} ({a.b}), {sex}.", table)
    assert template.apply(table) == ["A male passenger of 38 (x), male.", "A female passenger of unknown (y), female."]
    assert Template.from_json(template.as_json()) == template
    with pytest.raises(TextError, match=r"no column 'Sex'; .*did you mean 'sex'"):
        parse_template("{Sex}", table)
    with pytest.raises(ConfigError, match="names no column"):
        parse_template("a passenger", table)


def test_rounding_of_numbers():
    density = auto_template(read_table({"density": [0.9978, 0.9968, 0.997, 0.998, 0.99547] * 4, "x": ["a", "b"] * 10}))
    assert density.sentence({"density": 0.99784321, "x": "a"}) == "density is 0.99784, x is a"
    prices = auto_template(read_table({"price": [1000.123, 5000.5, 9999.99, 20000.0]}))
    assert prices.sentence({"price": "7654.321"}) == "price is 7654"
    assert prices.sentence({"price": -0.2}) == "price is 0"
    assert prices.sentence({"price": "cheap"}) == "price is cheap"


def test_no_usable_column():
    with pytest.raises(InputError, match="no column can be used as text"):
        auto_template(read_table({"x": ["same"] * 5, "y": [0, 1, 0, 1, 0]}), "y")


@pytest.mark.parametrize(
    ("column", "name"),
    [("PassengerClass", "passenger class"), ("pH", "ph"), ("a_b.c-d", "a b c d"), ("SibSp", "sib sp")],
)
def test_readable_names(column, name):
    assert readable_name(column) == name
