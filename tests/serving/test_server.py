"""Slow clients, a full queue, broken requests, and the end of the server."""

import dataclasses
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from glassbert.serving import server as server_module
from glassbert.serving.app import PREPARED_AT_ONCE, SMALL_BODY
from tests.finetuning.test_predictor import save
from tests.serving import fuzz
from tests.serving.running import serving, until

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "binary", "binary")


def connected(running):
    return socket.create_connection(("127.0.0.1", running.port), timeout=60)


def read(one, end=None):
    """What comes until `end`, or until the server closes the connection."""
    found = b""
    while end is None or not found.endswith(end):
        part = one.recv(65_536)
        if not part:
            break
        found += part
    return found


def test_clients_that_stop_are_told_so(folder, monkeypatch):
    monkeypatch.setattr(server_module, "HEAD_SECONDS", 2.0)
    with serving(folder, body_seconds=2.0) as running, ExitStack() as stack:
        clients = []
        for sent in (b"", b"POST", HEAD, HEAD + b"\r\n", HEAD + b'\r\n{"input"'):
            clients.append(stack.enter_context(connected(running)))
            clients[-1].sendall(sent)
        again = stack.enter_context(connected(running))  # after a whole request, too
        again.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read(again, b'{"status":"ok"}').startswith(b"HTTP/1.1 200")
        again.sendall(HEAD)
        for one in (*clients, again):
            answer = read(one)
            assert answer.startswith(b"HTTP/1.1 408") and json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


def test_heads_without_an_end_are_refused(folder):
    start = HEAD + b"Cookie: "
    with serving(folder) as running, connected(running) as one:
        # One byte too many: a connection that is closed before all of it was read is reset, and the answer lost.
        one.sendall(start + b"a" * (server_module.HEAD_BYTES + 1 - len(start)))
        assert read(one).startswith(b"HTTP/1.1 431")


def test_too_many_connections_are_refused(folder, monkeypatch):
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 2)
    with serving(folder) as running, connected(running), connected(running):
        until(lambda: len(running.server.server_state.connections) == 2)
        with connected(running) as one:
            assert read(one).startswith(b"HTTP/1.1 503")


class Held:
    """Keeps the threads of a server from computing until it is told."""

    def __init__(self, running, monkeypatch):
        self.free, self.busy = threading.Event(), 0
        lane = running.app.shelf.default.predict
        compute = lane.run

        def run(members):
            self.busy += 1
            assert self.free.wait(60)
            return compute(members)

        monkeypatch.setattr(lane, "run", run)


def in_threads(count, work):
    found = []
    threads = [threading.Thread(target=lambda: found.append(work())) for _ in range(count)]
    for thread in threads:
        thread.start()
    return found, threads


def test_a_full_queue_answers_429_with_retry_after(folder, monkeypatch):
    with serving(folder, queue=3, threads=1) as running:
        held = Held(running, monkeypatch)
        found, threads = in_threads(1, lambda: running.ask("/v1/predict", {"input": "a"})[0])
        until(lambda: held.busy == 1)
        more, others = in_threads(3, lambda: running.ask("/v1/predict", {"input": "a"})[0])
        until(lambda: running.app.batcher.waiting == 3)
        status, content, headers = running.ask("/v1/predict", {"input": "a"})
        assert status == 429 and int(headers["retry-after"]) >= 1 and content["error"]["code"] == "busy"
        held.free.set()
        for thread in (*threads, *others):
            thread.join(60)
        assert found + more == [200] * 4


def test_a_request_that_is_not_computed_in_time_gets_503(folder, monkeypatch):
    with serving(folder, timeout=0.1, threads=1) as running:
        held = Held(running, monkeypatch)
        status, content, headers = running.ask("/v1/predict", {"input": "a"})
        assert status == 503 and content["error"]["code"] == "too_slow" and "retry-after" in headers
        held.free.set()
        until(lambda: running.app.batcher._idle == 1)


def test_large_bodies_are_prepared_within_the_time_limit_and_few_at_once(folder, monkeypatch):
    large = {"input": "a" + " " * SMALL_BODY}
    with serving(folder, threads=1) as running:
        app, free, prepare = running.app, threading.Event(), running.app._prepare
        monkeypatch.setattr(app, "_prepare", lambda path, body: free.wait(60) and prepare(path, body))
        try:
            found, threads = in_threads(PREPARED_AT_ONCE - 1, lambda: running.ask("/v1/predict", large)[0])
            until(lambda: app._room._value == 1)
            with monkeypatch.context() as shorter:
                shorter.setattr(app, "settings", dataclasses.replace(app.settings, timeout=0.05))
                status, content, headers = running.ask("/v1/predict", large)
            assert status == 503 and content["error"]["code"] == "too_slow" and "retry-after" in headers
            assert app._room._value == 1  # what was not begun gives its place back
            last, more = in_threads(1, lambda: running.ask("/v1/predict", large)[0])
            until(lambda: app._room._value == 0)
            status, content, headers = running.ask("/v1/predict", large)
            assert status == 429 and content["error"]["code"] == "busy" and int(headers["retry-after"]) >= 1
        finally:
            free.set()
        for thread in (*threads, *more):
            thread.join(60)
        assert found + last == [200] * PREPARED_AT_ONCE
        until(lambda: app._room._value == PREPARED_AT_ONCE)


