"""Ctrl-C and the system's polite request to end: noted, and obeyed between two steps.

The second Ctrl-C is not polite any more: it ends the process at once, and the run goes on from its last checkpoint.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

# A launcher hands SIGUSR1 on to its processes and lets them live: Slurm's warning before the time is up, say.
POLITE = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]


class Interrupts:
    """While inside, `asked` turns true when somebody wants the run to stop."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # elsewhere signals cannot be caught
            for number in POLITE:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
