"""Memory of a training step, measured and as predicted by `model.describe()`.

    python -m benchmarks.memory [--json [FILE]]

Each model trains a few steps in its own process. Measured is the peak resident memory above that before the model was
created. Predicted are weights, gradients, optimizer buffers, stored activations and the buffers of backward.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.batches import masked_batches
from benchmarks.common import (
    MIB,
    Table,
    Worker,
    add_json_option,
    describe_machine,
    peak_memory,
    progress,
    reset_peak_memory,
    rounded,
    run_program,
    show_json,
)

STEPS = 4
# preset, config changes, rows, tokens, optimizer, checkpointing
CASES: dict[str, tuple[str, dict[str, Any], int, int, str, bool]] = {
    "Mini, B 32": ("mini", {}, 32, 64, "adamw", False),
    "Mini, B 128": ("mini", {}, 128, 64, "adamw", False),
    "Mini, B 64, Muon": ("mini", {}, 64, 64, "muon", False),
    "Mini, B 128, checkpointing": ("mini", {}, 128, 64, "adamw", True),
    "Mini with GELU and tied head, T 128": (
        "mini", {"activation": "gelu", "tie_word_embeddings": True, "max_position_embeddings": 128}, 32, 128, "adamw",
        False,
    ),
    "4 layers of 256, B 64": (
        "mini", {"hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 1024}, 64, 64, "lion", False,
    ),
    "Larger, B 8": ("larger", {}, 8, 128, "adamw", False),
    "Larger, B 32": ("larger", {}, 32, 128, "adamw", False),
    "BERT-base, B 4": ("bert-base", {}, 4, 128, "adamw", False),
}  # fmt: skip


class MemoryMeasurement:
    """Trains a model for a few steps and measures its memory."""

    def measure(self, name: str) -> tuple[float, float]:
        """Bytes predicted and measured."""
        from glassbert.checkpoints.family import PRESETS
        from glassbert.models.memory import training_numbers
        from glassbert.models.model import Model
        from glassbert.training.optimizers import make_optimizer
        from glassbert.training.step import TrainingStep

        preset, changes, rows, length, optimizer_name, checkpointing = CASES[name]
        config = PRESETS[preset].replace(**changes)
        tiny = config.replace(
            vocab_size=100, hidden_size=32, num_attention_heads=2, intermediate_size=32, num_hidden_layers=1
        )
        self._train(Model(tiny, "mlm", engine="numpy"), 4, length, optimizer_name, TrainingStep, make_optimizer)
        before = reset_peak_memory()
        model = Model(config, "mlm", engine="numpy")
        model.set_checkpointing(checkpointing)
        optimizer = self._train(model, rows, length, optimizer_name, TrainingStep, make_optimizer)
        measured = peak_memory() - before
        weights = 4 * model.get_parameter_count()
        buffers = sum(array.nbytes for arrays in optimizer.state.values() for array in arrays.values())
        working = 4 * training_numbers(config, rows, length, "mlm", checkpointing, model.engine.threads)
        return 2 * weights + buffers + working, measured

    @staticmethod
    def _train(model: Any, rows: int, length: int, optimizer_name: str, step_class: Any, make: Any) -> Any:
        batches = masked_batches(model.config.vocab_size, rows, length, STEPS)
        model.set_training(True)
        step = step_class(model, make(optimizer_name, model))
        for batch in batches:
            step(batch.input_ids, batch.labels)
        return step.optimizer


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    machine, described = describe_machine()
    table = Table("Memory of a training step", ["model", "predicted", "measured", "measured / predicted"], left=1)
    found = {}
    for name in CASES:
        progress(name)
        worker = Worker("benchmarks.memory:MemoryMeasurement")
        try:
            predicted, measured = worker.call("measure", name)
        finally:
            worker.close()
        found[name] = rounded(measured / predicted)
        table.rows.append(
            [name, f"{predicted / MIB:,.0f} MiB", f"{measured / MIB:,.0f} MiB", f"{measured / predicted:.2f}"]
        )
    table.notes = [machine]
    table.show()
    if options.json:
        show_json({"measured_over_predicted": found, "machine": described}, options.json)


if __name__ == "__main__":
    run_program(main)
