"""What verification costs: seconds to load a model of the size of MiniLM-L6 with checksums, and the share of them."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import glassbert
from glassbert.families.bert import BertConfig, BertWithHead
from tests.torture.table import Line

MINILM = {"vocab_size": 30_522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
          "intermediate_size": 1_536, "max_position_embeddings": 512}  # fmt: skip
LIMIT = 0.3  # seconds
TIMES = 7


def verification_cost() -> list[Line]:
    """Load with and without checksums in turn; the fastest of each, since other processes only add."""
    line = Line("cost of verification", "load of MiniLM's size", tried=2 * TIMES)
    with tempfile.TemporaryDirectory(prefix="glassbert-costs-") as temporary:
        folder = Path(temporary)
        BertWithHead(BertConfig(**MINILM), "mlm", engine="numpy").save(folder)
        size = (folder / "model.safetensors").stat().st_size / 1e6
        found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for number in range(2 * TIMES):
            wall, cpu = time.perf_counter(), time.process_time()
            glassbert.load(folder, engine="numpy", verify=number % 2 == 0)
            found[number % 2 == 0].append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = (min(t[i] for t in found[True]) - min(t[i] for t in found[False]) for i in (0, 1))
    line.said = (
        f"{size:.0f} MB: {min(found[True])[0]:.3f} s with checksums, {min(found[False])[0]:.3f} s without; they take "
        f"{wall:.3f} s, limit {LIMIT} s, and {cpu:.3f} s of CPU time"
    )
    if wall > LIMIT:
        line.fail(line.said)
    return [line]
