"""The application in other programs: started by its server, mounted in another one, and other scopes."""

import asyncio

import pytest
from starlette.testclient import TestClient

from glassbert.errors import InputError
from glassbert.serving import models
from glassbert.serving.app import App, Settings, path_in
from glassbert.serving.models import Shelf
from tests.docs.blocks import blocks
from tests.serving.running import save_language_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_language_model(tmp_path_factory.mktemp("models") / "words")


@pytest.fixture
def app(folder):
    return App(Shelf([str(folder)], engine="numpy", threads=1), Settings())


def alive(app):
    return [thread.is_alive() for thread in app.batcher._threads]


def test_a_server_starts_and_stops_it_by_the_lifespan_protocol(app):
    assert alive(app) == [False]
    with TestClient(app) as client:
        assert client.post("/v1/embed", json={"input": "the bird"}).status_code == 200
        assert alive(app) == [True]
    assert alive(app) == [False]


def test_mounted_as_the_page_shows_it_answers_below_its_path(folder, monkeypatch):
    opened = models.open_served
    monkeypatch.setattr(models, "open_served", lambda name, path: opened(name, str(folder), engine="numpy"))
    code = next(block.text for block in blocks("docs/serving.md") if "Mount(" in block.text)
    names: dict = {}
    exec(code, names)
    with TestClient(names["app"]) as client:
        assert client.post("/bert/v1/embed", json={"input": "the bird"}).status_code == 200
        assert "page/page.js" in client.get("/bert/").text and client.get("/bert/page/page.js").status_code == 200
        assert client.get("/bert/bert/healthz").status_code == 404
    assert alive(names["bert"]) == [False, False]


@pytest.mark.parametrize(
    ("path", "root", "inside"),
    [
        ("/healthz", "", "/healthz"),
        ("/bert/healthz", "/bert", "/healthz"),
        ("/bert/healthz", "/bert/", "/healthz"),
        ("/bert", "/bert", "/"),
        ("/bertha", "/bert", "/bertha"),
        ("/healthz", "/bert", "/healthz"),
    ],
)
def test_the_path_inside_the_application(path, root, inside):
    assert path_in({"path": path, "root_path": root}) == inside


def test_other_scopes(app):
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message["type"])

    asyncio.run(app({"type": "websocket"}, receive, send))
    assert sent == ["websocket.close"]
    with pytest.raises(InputError, match="http, websocket or lifespan, not 'mail'"):
        asyncio.run(app({"type": "mail"}, receive, send))
