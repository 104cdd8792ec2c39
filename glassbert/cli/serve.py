"""`glassbert serve`: models behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from glassbert.checkpoints.packaged import DEFAULT_MODEL
from glassbert.cli.options import chosen, counted
from glassbert.cli.with_option import Extensions
from glassbert.engines import ENGINES
from glassbert.engines.machine import usable_cores
from glassbert.errors import InputError
from glassbert.finetuning.predictor import ONNX_RUNTIME
from glassbert.serving.app import App, Settings
from glassbert.serving.bodies import Limits
from glassbert.serving.keys import VARIABLE, read_keys
from glassbert.serving.listening import LOCAL, listen
from glassbert.serving.logs import Log
from glassbert.serving.models import Shelf
from glassbert.serving.server import serve


def run(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Runs or model folders, also as NAME=RUN; the first is the default."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for other machines.")] = LOCAL,
    port: Annotated[int, counted("The port to listen on; 0: a free one.", least=0, most=65535)] = 8000,
    engine: Annotated[str, chosen("onnxruntime runs an exported model.", (*ENGINES, ONNX_RUNTIME))] = "auto",
    precision: Annotated[
        str,
        chosen("bfloat16 is faster where the processor has it (`glassbert doctor`).", ("float32", "bfloat16")),
    ] = "float32",
    threads: Annotated[
        int | None, counted("Threads that compute, each a batch of its own. Default: all cores.", "--threads")
    ] = None,
    batch_tokens: Annotated[int, counted("Tokens computed at a time, with padding.", least=8)] = 4096,
    wait: Annotated[float, typer.Option(metavar="MS", help="Milliseconds that a text waits for others.")] = 1.0,
    queue: Annotated[int, counted("Texts that may wait; beyond that the answer is 429.")] = 1024,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Longest time until a request is computed.")] = 60.0,
    max_bytes: Annotated[int, counted("The largest body.")] = Limits.body_bytes,
    max_texts: Annotated[int, counted("Texts of a request.")] = Limits.texts,
    max_tokens: Annotated[int, counted("Tokens of a request.")] = Limits.tokens,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Embed the beginning of texts that are too long.")
    ] = False,
    api_keys: Annotated[
        Path | None, typer.Option(metavar="FILE", help=f"Accept only these keys, one a line. Also: {VARIABLE}.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="A website whose pages may ask; * for all. Repeat it.")
    ] = None,
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", help="After SIGTERM, how long new requests are still taken.")
    ] = 1.0,
    access_log: Annotated[bool, typer.Option(help="Log every request, without its texts.")] = True,
    extensions: Extensions = None,
) -> None:
    """Serve models over HTTP: predictions, masked words, embeddings and tokens, and a page to try them.

    glassbert serve runs/stars
    glassbert serve reviews=runs/stars mini --port 8080
    curl localhost:8000/v1/predict -H "Content-Type: application/json" -d '{"input": "A warm film."}'

    A model folder that is replaced is taken over without a restart; a broken one is refused, and the old model goes on.
    """
    for name, value, least in (("--wait", wait, 0.0), ("--timeout", timeout, 0.001), ("--grace", grace, 0.0)):
        if not least <= value < 1e6:
            raise InputError(f"{name} must be a number from {least:g} to a million, got {value:g}")
    keys = read_keys(api_keys)
    listening = listen(port, host, "another program listens there; give another one")
    with listening:
        shelf = Shelf(models or [DEFAULT_MODEL], engine=engine, precision=precision, threads=1)
        compiled = any(
            one.model.engine.compiles for one in shelf.models.values()
        )  # a device computes one batch at a time
        settings = Settings(
            threads=1 if compiled else threads or usable_cores(), queue=queue, batch_tokens=batch_tokens,
            wait=wait / 1e3, timeout=timeout, limits=Limits(max_bytes, max_texts, max_tokens),
            origins=tuple(allow_origin or ()), truncate=truncate,
        )  # fmt: skip
        where = listening.getsockname()
        shown = f"[{where[0]}]" if ":" in where[0] else where[0]
        typer.echo(f"Serving {', '.join(shelf.models)} on http://{shown}:{where[1]}/  (Ctrl-C ends it)")
        serve(App(shelf, settings, keys=keys, log=Log(requests=access_log)), listening, grace=grace)
