"""Every option of reading files is a flag of the commands and an argument of the functions, and so is every remedy."""

import ast
import inspect
import re
from pathlib import Path

import pytest
import typer

import glassbert
from glassbert.cli import corpus as corpus_command
from glassbert.cli import finetune as finetune_command
from glassbert.cli import forecast as forecast_command
from glassbert.cli import predict as predict_command
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.forecasting.settings import ForecastSettings
from glassbert.reading.options import OPTIONS
from glassbert.tasks import TaskData
from glassbert.text.corpus.build import build_corpus
from glassbert.text.corpus.settings import READING, Settings

PACKAGE = Path(glassbert.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
RENAMED = {"keep_near_duplicates": "near_duplicates"}  # a flag without a value, an argument with one
# The modules whose errors are about files.
READERS = [
    *(PACKAGE / "reading").glob("*.py"),
    *(PACKAGE / "tasks").glob("*.py"),
    *(PACKAGE / "text" / "corpus").glob("*.py"),
]


def flags(command) -> set[str]:
    app = typer.Typer()
    app.command()(command)
    parameters = typer.main.get_command(app).params
    return {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}


def test_every_option_is_a_flag():
    wanted = {f"--{name.replace('_', '-')}" for name in OPTIONS}
    wanted |= {"--format", "--no-header", "--no-quoting"}
    for command in (finetune_command.run, predict_command.run, forecast_command.run):
        assert wanted <= flags(command)
    assert {f"--{name.replace('_', '-')}" for name in READING} | {"--no-header"} <= flags(corpus_command.build)


def test_every_option_is_an_argument():
    for settings in (FineTuningSettings, ForecastSettings):
        assert set(OPTIONS) <= set(settings.fields())
    assert set(READING) <= set(Settings.__dataclass_fields__)
    for function in (TaskData.of, build_corpus):
        assert any(one.kind == one.VAR_KEYWORD for one in inspect.signature(function).parameters.values())


def named_flags(path: Path):
    """(line, flag) of every flag in a string of the module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for flag in FLAG.findall(node.value):
                yield node.lineno, flag


def all_flags() -> set[str]:
    commands = (finetune_command.run, predict_command.run, forecast_command.run, corpus_command.build)
    return set().union(*map(flags, commands))


@pytest.mark.parametrize("path", READERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_remedy_in_an_error_exists(path):
    known = all_flags()
    arguments = {*FineTuningSettings.fields(), *ForecastSettings.fields(), *Settings.__dataclass_fields__}
    arguments |= set(inspect.signature(build_corpus).parameters)
    for line, flag in named_flags(path):
        assert flag in known, f"{path.name}:{line} names {flag}, which no command has"
        name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
        assert RENAMED.get(name, name) in arguments, f"{path.name}:{line} names {flag}, which is no argument"
