"""Models of transformers with random weights, and the comparison with ours: outputs, losses and every gradient."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers.models.modernbert import modeling_modernbert

import glassbert

torch.set_num_threads(1)  # in models this small several threads only wait for each other
transformers.utils.logging.disable_progress_bar()

CLASSES = {
    ("bert", None): transformers.BertModel,
    ("bert", "mlm"): transformers.BertForMaskedLM,
    ("bert", "sequence"): transformers.BertForSequenceClassification,
    ("bert", "token"): transformers.BertForTokenClassification,
    ("modernbert", None): transformers.ModernBertModel,
    ("modernbert", "mlm"): transformers.ModernBertForMaskedLM,
    ("modernbert", "sequence"): transformers.ModernBertForSequenceClassification,
    ("modernbert", "token"): transformers.ModernBertForTokenClassification,
}
CONFIGS = {"bert": transformers.BertConfig, "modernbert": transformers.ModernBertConfig}
OUTPUT_TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
GRADIENT_TOLERANCE = {"float32": 1e-4, "float64": 1e-8}


def reference_model(family: str, head: str | None, dtype: str = "float32", seed: int = 0, **config: Any) -> Any:
    """A model of transformers without any accidental one or zero: norms scale and biases shift."""
    if family == "modernbert":
        config = {"bos_token_id": None, "eos_token_id": None, "cls_token_id": None, "sep_token_id": None, **config}
    torch.manual_seed(seed)
    model = (
        CLASSES[family, head](CONFIGS[family](**config, attn_implementation="sdpa")).to(getattr(torch, dtype)).eval()
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, dtype=torch.float64)
            is_norm = "norm" in name.lower()
            if name.endswith("bias"):
                parameter.copy_(0.1 * noise)
            else:
                parameter.copy_(1.0 + 0.2 * noise if is_norm else 0.05 * noise)
    return model


def ours_from(reference: Any, folder: Any, **options: Any) -> glassbert.Model:
    """The same model as ours, by way of a folder that transformers has written."""
    reference.save_pretrained(folder)
    return glassbert.load(folder, engine=options.pop("engine", "numpy"), **options)


def random_batch(
    rng: np.random.Generator, vocab: int, lengths: list[int], width: int | None = None, types: int = 0
) -> dict[str, np.ndarray]:
    """Rows of the given lengths, padded to one width; ids repeat, and the padding id also occurs among real tokens."""
    width = width or max(lengths)
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int64)
    ids = rng.integers(0, vocab, mask.shape) * mask
    batch = {"input_ids": ids, "attention_mask": mask}
    if types:
        batch["token_type_ids"] = rng.integers(0, types, mask.shape)
    return batch


def random_labels(
    rng: np.random.Generator, head: str, batch: dict[str, np.ndarray], classes: int, problem: str | None = None
) -> np.ndarray:
    mask = batch["attention_mask"]
    if head == "sequence":
        if problem == "regression":
            return rng.standard_normal((len(mask), classes))
        if problem == "multi_label_classification":
            return rng.integers(0, 2, (len(mask), classes)).astype(np.float64)
        return np.where(mask.any(1), rng.integers(0, classes, len(mask)), -100)
    chosen = (rng.random(mask.shape) < 0.4) & (mask == 1)
    chosen[0, 0] = True
    return np.where(chosen, rng.integers(0, classes, mask.shape), -100)


def compare(
    reference: Any,
    ours: glassbert.Model,
    batch: dict[str, np.ndarray],
    labels: np.ndarray | None = None,
    d_output: np.ndarray | None = None,
    dtype: str = "float32",
    only_real_tokens: bool = False,
    **options: Any,
) -> None:
    """Outputs, loss and every parameter's gradient of both models on one batch.

    All-padding rows are left out; with `only_real_tokens` so are the outputs at padded places.
    """
    real = batch["attention_mask"].any(1)
    torch_batch = {name: torch.from_numpy(values) for name, values in batch.items()}
    float_labels = labels is not None and labels.dtype.kind == "f"
    torch_labels = (
        None if labels is None else torch.from_numpy(labels).to(getattr(torch, dtype) if float_labels else None)
    )
    reference.zero_grad()
    if labels is None:
        result = reference(**torch_batch)
        theirs = result[0]
        output, cache = ours.forward(**batch, **options)
        assert d_output is not None
        d_output = d_output * real[:, None, None]
        (theirs * torch.from_numpy(d_output).to(theirs.dtype))[torch.from_numpy(real)].sum().backward()
        gradients = ours.backward(cache, d_output)
        if getattr(result, "pooler_output", None) is not None:
            _close(cache["pooler.output"][real], result.pooler_output[real], OUTPUT_TOLERANCE[dtype], "pooler output")
    else:
        result = reference(**torch_batch, labels=torch_labels)
        theirs = result.logits
        output, _ = ours.forward(**batch, **options)
        loss, cache = ours.loss(
            batch["input_ids"], labels, **{k: v for k, v in batch.items() if k != "input_ids"}, **options
        )
        their_loss = result.loss
        if their_loss.dtype != theirs.dtype:  # its masked language loss rounds float64 logits to float32
            their_loss = torch.nn.functional.cross_entropy(theirs.flatten(0, 1), torch_labels.flatten())
        _close(loss, their_loss, OUTPUT_TOLERANCE[dtype], "loss")
        their_loss.backward()
        gradients = ours.backward(cache)
    compared = real
    if only_real_tokens and theirs.ndim == 3:
        compared = batch["attention_mask"] == 1
    _close(np.asarray(output)[compared], theirs[compared], OUTPUT_TOLERANCE[dtype], "output")
    compare_gradients(reference, ours.to_huggingface(gradients), dtype)


def compare_gradients(reference: Any, ours: dict[str, np.ndarray], dtype: str) -> None:
    parameters = dict(reference.named_parameters(remove_duplicate=False))  # tied ones under all their names
    compared = {id(parameters[name]) for name in ours}
    left_out = {name for name, parameter in parameters.items() if id(parameter) not in compared}
    # An untied decoder has a bias of its own, and that of its head is not used.
    assert left_out <= {"cls.predictions.bias", "predictions.bias", "lm_head.bias"}
    assert all(parameters[name].grad is None for name in left_out)
    wrong = []
    # The gradient of a key's bias is zero in exact arithmetic (softmax ignores what all scores share): both sides hold
    # nothing but rounding, and a relative error means nothing. Such are below the rounding of the largest gradient.
    nothing = float(np.finfo(dtype).eps) * max(float(np.linalg.norm(a)) for a in ours.values())
    for name, a in ours.items():
        grad = parameters[name].grad
        b = np.zeros_like(a) if grad is None else grad.numpy()
        assert a.shape == b.shape and a.dtype == np.dtype(dtype), name
        distance, sizes = float(np.linalg.norm(a - b)), float(np.linalg.norm(a) + np.linalg.norm(b))
        if not (sizes <= nothing or distance <= GRADIENT_TOLERANCE[dtype] * sizes):
            wrong.append(f"{name}: relative {distance / sizes:.1e}, absolute {distance:.1e}")
    assert not wrong, "\n".join(wrong)


def _close(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    a, b = np.asarray(ours, dtype=np.float64), theirs.detach().double().numpy()
    assert a.shape == b.shape
    difference = float(np.abs(a - b).max())
    assert difference <= tolerance, f"{what}: {difference:.2e} apart"


@contextlib.contextmanager
def rotary_in_float64() -> Iterator[None]:
    """transformers turns queries and keys in float32, tables and all, even in a float64 model.

    Its float64 model is then right to seven digits only and no witness for ten. These are its own two functions with
    the casts taken out.
    """

    def forward(self: Any, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str) -> tuple[Any, Any]:
        theta = self.config.rope_parameters[layer_type]["rope_theta"]
        size = self.config.hidden_size // self.config.num_attention_heads
        frequencies = 1.0 / (theta ** (torch.arange(0, size, 2, dtype=torch.float64) / size))
        angles = position_ids[..., None].double() * frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    def apply(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> tuple[Any, Any]:
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        half = modeling_modernbert.rotate_half
        return q * cos + half(q) * sin, k * cos + half(k) * sin

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_modernbert.ModernBertRotaryEmbedding, "forward", forward)
        patch.setattr(modeling_modernbert, "apply_rotary_pos_emb", apply)
        yield
