"""Every member of the table against transformers: outputs, gradients, files both ways, MLX, and published sizes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import transformers

import glassbert
from tests.parity.families.members import MEMBERS
from tests.parity.families.sweep import DTYPES, check_mlx, check_outputs_and_gradients, check_round_trips

for _path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    if not _path.stem.startswith("test_"):
        import_module(f"tests.parity.families.{_path.stem}")

CASES = [(m.family, name) for m in MEMBERS.values() for name in m.cases]
HEADS = [(m.family, head) for m in MEMBERS.values() for head in m.heads]
RUNS = [(m.family, name, head) for m in MEMBERS.values() for name in m.cases for head in m.heads]
PRESETS = [(m.family, preset) for m in MEMBERS.values() for preset in m.presets]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("family", "name", "head"), RUNS)
def test_outputs_and_gradients(family: str, name: str, head: str | None, dtype: str, tmp_path: Path) -> None:
    changes, lengths = MEMBERS[family].cases[name]
    reference = MEMBERS[family].model(head, dtype, **changes)
    types = getattr(reference.config, "type_vocab_size", 0) or 0
    ours = check_outputs_and_gradients(reference, head, lengths, tmp_path, dtype, types=types if types > 1 else 0)
    assert ours.config.family == family


@pytest.mark.parametrize(("family", "head"), HEADS)
def test_round_trips(family: str, head: str | None, tmp_path: Path) -> None:
    check_round_trips(MEMBERS[family].model(head), tmp_path)


@pytest.mark.parametrize(("family", "head"), HEADS)
def test_mlx_equals_numpy(family: str, head: str | None, tmp_path: Path) -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    name, (changes, lengths) = next(iter(MEMBERS[family].cases.items()))
    check_mlx(MEMBERS[family].model(head, **changes), head, lengths, tmp_path / name)


@pytest.mark.parametrize(("family", "preset"), PRESETS)
def test_published_sizes(family: str, preset: str, tmp_path: Path) -> None:
    """A published size has as many parameters as the class of transformers that its config.json opens."""
    member, config = MEMBERS[family], glassbert.PRESETS[preset]
    head = member.presets[preset]
    ours = glassbert.Model(config, head, initialize=False)
    from glassbert.checkpoints.description import describe
    from glassbert.checkpoints.formats import format_of_model

    described = describe(ours)
    file_format, obstacles = format_of_model(described, list(ours.layout.shapes))
    assert not obstacles
    theirs = getattr(transformers, f"{member.prefix}Config").from_dict(file_format.write(described))
    import torch

    with torch.device("meta"):
        reference = getattr(transformers, member.prefix + member.heads[head])(theirs)
    reference.tie_weights()
    assert sum(p.numel() for p in reference.parameters()) == ours.num_parameters
