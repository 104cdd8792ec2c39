"""A server on a free port of this machine, in a thread, and a client for it."""

import http.client
import io
import json
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from glassbert.serving.app import App, Settings
from glassbert.serving.listening import listen
from glassbert.serving.logs import Log
from glassbert.serving.models import Shelf
from glassbert.serving.server import Server

JSON = {"Content-Type": "application/json"}


class Running:
    """An `App` behind HTTP, with its log."""

    def __init__(self, app: App, server: Server, port: int, log: io.StringIO):
        self.app, self.server, self.port, self._log = app, server, port, log

    def ask(self, path: str, body=None, *, method: str | None = None, headers=JSON, raw: bytes | None = None):
        """Status, content (parsed if it is JSON) and headers of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = raw if raw is not None else None if body is None else json.dumps(body).encode()
        connection.request(method or ("GET" if sent is None else "POST"), path, sent, headers)
        response = connection.getresponse()
        content = response.read()
        found = {name.lower(): value for name, value in response.getheaders()}
        connection.close()
        is_json = found.get("content-type", "").startswith("application/json")
        return response.status, json.loads(content) if is_json else content, found

    def post(self, path: str, **body):
        """The answer to a body that must be accepted."""
        status, content, _ = self.ask(path, body)
        assert status == 200, content
        return content

    def refusal(self, path: str, **body):
        """Status, code and sentence of a body that must be refused."""
        status, content, _ = self.ask(path, body)
        assert 400 <= status < 500, content
        error = content["error"]
        assert set(error) == {"message", "type", "code"} and len(error["message"]) > 10
        return status, error["code"], error["message"]

    @property
    def log(self) -> list[dict]:
        return [json.loads(line) for line in self._log.getvalue().splitlines()]


@contextmanager
def serving(*models, keys=None, watch_seconds=3600.0, grace=0.0, log_requests=True, **settings):
    """Serve these folders; `settings` are those of `Settings`."""
    log = io.StringIO()
    shelf = Shelf([str(path) for path in models], engine="numpy", threads=1)
    app = App(
        shelf,
        Settings(**{"threads": 2, **settings}),
        keys=keys,
        log=Log(log, log_requests),
        watch_seconds=watch_seconds,
    )
    listening = listen(0)
    port = listening.getsockname()[1]
    server = Server(app, listening, grace=grace, log=app.log)
    app.start()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    until(lambda: server.started)
    try:
        yield Running(app, server, port, log)
    finally:
        server.should_exit = True
        thread.join(60)
        app.stop()
        assert not thread.is_alive()


def until(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def save_language_model(folder: Path, seed: int = 3) -> Path:
    """A masked language model of one layer that reads 24 tokens."""
    from glassbert.families.bert import MINI_BERT_CONFIG, BertWithHead
    from tests.finetuning.toy import make_tokenizer

    tokenizer = make_tokenizer()
    config = MINI_BERT_CONFIG.replace(
        vocab_size=tokenizer.vocab_size, hidden_size=16, num_attention_heads=2, intermediate_size=32,
        num_hidden_layers=1, max_position_embeddings=24, initializer_range=0.5,
    )  # fmt: skip
    BertWithHead(config, "mlm", engine="numpy", seed=seed).save(folder)
    tokenizer.save(folder)
    return folder
