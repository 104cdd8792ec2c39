"""Vectors of single short texts over HTTP: `glassbert serve` beside a plain FastAPI server with transformers.

    python -m benchmarks.serve [--model FOLDER] [--seconds N] [--json]
    python -m benchmarks.serve --soak 10       afterwards 10 minutes at 120 % load, then SIGTERM under load

Every server runs in its own process, and the load comes from another one, on the same machine. The load is open-loop:
requests arrive at random times at a given rate. The throughput is the highest rate with p99 under 100 ms and no error,
in two of three measurements.
The peer is a server as people write it first: FastAPI, a tokenizer and a model, one request at a time on all cores;
as `def` (in threads) and as `async def`. Ours is also measured in bfloat16 where the processor has it. Before timing,
the vectors must agree. The texts are those of SST-2's dev set if `../shared/data` has it, else sentences from
Python's docstrings.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    MIB,
    Table,
    add_json_option,
    describe_machine,
    progress,
    require,
    rounded,
    run_program,
    show_json,
)
from benchmarks.inference import DATA, docstring_sentences, model_folder
from benchmarks.load import LOST, REFUSED, Generator, Load, post
from glassbert.engines import onednn

LATENCY = 0.1  # seconds, p99
STEPS = 6  # of the search for the highest rate
MAJORITY = 2  # of three measurements decide: one pause of the machine is longer than a hundredth of a measurement
OVERLOAD = 1.2
TOLERANCE = {"ours": 1e-4, "bfloat16": 5e-3}
NAMES = {
    "ours": "glassbert serve",
    "bfloat16": "glassbert serve --precision bfloat16",
    "def": "FastAPI + transformers (def)",
    "async": "FastAPI + transformers (async def)",
}


def texts() -> tuple[str, list[str]]:
    path = DATA / "sst2" / "dev.tsv"
    if path.exists():
        return "SST-2", [line.split("\t")[0].strip() for line in path.read_text().splitlines()[1:]]
    return "Python's docstrings", list(itertools.islice(docstring_sentences(), 1000))


# ---- servers -------------------------------------------------------------------------------------------------------


def peer(folder: str, port: int, asynchronous: bool) -> None:
    """The plain server, in this process."""
    import fastapi
    import pydantic
    import torch
    import uvicorn
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    app = fastapi.FastAPI()

    class Body(pydantic.BaseModel):
        input: list[str]

    def embed(body: Body) -> dict[str, Any]:
        given = tokenizer(body.input, padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**given).last_hidden_state
            mask = given["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            vectors = torch.nn.functional.normalize((hidden * mask).sum(1), dim=-1)
        return {"embeddings": vectors.tolist()}

    async def embed_here(body: Body) -> dict[str, Any]:
        return embed(body)

    for function in (embed, embed_here):
        function.__annotations__["body"] = Body
    app.post("/v1/embed")(embed_here if asynchronous else embed)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """A server in its own process."""

    def __init__(self, name: str, folder: str, options: list[str]):
        self.port = free_port()
        own = [sys.executable, "-m", "glassbert", "serve", f"model={folder}", "--port", str(self.port), *options]
        other = [sys.executable, "-m", "benchmarks.serve", "--peer", name, "--model", folder, "--port", str(self.port)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        narrow = ["--precision", "bfloat16"] if name == "bfloat16" else []
        self.process = subprocess.Popen([*own, *narrow, "--no-access-log"] if name in TOLERANCE else other, **quiet)
        self._wait()

    def _wait(self) -> None:
        for _ in range(600):
            with contextlib.suppress(OSError):
                self.ask("/v1/embed", {"input": ["a"]})
                return
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended with {self.process.returncode}")
            time.sleep(0.1)
        raise SystemExit("the server did not start")

    def ask(self, path: str, body: Any = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, sent, {"Content-Type": "application/json"})
        return connection.getresponse().read()

    def resident(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def running(name: str, folder: str, options: list[str]) -> Iterator[Server]:
    server = Server(name, folder, options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


# ---- measurement ---------------------------------------------------------------------------------------------------


def in_time(load: Load) -> bool:
    return load.percentile(0.99) < LATENCY and set(load.statuses) == {"200"}


class Bench:
    def __init__(self, sentences: list[str], seconds: float):
        self.sentences, self.seconds = sentences, seconds
        self.requests = [post("/v1/embed", json.dumps({"input": [one]}).encode()) for one in sentences]

    def generator(self, server: Server) -> Generator:
        return Generator(server.port, lambda i: self.requests[i % len(self.requests)])

    def open_loop(self, server: Server, rate: float, seconds: float | None = None, seed: int = 0) -> Load:
        return asyncio.run(self.generator(server).open_loop(rate, seconds or self.seconds, seed))

    def measure(self, server: Server, title: str) -> dict[str, Any]:
        """The highest rate with p99 under the limit, by bisection, and the latencies at half of it."""
        progress(f"{title}: warming up")
        asyncio.run(self.generator(server).closed_loop(4, 2.0))
        without_limit = asyncio.run(self.generator(server).closed_loop(32, self.seconds)).throughput
        low, high = 0.0, 1.25 * without_limit
        tried = []
        for _ in range(STEPS):
            rate = (low + high) / 2
            progress(f"{title}: {rate:.0f} requests/s")
            loads = []
            while max(sum(map(in_time, loads)), sum(not in_time(load) for load in loads)) < MAJORITY:
                loads.append(self.open_loop(server, rate, seed=len(loads)))
            good = sum(map(in_time, loads)) == MAJORITY
            times = [rounded(1e3 * load.percentile(0.99)) for load in loads]
            tried.append({"rate": rounded(rate), "p99_ms": times, "good": good})
            low, high = (rate, high) if good else (low, rate)
        progress(f"{title}: half of {low:.0f} requests/s")
        half = self.open_loop(server, max(low / 2, 1.0), 2 * self.seconds)
        return {
            "throughput": rounded(low),
            "closed_loop": rounded(without_limit),
            "half": {f"p{name}_ms": rounded(1e3 * half.percentile(share)) for name, share in
                     (("50", 0.5), ("95", 0.95), ("99", 0.99))},
            "tried": tried,
        }  # fmt: skip

    def soak(self, server: Server, rate: float, minutes: float) -> dict[str, Any]:
        """Overload for some minutes, with the memory of the server, then SIGTERM while the load goes on."""
        parts, memory = [], []
        count = max(4, round(minutes))
        for i in range(count):
            progress(f"soak: part {i + 1} of {count}, {rate:.0f} requests/s")
            parts.append(self.open_loop(server, rate, 60 * minutes / count))
            memory.append(server.resident() / MIB)
        statuses = sum((part.statuses for part in parts), start=type(parts[0].statuses)())

        async def terminated() -> Load:
            generator = self.generator(server)
            ends = asyncio.create_task(generator.open_loop(rate, 6.0))
            await asyncio.sleep(2.0)
            server.process.send_signal(signal.SIGTERM)
            return await ends

        progress("soak: SIGTERM under load")
        last = asyncio.run(terminated())
        server.process.wait(60)
        return {
            "minutes": minutes,
            "rate": rounded(rate),
            "statuses": dict(statuses),
            "errors": sum(part.errors() for part in parts),
            "p99_ms_of_accepted": rounded(1e3 * max(part.percentile(0.99) for part in parts)),
            "memory_mib": [rounded(one) for one in memory],
            "growth_mib": rounded(memory[-1] - memory[count // 4]),
            "at_sigterm": dict(last.statuses),
            "lost_at_sigterm": last.statuses[LOST],
            "exit_code": server.process.returncode,
        }


def stages(metrics: str) -> dict[str, float]:
    """Mean milliseconds of the parts of a request, from the metrics of our server."""
    found = {}
    for name in ("read", "encode", "queue", "compute"):
        pattern = rf'glassbert_stage_seconds_(sum|count){{stage="{name}"}} (\S+)'
        values = {kind: float(value) for kind, value in re.findall(pattern, metrics)}
        found[name] = 1e3 * values["sum"] / values["count"]
    whole = {kind: float(value) for kind, value in
             re.findall(r'glassbert_request_seconds_(sum|count){path="/v1/embed"} (\S+)', metrics)}  # fmt: skip
    found["the rest"] = 1e3 * whole["sum"] / whole["count"] - sum(found.values())
    rows = dict(re.findall(r"glassbert_batch_rows_(sum|count) (\S+)", metrics))
    found["rows a batch"] = float(rows["sum"]) / float(rows["count"])
    return {name: rounded(value) for name, value in found.items()}


def differences(servers: dict[str, np.ndarray]) -> dict[str, float]:
    """The largest difference of each of ours to the peers."""
    found = {}
    for ours in TOLERANCE.keys() & servers.keys():
        others = [vectors for name, vectors in servers.items() if name not in TOLERANCE]
        found[ours] = max((float(np.abs(servers[ours] - other).max()) for other in others), default=0.0)
        if not found[ours] <= TOLERANCE[ours]:
            raise SystemExit(f"the vectors of {NAMES[ours]} differ by {found[ours]:.1e}")
    return found


def ratio(report: dict[str, Any], ours: str, peer: str) -> str:
    peers = report["servers"][peer]["throughput"]
    if peer in TOLERANCE:
        return ""
    return f"{report['servers'][ours]['throughput'] / peers:.2f} x" if peers else "-"


def table_of(report: dict[str, Any], source: str, machine: str) -> Table:
    table = Table(
        "Vectors of single short texts over HTTP, open loop",
        ["server", "requests/s at p99 < 100 ms", "without a limit", "p50 at half", "p95", "p99",
         *(one if one == "ours" else f"in {one}" for one in TOLERANCE if one in report["servers"])],
    )  # fmt: skip
    for name, part in report["servers"].items():
        half = part["half"]
        ratios = [ratio(report, one, name) for one in TOLERANCE if one in report["servers"]]
        table.rows.append([NAMES[name], f"{part['throughput']:,.0f}", f"{part['closed_loop']:,.0f}",
                           *(f"{half[f'p{one}_ms']:.1f} ms" for one in (50, 95, 99)), *ratios])  # fmt: skip
    means = ", ".join(f"{name} {value:.2f}" for name, value in report["stages_at_half"].items())
    table.notes = [
        f"Model: {report['model']}; texts of {source}. The vectors agree within "
        f"{', '.join(f'{far:.0e}' for far in report['largest_differences'].values())}.",
        f"Ours at half of its throughput, mean milliseconds: {means}.",
        machine,
    ]
    if "soak" in report:
        soak = report["soak"]
        table.notes.insert(2, (
            f"{soak['minutes']:g} minutes at {soak['rate']:,.0f} requests/s (120 %): {soak['statuses']}, "
            f"{soak['errors']} errors other than 429, memory {soak['growth_mib']:+.1f} MiB after the first quarter; "
            f"SIGTERM under load: {soak['at_sigterm']}, {soak['lost_at_sigterm']} lost, exit code {soak['exit_code']}."
        ))  # fmt: skip
    return table


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder that transformers opens as well (default: all-MiniLM-L6-v2)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of every measurement (default 8)")
    parser.add_argument("--soak", type=float, default=0.0, metavar="MINUTES", help="overload afterwards")
    parser.add_argument("--only-ours", action="store_true", help="leave the peer out")
    parser.add_argument("--serve-options", default="", help="further options of glassbert serve")
    add_json_option(parser)
    parser.add_argument("--peer", choices=("def", "async"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    folder = options.model or str(model_folder())
    if options.peer:
        peer(folder, options.port, options.peer == "async")
        return
    if not options.only_ours:
        require("torch", "transformers", "fastapi", "uvicorn")
    machine, described = describe_machine("torch", "transformers", "fastapi", "uvicorn")
    source, sentences = texts()
    bench, own = Bench(sentences, options.seconds), options.serve_options.split()
    report: dict[str, Any] = {"model": options.model or "all-MiniLM-L6-v2", "servers": {}}
    vectors = {}
    names = [name for name in NAMES if name != "bfloat16" or not onednn.why_not()]
    for name in [name for name in names if name in TOLERANCE] if options.only_ours else names:
        with running(name, folder, own) as server:
            vectors[name] = np.array(json.loads(server.ask("/v1/embed", {"input": sentences[:32]}))["embeddings"])
            report["servers"][name] = bench.measure(server, NAMES[name])
    report["largest_differences"] = differences(vectors)
    rate = report["servers"]["ours"]["throughput"]
    with running("ours", folder, own) as server:
        bench.open_loop(server, max(rate / 2, 1.0))
        report["stages_at_half"] = stages(server.ask("/metrics").decode())
    if options.soak:
        with running("ours", folder, own) as server:
            report["soak"] = bench.soak(server, OVERLOAD * max(rate, 1.0), options.soak)
    best = max((part["throughput"] for name, part in report["servers"].items() if name not in TOLERANCE), default=0.0)
    report["ratios"] = {name: rounded(report["servers"][name]["throughput"] / best) if best else None
                        for name in TOLERANCE if name in report["servers"]}  # fmt: skip
    progress("")
    table_of(report, source, machine).show()
    if options.json:
        show_json({**report, "texts": source, "machine": described, "not_connected": REFUSED}, options.json)


if __name__ == "__main__":
    run_program(main)
