"""Every option that a text of the package names exists, and so does every package that it advises to install."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import glassbert
from glassbert.cli import COMMANDS, load_command

PACKAGE = Path(glassbert.__file__).parent
ROOT = PACKAGE.parent
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![\w-])")
COMMAND_LINE = re.compile(r"glassbert ([a-z][a-z-]*(?: [a-z]+(?![\w/.:=-]))?)([^\n`;]*)")
# Options of other programs that texts advise to run.
OF_OTHERS = {
    "pip": ("--force-reinstall", "--upgrade"),
    "marimo": (
        "--include-outputs",
        "--no-include-code",
        "--no-sandbox",
        "--headless",
        "--no-token",
        "--skip-update-check",
    ),
    "srun": ("--mpi",),
}
FOREIGN = {flag for flags in OF_OTHERS.values() for flag in flags}

# The commands that texts of a package are about; texts of the other packages may be about any.
CONCERNS = {
    "evaluation": ("evaluate", "probe", "scale", "family", "pretrain"),
    "finetuning": ("finetune", "predict", "embed"),
    "forecasting": ("forecast",),
    "generation": ("generate",),
    "insight": ("inspect", "pretrain"),
    "proof": ("check",),
    "tasks": ("finetune", "predict", "forecast", "probe", "evaluate"),
    "text": ("corpus", "tokenizer", "pretrain", "inspect", "evaluate", "finetune", "predict"),
    "training": ("pretrain", "adapt", "plan", "scale", "distill"),
}


def options_of(command) -> set[str]:
    """The flags of a command and of its subcommands."""
    found = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    for sub in getattr(command, "commands", {}).values():
        found |= options_of(sub)
    return found


@cache
def all_options() -> dict[str, set[str]]:
    return {name: options_of(loaded(name)) for name in COMMANDS}


loaded = cache(load_command)


def subcommand(words: list[str]):
    """The command that words of a command line name, and its own name; None where there is no such command."""
    if not words or words[0] not in COMMANDS:
        return None
    command = loaded(words[0])
    if len(words) > 1 and words[1] in getattr(command, "commands", {}):
        return command.commands[words[1]]
    return command


def texts_of(path: Path) -> list[tuple[int, str]]:
    """The texts of a module with their lines: literals, docstrings, and f-strings with … in the place of values."""
    found, inside = [], set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            found.append((node.lineno, "".join(map(str, parts))))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            found.append((node.lineno, node.value))
    return found


MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def unknown_options(text: str, known: set[str]) -> set[str]:
    text = re.sub(r"var\(--[^)]*\)|python -m [^\n`]*", "", text)  # variables of CSS, and programs of their own
    return {flag for flag in OPTION.findall(text) if flag not in known and flag not in FOREIGN}


@pytest.mark.parametrize("package", sorted({path.relative_to(PACKAGE).parts[0] for path in MODULES}))
def test_every_option_in_a_text_exists(package):
    everywhere = {"--version", "--no-verify", "--install-completion", "--show-completion"}
    known = set().union(*(all_options()[name] for name in CONCERNS.get(package, COMMANDS))) | everywhere
    for path in MODULES:
        if path.relative_to(PACKAGE).parts[0] == package:
            for line, text in texts_of(path):
                unknown = unknown_options(COMMAND_LINE.sub("", text), known)  # the next test is about command lines
                assert not unknown, (
                    f"{path.relative_to(ROOT)}:{line} names {', '.join(sorted(unknown))}: {text[:100]!r}"
                )


def command_lines(text: str) -> list[tuple[list[str], str]]:
    """The command lines in a text: the words that name the command, and the rest of the line up to its end."""
    return [(match[1].split(), match[2]) for match in COMMAND_LINE.finditer(text)]


def wrong_command_lines(text: str) -> list[str]:
    wrong = []
    for words, rest in command_lines(text):
        command = subcommand(words)
        if command is not None:
            wrong += [
                f"{' '.join(words)}: {flag}"
                for flag in sorted(unknown_options(rest, options_of(command) | {"--no-verify"}))
            ]
    return wrong


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_every_command_line_in_a_text_has_the_options_of_its_command(path):
    for line, text in texts_of(path):
        wrong = wrong_command_lines(text)
        assert not wrong, f"{path.relative_to(ROOT)}:{line} names {', '.join(wrong)}"


DOCUMENTS = [*ROOT.glob("README.md"), *(p for p in ROOT.glob("docs/**/*.md") if p.name != "lab-notes.md")]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_line_in_a_document_has_the_options_of_its_command(path):
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    assert not wrong_command_lines(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("use --no-such-thing to mend it", {"--no-such-thing"}),
        ("use --minutes, or --lr", set()),
        ("run: pip install --force-reinstall numpy", set()),
        ("a -- b and --- c", set()),
    ],
)
def test_the_walk_finds_what_it_should(text, found):
    assert unknown_options(text, set().union(*all_options().values())) == found


def test_a_flag_of_another_command_is_found():
    assert wrong_command_lines("glassbert predict RUN --minutes 5") == ["predict: --minutes"]
    assert wrong_command_lines("try `glassbert fill-mask runs/mine --horizon 3`") == ["fill-mask: --horizon"]
    assert wrong_command_lines("glassbert corpus build texts/ -o corpus --vocab-size 2k") == []


def requirements() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    return {re.split(r"[\[<>=; ]", one)[0].lower() for one in listed}


def test_every_package_that_is_advised_is_one_that_we_name():
    known = requirements()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "needs" and len(node.args) == 2:
                names = {c.value for c in ast.walk(node.args[1]) if isinstance(c, ast.Constant) and c.value != "linux"}
                unknown = {name.partition("[")[0].lower() for name in names} - known
                assert not unknown, f"{path.relative_to(ROOT)}:{node.lineno} advises {unknown}"


def test_no_text_advises_an_extra_of_a_published_package():
    """There is no published package; a missing package is named by its own name (`glassbert.errors.needs`)."""
    for path in MODULES:
        for line, text in texts_of(path):
            assert "pip install" not in text or "glassbert[" not in text, f"{path.relative_to(ROOT)}:{line}"


def test_an_option_whose_placeholder_is_its_name_names_its_flag():
    """Typer 0.26 to 0.28 make --MODEL of a parameter `model` with the placeholder MODEL."""
    unnamed = []
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        for argument in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.arg)):
            for call in (node for node in ast.walk(argument) if _is_unnamed_option(node)):
                shown = [one.value for one in call.keywords if one.arg == "metavar"]
                if any(isinstance(one, ast.Constant) and one.value.lower() == argument.arg for one in shown):
                    unnamed.append(f"{path.name}: {argument.arg}")
    assert not unnamed


def _is_unnamed_option(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Option" and not node.args
