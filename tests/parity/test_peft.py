"""Adapters beside the library `peft`: it opens what we write, we open what it writes, and both compute the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from glassbert.finetuning.low_rank import LowRank
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep
from tests.parity.reference import CLASSES, random_batch
from tests.parity.test_exchange import OURS, randomised

peft = pytest.importorskip("peft", reason="peft is not installed: pip install --no-deps peft accelerate")

TARGETS = [("query", "value"), ("qkv",), ("query", "key", "output", "ffn"), ("down",)]


def base_model(family: str, head: str, folder: Path) -> tuple[Any, Any]:
    """The same model here and in transformers."""
    model = randomised(OURS[family], head)
    for name, value in model.parameters.items():
        model.parameters[name] = 1 + 0.2 * value if name.endswith("norm.weight") else 0.1 * value
    model.save(folder)
    return model, CLASSES[family, head].from_pretrained(folder).eval()


def outputs(model: Any, batch: dict[str, np.ndarray]) -> np.ndarray:
    with torch.no_grad():
        return model(**{name: torch.from_numpy(values) for name, values in batch.items()}).logits.numpy()


def assert_close(ours: np.ndarray, theirs: np.ndarray, batch: dict[str, np.ndarray]) -> None:
    real = batch["attention_mask"] == 1 if ours.ndim == 3 else slice(None)
    assert np.abs(ours - theirs)[real].max() <= 1e-5


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("head", ["sequence", "token"])
@pytest.mark.parametrize("family", OURS)
def test_peft_opens_adapters_trained_here(family: str, head: str, targets: tuple[str, ...], tmp_path: Path) -> None:
    base, reference = base_model(family, head, tmp_path / "base")
    rng = np.random.default_rng(1)
    batch = random_batch(rng, 61, [9, 4, 1, 7])
    shape = (4,) if head == "sequence" else (4, 9)
    model = LowRank(base, 2, 6, targets)
    step = TrainingStep(model, AdamW(model, 0.05))
    for _ in range(3):
        step(batch["input_ids"], rng.integers(0, 5, shape), batch["attention_mask"])
    model.save(tmp_path / "adapters")
    theirs = peft.PeftModel.from_pretrained(reference, tmp_path / "adapters").eval()
    ours = model.predict(**batch)
    assert np.abs(ours - base.predict(**batch)).max() > 0.1
    assert_close(ours, outputs(theirs, batch), batch)
    merged = theirs.merge_and_unload()
    model.merge().save(tmp_path / "merged")
    again = CLASSES[family, head].from_pretrained(tmp_path / "merged").eval()
    assert_close(outputs(again, batch), outputs(merged, batch), batch)


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize(
    ("family", "modules", "whole"),
    [
        ("bert", ["query", "value"], ["classifier", "pooler"]),
        ("bert", ["key", "intermediate.dense"], None),
        ("modernbert", ["Wqkv", "mlp.Wo"], ["classifier", "head"]),
        ("modernbert", ["attn.Wo"], None),
    ],
)
def test_adapters_of_peft_open_here_and_go_on_learning(
    family: str, modules: list[str], whole: list[str] | None, rslora: bool, tmp_path: Path
) -> None:
    base, reference = base_model(family, "sequence", tmp_path / "base")
    config = peft.LoraConfig(
        r=3, lora_alpha=5, target_modules=modules, modules_to_save=whole, task_type="SEQ_CLS", use_rslora=rslora,
        rank_pattern={modules[0]: 2}, alpha_pattern={modules[0]: 7},
    )  # fmt: skip
    theirs = peft.get_peft_model(reference, config).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.requires_grad:
                parameter.add_(0.2 * torch.randn(parameter.shape))
    theirs.save_pretrained(tmp_path / "adapters")
    model = LowRank.load(base, tmp_path / "adapters")
    batch = random_batch(np.random.default_rng(2), 61, [9, 4, 1, 7])
    assert_close(model.predict(**batch), outputs(theirs, batch), batch)
    step = TrainingStep(model, AdamW(model, 0.01))
    labels = np.array([0, 1, 2, 3])
    losses = [float(step(batch["input_ids"], labels, batch["attention_mask"]).loss) for _ in range(8)]
    assert losses[-1] < losses[0]


def test_gradients_of_peft(tmp_path: Path) -> None:
    base, reference = base_model("bert", "sequence", tmp_path / "base")
    model = LowRank(base, 2, 6, ("query", "ffn"))
    rng = np.random.default_rng(3)
    for name, value in model.parameters.items():
        model.parameters[name] = value + 0.1 * rng.standard_normal(value.shape)
    model.save(tmp_path / "adapters")
    theirs = peft.PeftModel.from_pretrained(reference, tmp_path / "adapters", is_trainable=True).eval()
    batch, labels = random_batch(rng, 61, [9, 4, 1, 7]), np.array([0, 1, 2, 3])
    given = {name: torch.from_numpy(values) for name, values in batch.items()}
    theirs(**given, labels=torch.from_numpy(labels)).loss.backward()
    _, cache = model.loss(batch["input_ids"], labels, batch["attention_mask"])
    found = model.backward(cache)
    for layer in range(4):
        place = f"base_model.model.bert.encoder.layer.{layer}.attention.self.query"
        for ours, letter in (("a", "A"), ("b", "B")):
            expected = dict(theirs.named_parameters())[f"{place}.lora_{letter}.default.weight"].grad.numpy()
            np.testing.assert_allclose(found[f"layers.{layer}.low_rank.query.{ours}"], expected, atol=1e-6)
