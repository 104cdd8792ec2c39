"""uvicorn with time limits for slow clients, and a shutdown that loses no request.

A client has some seconds for the head of a request, for its body (`App`), and for taking an answer. At the end, the
server first says that it is not ready, but goes on to answer, with `Connection: close`; then it takes the connections
that wait at its socket, closes the socket, answers what it has, and ends.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from types import FrameType
from typing import Any

from glassbert.errors import InputError, needs
from glassbert.serving.answers import to_json
from glassbert.serving.app import App
from glassbert.serving.bodies import Refused
from glassbert.serving.logs import Log

try:
    import uvicorn
    from uvicorn.protocols.http.auto import AutoHTTPProtocol
except ImportError:
    raise InputError(needs("glassbert serve", "uvicorn")) from None

HEAD_SECONDS = 10.0
HEAD_BYTES = 65_536
TAKE_SECONDS = 30.0
IDLE_SECONDS = 75
MOST_CONNECTIONS = 4096
QUIET_SECONDS = 0.3  # after the socket is closed: time for requests that are on their way over open connections
SWITCH_SECONDS = 0.001  # Python's own 5 ms are long for the event loop beside threads that compute
LAST_SECONDS = 90  # for the requests that are being computed; never less than their time limit


class Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection with time limits. uvicorn's own limits are about idle connections only."""

    def connection_made(self, transport: Any) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._head = 0
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            self._refuse(503, f"there are more than {MOST_CONNECTIONS:,} connections; try again later", "busy")
            return
        self._timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()
            self._head = 0
            return
        self._head += len(data)
        if self._head > HEAD_BYTES and not self.transport.is_closing():
            self._refuse(431, f"the head of the request is larger than {HEAD_BYTES:,} bytes", "too_large")
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._stuck is not None:
            self._stuck.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "the request is not HTTP that can be read", "not_http")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._refuse(408, f"the head of the request did not arrive within {HEAD_SECONDS:g} s", "too_slow")

    def _refuse(self, status: int, sentence: str, code: str) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # in the middle of another response
            return
        body = to_json(Refused(status, sentence, code).body)
        head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()


class Server(uvicorn.Server):
    """A server of one `App` on one socket. SIGTERM and SIGINT end it; a second one ends it at once."""

    def __init__(self, app: App, listening: socket.socket, *, grace: float = 1.0, log: Log):
        config = uvicorn.Config(
            app, http=Protocol, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
            timeout_keep_alive=IDLE_SECONDS, proxy_headers=False,
        )  # fmt: skip
        super().__init__(config)
        self.app, self.listening, self.grace, self.log = app, listening, grace, log
        for name in ("uvicorn.error", "uvicorn.asgi", "asyncio"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [log.handler()], False
            logger.setLevel(logging.ERROR)  # a request that is not HTTP is no event of the server

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True

    async def main_loop(self) -> None:
        self.log.write("listening", address=self.listening.getsockname()[:2], models=list(self.app.shelf.models))
        await super().main_loop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.log.write("stopping", grace=self.grace)
        self.app.draining = True
        await self._pause(self.grace)
        await self._close_socket()
        await self._pause(QUIET_SECONDS)
        for connection in list(self.server_state.connections):
            connection.shutdown()
        last = time.monotonic() + max(LAST_SECONDS, self.app.settings.timeout + 5)
        while (self.server_state.connections or self.server_state.tasks) and time.monotonic() < last:
            if self.force_exit:
                break
            await asyncio.sleep(0.02)
        self.log.write("stopped", unanswered=len(self.server_state.tasks))

    async def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(min(0.05, seconds))

    async def _close_socket(self) -> None:
        """Stop listening, and take the connections that the system has already made for us."""
        waiting = self.listening.dup()
        waiting.setblocking(False)
        for server in self.servers:
            server.close()
        self.listening.close()
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = waiting.accept()
            except OSError:
                break
            await loop.connect_accepted_socket(self._new_protocol, accepted)
        waiting.close()

    def _new_protocol(self) -> asyncio.Protocol:
        return Protocol(config=self.config, server_state=self.server_state, app_state={})


def serve(app: App, listening: socket.socket, *, grace: float = 1.0) -> None:
    """Serve until a signal."""
    sys.setswitchinterval(SWITCH_SECONDS)
    app.start()
    app.freeze()
    try:
        Server(app, listening, grace=grace, log=app.log).run(sockets=[listening])
    finally:
        app.stop()
