"""Counters and histograms in the text format of Prometheus."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# Name -> kind, help, and the upper bounds of a histogram.
METRICS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "glassbert_requests_total": ("counter", "Answered requests by address and status.", ()),
    "glassbert_request_seconds": ("histogram", "From the head of a request to its answer, by address.", SECONDS),
    "glassbert_stage_seconds": ("histogram", "Parts of a request: read, encode, queue, compute.", SECONDS),
    "glassbert_batch_rows": ("histogram", "Rows in a computed batch.", SIZES),
    "glassbert_batch_seconds": ("histogram", "Time to compute a batch.", SECONDS),
    "glassbert_tokens_total": ("counter", "Computed tokens.", ()),
    "glassbert_reloads_total": ("counter", "Replaced model folders by model and result.", ()),
    "glassbert_queue_rows": ("gauge", "Rows that wait for a thread.", ()),
    "glassbert_queue_limit": ("gauge", "Rows that may wait.", ()),
    "glassbert_model_loaded_timestamp_seconds": ("gauge", "When the model that answers was opened.", ()),
    "glassbert_resident_bytes": ("gauge", "Memory of the process.", ()),
}
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """What happened so far. `add` counts, `observe` puts a value into a histogram; gauges are read when shown."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, Labels], float] = defaultdict(float)
        self._histograms: dict[tuple[str, Labels], list[float]] = {}  # counts by bound, beyond the last, then the sum
        self.gauges: dict[tuple[str, Labels], Callable[[], float]] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        with self._lock:
            self._counts[name, tuple(labels.items())] += amount

    def observe(self, name: str, value: float, **labels: str) -> None:
        key, bounds = (name, tuple(labels.items())), METRICS[name][2]
        with self._lock:
            counts = self._histograms.setdefault(key, [0.0] * (len(bounds) + 2))
            counts[bisect_left(bounds, value)] += 1
            counts[-1] += value

    def value(self, name: str, **labels: str) -> float:
        """The present value of a counter."""
        with self._lock:
            return self._counts[name, tuple(labels.items())]

    def text(self) -> str:
        with self._lock:
            counts, histograms = dict(self._counts), {key: list(one) for key, one in self._histograms.items()}
        lines = []
        for name, (kind, meaning, bounds) in METRICS.items():
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            values = {**counts, **{key: read() for key, read in list(self.gauges.items())}}
            lines += [f"{name}{_shown(labels)} {value:.12g}" for (own, labels), value in values.items() if own == name]
            for (own, labels), one in histograms.items():
                if own == name:
                    lines += _histogram(name, labels, bounds, one)
        return "\n".join(lines) + "\n"


def _histogram(name: str, labels: Labels, bounds: tuple[float, ...], counts: list[float]) -> list[str]:
    total, lines = 0.0, []
    for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=False):
        total += count
        lines.append(f"{name}_bucket{_shown((*labels, ('le', bound)))} {total:.12g}")
    return [*lines, f"{name}_sum{_shown(labels)} {counts[-1]:.9g}", f"{name}_count{_shown(labels)} {total:.12g}"]


def _shown(labels: Labels) -> str:
    escaped = (f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels)
    return "{" + ",".join(escaped) + "}" if labels else ""


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def resident_bytes() -> float:
    """The memory of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0.0
