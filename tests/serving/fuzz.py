"""Requests that nobody should send: the server must answer each with 200 or a 4xx and a sentence, and never hang.

    python -m tests.serving.fuzz --bodies 50000

Kinds: fields of wrong types and sizes, deep nesting, huge numbers, broken Unicode, bytes that are no JSON, bodies with
flipped bits, heads and chunks that are no HTTP, bodies that end too early, and clients that stop in the middle.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from glassbert.serving import server as server_module
from glassbert.serving.metrics import resident_bytes
from tests.finetuning.test_predictor import save
from tests.serving.running import save_language_model, serving

LONGEST = 60.0  # seconds until an answer, or the end of the connection
MODELS = ("binary", "token", "span", "embedding")
WORDS = ("the", "bird", "[MASK]", "lovely", "字", "\u200b", "ﬃ", "😀", "a" * 50, "##ing", "\x00", "\u202e", "[CLS]", "")
PLACES = (b"/%00", b"/v1/../etc", b"/v1/models/%F0%9F", b"*", b"http://y/v1/embed", b"/" + b"a" * 9000)
VALID = {
    "/v1/predict": {"input": ["the bird sings"], "model": "binary"},
    "/v1/fill-mask": {"input": "the [MASK] sings", "model": "words", "top": 3},
    "/v1/embed": {"input": ["the bird"], "model": "words", "dimensions": 4},
    "/v1/embeddings": {"input": [[5, 6, 7]], "model": "embedding", "encoding_format": "base64"},
    "/v1/tokens": {"input": "the bird", "special_tokens": False},
}


def value(rng: random.Random, depth: int = 0):
    """Any value of JSON, and some that only Python's parser takes."""
    kind = rng.randrange(16 if depth < 4 else 11)
    if kind < 3:
        return " ".join(rng.choices(WORDS, k=rng.randrange(12)))
    simple = [None, True, rng.randrange(-5, 300), rng.random() * 10 ** rng.randrange(-300, 300),
              10 ** rng.randrange(1, 60), -(2**63), "\ud800" * rng.randrange(1, 3),
              "king " * rng.randrange(2000)]  # fmt: skip
    if kind < 11:
        return simple[kind - 3]
    if kind < 14:
        return [
            value(rng, depth + 1) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 300)) if depth < 1 else rng.randrange(4))
        ]
    return {
        rng.choice(("input", "text", "a", "", "\x00", "model")): value(rng, depth + 1) for _ in range(rng.randrange(4))
    }


def body_of(rng: random.Random) -> tuple[str, bytes]:
    """An address and a body: a valid one with some fields replaced, nested, cut, or with flipped bits."""
    path = rng.choice(list(VALID))
    body: dict = dict(VALID[path])
    for _ in range(rng.randrange(3)):
        name = rng.choice((*body, "input", "input", "model", "top", "dimensions", "truncate", "user", "extra"))
        body[name] = value(rng)
    if rng.random() < 0.3:
        body["model"] = rng.choice((*MODELS, "words", "nobody"))
    raw = json.dumps(body, ensure_ascii=rng.random() < 0.8).encode("utf-8", "surrogatepass")
    change = rng.randrange(12)
    if change == 0:
        raw = raw[: rng.randrange(len(raw))]
    elif change == 1:
        flipped = bytearray(raw)
        for _ in range(rng.randrange(1, 6)):
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
        raw = bytes(flipped)
    elif change == 2:
        depth = rng.choice((10, 900, 5_000, 60_000))
        raw = b'{"input": ' + rng.choice((b"[", b'{"a":')) * depth + rng.choice((b"", b"]" * depth))
    elif change == 3:
        raw = rng.randbytes(rng.randrange(200))
    elif change == 4:
        raw = (
            b'{"input": ' + rng.choice((b"1e999", b"-" + b"9" * 4000, b"9" * 6000, b"NaN", b"0x1", b"1e-99999")) + b"}"
        )
    elif change == 5:
        raw = raw.replace(b'"', rng.choice((b"'", b"\xff", b'""', b"")), rng.randrange(1, 9))
    return path, raw


def request_of(rng: random.Random) -> tuple[str, bytes]:
    """A kind, and the bytes of a whole request."""
    path, body = body_of(rng)
    kind = rng.randrange(100)
    host = b"Host: x\r\nContent-Type: application/json\r\n"
    start = f"POST {path} HTTP/1.1\r\n".encode() + host
    if kind < 86:
        return "body", start + b"Content-Length: %d\r\n\r\n" % len(body) + body
    if kind < 90:
        cut = rng.randrange(len(body) + 1)
        parts = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in (body[:cut], body[cut:]) if one)
        return "chunks", start + b"Transfer-Encoding: chunked\r\n\r\n" + parts + b"0\r\n\r\n"
    if kind < 94:
        nonsense = rng.choice(
            (b"zz\r\n", b"-5\r\nabc\r\n", b"ffffffffffffffffff\r\n", b"5\r\nabcdefgh\r\n", b"3;\x00\r\nabc\r\n")
        )
        return "chunked nonsense", start + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n" + nonsense + rng.randbytes(
            20
        )
    heads = (
        rng.randbytes(rng.randrange(1, 200)) + b"\r\n\r\n",
        f"{rng.choice(('GET', 'DELETE', 'TRACE', 'BREW', 'PATCH'))} {path} HTTP/1.1\r\n".encode() + host + b"\r\n",
        b"POST " + rng.choice(PLACES) + b" HTTP/1.1\r\n" + host + b"Content-Length: 2\r\n\r\n{}",
        start + b"Content-Length: -1\r\n\r\n" + body,
        start + b"Content-Length: 99999999999999999999\r\n\r\n" + body,
        start + b"Content-Length: 5\r\nContent-Length: 7\r\n\r\n" + body,
        start + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        start + b"Cookie: " + b"a" * rng.choice((100, 70_000)) + b"\r\nContent-Length: 2\r\n\r\n{}",
        start + b"Authorization: \xff\xfe\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
        start + b"Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /v1/models HTTP/9.9\r\n" + host + b"\r\n",
    )  # fmt: skip
    return "head", rng.choice(heads)


