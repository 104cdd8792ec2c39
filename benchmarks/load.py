"""Open-loop load over HTTP: requests are sent at the times of a plan, whether or not earlier ones were answered.

A latency is counted from the planned time, so that a server that falls behind cannot hide it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

REFUSED, LOST = "refused", "lost"  # no connection was made; one was, and the request got no answer


@dataclass
class Load:
    """What came back: seconds of every answer with status 200, and the number of answers by status."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    duration: float = 0.0

    def percentile(self, share: float) -> float:
        """NaN where nothing was answered."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")

    @property
    def throughput(self) -> float:
        return len(self.seconds) / self.duration if self.duration else 0.0

    def errors(self) -> int:
        """Answers other than 200 and 429, and requests that got none."""
        return sum(count for status, count in self.statuses.items() if status not in ("200", "429"))


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[str] | None = None
        self.closing = False
        self._data = bytearray()
        self._left = -1  # bytes of the body that are still to come; -1: the head is not complete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._left < 0:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._data[:end]).lower()
            self.closing = b"connection: close" in head
            self._status = head[9:12].decode()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            self._left = end + 4 + length
        if len(self._data) >= self._left and self.answer is not None and not self.answer.done():
            self._data.clear()
            self._left = -1
            self.answer.set_result(self._status)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(LOST)


class Generator:
    """Sends requests made by `make(i)` to a port of this machine."""

    def __init__(self, port: int, make: Callable[[int], bytes]):
        self.port, self.make = port, make
        self.idle: list[Connection] = []
        self.load = Load()
        self.sent = 0

    async def one(self, planned: float) -> None:
        loop = asyncio.get_running_loop()
        while self.idle and (self.idle[-1].closing or self.idle[-1].transport.is_closing()):  # type: ignore[union-attr]
            self.idle.pop()
        if self.idle:
            connection = self.idle.pop()
        else:
            try:
                _, connection = await loop.create_connection(Connection, "127.0.0.1", self.port)
            except OSError:
                self.load.statuses[REFUSED] += 1
                return
        connection.answer = loop.create_future()
        assert connection.transport is not None
        connection.transport.write(self.make(self.sent))
        self.sent += 1
        status = await connection.answer
        self.load.statuses[status] += 1
        if status == "200":
            self.load.seconds.append(time.perf_counter() - planned)
        if connection.closing:
            connection.transport.close()
        else:
            self.idle.append(connection)

    async def open_loop(self, rate: float, seconds: float, seed: int = 0) -> Load:
        """Requests at random times, `rate` a second on average; waits for the last answer."""
        start = time.perf_counter()
        tasks = set()
        for planned in arrivals(rate, seconds, seed):
            late = start + planned - time.perf_counter()
            if late > 0:
                await asyncio.sleep(late)
            task = asyncio.ensure_future(self.one(start + planned))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            await asyncio.wait(tasks, timeout=30)
        self.load.statuses[LOST] += len(tasks)
        self.load.statuses = +self.load.statuses
        self.load.duration = time.perf_counter() - start
        self.close()
        return self.load

    async def closed_loop(self, clients: int, seconds: float) -> Load:
        """So many clients, each of which sends when it has its answer: the throughput without a limit of latency."""
        end = time.perf_counter() + seconds

        async def client() -> None:
            while time.perf_counter() < end:
                await self.one(time.perf_counter())

        start = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(clients)))
        self.load.duration = time.perf_counter() - start
        self.close()
        return self.load

    def close(self) -> None:
        for connection in self.idle:
            if connection.transport is not None:
                connection.transport.close()
        self.idle.clear()


def arrivals(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Times of a Poisson process."""
    rng, now = random.Random(seed), 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        yield now


def post(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    return head.encode() + b"\r\n" + body
