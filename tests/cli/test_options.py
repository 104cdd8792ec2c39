"""Counts as people write them, choices, aliases, JSON without NaN, and names that mean one thing."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import typer

from glassbert.cli import COMMANDS, load_command
from glassbert.cli.options import count_of, number, split_names
from glassbert.cli.output import finite, print_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2000", 2000), ("2_000", 2000), ("2,000", 2000), ("2k", 2000), ("2K", 2000), ("1.5M", 1_500_000),
        ("1e6", 1_000_000), ("2.5e3", 2500), ("1G", 10**9), ("3b", 3 * 10**9), (" 7 ", 7), ("0", 0), (64, 64),
    ],
)  # fmt: skip
def test_counts(text, value):
    assert count_of(0)(text) == value


@pytest.mark.parametrize(
    "text", ["", "two", "1.5", "2MB", "1e", "k", "1e-3", "nan", "inf", "--3", "1e999", "1,,0", "0x10"]
)
def test_what_is_no_count(text):
    with pytest.raises(typer.BadParameter, match="not a whole number"):
        count_of(0)(text)


def test_a_count_out_of_range():
    with pytest.raises(typer.BadParameter, match="at least 1"):
        count_of(1)("0")
    with pytest.raises(typer.BadParameter, match="from 0 to 65,535"):
        count_of(0, 65535)("1M")


def test_numbers_of_a_list():
    assert [number(one) for one in ["1", "1.5", "2k"]] == [1, 1.5, 2000]
    assert split_names(["a,b", " c ", ""]) == ["a", "b", "c"] and split_names(None) == []


def test_json_has_no_nan(capsys):
    print_json({"a": math.nan, "b": [np.float32("inf"), np.int64(3)], "c": np.array([1.0, np.nan]), "d": Path("x/y")})
    shown = capsys.readouterr().out
    assert json.loads(shown, parse_constant=pytest.fail) == {"a": None, "b": [None, 3], "c": [1.0, None], "d": "x/y"}
    assert finite(True) is True and finite(None) is None


def parameters(command, name=""):
    """All options of a command and its subcommands, with the name of their command."""
    for one in command.params:
        if one.param_type_name == "option":
            yield name, one
    for sub, inner in getattr(command, "commands", {}).items():
        yield from parameters(inner, f"{name} {sub}")


OPTIONS = [pair for name in COMMANDS for pair in parameters(load_command(name), name)]
REPORTING = [name for name in COMMANDS if name not in ("corpus", "tokenizer", "learn", "glass", "serve")]


@pytest.mark.parametrize("name", [*REPORTING, "corpus build", "corpus report", "tokenizer train", "tokenizer encode",
                                  "tokenizer inspect", "learn", "learn check", "learn exercises"])  # fmt: skip
def test_every_command_that_reports_has_json(name):
    assert "--json" in {flag for command, one in OPTIONS if command == name for flag in one.opts}


def test_every_whole_number_is_a_count():
    """Whole numbers have the parser of counts, so that 2M works everywhere."""
    context = load_command("models").make_context("models", [], resilient_parsing=True)
    shown = {f"{command} {one.opts}": one.get_help_record(context) for command, one in OPTIONS}
    plain = [name for name, record in shown.items() if record is not None and "<int" in record[0]]
    counts = [name for name, record in shown.items() if record is not None and record[0].endswith(" N")]
    assert not plain and len(counts) > 100


def test_one_thing_has_one_name():
    gone = {
        "--force",
        "--html",
        "--page",
        "--field",
        "--kind",
        "--vocabulary",
    }
    flags = {(command, flag) for command, one in OPTIONS for flag in one.opts}
    assert not {flag for _, flag in flags} & gone
    others = {flag for _, one in OPTIONS if "--output" in one.opts for flag in one.opts if flag != "--output"}
    assert others == {"-o", "--export"}  # `glassbert glass --export` is what it does
    for command in ("pretrain", "plan", "tokenizer train", "corpus build", "scale"):
        assert (command, "--vocab-size") in flags
    for command in ("check", "evaluate", "probe", "inspect", "learn check"):
        assert (command, "--only") in flags
    for command in ("pretrain", "finetune", "forecast", "adapt", "scale", "plan"):
        assert {(command, "--batch-size"), (command, "--lr")} <= flags


def test_choices_are_shown(capsys, monkeypatch):
    from glassbert.cli import main

    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        main(["pretrain", "--help"])
    shown = capsys.readouterr().out
    for choices in ("--engine auto|numpy|mlx", "--packing sentences|tokens", "--precision float32|bfloat16|float64"):
        assert choices in shown
    assert "--batch, --batch-size N" in shown and "--learning-rate, --lr NUMBER" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_help_wraps_to_a_narrow_terminal(capsys, monkeypatch):
    from glassbert.cli import main

    monkeypatch.setenv("COLUMNS", "40")
    with pytest.raises(SystemExit):
        main(["finetune", "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 40
