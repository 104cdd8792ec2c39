"""What `import glassbert` and `glassbert --help` load, and that everything is still there when it is used."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import glassbert
from glassbert.checkpoints.family import FAMILIES, MODULES
from glassbert.errors import ConfigError
from glassbert.layers.registry import Registry

HEAVY = {"numpy", "numba", "sklearn", "scipy", "matplotlib", "safetensors", "tokenizers", "huggingface_hub", "mlx",
         "starlette", "uvicorn", "pandas", "torch", "transformers", "onnx", "mpi4py"}  # fmt: skip
SCRIPT = "import json, sys; {}; print(json.dumps(sorted(sys.modules)))"


def loaded_by(statement: str) -> set[str]:
    """The modules of a new process after a statement."""
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(statement)],
        capture_output=True, text=True, check=True, cwd=Path(glassbert.__file__).parents[1],
    )  # fmt: skip
    return set(json.loads(made.stdout.splitlines()[-1]))


def test_importing_the_package_loads_nothing_heavy():
    loaded = loaded_by("import glassbert")
    assert not loaded & (HEAVY | {"rich", "typer"})
    assert {name for name in loaded if name.startswith("glassbert")} == {"glassbert"}


def test_help_loads_no_library_that_computes():
    statement = "from glassbert.cli import all_commands; all_commands()(args=['--help'], standalone_mode=False)"
    loaded = loaded_by(statement)
    assert "glassbert.cli.help" in loaded and not loaded & HEAVY
    commands = {name for name in loaded if name.startswith("glassbert.") and not name.startswith("glassbert.cli")}
    assert commands <= {"glassbert.errors", "glassbert.files", "glassbert.locks"}


def test_loading_a_model_imports_its_family_and_no_other():
    loaded = loaded_by("import glassbert; glassbert.load('mini')")
    families = {name.rpartition(".")[2] for name in loaded if name.startswith("glassbert.families.")}
    assert families == {"bert", "modernbert"}  # which is made of parts of the other
    assert not loaded & {"sklearn", "matplotlib", "huggingface_hub", "rich"}


def test_every_public_name_can_be_used():
    for name in glassbert.__all__:
        assert getattr(glassbert, name) is not None
    assert set(glassbert.__all__) <= set(dir(glassbert))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = glassbert.no_such_name


def test_every_package_can_be_used_without_importing_it():
    folder = Path(glassbert.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    assert modules - {"__init__", "__main__", "cli"} == set(glassbert.PACKAGES)
    assert {"ops", "families.xlnet"} <= loaded_names("import glassbert; glassbert.ops.gelu; glassbert.families.xlnet")


def loaded_names(statement: str) -> set[str]:
    return {name.removeprefix("glassbert.") for name in loaded_by(statement)}


def test_every_module_of_a_family_is_in_the_table():
    folder = Path(glassbert.__file__).parent / "families"
    assert {path.stem for path in folder.glob("*.py")} - {"__init__", "factory"} == set(MODULES.values())
    assert [FAMILIES[name].name for name in MODULES] == list(MODULES)


# ---- entries that come later -----------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module on the path that registers "late" in a table of its own."""
    (tmp_path / "late_part.py").write_text(
        "import late_table\n@late_table.TABLE.register('late')\nclass Late:\n    pass\n"
    )
    (tmp_path / "late_table.py").write_text(
        "from glassbert.layers.registry import Registry\nTABLE = Registry('part')\n"
        "TABLE.register('first')(int)\nTABLE.later('late', 'late_part')\nTABLE.register('last')(float)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("late_table").TABLE
    for name in ("late_part", "late_table"):
        sys.modules.pop(name, None)


def test_an_entry_is_imported_when_it_is_used(module):
    assert list(module) == ["first", "late", "last"] and len(module) == 3 and "late" in module
    assert "late_part" not in sys.modules
    assert module["late"].__name__ == "Late" and "late_part" in sys.modules
    assert list(module) == ["first", "late", "last"]  # at its place


def test_a_later_entry_is_found_by_get_and_by_items(module):
    assert module.get("late").__name__ == "Late"
    assert [name for name, _ in module.items()] == ["first", "late", "last"]
    assert module.get("other", 3) == 3


def test_a_name_that_is_taken_later_cannot_be_registered(module):
    with pytest.raises(ConfigError, match="'late' exists already"):
        module.register("late")(str)


def test_a_module_that_does_not_register_its_name_is_named():
    table: Registry = Registry("part")
    table.later("nothing", "json")
    with pytest.raises(ConfigError, match="json does not register the part 'nothing'"):
        table["nothing"]
