"""Every member of the table against transformers: outputs, gradients, files both ways, MLX, and published sizes."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import glassbert
from glassbert.checkpoints.description import describe
from glassbert.checkpoints.family import FAMILIES
from glassbert.checkpoints.formats import HuggingFaceFormat, format_of_model
from tests.parity.families.members import MEMBERS
from tests.parity.families.sweep import DTYPES, check_mlx, check_outputs_and_gradients, check_round_trips, random_model
from tests.parity.reference import OUTPUT_TOLERANCE, compare_gradients, ours_from, random_batch, random_labels

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


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", [m.family for m in MEMBERS.values() if m.pretraining])
def test_words_and_pairs_together(family: str, tied: bool, dtype: str, tmp_path: Path) -> None:
    rng, member = np.random.default_rng(1), MEMBERS[family]
    reference = random_model(
        member.kind("pretraining"), member.config("span", tie_word_embeddings=tied), dtype
    )  # two labels, as a span has
    ours = ours_from(reference, tmp_path / "theirs", dtype=dtype)
    batch = random_batch(rng, reference.config.vocab_size, [9, 12, 2, 5], types=2)
    labels, pairs = random_labels(rng, "mlm", batch, reference.config.vocab_size), np.array([0, 1, 1, 0])
    result = reference(**{name: torch.from_numpy(values) for name, values in batch.items()})
    words, order = result[0], result[1]
    entropy = torch.nn.functional.cross_entropy
    expected = entropy(words.flatten(0, 1), torch.from_numpy(labels).flatten()) + entropy(
        order, torch.from_numpy(pairs)
    )
    expected.backward()
    output, _ = ours.forward(**batch)
    real = batch["attention_mask"] == 1
    tolerance = OUTPUT_TOLERANCE[dtype]
    assert np.abs(output["mlm"] - words.detach().numpy())[real].max() < tolerance
    assert np.abs(output["pair"] - order.detach().numpy()).max() < tolerance
    loss, cache = ours.loss(labels=labels, pair_labels=pairs, **batch)
    assert abs(float(loss) - expected.item()) < tolerance
    compare_gradients(reference, ours.to_huggingface(ours.backward(cache)), dtype)
    if dtype == "float32" and tied:
        check_round_trips(reference, tmp_path)


@pytest.mark.parametrize("family", list(MEMBERS))
def test_missing_fields_have_the_defaults_of_transformers(family: str) -> None:
    member, file_format = MEMBERS[family], HuggingFaceFormat(FAMILIES[family])
    for head in member.heads:
        named = {"architectures": [member.kind(head).__name__]}
        complete = json.loads(getattr(transformers, f"{member.prefix}Config")().to_json_string(use_diff=False))
        one, other = (file_format.read({**fields, **named}, head or "core", {}).config for fields in ({}, complete))
        assert one == other


@pytest.mark.parametrize(("family", "preset"), PRESETS)
def test_published_sizes(family: str, preset: str) -> None:
    """A published size has as many parameters as the class of transformers that its config.json opens."""
    member, config = MEMBERS[family], glassbert.PRESETS[preset]
    head = member.presets[preset]
    ours = glassbert.Model(config, head, initialize=False)
    described = describe(ours)
    file_format, obstacles = format_of_model(described, list(ours.layout.shapes))
    assert not obstacles
    theirs = getattr(transformers, f"{member.prefix}Config").from_dict(file_format.write(described))
    with torch.device("meta"):
        reference = member.kind(head)(theirs)
    reference.tie_weights()
    assert sum(parameter.numel() for parameter in reference.parameters()) == ours.num_parameters
