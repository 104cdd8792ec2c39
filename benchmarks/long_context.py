"""ModernBERT-base at 8,192 tokens on NumPy: memory, time, and the growth of local attention with the length.

    python -m benchmarks.long_context [--length 8192] [--rounds N] [--json [FILE]]

Every pass runs in its own process; its extra memory is the peak resident memory above that with the model built. The
backward pass is that of the masked-language-model loss, 15 % of the tokens masked, with checkpointing, and includes the
gradients of all parameters. The local-attention layer (window 64) is timed separately at a quarter of the length and at
the whole length: four times the tokens should take about four times the time.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.batches import masked_batches
from benchmarks.common import (
    Contenders,
    Spread,
    Table,
    Worker,
    add_json_option,
    count,
    describe_machine,
    interleave,
    peak_memory,
    progress,
    reset_peak_memory,
    rounded,
    run_program,
    show_json,
    timed,
)
from glassbert.families.modernbert import ModernBertConfig
from glassbert.models.config import EncoderConfig

GIB = 2**30
LIMITS = {"forward": 4.0, "forward_backward": 8.0}  # GB of extra memory
GROWTH_LIMIT = 5.0
PASSES = {
    "predict": "output alone (predict)",
    "forward": "forward",
    "forward_checkpointing": "forward, checkpointing",
    "forward_backward": "loss and backward, checkpointing",
}


def config_of(layers: int | None) -> EncoderConfig:
    config = ModernBertConfig.get_base_config()
    return config if layers is None else config.replace(num_hidden_layers=layers)


class Pass:
    """A single pass over one row."""

    def __init__(self, name: str, length: int, layers: int | None):
        from glassbert.models.model import Model

        head = "mlm" if name == "forward_backward" else None
        self.name = name
        self.model = Model(config_of(layers), head, engine="numpy")
        self.model.set_checkpointing(name in ("forward_checkpointing", "forward_backward"))
        (self.batch,) = masked_batches(self.model.config.vocab_size, 1, length, 1)

    def run(self) -> tuple[float, int]:
        """Seconds and extra bytes."""
        before = reset_peak_memory()
        start = time.perf_counter()
        result = self.work()
        seconds = time.perf_counter() - start
        extra = peak_memory() - before
        if not all(np.isfinite(np.asarray(value)).all() for value in result):
            raise FloatingPointError("the result is not finite")
        return seconds, extra

    def work(self) -> list[Any]:
        model, (ids, labels) = self.model, self.batch
        if self.name == "predict":
            return [model.predict(ids)]
        if self.name != "forward_backward":
            hidden, self.cache = model.forward(ids)
            return [hidden]
        model.set_training(True)
        loss, cache = model.loss(ids, labels)
        return [loss, *model.backward(cache).values()]


class LocalAttention:
    """One local-attention layer, forward and backward."""

    def __init__(self, lengths: list[int]):
        from glassbert.layers.attention import attention_parameters
        from glassbert.layers.scope import inside
        from glassbert.models.initialize import initial_values

        self.config = config_of(None)
        self.parameters = dict(initial_values(inside("attention", attention_parameters(self.config)), self.config, 0))
        self.inputs = {n: self.prepare(n) for n in lengths}

    def prepare(self, length: int) -> tuple[Any, ...]:
        from glassbert.layers.attention import Sight
        from glassbert.models.encoder import angles_for
        from glassbert.ops import AttentionPattern

        rng = np.random.default_rng(0)
        shape = (1, length, self.config.hidden_size)
        x, dy = (rng.standard_normal(shape, dtype=np.float32) for _ in range(2))
        angles = angles_for(np.arange(length)[None], self.config, np.dtype("float32"))
        assert angles is not None
        return x, dy, Sight(AttentionPattern(window=self.config.local_window), *angles[1])

    def run(self, length: int, backward: bool) -> float:
        from glassbert.arrays import Gradients
        from glassbert.engines.machine import usable_cores
        from glassbert.engines.threads import using_threads
        from glassbert.layers.attention import self_attention, self_attention_backward
        from glassbert.layers.scope import Cache, Scope

        x, dy, sight = self.inputs[length]

        def layer(i: int) -> None:
            gradients = Gradients({name: value.shape for name, value in self.parameters.items()})
            at = Scope(self.parameters, Cache(), gradients).inside("attention")
            self_attention(x, at, self.config, sight, None)
            if backward:
                self_attention_backward(dy, at, self.config, sight, None)

        with using_threads(usable_cores()):
            return timed(layer, 2)


def measure_passes(length: int, layers: int | None, names: list[str]) -> dict[str, dict[str, float]]:
    results = {}
    for name in names:
        progress(f"ModernBERT-base at {length} tokens: {PASSES[name]}")
        worker = Worker("benchmarks.long_context:Pass", name=name, length=length, layers=layers)
        try:
            seconds, extra = worker.call("run")
        finally:
            worker.close()
        results[name] = {
            "seconds": rounded(seconds),
            "tokens_per_second": rounded(length / seconds),
            "extra_memory_gb": rounded(extra / 1e9),
            "extra_memory_gib": rounded(extra / GIB),
        }
    progress("")
    return results


def measure_growth(length: int, rounds: int) -> dict[str, Any]:
    lengths = [length // 4, length]
    with Contenders() as contenders:
        contenders.add("layer", Worker("benchmarks.long_context:LocalAttention", lengths=lengths))
        turns = {
            f"{what} {n}": lambda n=n, b=b: contenders["layer"].call("run", n, b)
            for what, b in (("forward", False), ("forward_backward", True))
            for n in lengths
        }
        times = interleave(turns, rounds)
    return growth_of(lengths, times)


def growth_of(lengths: list[int], times: dict[str, list[float]]) -> dict[str, Any]:
    """The ratio of the times at both lengths, for each pass."""
    report: dict[str, Any] = {"lengths": lengths}
    for what in ("forward", "forward_backward"):
        short, long = (times[f"{what} {n}"] for n in lengths)
        ratio = Spread.of_ratio(long, short)
        report[what] = {
            "seconds": [rounded(Spread.of(short).median), rounded(Spread.of(long).median)],
            "ratio": rounded(ratio.median),
            "ratio_range": ratio.range,
        }
    return report


def table_of(report: dict[str, Any], machine: str) -> Table:
    length = report["length"]
    table = Table(
        f"ModernBERT-base, {length:,} tokens, NumPy float32",
        ["what", "seconds", "tokens/s", "extra memory", "limit"],
    )
    for name, part in report["passes"].items():
        limit = f"{LIMITS[name]:.0f} GB" if name in LIMITS else ""
        table.rows.append(
            [PASSES[name], f"{part['seconds']:.1f}", f"{part['tokens_per_second']:,.0f}",
             f"{part['extra_memory_gb']:.2f} GB", limit]
        )  # fmt: skip
    table.rows.append(None)
    growth = report["local_attention"]
    short, long = growth["lengths"]
    for what, label in (("forward", "forward"), ("forward_backward", "forward and backward")):
        part = growth[what]
        for n, seconds in zip((short, long), part["seconds"], strict=True):
            last = n == long
            title = f"local attention layer, {label}, {n:,} tokens"
            ratio = (
                f"{part['ratio']:.2f} x ({part['ratio_range'][0]:.2f} – {part['ratio_range'][1]:.2f})" if last else ""
            )
            limit = f"{GROWTH_LIMIT:.0f} x" if last else ""
            table.rows.append([title, f"{seconds:.3f}", f"{n / seconds:,.0f}", ratio, limit])
    table.notes = [
        "Extra memory: highest resident memory of the pass's own process above that with the model built.",
        "`forward` alone keeps what backward needs; `x`: time at the whole length over time at a quarter of it, median"
        " of the rounds (95 % interval).",
        machine,
    ]
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=count, default=8192)
    parser.add_argument("--layers", type=count, default=None, help="number of layers, for a quick test (default: all)")
    parser.add_argument("--passes", default=",".join(PASSES), help=f"which of {', '.join(PASSES)} to run")
    parser.add_argument("--rounds", type=count, default=7, help="rounds for the local-attention layer (default 7)")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    names = [name for name in options.passes.split(",") if name]
    if unknown := set(names) - set(PASSES):
        parser.error(f"unknown pass {', '.join(sorted(unknown))}; choose from {', '.join(PASSES)}")
    machine, described = describe_machine()
    report = {
        "length": options.length,
        "layers": config_of(options.layers).num_hidden_layers,
        "passes": measure_passes(options.length, options.layers, names),
        "local_attention": measure_growth(options.length, options.rounds),
    }
    table_of(report, machine).show()
    if options.json:
        show_json({**report, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