class Client:
    """A connection that is opened again when the server closes it."""

    def __init__(self, port: int):
        self.port = port
        self.socket: socket.socket | None = None

    def exchange(self, request: bytes, close_after: bool = False) -> int | None:
        """The status of the answer; None if the server closed the connection without one."""
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=LONGEST)
        with suppress(OSError):  # the server may answer and close before it has read everything
            self.socket.sendall(request)
            if close_after:
                self.socket.shutdown(socket.SHUT_WR)
        found = self._read()
        if found is None or close_after:
            self.close()
        return found

    def _read(self) -> int | None:
        assert self.socket is not None
        data = b""
        try:
            while True:
                while data.startswith(b"HTTP/1.1 100") and b"\r\n\r\n" in data:
                    data = data.partition(b"\r\n\r\n")[2]
                if b"\r\n\r\n" in data:
                    break
                part = self.socket.recv(65_536)
                if not part:
                    return None
                data += part
            head, _, rest = data.partition(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            headers = {line.split(b":")[0].lower(): line.partition(b":")[2].strip() for line in lines[1:]}
            while len(rest) < int(headers[b"content-length"]):
                part = self.socket.recv(65_536)
                assert part, "the answer is shorter than it says"
                rest += part
        except ConnectionError:
            return None
        status = int(lines[0].split()[1])
        check(status, rest, head)
        if headers.get(b"connection", b"").lower() == b"close" or status == 400:
            self.close()
        return status

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def check(status: int, body: bytes, head: bytes) -> None:
    assert status == 200 or 400 <= status < 500, (status, body[:300])
    if status != 200 and head.split(b"\r\n")[0]:
        error = json.loads(body)["error"]
        assert len(error["message"]) > 10 and error["code"] and error["type"], body[:300]


def run(bodies: int, seed: int, slow: int = 0) -> dict:
    """Send so many requests to a server with five models; returns what came back."""
    rng = random.Random(seed)
    found: Counter = Counter()
    with tempfile.TemporaryDirectory() as folder:
        models = [save(Path(folder) / head, head) for head in MODELS]
        models.append(save_language_model(Path(folder) / "words"))
        with serving(*models, body_seconds=1.0, log_requests=False) as running:
            client = Client(running.port)
            sleeping = [stop_in_the_middle(running.port, rng) for _ in range(slow)]
            before, longest = 0.0, 0.0
            for number in range(bodies):
                kind, request = request_of(rng)
                early = rng.random() < 0.01
                start = time.perf_counter()
                try:
                    status = client.exchange(request[: rng.randrange(len(request))] if early else request, early)
                except TimeoutError:
                    raise AssertionError(f"no answer within {LONGEST:g} s to {kind}: {request[:400]!r}") from None
                longest = max(longest, time.perf_counter() - start)
                # 431 may arrive after the server has closed: what it had not read resets the connection.
                assert status is not None or early or kind != "body", (kind, request[:300])
                found[f"{'cut ' if early else ''}{kind}: {status}"] += 1
                if number == bodies // 5:
                    before = resident_bytes()
                if bodies >= 5_000 and number % 5_000 == 4_999:
                    print(f"{number + 1:,} requests, longest {longest:.2f} s", flush=True)
            client.close()
            for one in sleeping:
                assert one.recv(65_536).startswith(b"HTTP/1.1 408"), "a client that stopped was not told so"
                one.close()
            assert running.ask("/healthz")[0] == 200
            assert running.post("/v1/predict", **VALID["/v1/predict"])["predictions"]
            defects = [one for one in running.log if one["event"] != "listening"]
            assert not defects, defects[:3]
            growth = resident_bytes() - before
    return {"requests": bodies, "answers": dict(found.most_common()), "longest": longest, "growth": growth}


def stop_in_the_middle(port: int, rng: random.Random) -> socket.socket:
    """A client that sends a part of a request and then nothing."""
    one = socket.create_connection(("127.0.0.1", port), timeout=LONGEST)
    head = b"POST /v1/embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n"
    one.sendall(rng.choice((b"", head[: rng.randrange(1, len(head))], head + b"\r\n", head + b'\r\n{"input"')))
    return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bodies", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=int, default=50, help="clients that stop in the middle of a request")
    options = parser.parse_args()
    server_module.HEAD_SECONDS = 5.0
    start = time.perf_counter()
    found = run(options.bodies, options.seed, options.slow)
    for name, count in found["answers"].items():
        print(f"{count:8,}  {name}")
    print(f"{found['requests']:,} requests and {options.slow} that stopped in the middle in "
          f"{time.perf_counter() - start:.0f} s; the slowest answer took {found['longest']:.2f} s; memory grew by "
          f"{found['growth'] / 2**20:.1f} MiB; no 5xx, no answer without a sentence, none missing")  # fmt: skip


if __name__ == "__main__":
    main()
