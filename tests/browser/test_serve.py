"""The pages of `glassbert serve` in a browser: what they show is what the server answers, in every width and colour."""

import pytest

from glassbert.serving.keys import Keys
from tests.finetuning.test_predictor import save
from tests.serving.running import save_language_model, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    models = [save_language_model(root / "words"), save(root / "stars", "multiclass"), save(root / "names", "token"),
              save(root / "answers", "span")]  # fmt: skip
    with serving(*models) as running:
        yield running


def ask(page, text=None):
    if text is not None:
        page.fill("#input", text)
    page.click("#send")
    page.wait_for_selector("#send:not([disabled])")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (380, False)])
def test_every_kind_of_answer_is_shown(server, open_page, width, dark):
    page = open_page(width=width, dark=dark)
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.wait_for_selector("[role=tab]")
    ask(page, "the [MASK] sings")
    words = server.post("/v1/fill-mask", model="words", input="the [MASK] sings")["data"][0]["masks"][0]
    assert page.locator("#answer .name").all_inner_texts() == [one["word"] for one in words]
    assert page.locator("#answer .share").first.inner_text() == f"{100 * words[0]['chance']:.1f} %"
    page.click("[data-kind=embed]")
    ask(page, "the bird\nthe king")
    first, second = server.post("/v1/embed", model="words", input=["the bird", "the king"])["embeddings"]
    cosine = sum(a * b for a, b in zip(first, second, strict=True))
    assert f"{cosine:.3f}" in page.inner_text("#answer") and page.locator("#answer .vector").count() == 2
    page.select_option("#model", "stars")
    page.click("[data-kind=predict]")
    ask(page, "the bird sings")
    chances = server.post("/v1/predict", model="stars", input="the bird sings")["predictions"][0]["probabilities"]
    assert page.locator("#answer .name").first.inner_text() == max(chances, key=chances.get)
    page.select_option("#model", "names")
    ask(page, "the bird sings")
    assert page.locator("#answer .token").count() == 3
    page.select_option("#model", "answers")
    ask(page, '["who sings", "the bird sings"]')
    assert page.locator("#answer .result").count() == 1
    ask(page, "no JSON")
    assert "not JSON" in page.inner_text("#answer")
    page.click("[data-kind=tokens]")
    ask(page, "the <b>bird</b>")
    assert page.locator("#answer b").count() == 0  # a text is never read as HTML
    page.goto(f"http://127.0.0.1:{server.port}/docs")
    page.wait_for_selector("article")
    assert "/v1/embeddings" in page.inner_text("main")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.errors == [] and page.outside == []


@pytest.mark.parametrize("fails", [False, True])
def test_an_answer_to_what_was_chosen_before_is_not_shown(server, open_page, fails):
    page, held = open_page(), []
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.wait_for_selector("[role=tab]")
    page.click("[data-kind=embed]")
    page.route("**/v1/embed", lambda route: held.append(route))  # a builtin cannot be a handler
    page.click("#send")
    while not held:
        page.wait_for_timeout(10)
    page.click("[data-kind=tokens]")
    assert page.is_enabled("#send")
    with page.expect_response("**/v1/embed") as late:
        if fails:
            held[0].fulfill(status=422, json={"error": {"message": "a late error"}})
        else:
            held[0].continue_()
    late.value.finished()
    page.evaluate("fetch('healthz').then((response) => response.text())")  # by then the page has read the late answer
    assert page.is_hidden("#answer") and page.inner_text("#status") == ""
    ask(page, "the bird")
    assert page.locator("#answer .token").count() == 4


def test_a_key_is_asked_for_and_used(tmp_path, open_page):
    with serving(save_language_model(tmp_path / "words"), keys=Keys(["k" * 20])) as running:
        page = open_page()
        page.goto(f"http://127.0.0.1:{running.port}/")
        page.wait_for_selector("#key-field:not([hidden])")
        page.fill("#key", "k" * 20)
        page.press("#key", "Tab")
        page.wait_for_selector("[role=tab]")
        ask(page, "the [MASK]")
        assert page.locator("#answer .bars").count() == 1 and page.errors == []
