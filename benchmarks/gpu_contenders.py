"""Workloads and contenders of `benchmarks.gpu`: a GlassBERT model on MLX and a `transformers` model on PyTorch."""

from __future__ import annotations

import gc
import random
import time
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import peers
from benchmarks.batches import masked_batches
from benchmarks.common import rounded, timed
from glassbert.checkpoints.family import PRESETS
from glassbert.models.config import EncoderConfig

BATCHES = 4
MATRIX = 8192


@dataclass(frozen=True)
class Workload:
    name: str
    preset: str
    batch: int
    length: int
    dropout: float = 0.0
    smoke: bool = False
    model: tuple[tuple[str, int], ...] = ()  # fields of the config that differ from the preset

    @property
    def config(self) -> EncoderConfig:
        config = PRESETS[self.preset].replace(**dict(self.model))
        classic = config.family != "modernbert"
        config = config.replace(
            embedding_dropout=self.dropout,
            attention_dropout=self.dropout,
            hidden_dropout=self.dropout if classic else 0.0,
            ffn_dropout=0.0 if classic else self.dropout,
        )
        if not self.smoke:
            return config
        return config.replace(
            vocab_size=320,
            hidden_size=64,
            num_hidden_layers=2 if classic else 4,
            num_attention_heads=2,
            intermediate_size=128,
            pad_token_id=0,
            max_position_embeddings=self.length,
        )

    def small(self) -> Workload:
        return replace(self, batch=2, length=min(self.length, 300), smoke=True)

    def batches(self) -> list[Any]:
        return masked_batches(self.config.vocab_size, self.batch, self.length, BATCHES)

    @property
    def tokens(self) -> int:
        return self.batch * self.length


FOUR_MILLION = (
    ("vocab_size", 8_192),
    ("hidden_size", 256),
    ("num_hidden_layers", 4),
    ("num_attention_heads", 4),
    ("intermediate_size", 384),
    ("max_position_embeddings", 1_024),
    ("pad_token_id", 0),
)
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("mini", "mini", 1024, 64),
        Workload("larger", "larger", 256, 128),
        Workload("bert-base-128", "bert-base", 256, 128),
        Workload("bert-base-512", "bert-base", 64, 512),
        Workload("modernbert-base-1024", "modernbert-base", 32, 1024),
        Workload("modernbert-base-8192", "modernbert-base", 4, 8192),
        Workload("modernbert-4m", "modernbert-base", 512, 128, model=FOUR_MILLION),
    )
}


class Mlx:
    """A GlassBERT model on MLX, with the whole step compiled."""

    def __init__(self, workload: Workload):
        import mlx.core as mx

        from glassbert.models.model import Model
        from glassbert.training.optimizers import AdamW
        from glassbert.training.step import TrainingStep

        self.mx = mx
        self.size = 256 if workload.smoke else MATRIX
        self.batches = workload.batches()
        model = Model(workload.config, "mlm", engine="mlx", dtype="bfloat16")
        model.set_training(True)
        self.train = TrainingStep(model, AdamW(model, peers.LEARNING_RATE))
        self.result: Any = None

    def step(self, i: int) -> None:
        batch = self.batches[i % BATCHES]
        self.result = self.train(batch.input_ids, batch.labels)

    def finish(self) -> None:
        self.mx.eval(self.result, self.train.model.parameters)
        self.mx.synchronize()

    def prepare(self, name: str) -> dict[str, Any]:
        """Compile for all shapes; returns the seconds per step and the first loss."""
        start = time.perf_counter()
        self.step(0)
        self.finish()
        first_loss = float(self.result.loss)
        for i in range(1, BATCHES):
            self.step(i)
        self.finish()
        preparing = time.perf_counter() - start
        seconds = timed(self.step, BATCHES, self.finish)
        self.release()
        return {"seconds": seconds, "preparing_seconds": rounded(preparing), "first_loss": rounded(first_loss)}

    def run(self, name: str, steps: int) -> tuple[float, float]:
        """Seconds per step, and the peak GPU memory in bytes."""
        self.mx.reset_peak_memory()
        seconds = timed(self.step, steps, self.finish, warmup=2)
        peak = float(self.mx.get_peak_memory())
        last_loss = float(self.result.loss)
        self.release()
        if not last_loss < float("inf"):
            raise FloatingPointError(f"the loss is {last_loss}")
        return seconds, peak

    def matmul(self) -> float:
        """FLOP/s of a square product in bfloat16."""
        mx, n = self.mx, self.size
        left, right = (mx.random.normal((n, n)).astype(mx.bfloat16) for _ in range(2))
        mx.eval(left, right)
        seconds = timed(lambda i: mx.async_eval(left @ right), 20, mx.synchronize, warmup=10)
        self.release()
        return 2 * n**3 / seconds

    def release(self) -> None:
        self.mx.clear_cache()


class Torch:
    """A `transformers` model on PyTorch, eager or compiled."""

    def __init__(self, workload: Workload, sparse: bool):
        import torch

        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        self.torch = torch
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.size = 256 if workload.smoke else MATRIX
        options = {"sparse": sparse, "device": self.device, "bfloat16": True, "attention": "sdpa"}
        self.trainer = peers.TorchTrainer(workload.config, **options)  # type: ignore[arg-type]
        self.batches = [self.trainer.prepare(batch) for batch in workload.batches()]
        self.losses = {"eager": self.trainer.loss}
        self.result: Any = None

    def step(self, i: int) -> None:
        self.result = self.trainer.step(*self.batches[i % BATCHES])

    def finish(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def use(self, name: str) -> None:
        mode = name.removesuffix("-sparse")
        if mode not in self.losses:
            self.trainer.compile()
            self.losses[mode] = self.trainer.loss
        self.trainer.loss = self.losses[mode]

    def prepare(self, name: str) -> dict[str, Any]:
        self.use(name)
        start = time.perf_counter()
        self.first_step()
        first_loss = float(self.result)
        for i in range(1, BATCHES):
            self.step(i)
        self.finish()
        preparing = time.perf_counter() - start
        seconds = timed(self.step, BATCHES, self.finish)
        breaks = sum(self.torch._dynamo.utils.counters["graph_break"].values()) if "compiled" in name else 0
        self.release()
        return {
            "seconds": seconds,
            "preparing_seconds": rounded(preparing),
            "first_loss": rounded(first_loss),
            "graph_breaks": breaks,
        }

    def first_step(self) -> None:
        """Run the first step. Retry if the GPU memory is in use by other models that are being prepared."""
        for retries in range(12, -1, -1):
            try:
                self.step(0)
                self.finish()
                return
            except self.torch.OutOfMemoryError:
                if not retries:
                    raise
            self.release()
            time.sleep(random.uniform(1.0, 3.0))

    def run(self, name: str, steps: int) -> tuple[float, float]:
        self.use(name)
        cuda = self.torch.cuda if self.device == "cuda" else None
        if cuda:
            cuda.reset_peak_memory_stats()
        seconds = timed(self.step, steps, self.finish, warmup=2)
        peak = float(cuda.max_memory_allocated()) if cuda else 0.0
        self.release()
        return seconds, peak

    def matmul(self) -> float:
        torch, n = self.torch, self.size
        left, right = (torch.randn(n, n, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        product = torch.empty_like(left)
        seconds = timed(lambda i: torch.matmul(left, right, out=product), 20, self.finish, warmup=10)
        self.release()
        return 2 * n**3 / seconds

    def release(self) -> None:
        for parameter in self.trainer.parameters:
            parameter.grad = None
        gc.collect()
        if self.device == "cuda":
            self.torch.cuda.empty_cache()
