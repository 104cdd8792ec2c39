"""Extractive spans against transformers' heads for questions: scores, loss, gradients and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.parity.reference import CLASSES, compare_gradients, ours_from, random_batch, reference_model

CLASSES["bert", "span"] = transformers.BertForQuestionAnswering
CLASSES["modernbert", "span"] = transformers.ModernBertForQuestionAnswering
SMALL: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 64, "pad_token_id": 0,
}  # fmt: skip


def scores(reference: Any, batch: dict[str, np.ndarray], labels: np.ndarray | None = None) -> tuple[Any, np.ndarray]:
    given = {name: torch.from_numpy(values) for name, values in batch.items()}
    if labels is not None:
        given["start_positions"], given["end_positions"] = map(torch.from_numpy, labels.T.copy())
    result = reference(**given)
    return result, torch.stack([result.start_logits, result.end_logits], 1).detach().numpy()


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_scores_loss_and_gradients(family: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    reference = reference_model(family, "span", **SMALL)
    ours = ours_from(reference, tmp_path)
    batch = random_batch(rng, 61, [9, 9, 9])  # in a batch without padding the two losses are one
    labels = np.array([[1, 4], [0, 8], [7, 7]])
    result, expected = scores(reference, batch, labels)
    output, _ = ours.forward(**batch)
    loss, cache = ours.loss(batch["input_ids"], labels, batch["attention_mask"])
    assert np.abs(output - expected).max() <= 1e-5 and abs(float(loss) - float(result.loss.detach())) <= 1e-5
    reference.zero_grad()
    result.loss.backward()
    compare_gradients(reference, ours.to_huggingface(ours.backward(cache)), "float32")


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_a_ragged_batch_scores_real_tokens_alike_after_a_round_trip(family: str, tmp_path: Path) -> None:
    reference = reference_model(family, "span", **SMALL)
    ours = ours_from(reference, tmp_path / "theirs")
    ours.save(tmp_path / "ours")
    again = CLASSES[family, "span"].from_pretrained(tmp_path / "ours").eval()
    batch = random_batch(np.random.default_rng(4), 61, [9, 4, 1])
    real = np.broadcast_to(batch["attention_mask"][:, None] == 1, (3, 2, 9))
    expected = scores(again, batch)[1]
    assert np.array_equal(expected, scores(reference, batch)[1])
    assert np.abs(ours.predict(**batch) - expected)[real].max() <= 1e-5
