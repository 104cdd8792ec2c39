"""A training step on the CPU, compared with PyTorch: forward, backward, clip, AdamW.

    python -m benchmarks.train_step [--preset mini|larger|both] [--rounds N] [--json [FILE]]
    python -m benchmarks.train_step --family NAME|all [--rounds N] [--json [FILE]]

All contenders get the same batches, with word-like token frequencies and 15 % of the tokens masked, and train with the
preset's dropout. The peers are stock `transformers.BertForMaskedLM` (it scores every token and also has token types, an
embedding norm and a transform before the decoder), and the same model scoring the masked tokens only. Where the
processor multiplies bfloat16, our step runs in bfloat16 too, and the peers beside it are the model that scores masked
tokens only under bfloat16 autocast, eager and compiled (a C++ compiler is needed for the latter). Every round also
measures the machine's matrix product in both precisions; `matmul_fraction` is the arithmetic of our step, divided by
its time and by that rate.

`--family` compares members of the family with the same class of transformers (`benchmarks/families.py` has the table),
ELECTRA as a whole step of generator and discriminator.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from benchmarks import families, peers
from benchmarks.batches import masked_batches
from benchmarks.common import (
    ALLOCATORS,
    MIB,
    ContenderError,
    Contenders,
    Spread,
    Table,
    Worker,
    add_json_option,
    count,
    describe_machine,
    interleave,
    mib,
    progress,
    require,
    rounded,
    run_program,
    show_json,
    timed,
)
from glassbert.checkpoints.family import PRESETS
from glassbert.models.config import EncoderConfig
from glassbert.models.flops import training_flops

BATCHES = 8
NAMES = {
    "ours": "GlassBERT (NumPy)",
    "hf": "BertForMaskedLM, stock",
    "sparse": "BertForMaskedLM, masked rows only",
    "ours16": "GlassBERT (NumPy), bfloat16",
    "sparse16": "BertForMaskedLM, masked rows only, bfloat16 autocast",
    "compiled16": "BertForMaskedLM, masked rows only, bfloat16 autocast, compiled",
}
PEERS16 = ("hf", "sparse16", "compiled16")  # whom our bfloat16 is compared with
PEER_OPTIONS: dict[str, dict[str, bool]] = {
    "hf": {},
    "sparse": {"sparse": True},
    "sparse16": {"sparse": True, "bfloat16": True},
    "compiled16": {"sparse": True, "bfloat16": True, "compiled": True},
}


@dataclass(frozen=True)
class Workload:
    preset: str
    batch: int
    length: int
    steps: int  # in a round

    @property
    def config(self) -> EncoderConfig:
        return PRESETS[self.preset]

    def batches(self) -> list[Any]:
        return masked_batches(self.config.vocab_size, self.batch, self.length, BATCHES)


WORKLOADS = {"mini": Workload("mini", 32, 64, 5), "larger": Workload("larger", 8, 128, 2)}


class Ours:
    """A GlassBERT model on NumPy."""

    @staticmethod
    def imports() -> None:
        import glassbert.training.optimizers
        import glassbert.training.step  # noqa: F401
        from glassbert.engines import numpy_kernels, onednn

        numpy_kernels.compiled_loops()  # Numba and oneDNN before the memory baseline: PyTorch imports its own, too
        onednn.library()

    def __init__(self, preset: str, precision: str = "float32"):
        from glassbert.models.model import Model
        from glassbert.training.optimizers import AdamW
        from glassbert.training.step import TrainingStep

        workload = WORKLOADS[preset]
        self.batches = workload.batches()
        model = Model(workload.config, "mlm", engine="numpy", dtype=precision)
        model.set_training(True)
        self.train = TrainingStep(model, AdamW(model, peers.LEARNING_RATE))
        self.facts = {"first_loss": self.step(0)}

    def step(self, i: int) -> float:
        batch = self.batches[i % BATCHES]
        return float(self.train(batch.input_ids, batch.labels).loss)

    def run(self, steps: int) -> float:
        return timed(self.step, steps)

    def describe(self) -> dict[str, Any]:
        return self.facts


class Torch(Ours):
    """A `transformers` model on PyTorch with all threads."""

    imports = staticmethod(peers.imports)

    def __init__(self, preset: str, sparse: bool = False, bfloat16: bool = False, compiled: bool = False):
        import torch

        from glassbert.engines.machine import usable_cores

        torch.set_num_threads(usable_cores())
        workload = WORKLOADS[preset]
        self.trainer = peers.TorchTrainer(workload.config, sparse=sparse, bfloat16=bfloat16)
        if compiled:
            self.trainer.compile()
        self.batches = [self.trainer.prepare(batch) for batch in workload.batches()]
        first_loss = float(self.trainer.gradients(*self.batches[0]))
        optimizer = self.trainer.choose_optimizer(*self.batches[0])
        for batch in self.batches if compiled else ():  # it compiles again for other numbers of masked rows
            self.trainer.gradients(*batch)
        self.facts = {"first_loss": first_loss, "optimizer": optimizer, "threads": torch.get_num_threads()}

    def step(self, i: int) -> float:
        return float(self.trainer.step(*self.batches[i % BATCHES]))


class Matmul:
    """The matrix product of the NumPy engine with all threads."""

    def __init__(self, size: int = 2048, precision: str = "float32"):
        self.size, self.precision = size, precision

    def run(self) -> float:
        from glassbert.engines.machine import measure_matmul_rate

        return measure_matmul_rate(self.precision, size=self.size, seconds=0.5) * 1e9


def measure(preset: str, rounds: int, allocator: str = "default") -> dict[str, Any]:
    workload = WORKLOADS[preset]
    batches = workload.batches()
    masked = sum(batch.masked for batch in batches) / len(batches)
    with Contenders() as contenders:
        names = []
        for name in names_here():
            progress(f"{preset}: building {NAMES[name]}")
            if name in PEER_OPTIONS:
                options = {"preset": preset, **PEER_OPTIONS[name]}
                contenders.add(name, Worker("benchmarks.train_step:Torch", ALLOCATORS[allocator], **options))
            else:
                precision = "bfloat16" if name.endswith("16") else "float32"
                contenders.add(name, Worker("benchmarks.train_step:Ours", preset=preset, precision=precision))
                matmul = name.replace("ours", "matmul")
                contenders.add(matmul, Worker("benchmarks.train_step:Matmul", precision=precision))
            try:
                contenders[name].ready()
            except ContenderError as error:
                if name != "compiled16":
                    raise
                progress("")
                print(f"{preset}: {NAMES[name]} is left out: {error}")
                continue
            names.append(name)
        turns = {name: lambda name=name: contenders[name].call("run", workload.steps) for name in names}
        products = [name.replace("ours", "matmul") for name in names if name.startswith("ours")]
        rates = {name: lambda name=name: contenders[name].call("run") for name in products}
        times = interleave({**rates, **turns}, rounds)
        memory = {name: contenders[name].call("memory") for name in names}
        facts = {name: contenders[name].call("describe") for name in names}
    return {**summarise(workload, masked, times, memory, facts), "peer_allocator": allocator}


def names_here() -> list[str]:
    """All contenders, or without those in bfloat16 where this machine has no products for it."""
    from glassbert.engines.onednn import why_not

    if not why_not():
        return list(NAMES)
    print(f"without bfloat16: {why_not()}")
    return [name for name in NAMES if not name.endswith("16")]


class OurMember:
    """A member of the family on NumPy, trained on what its row says."""

    imports = staticmethod(Ours.imports)

    def __init__(self, family: str):
        from glassbert.models.model import Model
        from glassbert.training.optimizers import AdamW
        from glassbert.training.step import TrainingStep

        row = families.ROWS[family]
        self.batches = member_batches(row)
        model = Model(row.config, row.head, engine="numpy")
        model.set_training(True)
        self.train = TrainingStep(model, AdamW(model, peers.LEARNING_RATE))
        self.facts = {"first_loss": self.step(0), "parameters": model.num_parameters}

    def step(self, i: int) -> float:
        return float(self.train(**self.batches[i % BATCHES]).loss)

    def run(self, steps: int) -> float:
        return timed(self.step, steps)

    def describe(self) -> dict[str, Any]:
        return self.facts


class TheirMember(OurMember):
    """The same member in transformers, on PyTorch with all threads."""

    imports = staticmethod(peers.imports)

    def __init__(self, family: str):
        import torch

        from glassbert.engines.machine import usable_cores

        torch.set_num_threads(usable_cores())
        row = families.ROWS[family]
        self.trainer = families.FamilyTrainer(row)
        self.batches = [families.their_inputs(inputs) for inputs in member_batches(row)]
        first_loss = float(self.trainer.gradients(*self.batches[0]))
        optimizer = self.trainer.choose_optimizer(*self.batches[0])
        count = sum(parameter.numel() for parameter in self.trainer.parameters)
        self.facts = {"first_loss": first_loss, "optimizer": optimizer, "parameters": count}

    def step(self, i: int) -> float:
        return float(self.trainer.step(*self.batches[i % BATCHES]))


def member_batches(row: families.Row) -> list[Any]:
    batches = masked_batches(row.config.vocab_size, row.batch, row.length, BATCHES)
    return [families.inputs_of(row, batch.input_ids, batch.labels) for batch in batches]


def measure_family(family: str, rounds: int) -> dict[str, Any]:
    row = families.ROWS[family]
    with Contenders() as contenders:
        for name, kind in (("ours", "OurMember"), ("theirs", "TheirMember")):
            progress(f"{family}: building {name}")
            contenders.add(name, Worker(f"benchmarks.train_step:{kind}", family=family))
            contenders[name].ready()
        turns = {name: lambda name=name: contenders[name].call("run", row.steps) for name in ("ours", "theirs")}
        times = interleave(turns, rounds)
        memory = {name: contenders[name].call("memory") for name in turns}
        facts = {name: contenders[name].call("describe") for name in turns}
    ratio = Spread.of_ratio(times["theirs"], times["ours"])
    return {
        "family": family,
        "class": row.theirs,
        "ratio": rounded(ratio.median),
        "ratio_range": ratio.range,
        "aim": row.aim,
        "seconds_per_step": {name: rounded(Spread.of(times[name]).median) for name in times},
        "peak_memory_mib": {name: rounded(value / MIB) for name, value in memory.items()},
        "batch": row.batch,
        "length": row.length,
        "rounds": rounds,
        "contenders": facts,
    }


def family_table(reports: list[dict[str, Any]], machine: str) -> Table:
    table = Table(
        "Training step of the family: forward, backward, clip, AdamW",
        ["member", "class of transformers", "our ms", "their ms", "our speed-up", "aim", "our memory", "their memory"],
        left=2,
    )
    for report in reports:
        seconds, memory, (low, high) = report["seconds_per_step"], report["peak_memory_mib"], report["ratio_range"]
        table.rows.append(
            [f"{report['family']} (B {report['batch']}, T {report['length']})", report["class"],
             f"{seconds['ours'] * 1e3:,.1f}", f"{seconds['theirs'] * 1e3:,.1f}",
             f"{report['ratio']:.2f} ({low:.2f} – {high:.2f})", f"{report['aim']:.1f}", mib(memory["ours"] * MIB),
             mib(memory["theirs"] * MIB)]
        )  # fmt: skip
    table.notes = [
        f"Medians of {reports[0]['rounds']} rounds; speed-up: median of the ratio within a round (95 % interval).",
        "ELECTRA: generator and discriminator with shared embeddings, samples inside the step.",
        machine,
    ]
    return table


def summarise(
    workload: Workload,
    masked: float,
    times: dict[str, list[float]],
    memory: dict[str, int],
    facts: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """The report of one preset from seconds per step and matrix rates of all rounds."""
    flops = training_flops(workload.config, workload.batch, workload.length, scored_rows=round(masked))
    fraction = Spread.of([flops / t / rate for t, rate in zip(times["ours"], times["matmul"], strict=True)])
    ratios = {name: Spread.of_ratio(times[name], times["ours"]) for name in ("hf", "sparse")}
    seconds = {name: Spread.of(times[name]).median for name in NAMES if name in times}
    more: dict[str, Any] = {}
    if "ours16" in times:
        for name in PEERS16:
            if name in times:
                ratio = Spread.of_ratio(times[name], times["ours16"])
                key = "ratio_hf_bfloat16" if name == "hf" else f"ratio_{name}"
                more |= {key: rounded(ratio.median), f"{key}_range": ratio.range}
        fraction16 = Spread.of([flops / t / r for t, r in zip(times["ours16"], times["matmul16"], strict=True)])
        more["matmul_fraction_bfloat16"] = rounded(fraction16.median)
        more["matmul_gflops_bfloat16"] = rounded(Spread.of(times["matmul16"]).median / 1e9)
    return {
        **more,
        "preset": workload.preset,
        "ratio_hf": rounded(ratios["hf"].median),
        "ratio_hf_range": ratios["hf"].range,
        "ratio_sparse": rounded(ratios["sparse"].median),
        "ratio_sparse_range": ratios["sparse"].range,
        "matmul_fraction": rounded(fraction.median),
        "matmul_fraction_range": fraction.range,
        "matmul_gflops": rounded(Spread.of(times["matmul"]).median / 1e9),
        "tokens_per_second": rounded(workload.batch * workload.length / seconds["ours"]),
        "seconds_per_step": {name: rounded(value) for name, value in seconds.items()},
        "peak_memory_mib": {name: rounded(value / MIB) for name, value in memory.items()},
        "batch": workload.batch,
        "length": workload.length,
        "masked_rows": round(masked),
        "gflop_per_step": rounded(flops / 1e9),
        "rounds": len(times["ours"]),
        "steps_per_round": workload.steps,
        "contenders": facts,
    }


def table_of(reports: list[dict[str, Any]], machine: str) -> Table:
    table = Table(
        "Training step: forward, backward, clip, AdamW",
        ["preset", "contender", "ms a step", "tokens/s", "our speed-up", "GFLOP/s", "of matmul rate", "peak memory"],
        left=2,
    )
    for report in reports:
        tokens, rate = report["batch"] * report["length"], report["matmul_gflops"]
        shape = f"{report['preset']} (B {report['batch']}, T {report['length']})"
        for name, seconds in report["seconds_per_step"].items():
            label = NAMES[name]
            gflops = report["gflop_per_step"] / seconds
            low_high = report.get(f"ratio_{name}_range")
            speed_up = f"{report[f'ratio_{name}']:.2f} ({low_high[0]:.2f} – {low_high[1]:.2f})" if low_high else ""
            product = report["matmul_gflops_bfloat16"] if name.endswith("16") else rate
            fractions = {"ours": "matmul_fraction", "ours16": "matmul_fraction_bfloat16"}
            fraction = report[fractions[name]] if name in fractions else gflops / product
            row = [shape, label, f"{seconds * 1e3:,.1f}", f"{tokens / seconds:,.0f}", speed_up, f"{gflops:.1f}",
                   f"{fraction:.0%}", mib(report["peak_memory_mib"][name] * MIB)]  # fmt: skip
            table.rows.append(row)
            shape = ""
        table.rows.append(["", "NumPy matrix product, float32", "", "", "", f"{rate:.1f}", "100%", ""])
        if "matmul_gflops_bfloat16" in report:
            product = f"{report['matmul_gflops_bfloat16']:.1f}"
            table.rows.append(["", "oneDNN matrix product, bfloat16", "", "", "", product, "100%", ""])
            stock = f"{report['ratio_hf_bfloat16']:.2f} x stock"
            table.rows.append(["", "GlassBERT in bfloat16 over stock float32", "", "", stock, "", "", ""])
        table.rows.append(None)
    first = reports[0]
    table.notes = [
        f"Medians of {first['rounds']} rounds; speed-up: median of the ratio within a round (95 % interval).",
        "Peers in bfloat16 are compared with ours in bfloat16, the others with ours in float32.",
        "GFLOP/s counts the products that the step needs, masked rows of the head only, the same for all contenders.",
        "Peak memory: highest resident memory of the contender's process above that after its imports.",
        machine,
    ]
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=[*WORKLOADS, "both"], default="both")
    parser.add_argument(
        "--family", choices=[*families.ROWS, "all"], help="compare a member with the same class of transformers"
    )
    parser.add_argument("--rounds", type=count, default=9, help="number of rounds (default 9)")
    parser.add_argument(
        "--peer-allocator",
        choices=list(ALLOCATORS),
        default="default",
        help="'kept': glibc keeps freed memory for the peers too, as our engine requests (default: it does not)",
    )
    add_json_option(parser)
    options = parser.parse_args(arguments)
    require("torch", "transformers")
    machine, described = describe_machine("torch", "transformers")
    if options.family:
        members = list(families.ROWS) if options.family == "all" else [options.family]
        found = [measure_family(member, options.rounds) for member in members]
        family_table(found, machine).show()
        if options.json:
            show_json({"families": {report["family"]: report for report in found}, "machine": described}, options.json)
        return
    presets = list(WORKLOADS) if options.preset == "both" else [options.preset]
    reports = [measure(preset, options.rounds, options.peer_allocator) for preset in presets]
    table_of(reports, machine).show()
    if options.json:
        flat = reports[0] if len(reports) == 1 else {}
        show_json(
            {**flat, "presets": {report["preset"]: report for report in reports}, "machine": described}, options.json
        )


if __name__ == "__main__":
    run_program(main)
