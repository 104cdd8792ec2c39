"""Peers: `transformers` models on PyTorch with the sizes of a GlassBERT config, and their training step."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from benchmarks.batches import MaskedBatch
from glassbert.models.config import EncoderConfig
from glassbert.ops import IGNORED

LEARNING_RATE = 1e-4


def imports() -> None:
    """Import everything that training needs, so that it is not counted as memory of the model."""
    import torch  # noqa: F401
    from transformers import BertForMaskedLM, ModernBertForMaskedLM  # noqa: F401


def huggingface_config(config: EncoderConfig) -> Any:
    from transformers import BertConfig, ModernBertConfig

    sizes = {
        name: getattr(config, name)
        for name in (
            "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
            "max_position_embeddings", "tie_word_embeddings", "initializer_range", "pad_token_id",
        )
    }  # fmt: skip
    if config.family == "modernbert":
        return ModernBertConfig(
            **sizes,
            local_attention=2 * (config.local_window or 0),
            attention_dropout=config.attention_dropout,
            embedding_dropout=config.embedding_dropout,
            mlp_dropout=config.ffn_dropout,
            # the special ids must lie inside a vocabulary that may be small
            **{f"{name}_token_id": min(2, config.vocab_size - 1) for name in ("bos", "eos", "cls", "sep")},
        )
    return BertConfig(
        **sizes,
        hidden_act=config.activation,
        layer_norm_eps=config.layer_norm_eps,
        hidden_dropout_prob=config.hidden_dropout,
        attention_probs_dropout_prob=config.attention_dropout,
    )


def masked_language_model(config: EncoderConfig, attention: str | None = None) -> Any:
    """`BertForMaskedLM` or `ModernBertForMaskedLM` with random weights."""
    import torch
    from transformers import BertForMaskedLM, ModernBertForMaskedLM

    torch.manual_seed(0)
    kind = ModernBertForMaskedLM if config.family == "modernbert" else BertForMaskedLM
    hf_config = huggingface_config(config)
    if attention is not None:
        hf_config._attn_implementation = attention
    return kind(hf_config)


def stock_loss(model: Any, ids: Any, labels: Any) -> Any:
    """The loss of the unmodified class, which scores every token."""
    return model(input_ids=ids, labels=labels).loss


def sparse_loss(model: Any, ids: Any, labels: Any) -> Any:
    """The loss with scores of the masked tokens only: the encoder, then the head on the gathered rows."""
    import torch

    labels = labels.view(-1)
    rows = (labels != IGNORED).nonzero().view(-1)
    encoder = model.bert if hasattr(model, "bert") else model.model
    hidden = encoder(input_ids=ids)[0]
    hidden = hidden.view(-1, hidden.shape[-1])[rows]
    logits = model.cls(hidden) if hasattr(model, "cls") else model.decoder(model.head(hidden))
    return torch.nn.functional.cross_entropy(logits, labels[rows])


class TorchTrainer:
    """A model and its training step: forward, backward, clip at 1, AdamW."""

    def __init__(
        self,
        config: EncoderConfig,
        *,
        sparse: bool = False,
        device: str = "cpu",
        bfloat16: bool = False,
        attention: str | None = None,
    ):
        import torch

        self.torch = torch
        self.device = device
        self.model = masked_language_model(config, attention).to(device)
        self.model.train()
        self.parameters = list(self.model.parameters())
        self.sparse = sparse
        self.loss = sparse_loss if sparse else stock_loss
        self.bfloat16 = bfloat16
        self.fused = device != "cpu"
        self.optimizer: Any = None

    def compile(self) -> None:
        """Compile forward and backward; this happens at the first step of every shape."""
        if self.sparse:
            self.loss = self.torch.compile(sparse_loss)
        else:
            compiled = self.torch.compile(self.model)
            self.loss = lambda model, ids, labels: stock_loss(compiled, ids, labels)

    def gradients(self, ids: Any, labels: Any) -> Any:
        for parameter in self.parameters:
            parameter.grad = None
        autocast = (
            self.torch.autocast(self.device, dtype=self.torch.bfloat16) if self.bfloat16 else contextlib.nullcontext()
        )
        with autocast:
            loss = self.loss(self.model, ids, labels)
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        return loss.detach()

    def upload(self, array: Any) -> Any:
        return array if self.device == "cpu" else array.to(self.device, non_blocking=True)

    def prepare(self, batch: MaskedBatch) -> tuple[Any, Any]:
        ids, labels = self.torch.from_numpy(batch.input_ids), self.torch.from_numpy(batch.labels)
        return (ids, labels) if self.device == "cpu" else (ids.pin_memory(), labels.pin_memory())

    def step(self, ids: Any, labels: Any) -> Any:
        loss = self.gradients(self.upload(ids), self.upload(labels))
        if self.optimizer is None:
            self.optimizer = self.make_optimizer(self.fused)
        self.optimizer.step()
        return loss

    def make_optimizer(self, fused: bool) -> Any:
        options = {"fused": True} if fused else {}
        return self.torch.optim.AdamW(self.parameters, lr=LEARNING_RATE, weight_decay=0.01, **options)

    def choose_optimizer(self, ids: Any, labels: Any) -> str:
        """Use the fused AdamW if it works and is faster than the default one; returns the choice."""
        self.gradients(ids, labels)
        seconds = {}
        for fused in (False, True):
            with contextlib.suppress(RuntimeError):
                optimizer = self.make_optimizer(fused)
                optimizer.step()
                start = time.perf_counter()
                for _ in range(3):
                    optimizer.step()
                seconds[fused] = time.perf_counter() - start
            optimizer = None
        self.fused = min(seconds, key=seconds.__getitem__)
        return "fused" if self.fused else "default"
