"""The rooms of the house and who may go where."""

import ast
from pathlib import Path

import pytest

import glassbert

PACKAGE = Path(glassbert.__file__).parent
ORDER = [
    *("engines", "ops", "layers", "models", "checkpoints"),
    *(
        "reports",
        "metrics",
        "text",
        "training",
        "tasks",
        "finetuning",
        "forecasting",
        "insight",
        "evaluation",
        "proof",
        "cli",
    ),
]
KERNELS = {"numpy_kernels.py", "mlx_kernels.py", "compiled.py"}  # an engine's kernels stand in for operations


def imports_at_the_top(path: Path) -> set[str]:
    """The rooms a file imports from when it is loaded; what a function imports when called does not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("glassbert.")}


@pytest.mark.parametrize("room", ORDER)
def test_no_room_imports_from_above(room):
    allowed = {*ORDER[: ORDER.index(room) + 1], "errors", "files"}
    for path in sorted((PACKAGE / room).rglob("*.py")):
        extra = {"ops"} if path.name in KERNELS else set()
        above = imports_at_the_top(path) - allowed - extra
        assert not above, f"{room}/{path.name} imports from {', '.join(sorted(above))}, which stands above it"


def test_every_room_is_known():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms == set(ORDER)
