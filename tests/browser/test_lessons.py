"""Lessons in a real browser: a moved slider changes the number it should, and answers get the right verdict."""

import os
import shutil
import sys

import numpy as np
import pytest

from glassbert import ops
from glassbert.learn.course import get_lesson, open_command, open_environment

RIGHT = "def softmax(x):\n    e = np.exp(x - x.max(-1, keepdims=True))\n    return e / e.sum(-1, keepdims=True)"
WRONG = "def softmax(x):\n    e = np.exp(x)\n    return e / e.sum(-1, keepdims=True)"


@pytest.fixture(scope="module")
def address(serve, free_port, tmp_path_factory):
    """Lesson 4 in the notebook server, as `glassbert learn 4` opens it."""
    folder = tmp_path_factory.mktemp("lessons")
    path = folder / get_lesson(4).file
    shutil.copy(get_lesson(4).path, path)
    port = free_port()
    environment = {
        **open_environment(),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    serve(
        open_command(path, port, browser=False, token=False), f"http://127.0.0.1:{port}/", env=environment, cwd=folder
    )
    return f"http://127.0.0.1:{port}/"


def numbers(page, name):
    """The numbers of a heat map, as they are shown."""
    cells = page.locator(f"table.glassbert-heat[data-name={name}] td")
    return [float(text) for text in cells.all_inner_texts() if text.strip()]


def wait_for(page, condition, what):
    for _ in range(300):
        if condition():
            return
        page.wait_for_timeout(200)
    pytest.fail(f"waited in vain for {what}")


def answer(page, code):
    """Replace the cell of the exercise by this code and run it."""
    cell = page.locator(".cm-content").filter(has_text="def softmax(x)").first
    cell.scroll_into_view_if_needed()
    cell.click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(code)
    page.keyboard.press("Escape")  # close the list of completions
    cell.click()
    page.keyboard.press("ControlOrMeta+Enter")


def verdict(page):
    found = page.locator('.glassbert-verdict[data-exercise="softmax"]')
    return found.first.get_attribute("data-passed"), found.first.get_attribute("data-mistake")


def test_a_slider_changes_the_weights_and_answers_get_the_right_verdict(address, open_page):
    page = open_page(width=1280, height=1000)
    page.goto(address)
    page.wait_for_selector(".glassbert-verdict")
    wait_for(page, lambda: len(numbers(page, "weights")) == 4, "the heat map")

    before = numbers(page, "weights")
    assert abs(sum(before) - 1.0) < 0.002
    slider = page.get_by_role("slider").first
    slider.focus()
    for _ in range(8):  # eight steps of 0.25: the score of the third word rises from 1 to 3
        page.keyboard.press("ArrowRight")
    expected = [round(float(weight), 3) for weight in ops.softmax(np.array([0.5, 2.0, 3.0, -1.0]))[0]]
    wait_for(page, lambda: numbers(page, "weights") == expected, f"the weights {expected}")
    assert all(now < then for i, (now, then) in enumerate(zip(expected, before, strict=True)) if i != 2)

    assert "not answered yet" in page.locator(".glassbert-verdict").first.inner_text()
    answer(page, WRONG)
    wait_for(
        page, lambda: verdict(page) == ("False", "the maximum is not subtracted"), "the verdict on the wrong answer"
    )
    assert "exp overflows" in page.locator(".glassbert-verdict").first.inner_text()
    answer(page, RIGHT)
    wait_for(page, lambda: verdict(page)[0] == "True", "the verdict on the right answer")
    assert "y is right to" in page.locator(".glassbert-verdict").first.inner_text()
    assert not page.errors


def test_a_prediction_is_answered_only_after_a_choice(address, open_page):
    page = open_page()
    page.goto(address)
    page.wait_for_selector("details.glassbert-answer")
    assert not page.locator("details.glassbert-answer strong").first.is_visible()
    page.get_by_role("radio").first.click()  # "they do not change"
    wait_for(page, lambda: page.locator("div.glassbert-answer strong").count() == 1, "the answer")
    assert page.locator("div.glassbert-answer strong").inner_text() == "Yes."
