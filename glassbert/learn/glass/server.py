"""The local server of the glass: one page, its files, and one address for questions.

It listens on 127.0.0.1 only. A request must name this machine as its host, and a question must come from this page
(its Origin) as JSON: another website that is open in the same browser can ask nothing. Only the files of the page are
served, from a list made at the start.
"""

from __future__ import annotations

import json
import socket
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassbert.errors import InputError, needs
from glassbert.learn.glass.session import Glass
from glassbert.serving.listening import LOCAL as HOST
from glassbert.serving.listening import PAGE_HEADERS as HEADERS
from glassbert.serving.listening import TYPES, first_free, listen

FIRST_PORT = 8421
PORTS_TRIED = 50
LARGEST_QUESTION = 2_000_000  # bytes
PAGE = Path(__file__).parent / "page"


def needs_extra() -> InputError:
    return InputError(f"{needs('the glass', 'starlette')} uvicorn")


def make_app(glass: Glass, port: int) -> Any:
    """The application, for a server on this port."""
    try:
        from starlette.applications import Starlette
        from starlette.concurrency import run_in_threadpool
        from starlette.requests import Request
        from starlette.responses import JSONResponse, Response
        from starlette.routing import Route
    except ImportError:
        raise needs_extra() from None

    files = {path.name: path.read_bytes() for path in PAGE.iterdir() if path.suffix in TYPES}
    hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
    if port == 80:
        hosts |= {HOST, "localhost"}
    origins = {f"http://{host}" for host in hosts}

    def refuse(sentence: str, status: int) -> Response:
        return JSONResponse({"error": sentence}, status, HEADERS)

    def check(request: Request) -> Response | None:
        if request.headers.get("host", "").lower() not in hosts:
            return refuse("this server answers only as 127.0.0.1 or localhost", 403)
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in origins:
            return refuse("this server answers only questions of its own page", 403)
        return None

    def send(name: str) -> Response:
        return Response(files[name], media_type=TYPES[Path(name).suffix], headers=HEADERS)

    async def index(request: Request) -> Response:
        return check(request) or send("index.html")

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        return check(request) or (send(name) if name in files else refuse("there is no such file", 404))

    async def ask(request: Request) -> Response:
        refused = check(request)
        if refused is not None:
            return refused
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return refuse("a question must be sent as application/json", 415)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_QUESTION:
                return refuse(f"a question may have {LARGEST_QUESTION:,} bytes at most", 413)
        try:
            given = json.loads(body or b"{}")
        except ValueError:
            return refuse("the question is not JSON", 400)
        if not isinstance(given, dict):
            return refuse("the question must be an object", 400)
        answer = await run_in_threadpool(glass.ask, request.path_params["method"], given)
        return JSONResponse(answer, 400 if "error" in answer else 200, HEADERS)

    return Starlette(
        routes=[
            Route("/", index, methods=["GET"]),
            Route("/page/{name}", file, methods=["GET"]),
            Route("/ask/{method}", ask, methods=["POST"]),
        ]
    )


def free_socket(port: int | None) -> socket.socket:
    """A socket on 127.0.0.1: on `port`, which must be free, or on the first free one from `FIRST_PORT`."""
    if port is not None:
        return listen(port, HOST, "leave it out to take a free one")
    found = first_free(range(FIRST_PORT, FIRST_PORT + PORTS_TRIED), HOST)
    if found is None:
        last = FIRST_PORT + PORTS_TRIED - 1
        raise InputError(f"the ports {FIRST_PORT} to {last} are all in use; give another: --port N")
    return found


def serve(
    glass: Glass, port: int | None = None, open_browser: bool = True, say: Callable[[str], object] = print
) -> None:
    """Serve until Ctrl-C. Says the address, and what to do where the browser cannot be opened."""
    try:
        import uvicorn
    except ImportError:
        raise needs_extra() from None
    listening = free_socket(port)
    number = listening.getsockname()[1]
    address = f"http://{HOST}:{number}/"
    app = make_app(glass, number)
    if port is None and number != FIRST_PORT:
        say(f"Port {FIRST_PORT} is in use, so this glass is on port {number}.")
    say(f"The glass is open: {address}  (Ctrl-C ends it)")
    if open_browser and not opened(address):
        say(f"No browser could be opened. Open this address yourself: {address}")
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])


def opened(address: str) -> bool:
    """Whether a browser took the address."""
    try:
        return webbrowser.open(address)
    except Exception:  # a browser that cannot be started must not end the server
        return False
