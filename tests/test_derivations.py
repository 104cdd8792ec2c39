"""docs/derivations: every numbered formula is evaluated, every operation has one, and all references lead somewhere."""

import ast
import importlib
import inspect
import linecache
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import glassbert.ops
from glassbert.ops.registry import OPERATIONS

FOLDER = Path(__file__).parents[1] / "docs" / "derivations"
CHAPTERS = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("[0-9]*.md"))}
BLOCK = re.compile(r"```python\n(.*?)```", re.S)
NUMBER = re.compile(r"\((\d+\.\d+)\)")
TAG = re.compile(r"\\tag\{(\d+\.\d+)\}")
IN_CODE = re.compile(r"`(glassbert\.[\w.]+)`")
IN_DOCSTRING = re.compile(r"Derivation: docs/derivations/[\w-]+\.md \(\d+\.\d+\)(?:, \(\d+\.\d+\))*")

# Public names of glassbert.ops that have no formula, and why.
NO_FORMULA = {
    "operation": "enters a function into the table of operations",
    "operation_names": "lists the table of operations",
}


def tags(page: str) -> dict[str, list[str]]:
    """The numbered formulas of a chapter, and the functions that each names on the next line but one."""
    found: dict[str, list[str]] = {}
    for match in re.finditer(r"\\tag\{(\d+\.\d+)\}\n\$\$\n\n(.*)", page):
        found[match[1]] = IN_CODE.findall(match[2]) if match[2].startswith("In code: ") else []
    return found


FORMULAS = {number: (chapter, names) for chapter, page in CHAPTERS.items() for number, names in tags(page).items()}


def resolve(dotted: str):
    """The object behind `glassbert.ops.linear.linear_backward` or `glassbert.arrays.FlatGradients.add`."""
    parts = dotted.split(".")
    for i in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:i]))
        except ModuleNotFoundError:
            continue
        for name in parts[i:]:
            found = getattr(found, name)
        return found
    raise AttributeError(dotted)


class Evaluation:
    """Runs the Python of a chapter after that of chapter 1, and notes what is compared."""

    def __init__(self):
        self.compared: dict[str, set[str]] = {}
        self.names: dict[str, object] = {}
        for block in BLOCK.findall(CHAPTERS["01-derivatives.md"])[:1]:
            exec(compile(block, "docs/derivations/01-derivatives.md", "exec"), self.names)
        plain = self.names["agree"]

        def agree(number, **values):
            assert len(values) >= 2, f"({number}) is compared with nothing"
            for name, value in values.items():
                assert np.isfinite(value).all() and np.any(value), f"({number}) {name} is zero or not finite"
            plain(number, **values)
            self.compared.setdefault(number, set()).update(values)

        self.names["agree"] = agree

    def run(self, chapter: str) -> None:
        page = CHAPTERS[chapter]
        for match in BLOCK.finditer(page):
            if "def agree(" in match[1]:  # has run already
                continue
            lines = page.count("\n", 0, match.start()) + 1  # so that a failure names the line of the document
            exec(compile("\n" * lines + match[1], str(FOLDER / chapter), "exec"), self.names)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_formula_of_a_chapter_is_evaluated(chapter):
    found = evaluated(chapter)
    assert set(found) == {number for number, (where, _) in FORMULAS.items() if where == chapter}
    for number, kinds in found.items():
        assert "formula" in kinds and kinds & {"function", "differences"}, f"({number}) compares only {kinds}"


@cache
def evaluated(chapter):
    evaluation = Evaluation()
    evaluation.run(chapter)
    return evaluation.compared


def test_every_backward_has_a_formula_that_equals_it_and_finite_differences():
    measured = set()
    for number, (chapter, names) in FORMULAS.items():
        if evaluated(chapter)[number] >= {"formula", "function", "differences"}:
            measured |= {name for name in names if name.endswith("backward")}
    named = {name for _, names in FORMULAS.values() for name in names if name.endswith("backward")}
    assert len(named) > 30 and named == measured


def test_numbers_run_without_gaps_and_belong_to_their_chapter():
    for chapter, page in CHAPTERS.items():
        first = int(chapter.split("-")[0])
        numbers = [tuple(map(int, number.split("."))) for number in TAG.findall(page)]
        assert numbers == [(first, i) for i in range(1, len(numbers) + 1)], chapter
        assert page.startswith(f"# {first}. ")


def test_every_formula_names_a_function_that_exists():
    assert FORMULAS.keys() == {number for page in CHAPTERS.values() for number in TAG.findall(page)}
    for number, (chapter, names) in FORMULAS.items():
        assert names, f"({number}) in {chapter} names no function: write `In code: ...` below it"
        for name in names:
            assert callable(resolve(name)), f"({number}) names {name}"


def test_every_reference_in_the_text_leads_to_a_formula():
    for chapter, page in [*CHAPTERS.items(), ("README.md", (FOLDER / "README.md").read_text(encoding="utf-8"))]:
        for number in NUMBER.findall(BLOCK.sub("", page)):
            assert number in FORMULAS, f"{chapter} refers to ({number}), which does not exist"
        for link in re.findall(r"\]\(([\w./-]+\.md)\)", page):
            assert (FOLDER / link).exists(), f"{chapter} links to {link}"


RULES = "01-derivatives.md"  # its rules are used everywhere; docstrings name the results


