"""Logs: one JSON object a line on standard error, without texts and without keys."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from typing import Any, TextIO


class Log:
    """`log.write("request", status=200)` writes {"time": ..., "event": "request", "status": 200}."""

    def __init__(self, stream: TextIO | None = None, requests: bool = True):
        self.stream, self.requests = stream or sys.stderr, requests
        self._lock = threading.Lock()

    def write(self, event: str, **facts: Any) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        line = json.dumps({"time": stamp, "event": event, **facts}) + "\n"
        with self._lock:
            try:
                self.stream.write(line)
                self.stream.flush()
            except (OSError, ValueError):  # nobody reads the log any more; the server goes on
                pass

    def handler(self) -> logging.Handler:
        """A handler for the loggers of other packages."""
        return _Handler(self)


class _Handler(logging.Handler):
    def __init__(self, log: Log):
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        facts = {} if error is None else {"error": type(error).__name__, "at": place_of(error)}
        self.log.write(record.levelname.lower(), source=record.name, message=record.getMessage().strip(), **facts)


def place_of(error: BaseException) -> str:
    """File and line where an error was raised; its message is left out, since it may hold a text of a user."""
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
