"""The packages of the project and which of them may import which, and words that the project does not use."""

import ast
from pathlib import Path

import pytest

import glassbert

PACKAGE = Path(glassbert.__file__).parent
ORDER = [
    *("ops", "engines", "layers", "models", "checkpoints", "families", "reports", "metrics", "reading", "text"),
    *("generation", "training", "export"),
    *("tasks", "finetuning", "forecasting", "insight", "search", "bulk", "on_ray", "evaluation", "quantization"),
    *("proof", "serving", "learn", "cli"),
]
SHARED = {"arrays", "errors", "files", "locks"}  # modules that every package may import
# Imports inside a function that go up on purpose: a file format or a report is loaded when a method is called.
DELAYED = {
    "models/model.py": {"checkpoints"},
    "engines/kernels.py": {"engines"},
}


def imported_packages(tree: ast.AST, path: Path) -> set[str]:
    """The packages of glassbert that any import statement below `tree` names: absolute, relative, at any level."""
    found: set[str] = set()
    own = path.relative_to(PACKAGE).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("glassbert.")}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = own[: len(own) - node.level]
                first = [*base, *(node.module or "").split(".")][0]
                found |= {first} if first else {alias.name for alias in node.names}
            elif node.module == "glassbert":  # from glassbert import x: a package or a public name
                found |= {alias.name for alias in node.names}
            elif node.module and node.module.startswith("glassbert."):
                found.add(node.module.split(".")[1])
    return found


def functions_and_rest(tree: ast.Module) -> tuple[list[ast.AST], list[ast.AST]]:
    """The functions of a module, and everything that runs when it is imported."""
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    inside = {id(child) for function in functions for child in ast.walk(function)}
    guarded = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return functions, [node for node in imports if id(node) not in inside | guarded]


@pytest.mark.parametrize("package", ORDER)
def test_no_package_imports_one_above_it(package):
    allowed = {*ORDER[: ORDER.index(package) + 1], *SHARED}
    for path in sorted((PACKAGE / package).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions, rest = functions_and_rest(tree)
        name = path.relative_to(PACKAGE).as_posix()
        at_import = set().union(*(imported_packages(node, path) for node in rest)) & set(ORDER)
        assert at_import <= allowed, f"{name} imports {', '.join(sorted(at_import - allowed))}, above {package}"
        later = set().union(*(imported_packages(node, path) for node in functions)) & set(ORDER)
        extra = later - allowed - DELAYED.get(name, set())
        assert not extra, f"a function in {name} imports {', '.join(sorted(extra))}, above {package}"


def test_every_package_is_in_the_order():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(ORDER)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import glassbert.cli.check", {"cli"}),
        ("from glassbert.cli import check", {"cli"}),
        ("from glassbert import cli", {"cli"}),
        ("from .. import cli", {"cli"}),
        ("from ..cli.check import run", {"cli"}),
        ("def f():\n    from glassbert.cli import check", {"cli"}),
        ("from . import linear", {"ops"}),
    ],
)
def test_every_kind_of_import_is_seen(source, expected):
    assert imported_packages(ast.parse(source), PACKAGE / "ops" / "linear.py") == expected


def test_no_behaviour_depends_on_the_name_of_a_family():
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
                sides = [node.left, *node.comparators]
                compares = any(isinstance(side, ast.Attribute) and side.attr == "family" for side in sides)
                assert not compares, f"{path.relative_to(PACKAGE)}:{node.lineno} compares the name of a family"