def expected_docstrings() -> dict[str, str]:
    """What the docstring of each function must say."""
    named: dict[str, dict[str, list[str]]] = {}
    for number, (chapter, names) in FORMULAS.items():
        for name in names if chapter != RULES else []:
            named.setdefault(name, {}).setdefault(chapter, []).append(f"({number})")
    return {
        name: " ".join(
            f"Derivation: docs/derivations/{chapter} {', '.join(numbers)}" for chapter, numbers in of.items()
        )
        for name, of in named.items()
    }


def test_every_function_that_a_formula_names_names_the_formula():
    wrong = [
        f"the docstring of {name} must say: {line}"
        for name, line in expected_docstrings().items()
        if line not in " ".join((inspect.getdoc(resolve(name)) or "").split())
    ]
    assert not wrong, "\n".join([*wrong, "`python tests/test_derivations.py` writes these lines"])


def test_every_docstring_that_names_a_formula_is_named_by_it():
    package = Path(glassbert.__file__).parent
    expected = " ".join(expected_docstrings().values())
    for path in sorted(package.rglob("*.py")):
        for line in IN_DOCSTRING.findall(" ".join(path.read_text(encoding="utf-8").split())):
            assert line in expected, f"{path.relative_to(package)} says {line}, and no formula names this function"


def public_operations() -> list[str]:
    """The table of operations, and the public functions of glassbert.ops."""
    ours = {name for name, function in OPERATIONS.items() if function.__module__.startswith("glassbert.ops.")}
    public = {name for name in glassbert.ops.__all__ if inspect.isfunction(getattr(glassbert.ops, name))}
    return sorted((ours | public) - NO_FORMULA.keys())


@pytest.mark.parametrize("name", public_operations())
def test_every_operation_has_a_formula(name):
    function = OPERATIONS.get(name) or getattr(glassbert.ops, name)
    dotted = f"{function.__module__}.{name}"
    assert any(dotted in names for _, names in FORMULAS.values()), (
        f"no formula in docs/derivations names {dotted}; derive it there, or give a reason in NO_FORMULA"
    )


def test_exceptions_exist():
    assert all(name in glassbert.ops.__all__ or name in OPERATIONS for name in NO_FORMULA)


def test_math_is_written_so_that_markdown_leaves_it_alone():
    """A backslash before punctuation is an escape in Markdown; some pages would lose it."""
    for chapter, page in CHAPTERS.items():
        prose = BLOCK.sub("", page)
        for formula in re.findall(r"\$\$\n.*?\n\$\$|\$[^$\n]+\$", prose, re.S):
            assert not re.search(r"\\[^a-zA-Z]", formula), f"{chapter}: {formula}"
        assert prose.replace("$$", "").count("$") % 2 == 0, f"{chapter} has a $ without its partner"


def test_what_is_not_compared_is_noticed():
    agree = Evaluation().names["agree"]
    with pytest.raises(AssertionError, match=r"\(9\.9\) function differs from formula by"):
        agree("9.9", formula=np.ones(3), function=np.array([1.0, 1.0, 1.0 + 1e-9]))
    with pytest.raises(AssertionError, match="compared with nothing"):
        agree("9.9", formula=np.ones(3))
    with pytest.raises(AssertionError, match="zero or not finite"):
        agree("9.9", formula=np.zeros(3), function=np.zeros(3))
    with pytest.raises(AssertionError, match="another shape"):
        agree("9.9", formula=np.ones(3), function=np.ones((3, 1)))


def scaled(value):
    """A gradient that is wrong by a thousandth; ids and other constants stay."""
    if isinstance(value, tuple):
        return tuple(map(scaled, value))
    return value * 1.001 if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


@pytest.mark.parametrize("name", [name for name in public_operations() if name.endswith("_backward")])
def test_a_backward_that_is_slightly_wrong_is_noticed(name, monkeypatch):
    right = OPERATIONS[name]
    wrong = lambda dy, state: scaled(right(dy, state))  # noqa: E731
    monkeypatch.setattr(importlib.import_module(right.__module__), name, wrong)
    monkeypatch.setattr(glassbert.ops, name, wrong, raising=False)
    chapter = next(
        where for where, names in FORMULAS.values() if f"{right.__module__}.{name}" in names and where != RULES
    )
    with pytest.raises(AssertionError, match=r"\(\d+\.\d+\) (function|differences) differs from formula by"):
        Evaluation().run(chapter)


def write_docstrings() -> None:
    """Add the missing lines to the docstrings of functions that formulas name."""
    for name, line in expected_docstrings().items():
        function = resolve(name)
        if line in " ".join((function.__doc__ or "").split()):
            continue
        path = Path(inspect.getsourcefile(function))
        lines = path.read_text(encoding="utf-8").splitlines()
        start = inspect.getsourcelines(function)[1]
        found = [
            node for node in ast.walk(ast.parse("\n".join(lines))) if hasattr(node, "body") and hasattr(node, "name")
        ]
        node = next(node for node in found if node.name == function.__name__ and node.lineno >= start)
        first, indent = node.body[0], " " * (node.col_offset + 4)
        if ast.get_docstring(node) is None:
            lines.insert(first.lineno - 1, f'{indent}"""{line}."""')
        elif first.lineno < first.end_lineno:
            lines[first.end_lineno - 1 : first.end_lineno - 1] = ["", indent + line]
        elif len(lines[first.lineno - 1]) + len(line) < 120:
            lines[first.lineno - 1] = f'{lines[first.lineno - 1][:-3]} {line}."""'
        else:
            lines[first.lineno - 1 : first.lineno] = [lines[first.lineno - 1][:-3], "", indent + line, indent + '"""']
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        linecache.checkcache()


if __name__ == "__main__":
    write_docstrings()
