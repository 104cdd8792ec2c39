"""The glass in a real notebook of marimo: it is drawn, and a click on a cell opens the sum that the package has."""

import os
import sys

import pytest

from glassbert import load
from glassbert.insight import LoadedModel
from glassbert.learn.glass.opening import first_view
from glassbert.learn.glass.session import Glass
from tests.browser.test_glass import ROTARY, SETTLED, TEXT, agrees, trained_looking
from tests.insight.specimen import tokenizer

NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import glassbert

    glassbert.glass({model!r}, {text!r})
    return
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "small"
    trained_looking(ROTARY).save(folder, tokenizer=tokenizer())
    return folder


@pytest.fixture(scope="module")
def address(serve, free_port, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    path = folder / "glass.py"
    path.write_text(NOTEBOOK.format(model=str(model), text=TEXT), encoding="utf-8")
    port = free_port()
    command = [sys.executable, "-m", "marimo", "-q", "run", str(path), "--headless", "--no-token", "-p", str(port)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "XDG_CACHE_HOME": str(folder / "cache")}
    serve(command, f"http://127.0.0.1:{port}/", env=environment, cwd=folder)
    return f"http://127.0.0.1:{port}/"


def test_the_glass_in_a_marimo_notebook(address, model, page):
    loaded = LoadedModel("small", load(model, engine="numpy"), tokenizer())
    view = first_view(loaded, TEXT)
    look = Glass([loaded], [view]).look_at(view)
    page.goto(address)
    page.wait_for_selector("[data-ready=look]", timeout=2 * SETTLED)
    assert agrees(page.locator("[data-loss]").inner_text(), look.loss)
    cell = page.locator("#gb-operation [data-role=y] td[data-row='2'][data-column='1']")
    cell.wait_for(timeout=SETTLED)
    cell.click()
    page.locator("#gb-operation .gb-terms-value").wait_for(timeout=SETTLED)
    name = page.locator("#gb-operation .gb-operation-name").evaluate("(one) => one.firstChild.textContent")
    assert agrees(page.locator("#gb-operation .gb-terms-value").inner_text(), look.terms(name, "y", [2, 1])["value"])
    assert not page.errors
