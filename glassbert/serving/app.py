"""The application: addresses, keys, limits, errors, logs and metrics, as an ASGI callable.

    app = App(Shelf(["runs/stars"]), Settings())
    uvicorn.run(app)                                   starts and stops it by the lifespan protocol

An application that mounts it calls `app.start()` and `app.stop()` itself.

Every error is {"error": {"message", "type", "code"}}. Texts and keys are never logged.
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from glassbert.errors import GlassBertError, InputError, NotFinite
from glassbert.serving import openapi
from glassbert.serving.answers import ENDPOINTS, Asked, to_json
from glassbert.serving.batching import Batcher, Full, Job, Timing
from glassbert.serving.bodies import Limits, Refused, parse
from glassbert.serving.keys import Keys
from glassbert.serving.listening import PAGE_HEADERS, TYPES
from glassbert.serving.logs import Log, place_of
from glassbert.serving.metrics import Metrics, resident_bytes
from glassbert.serving.models import Served, Shelf, Watch

PAGE = Path(__file__).parent / "page"
SMALL_BODY = 16_384  # bytes; a larger one is read and encoded in a thread, so that other requests go on
PREPARED_AT_ONCE = 4  # such bodies for every thread; beyond that the answer is 429
OPEN = ("/healthz", "/readyz", "/metrics", "/", "/docs", "/openapi.json")  # need no key, like the files of the page
JSON = "application/json"


@dataclass(frozen=True)
class Settings:
    """How requests are treated.

    threads          threads that compute, each a batch of its own
    queue            rows that may wait; beyond that the answer is 429
    batch_tokens     tokens of a batch, with padding
    wait             seconds that a row waits for others at most
    timeout          seconds until a request that was not encoded and computed gets 503
    body_seconds     seconds until a body must have arrived
    origins          websites whose pages may ask this server; "*": all
    truncate         vectors of a text that is too long are those of its beginning
    """

    threads: int = 1
    queue: int = 1024
    batch_tokens: int = 4096
    wait: float = 0.001
    timeout: float = 60.0
    body_seconds: float = 20.0
    limits: Limits = field(default_factory=Limits)
    origins: tuple[str, ...] = ()
    truncate: bool = False


class Response(NamedTuple):
    status: int
    body: bytes
    media: str = JSON
    headers: Mapping[str, str] = {}


def busy(retry: int) -> Refused:
    return Refused(429, f"the server is busy; try again in {retry} s", "busy", {"Retry-After": str(retry)})


class Gone(Exception):
    """The client has closed the connection."""


class App:
    """An ASGI application over a shelf of models. `start` begins computing, `stop` ends it when the queue is empty;
    each is called once."""

    def __init__(self, shelf: Shelf, settings: Settings, *, keys: Keys | None = None, log: Log | None = None,
                 watch_seconds: float | None = None):  # fmt: skip
        self.shelf, self.settings, self.keys, self.log = shelf, settings, keys or Keys(), log or Log()
        self.metrics = Metrics()
        self.draining = self._frozen = False
        self.batcher = Batcher(
            threads=settings.threads, room=settings.queue, batch_tokens=settings.batch_tokens, wait=settings.wait,
            on_batch=self._count_batch,
        )  # fmt: skip
        self._preparing = ThreadPoolExecutor(settings.threads, "glassbert-prepare")
        self._room = threading.Semaphore(PREPARED_AT_ONCE * settings.threads)
        self.watch = Watch(shelf, self._reloaded, **({} if watch_seconds is None else {"seconds": watch_seconds}))
        self.files = {path.name: path.read_bytes() for path in PAGE.iterdir() if path.suffix in TYPES}
        self._prepare_gauges()

    def _prepare_gauges(self) -> None:
        gauges = self.metrics.gauges
        gauges["glassbert_queue_rows", ()] = lambda: self.batcher.waiting
        gauges["glassbert_queue_limit", ()] = lambda: self.settings.queue
        gauges["glassbert_resident_bytes", ()] = resident_bytes
        for name in self.shelf.models:
            key = ("glassbert_model_loaded_timestamp_seconds", (("model", name),))
            gauges[key] = partial(lambda name: self.shelf.models[name].loaded, name)

    def start(self) -> None:
        self.batcher.start()
        self.watch.start()

    def freeze(self) -> None:
        """Let Python's garbage collector leave out all that exists now.

        A full collection looks through every object of the process, models and modules included, for 0.05 to 0.1 s in
        which no thread runs. For the process of a server only: objects in cycles that end later are not freed. After a
        reload the model before is collected first.
        """
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._frozen = True

    def stop(self) -> None:
        self.watch.stop()
        self._preparing.shutdown(wait=False, cancel_futures=True)
        self.batcher.close()

    def _count_batch(self, rows: int, tokens: int, seconds: float) -> None:
        self.metrics.observe("glassbert_batch_rows", rows)
        self.metrics.observe("glassbert_batch_seconds", seconds)
        self.metrics.add("glassbert_tokens_total", tokens)

    def _reloaded(self, name: str, error: str | None) -> None:
        self.metrics.add("glassbert_reloads_total", model=name, result="taken" if error is None else "refused")
        if error is None:
            self.log.write("reload", model=name, result="taken")
            if self._frozen:
                self.freeze()
        else:
            self.log.write("reload", model=name, result="refused", reason=error, note="the model before goes on")

    # ---- one request ----------------------------------------------------------------------------------------------

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1003})
        elif scope["type"] == "http":
            await self._exchange(scope, receive, send)
        else:
            raise InputError(f"the type of an ASGI scope must be http, websocket or lifespan, not {scope['type']!r}")

    async def _live(self, receive: Any, send: Any) -> None:
        """The lifespan protocol: start before the first request, stop after the last one."""
        while True:
            event = (await receive())["type"]
            if event == "lifespan.startup":
                self.start()
            else:
                self.stop()  # in this thread, which set the limit of BLAS
            await send({"type": f"{event}.complete"})
            if event == "lifespan.shutdown":
                return

    async def _exchange(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        start = time.perf_counter()
        request = Request(scope, receive, secrets.token_hex(8))
        try:
            response = await self._respond(request)
        except Gone:
            response = None
        except Refused as refused:
            response = Response(refused.status, to_json(refused.body), headers=refused.headers)
            request.facts["code"] = refused.code
        except Exception as error:
            self.log.write("error", request=request.id, error=type(error).__name__, at=place_of(error))
            unexpected = Refused(500, "the server failed in a way that it does not expect; its log has more", "defect")
            response = Response(500, to_json(unexpected.body))
        if response is not None:
            await self._send(request, response, send)
        self._note(request, response, time.perf_counter() - start)

    async def _respond(self, request: Request) -> Response:
        path, method = request.path, request.method
        known = self._known(path)
        if known is None:
            raise Refused(404, "there is nothing at this address; /docs lists the addresses", "no_such_address")
        request.route, allowed = known
        if method == "OPTIONS" and self.settings.origins:
            return Response(204, b"")
        if method not in allowed:
            raise Refused(405, f"this address takes {' and '.join(allowed)}, not {method[:20]}", "wrong_method",
                          {"Allow": ", ".join(allowed)})  # fmt: skip
        if (
            self.keys
            and path not in OPEN
            and request.route != "/page"
            and not self.keys.accept(request.header("authorization"))
        ):
            raise Refused(401, "send a valid key in the header Authorization: Bearer KEY", "wrong_key",
                          {"WWW-Authenticate": "Bearer"})  # fmt: skip
        if path in ENDPOINTS:
            return await self._answer(request)
        return self._show(path)

    def _known(self, path: str) -> tuple[str, tuple[str, ...]] | None:
        """The name of an address in logs and metrics, which never has parts that a client made up, and its methods."""
        if path in ENDPOINTS:
            return path, ("POST",)
        get = ("GET", "HEAD")
        if path in (*OPEN, "/v1/models"):
            return path, get
        if path.startswith("/v1/models/"):
            return "/v1/models/", get
        return ("/page", get) if path.removeprefix("/page/") in self.files and path.startswith("/page/") else None

    def _show(self, path: str) -> Response:
        """Everything that is not computed."""
        if path == "/healthz":
            return Response(200, b'{"status":"ok"}')
        if path == "/readyz":
            ready = not self.draining
            return Response(200 if ready else 503, to_json({"status": "ready" if ready else "shutting down"}))
        if path == "/metrics":
            return Response(200, self.metrics.text().encode(), "text/plain; version=0.0.4; charset=utf-8")
        if path == "/openapi.json":
            return Response(200, to_json(openapi.document(self.settings.limits, bool(self.keys))))
        if path == "/v1/models":
            return Response(
                200, to_json({"object": "list", "data": [one.describe() for one in self.shelf.models.values()]})
            )
        if path.startswith("/v1/models/"):
            return Response(200, to_json(self._model(path.removeprefix("/v1/models/")).describe()))
        name = {"/": "index.html", "/docs": "docs.html"}.get(path) or path.rpartition("/")[2]
        return Response(200, self.files[name], TYPES[Path(name).suffix] + "; charset=utf-8", PAGE_HEADERS)

    def _model(self, name: Any) -> Served:
        if name is not None and not isinstance(name, str):
            raise Refused(422, '"model" must be the name of a model', "wrong_value")
        found = self.shelf.get(name)
        if found is None:
            names = ", ".join(self.shelf.models)
            raise Refused(404, f"there is no model {name!r} here; the models are {names}", "model_not_found")
        return found

    # ---- computed answers -----------------------------------------------------------------------------------------

    async def _answer(self, request: Request) -> Response:
        start = time.perf_counter()
        body = await request.body(self.settings.limits.body_bytes, self.settings.body_seconds)
        read = time.perf_counter()
        try:
            async with asyncio.timeout(self.settings.timeout):
                asked = await self._prepared(request.path, body)
                encoded = time.perf_counter()
                request.facts |= {"model": asked.served.name, "texts": asked.texts}
                stages = {"read": read - start, "encode": encoded - read}
                if asked.lane is None:
                    answer = asked.answer([])
                else:
                    request.facts["tokens"] = asked.item.tokens
                    answer, timing = await self._compute(asked, request)
                    request.facts["batch"] = timing.batch
                    stages |= {"queue": timing.queued, "compute": timing.computed}
        except TimeoutError:
            raise Refused(503, f"the request was not computed within {self.settings.timeout:g} s", "too_slow",
                          {"Retry-After": str(self.batcher.retry_after())}) from None  # fmt: skip
        for name, seconds in stages.items():
            self.metrics.observe("glassbert_stage_seconds", seconds, stage=name)
        shown = ", ".join(f"{name};dur={1e3 * seconds:.2f}" for name, seconds in stages.items())
        return Response(200, answer, headers={"Server-Timing": shown})

    async def _prepared(self, path: str, body: bytes) -> Asked:
        """What a body asks for. A large one is read in a thread; the place of one that was begun is free at its end."""
        if len(body) <= SMALL_BODY:
            return self._prepare(path, body)
        if not self._room.acquire(blocking=False):
            raise busy(self.batcher.retry_after())
        preparing = self._preparing.submit(self._prepare, path, body)
        preparing.add_done_callback(lambda _: self._room.release())
        return await asyncio.wrap_future(preparing)

    def _prepare(self, path: str, body: bytes) -> Asked:
        given = parse(body)
        served = self._model(given.get("model"))
        try:
            return ENDPOINTS[path](given, served, self.settings.limits, self.settings.truncate)
        except GlassBertError as error:
            raise Refused(422, str(error), "wrong_input") from None

    async def _compute(self, asked: Asked, request: Request) -> tuple[bytes, Timing]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[tuple[bytes, Timing]] = loop.create_future()

        def settle(answer: Any, error: BaseException | None, timing: Timing) -> None:
            if not found.done():
                if error is None:
                    found.set_result((answer, timing))
                else:
                    found.set_exception(error)

        def done(answer: Any, error: BaseException | None, timing: Timing) -> None:
            loop.call_soon_threadsafe(settle, answer, error, timing)

        job = Job(asked.lane, asked.item, asked.answer, done)
        try:
            self.batcher.submit(job)
        except Full as full:
            raise busy(full.retry) from None
        gone = asyncio.ensure_future(request.disconnected())
        try:
            await asyncio.wait((found, gone), return_when=asyncio.FIRST_COMPLETED)
            if not found.done():
                raise Gone
            return found.result()
        except NotFinite as error:
            raise Refused(503, str(error), "broken_model") from None
        except GlassBertError as error:
            raise Refused(422, str(error), "wrong_input") from None
        except MemoryError:
            raise Refused(503, "the memory of the server is not enough for this request", "no_memory") from None
        finally:
            gone.cancel()
            if not found.done():  # the client has gone, the time is over, or the server ends
                found.cancel()
                self.batcher.cancel(job)

    # ---- the response ---------------------------------------------------------------------------------------------

    async def _send(self, request: Request, response: Response, send: Any) -> None:
        headers = {"content-type": response.media, "content-length": str(len(response.body)),
                   "x-request-id": request.id, **response.headers}  # fmt: skip
        if response.status == 204:
            del headers["content-type"], headers["content-length"]
        origin = request.header("origin")
        if origin and (origin in self.settings.origins or "*" in self.settings.origins):
            headers |= {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
            if request.method == "OPTIONS":
                headers |= {"Access-Control-Allow-Methods": "GET, POST", "Access-Control-Max-Age": "600",
                            "Access-Control-Allow-Headers": "Authorization, Content-Type"}  # fmt: skip
        if self.draining or not request.complete:
            headers["connection"] = "close"
        encoded = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": response.status, "headers": encoded})
        body = b"" if request.method == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body})

    def _note(self, request: Request, response: Response | None, seconds: float) -> None:
        status = "gone" if response is None else str(response.status)
        self.metrics.add("glassbert_requests_total", path=request.route, status=status)
        self.metrics.observe("glassbert_request_seconds", seconds, path=request.route)
        if self.log.requests and request.route not in OPEN:
            self.log.write("request", request=request.id, path=request.route, status=status,
                           ms=round(1e3 * seconds, 2), **request.facts)  # fmt: skip


def path_in(scope: Mapping[str, Any]) -> str:
    """The path inside this application: without the path at which it is mounted."""
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    return (path.removeprefix(root) or "/") if path == root or path.startswith(root + "/") else path


class Request:
    """One request; `facts` are for the log."""

    def __init__(self, scope: Mapping[str, Any], receive: Any, id: str):
        self.path, self.method, self.id = path_in(scope), scope["method"], id
        self.route = "other"
        self.facts: dict[str, Any] = {}
        self._headers, self._receive = scope["headers"], receive
        self.complete = self.method in ("GET", "HEAD", "OPTIONS")  # whether the body has been read

    def header(self, name: str) -> str | None:
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self._headers if key == wanted), None)

    async def body(self, most: int, seconds: float) -> bytes:
        """The whole body; `Refused` if it is too large, too slow, or not JSON by its headers."""
        media = (self.header("content-type") or JSON).partition(";")[0].strip().lower()
        if media != JSON:
            raise Refused(415, "send the body as JSON, with the header Content-Type: application/json", "wrong_media")
        if (self.header("content-encoding") or "identity").strip().lower() != "identity":
            raise Refused(415, "send the body without compression", "wrong_media")
        too_large = Refused(413, f"the body is larger than the {most:,} bytes that are accepted", "too_large")
        length = self.header("content-length") or ""
        if length.isdecimal() and (len(length) > 15 or int(length) > most):
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(seconds):
                while True:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        raise too_large
                    if not message.get("more_body"):
                        self.complete = True
                        return b"".join(parts)
        except TimeoutError:
            raise Refused(408, f"the body did not arrive within {seconds:g} s", "too_slow") from None

    async def disconnected(self) -> None:
        """Returns when the client has closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
