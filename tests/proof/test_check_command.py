"""`glassbert check`: its tables, its JSON and its exit code."""

import json

import pytest
from rich.console import Console

from glassbert import cli
from glassbert.cli import check
from glassbert.engines import numpy_kernels
from glassbert.ops.registry import OPERATIONS
from glassbert.proof.mutants import all_mutants, judge
from glassbert.proof.proof import choose, prove


@pytest.fixture(autouse=True)
def _wide_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")


def run(*arguments):
    with pytest.raises(SystemExit) as exit:
        cli.main(["check", *arguments])
    return exit.value.code


def test_all_is_well_and_the_exit_code_is_0(capsys):
    assert run("--only", "layer_norm") == 0
    output = capsys.readouterr().out
    assert "layer_norm: gamma not 1, odd width" in output
    assert "layer norm: gamma outside the means" in output
    assert "ok: 6 of 6 cases right" in output


def test_json_is_one_object_and_nothing_else(capsys):
    assert run("--only", "softmax", "--json") == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert captured.err == ""
    assert report["ok"] is True and report["seconds"] > 0
    for case in report["cases"]:
        assert {"name", "kind", "error", "float32", "mlx", "ok"} <= set(case)
        assert case["ok"] and case["error"] < 1e-6 and case["float32"] < 1e-4
    assert report["mutants"] and all(mutant["caught"] and mutant["by"] for mutant in report["mutants"])
    assert report["controls"] and not any(control["flagged"] for control in report["controls"])


def test_mutants_can_be_left_out(capsys):
    assert run("--only", "tanh: *", "--no-mutants", "--json") == 0
    assert json.loads(capsys.readouterr().out)["mutants"] == []


def test_every_entry_can_be_measured(capsys):
    assert run("--only", "self_attention: biases", "--no-mutants", "--every-entry") == 0
    assert "1 of 1 cases right" in capsys.readouterr().out


def test_a_pattern_that_fits_nothing_is_an_error(capsys):
    assert run("--only", "no such thing") == 2
    assert "no case and no mutant fits 'no such thing'" in capsys.readouterr().err


GUARDS = [
    "layer norm: gamma outside the means",
    "tied weights: the lookup's term overwrites the decoder's",
    "embedding: a repeated id keeps only its last gradient",
    "dropout: mask inverted",
    "attention: 1/√d missing",
    "tiled attention: window too wide in backward",
    "embeddings: token types get no gradient",
    "attention: bias gradient multiplied by the scale",
    "numpy kernel of relu: NaN becomes 0",
    "numpy kernel of attention_backward: the last row of the gradient is lost",
]


def plant(mutant, monkeypatch):
    """The mutant in the place of the product's own code: the operation, or the kernel."""
    table = numpy_kernels.KERNELS if mutant.kernels_of == "numpy" else OPERATIONS
    for name, function in mutant.replaced.items():
        monkeypatch.setitem(table, name, function)
    return mutant.plant()


@pytest.mark.parametrize("name", GUARDS)
def test_the_check_fails_where_the_product_has_the_fault_of_a_mutant(name, monkeypatch, capsys):
    """The mutant takes the place of the product's own code; nothing else changes."""
    mutant = all_mutants()[name]
    caught_by = judge(mutant).by
    assert run("--only", caught_by, "--no-mutants") == 0
    capsys.readouterr()
    with plant(mutant, monkeypatch):
        assert run("--only", caught_by, "--no-mutants", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["ok"] and caught_by in [case["name"] for case in report["cases"] if not case["ok"]]


def test_a_failure_is_explained(monkeypatch, capsys):
    with plant(all_mutants()["squared error: the 2 is missing"], monkeypatch):
        assert run("--only", "mean_squared_error: some ignored", "--no-mutants") == 1
    output = capsys.readouterr().out
    assert "WRONG" in output and "FAILED: 0 of 1 cases right" in output and "worst at" in output


def test_a_survivor_makes_the_check_fail(monkeypatch, capsys):
    harmless = all_mutants()["control: softmax by its whole Jacobian"]
    as_wrong = harmless._replace(harmless=False)
    monkeypatch.setattr(check, "choose", lambda only, with_mutants, own_only=False: ([], [as_wrong]))
    assert run() == 1
    assert "SURVIVED" in capsys.readouterr().out


def test_without_mlx_its_columns_are_left_out(monkeypatch, capsys):
    monkeypatch.setattr("glassbert.proof.proof.mlx_in_words", lambda: None)
    assert run("--only", "tanh: complex*", "--no-mutants") == 0
    output = capsys.readouterr().out
    assert "MLX not installed" in output and "autograd" not in output


@pytest.mark.parametrize("width", [80, 120])
def test_the_tables_fit_the_screen(width):
    proof = prove(*choose("mean_pool"))
    console = Console(width=width)
    with console.capture() as capture:
        check.show(console, proof)
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)


def test_a_pattern_chooses_cases_and_the_mutants_they_face():
    cases, mutants = choose("tiled_attention: local window")
    assert {case.subject for case in cases} == {"tiled_attention"}
    assert "tiled attention: window too narrow in backward" in {mutant.name for mutant in mutants}
    all_of_them, faults = choose(None)
    assert len(all_of_them) > 250 and len(faults) > 150