def test_a_client_that_leaves_frees_its_place(folder, monkeypatch):
    with serving(folder, threads=1) as running:
        held = Held(running, monkeypatch)
        found, threads = in_threads(1, lambda: running.ask("/v1/predict", {"input": "a"})[0])
        until(lambda: held.busy == 1)
        body = b'{"input": "another"}'
        with connected(running) as one:
            one.sendall(HEAD + b"\r\n" + body)
            until(lambda: running.app.batcher.waiting == 1)
        until(lambda: running.app.batcher.waiting == 0)
        held.free.set()
        threads[0].join(60)
        assert found == [200]
        assert running.app.metrics.value("glassbert_requests_total", path="/v1/predict", status="gone") == 1


def test_the_end_finishes_what_was_accepted(folder, monkeypatch):
    monkeypatch.setattr(server_module, "LAST_SECONDS", 0.0)  # the time limit of requests is longer
    with serving(folder, threads=1, grace=2.0) as running:
        held = Held(running, monkeypatch)
        try:
            found, threads = in_threads(1, lambda: running.ask("/v1/predict", {"input": "a"}))
            until(lambda: held.busy == 1)  # before the others come: requests that arrive together share a batch
            more, others = in_threads(4, lambda: running.ask("/v1/predict", {"input": "a"}))
            until(lambda: running.app.batcher.waiting == 4)
            running.server.should_exit = True
            until(lambda: running.app.draining)
            status, _, headers = running.ask("/readyz")  # still answered, and no longer ready
            assert status == 503 and headers["connection"] == "close"
            until(lambda: not connects(running.port))
        finally:
            held.free.set()
        for thread in (*threads, *others):
            thread.join(60)
        assert [status for status, _, _ in found + more] == [200] * 5


def test_a_second_signal_ends_at_once_and_leaves_out_what_waits(folder, monkeypatch):
    with serving(folder, threads=1, grace=60.0) as running:
        held = Held(running, monkeypatch)

        def ask():
            with suppress(OSError, http.client.HTTPException):
                running.ask("/v1/predict", {"input": "a"})

        try:
            _, first = in_threads(1, ask)
            until(lambda: held.busy == 1)
            _, others = in_threads(4, ask)
            until(lambda: running.app.batcher.waiting == 4)
            running.server.handle_exit(signal.SIGINT, None)
            running.server.handle_exit(signal.SIGINT, None)
            until(lambda: running.app.batcher.waiting == 0)
        finally:
            held.free.set()
        for thread in (*first, *others):
            thread.join(60)
        assert held.busy == 1


def test_sigterm_under_load_loses_no_request(folder, tmp_path):
    """The command itself, in a process: clients with and without kept connections, until none can connect."""
    environment = {**os.environ, "PYTHONPATH": str(Path(server_module.__file__).parents[2])}
    # A busy machine may take longer than QUIET_SECONDS from the connection of a client to its request.
    code = "from glassbert.serving import server; server.QUIET_SECONDS = 3; from glassbert.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", str(folder), "--port", "0", "--grace", "2", "--engine", "numpy"]
    log = tmp_path / "log"  # a pipe that nobody reads would be full after some hundred requests
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True)
    try:
        assert process.stdout is not None
        port = int(re.search(r":(\d+)/", process.stdout.readline())[1])
        until(lambda: '"listening"' in log.read_text())
        answered, lost = [], []
        body = b'{"input": "another"}'

        def client(keep: bool):
            client = fuzz.Client(port)
            while True:
                try:
                    status = client.exchange(HEAD + b"\r\n" + body)
                except ConnectionRefusedError:
                    return
                except Exception as error:
                    status = error
                (answered if status == 200 else lost).append(status)
                if status != 200:
                    return
                if not keep:
                    client.close()

        threads = [threading.Thread(target=client, args=(i % 2 == 0,)) for i in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(answered) >= 30 or lost)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(60)
        process.communicate(timeout=60)
        assert lost == [] and len(answered) >= 30
        assert process.returncode == 0 and json.loads(log.read_text().splitlines()[-1])["unanswered"] == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def test_a_port_in_use_is_named(folder):
    from glassbert.errors import InputError
    from glassbert.serving.listening import listen

    with listen(0) as taken, pytest.raises(InputError, match="cannot be used"):
        listen(taken.getsockname()[1])
    with pytest.raises(InputError, match="no address"):
        listen(0, "no.such.host.invalid")


def test_requests_that_nobody_should_send():
    """A part of `python -m tests.serving.fuzz`."""
    found = fuzz.run(400, seed=1)
    assert found["answers"]["body: 200"] > 20 and found["answers"]["chunked nonsense: 400"] > 3


WITHOUT_EXTRA = """
import sys
for name in ("httptools", "uvloop", "orjson"):
    sys.modules[name] = None
from glassbert.serving import server
from tests.serving import fuzz
assert server.Protocol.__mro__[1].__name__ == "H11Protocol"
server.HEAD_SECONDS = 2.0
assert fuzz.run(150, seed=5, slow=3)["answers"]["body: 200"] > 5
"""


def test_the_server_does_the_same_without_the_packages_of_its_extra():
    root = Path(server_module.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", WITHOUT_EXTRA], check=True, cwd=root, env=environment, timeout=300)
