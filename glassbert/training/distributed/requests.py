"""Sums under way, looked after while this process computes.

An MPI library moves data only while somebody calls it, so a sum that was begun and left alone makes no way. A thread
asks for it every half millisecond; in between it sleeps, where a blocking call would keep a core busy.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

POLL = 0.0005  # seconds between two looks from the side
QUICK = 0.00005  # while there is nothing else to do
WARM = 0.05  # seconds of quick looks; who waits longer, waits for a fellow and not for the network


class Requests:
    """MPI requests that are complete together. `in_background` needs a library that may be called from any thread."""

    def __init__(self, test_all: Callable[[list[Any]], bool], in_background: bool):
        self._test_all = test_all
        self._requests: list[Any] = []
        self._lock = threading.Lock()
        self._there_are_some = threading.Event()
        if in_background:
            threading.Thread(target=self._look_after, name="glassbert-sums", daemon=True).start()

    def add(self, request: Any) -> None:
        with self._lock:
            self._requests.append(request)
        self._there_are_some.set()

    def done(self) -> bool:
        """Move what can be moved; whether everything has arrived."""
        with self._lock:
            if self._requests and self._test_all(self._requests):
                self._requests.clear()
            if not self._requests:
                self._there_are_some.clear()
            return not self._requests

    def wait(self, give_up: Callable[[float], None]) -> None:
        """Return when everything has arrived. `give_up` hears how many seconds that has taken so far, and may raise."""
        began = time.monotonic()
        while not self.done():
            waited = time.monotonic() - began
            give_up(waited)
            time.sleep(QUICK if waited < WARM else POLL)

    def _look_after(self) -> None:
        while True:
            self._there_are_some.wait()
            time.sleep(POLL)
            self.done()
