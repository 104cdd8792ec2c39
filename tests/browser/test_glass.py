"""The glass in a browser: every number that is read from the page is compared with the package."""

import random
import statistics
import sys
import time
from urllib.parse import urlencode

import numpy as np
import pytest

from glassbert import MINI_BERT_CONFIG, Model, ModernBertConfig
from glassbert.insight import LoadedModel
from glassbert.learn.glass.bundle import style, widget
from glassbert.learn.glass.export import export
from glassbert.learn.glass.session import Glass
from glassbert.training.optimizers import OPTIMIZERS
from glassbert.training.step import TrainingStep
from tests.insight.specimen import sentences, tokenizer

TEXT = sentences(1, seed=5)[0]
MASKED = [2]
VIEW = {"text": TEXT, "masked": MASKED}
SETTLED = 30_000  # milliseconds
ROTARY = ModernBertConfig(
    vocab_size=96, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=512, local_window=8, global_attention_every=3, pad_token_id=0,
)  # fmt: skip
CONFIGS = {"mini": MINI_BERT_CONFIG, "rotary": ROTARY}


def trained_looking(config, seed=1) -> Model:
    """Weights far from their initial values, so that no number is 0 or 1 by accident."""
    model = Model(config, "mlm", engine="numpy", seed=seed)
    rng = np.random.default_rng(seed)
    for name, values in model.parameters.items():
        at_rest = 1.0 if name.endswith("norm.weight") else 0.0
        scale = 0.1 if values.ndim == 2 else 0.2
        model.parameters[name] = at_rest + scale * rng.standard_normal(values.shape)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for name, config in CONFIGS.items():
        made[name] = tmp_path_factory.mktemp("models") / name
        trained_looking(config).save(made[name], tokenizer=tokenizer())
    return made


@pytest.fixture(scope="module")
def glasses():
    return {
        name: Glass([LoadedModel(name, trained_looking(config), tokenizer())], [VIEW])
        for name, config in CONFIGS.items()
    }


@pytest.fixture(scope="module")
def addresses(folders, serve, free_port):
    found = {}
    for name, folder in folders.items():
        port = free_port()
        found[name] = f"http://127.0.0.1:{port}/"
        command = [sys.executable, "-m", "glassbert", "glass", str(folder), "--text", TEXT, "--no-browser"]
        serve([*command, "--port", str(port)], found[name])
    return found


def hash_of(**fields):
    return "#" + urlencode({"mask": ",".join(map(str, MASKED)), **fields})


def go(page, address, **fields):
    page.goto("about:blank")
    page.goto(address + hash_of(**fields))
    page.wait_for_selector("[data-ready=look]", timeout=SETTLED)


def settled(page, role):
    """Wait for the table of one array, and for its numbers to be those of the last question."""
    page.wait_for_selector(f"#gb-operation [data-role={role}] table[data-ready] tbody td", timeout=SETTLED)


def number(text: str) -> float:
    return float(text.strip().replace("−", "-").replace("+", "").replace("∞", "inf"))


def agrees(text: str, value: float) -> bool:
    """Whether a text is this number, rounded to the digits that the text has."""
    text = text.strip().replace("−", "-").lstrip("+")
    if text == "0":
        return value == 0
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - decimals)
    return abs(float(text) - value) <= unit * 0.5000001


READ = """() => [...document.querySelectorAll('#gb-operation article[data-role]')].map((article) => ({
  role: article.dataset.role,
  ready: article.querySelector('table').dataset.ready ?? '',
  cells: [...article.querySelectorAll('td[data-row]')]
    .map((cell) => [+cell.dataset.row, +cell.dataset.column, cell.textContent]),
}))"""
TERMS = """() => ({
  value: document.querySelector('#gb-operation .gb-terms-value')?.textContent,
  name: document.querySelector('#gb-operation .gb-terms-title .gb-mono')?.textContent,
  total: document.querySelector('#gb-operation .gb-total strong')?.textContent,
  groups: [...document.querySelectorAll('#gb-operation .gb-group')]
    .map((group) => [...group.querySelectorAll('tbody tr')].map((row) => ({
      factors: [...row.querySelectorAll('.gb-number')].map((one) => one.textContent),
      term: row.querySelector('.gb-term').textContent,
    }))),
})"""


def read_and_compare(page, look, name, side, role, cell):
    """Compare every visible number of an operation, and the opened sum of a cell; returns how many were compared."""
    settled(page, role)
    page.wait_for_function(
        "(name) => [...document.querySelectorAll('#gb-operation article[data-role] table')]"
        ".every((table) => (table.dataset.ready ?? '').startsWith(name + '|'))",
        arg=name,
        timeout=SETTLED,
    )
    compared = 0
    for array in page.evaluate(READ):
        values = look.array(name, array["role"])
        _, shown_role, leading, _, _ = array["ready"].split("|")
        assert shown_role == array["role"]
        chosen = tuple(int(i) for i in leading.split(",") if i)
        for row, column, text in array["cells"]:
            index = () if values.ndim == 0 else (column,) if values.ndim == 1 else (*chosen, row, column)
            value = float(np.float32(values[index]))
            assert agrees(text, value), (name, array["role"], index, text, value)
            compared += 1
    answer = look.terms(name, role, list(cell))
    shown_name = answer["name"]
    page.wait_for_function(
        "(name) => document.querySelector('#gb-operation .gb-terms-title .gb-mono')?.textContent === name",
        arg=shown_name,
        timeout=SETTLED,
    )
    found = page.evaluate(TERMS)
    assert agrees(found["value"], answer["value"]), (name, role, cell, found["value"], answer["value"])
    if answer["kind"] != "sum":
        return compared + 1
    assert agrees(found["total"], answer["sum"])
    for group, expected in zip(found["groups"], answer["groups"], strict=True):
        assert len(group) == min(24, len(expected["values"]))
        for i, row in enumerate(group):
            assert agrees(row["term"], expected["values"][i]), (name, role, row, expected["values"][i])
            for text, factor in zip(row["factors"], expected["factors"], strict=True):
                assert agrees(text, factor["values"][i]), (name, role, factor["role"], text)
                compared += 1
            compared += 1
    return compared


def random_places(look, rng, count):
    """Operations, arrays that can be opened, and cells."""
    places = []
    while len(places) < count:
        side = rng.choice(["forward", "backward"])
        entry = rng.choice(look.map()[side])
        arrays = [one for one in look.operation(entry["name"])["arrays"].get(side, []) if one["opens"]]
        if not arrays:
            continue
        array = rng.choice(arrays)
        cell = [rng.randrange(size) for size in array["shape"]]
        places.append((entry["name"], side, array["role"], cell))
    return places


def test_the_glass_in_a_notebook_asks_python_over_its_channel(page, glasses):
    """The module that anywidget loads, with a channel like that of a notebook."""
    glass = glasses["rotary"]
    page.goto("about:blank")
    page.expose_function("askPython", lambda method, given: glass.ask(method, given))
    page.add_style_tag(content=style())
    page.evaluate(
        """async (code) => {
          const address = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
          const widget = (await import(address)).default;
          const listeners = [];
          const model = {
            on: (name, listener) => name === 'msg:custom' && listeners.push(listener),
            send: async ({ number, method, given }) => {
              const answer = await window.askPython(method, given);
              listeners.forEach((listener) => listener({ number, answer }));
            },
          };
          widget.render({ model, el: document.body });
        }""",
        widget(),
    )
    page.wait_for_selector("[data-ready=look]", timeout=SETTLED)
    assert agrees(page.locator("[data-loss]").inner_text(), glass.look_at(VIEW).loss)
    settled(page, "y")
    page.locator("#gb-operation [data-role=y] td[data-row='2'][data-column='1']").click()
    page.wait_for_selector("#gb-operation .gb-terms-value")
    name = page.locator("#gb-operation .gb-operation-name").evaluate("(one) => one.firstChild.textContent")
    expected = glass.look_at(VIEW).terms(name, "y", [2, 1])["value"]
    assert agrees(page.locator("#gb-operation .gb-terms-value").inner_text(), expected)
    assert page.errors == [] and page.outside == []


@pytest.mark.parametrize("name", CONFIGS)
def test_random_cells_values_gradients_and_terms_equal_the_package(page, addresses, glasses, name):
    look = glasses[name].look_at(VIEW)
    compared = 0
    for node, side, role, cell in random_places(look, random.Random(7), 14):
        go(page, addresses[name], side=side, node=node, role=role, cell=",".join(map(str, cell)))
        compared += read_and_compare(page, look, node, side, role, cell)
    print(f"\n{name}: {compared} numbers of the page compared with the package")
    assert compared >= 500
    assert page.errors == [] and page.outside == []


def test_an_exported_file_shows_the_same_numbers_without_a_server(page, glasses, tmp_path):
    other = {"text": sentences(1, seed=9)[0], "masked": [1]}
    glass = Glass(glasses["rotary"].models, [VIEW, other])
    file = tmp_path / "page.html"
    size = export(glass, file)
    look, compared = glass.look_at(VIEW), 0
    for node, side, role, cell in random_places(look, random.Random(3), 10):
        go(page, file.as_uri(), side=side, node=node, role=role, cell=",".join(map(str, cell)))
        compared += read_and_compare(page, look, node, side, role, cell)
    print(f"\nexported file of {size / 1e6:.1f} MB: {compared} numbers compared")
    assert compared >= 300
    page.locator("#gb-saliency").scroll_into_view_if_needed()
    page.wait_for_selector("#gb-saliency .gb-salient-word")
    page.locator("#gb-step").scroll_into_view_if_needed()
    page.wait_for_selector("#gb-step [data-after]")
    expected = glass.ask("summary", {"view": {**VIEW, "step": {"optimizer": "adamw", "learning_rate": 0.0001}}})["loss"]
    assert agrees(page.locator("#gb-step [data-after]").inner_text(), expected)
    page.locator("#gb-compare").scroll_into_view_if_needed()
    page.locator("#gb-compare").get_by_label("text", exact=True).select_option("1")
    page.wait_for_selector("#gb-compare .gb-array td[data-row]")
    before = page.locator("[data-loss]").inner_text()
    page.locator(".gb-top").get_by_label("text", exact=True).select_option("1")
    page.wait_for_function("(old) => document.querySelector('[data-loss]').textContent !== old", arg=before)
    assert agrees(page.locator("[data-loss]").inner_text(), glass.look_at(other).loss)
    assert page.errors == [] and page.outside == []


def test_gradient_and_nudge_show_the_numbers_of_the_package(page, addresses, glasses):
    glass = glasses["mini"]
    name = "layers.1.ffn.up.weight"
    gradient = np.abs(glass.look_at(VIEW).array("gradients", name))
    index = [int(i) for i in np.unravel_index(gradient.argmax(), gradient.shape)]
    go(page, addresses["mini"], parameter=name, weight=",".join(map(str, index)))
    page.locator("#gb-gradient").scroll_into_view_if_needed()
    page.wait_for_selector("#gb-gradient [data-nudge=measured]")
    expected = glass.ask("nudge", {"view": VIEW, "parameter": name, "index": index, "epsilon": 1e-4})
    for field in ("weight", "gradient", "predicted", "measured"):
        assert agrees(page.locator(f"#gb-gradient [data-nudge={field}]").inner_text(), expected[field]), field
    shown = {f: number(page.locator(f"#gb-gradient [data-nudge={f}]").inner_text()) for f in ("predicted", "measured")}
    assert shown["predicted"] == pytest.approx(shown["measured"], rel=1e-3)
    assert "measurement agree" in page.locator("#gb-gradient .gb-verdict").inner_text()


def test_a_step_of_the_page_is_a_step_in_python(page, addresses, glasses):
    go(page, addresses["mini"])
    page.locator("#gb-step").scroll_into_view_if_needed()
    page.wait_for_selector("#gb-step [data-after]")
    model = trained_looking(MINI_BERT_CONFIG)
    look = glasses["mini"].look_at(VIEW)
    before, _ = model.loss(look.tokens.ids, **look.labels)
    TrainingStep(model, OPTIMIZERS["adamw"](model, 0.0001))(look.tokens.ids, **look.labels)
    after, _ = model.loss(look.tokens.ids, **look.labels)
    assert number(page.locator("#gb-step [data-before]").inner_text()) == pytest.approx(float(before), rel=2e-4)
    assert number(page.locator("#gb-step [data-after]").inner_text()) == pytest.approx(float(after), rel=2e-4)


def test_clicking_a_word_masks_it_and_gives_five_answers(page, addresses):
    go(page, addresses["mini"])
    page.wait_for_selector(".gb-answer-box")
    assert page.locator(".gb-answer-box").first.locator("button.gb-answer").count() == 5
    page.locator("button.gb-word").nth(4).click()
    page.wait_for_function("() => document.querySelectorAll('#gb-text .gb-answer-box').length > 1")
    assert page.locator("button.gb-word[aria-pressed=true]").count() == 2
    loss = page.locator("[data-loss]").inner_text()
    page.locator("#gb-text .gb-answer-box").first.locator("button.gb-answer").nth(2).click()
    page.wait_for_function("(old) => document.querySelector('[data-loss]').textContent !== old", arg=loss)


def test_bad_texts_give_a_sentence_and_the_page_goes_on(page, addresses):
    go(page, addresses["mini"])
    box = page.locator("#gb-text textarea")
    for text, words in (("", "empty"), ("x" * 100_001, "100,000"), ("word " * 200, "first 64")):
        box.fill(text)
        box.press("Enter")
        page.wait_for_function(
            "(words) => document.querySelector('#gb-text [role=status]').textContent.includes(words)", arg=words
        )
    for text in ("😀 [MASK] 🎉", "שלום [MASK] עולם", " ".join(["[MASK]"] * 10)):
        box.fill(text)
        box.press("Enter")
        page.wait_for_function(
            "(n) => document.querySelectorAll('#gb-text .gb-answer-box').length === n", arg=text.count("[MASK]")
        )
    box.fill(TEXT)
    box.press("Enter")
    page.wait_for_function(
        "() => document.querySelector('#gb-text .gb-loss').textContent.includes('No word is masked')"
    )
    assert page.errors == []


def test_keys_walk_the_map_and_open_a_sum(page, addresses):
    go(page, addresses["mini"], node="layers.0.attention.qkv")
    settled(page, "y")
    page.keyboard.press("]")
    page.wait_for_selector("#gb-map [data-node='layers.0.attention.attention'][aria-current=true]")
    page.keyboard.press("[")
    page.wait_for_selector("#gb-map [data-node='layers.0.attention.qkv'][aria-current=true]")
    page.keyboard.press("b")
    page.wait_for_selector("#gb-map [data-side=backward][aria-checked=true]")
    page.keyboard.press("f")
    settled(page, "y")
    page.locator("#gb-operation [data-role=y] td[data-row][tabindex='0']").focus()
    walk = [("ArrowDown", 1, 0), *(("ArrowRight", 1, column) for column in range(1, 8))]
    for key, row, column in walk:  # a column that is not shown yet is fetched first
        page.keyboard.press(key)
        page.wait_for_selector(f"#gb-operation [data-role=y] td[data-row='{row}'][data-column='{column}']:focus")
    page.keyboard.press("Enter")
    page.wait_for_selector("#gb-operation .gb-terms-value")
    assert "[1 " in page.locator("#gb-operation .gb-terms-title").inner_text()
    assert "cell=1%2C7" in page.url
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    page.wait_for_selector(".gb-tour:not([hidden])")
    for stop in range(2, 13):
        page.keyboard.press("n")
        page.wait_for_function(
            "(text) => document.querySelector('.gb-tour').textContent.includes(text)", arg=f"{stop} of 12"
        )
    page.keyboard.press("Escape")
    assert page.locator(".gb-tour").is_hidden()
    assert page.errors == []


def test_a_link_opens_the_same_state(open_page, addresses):
    first = open_page()
    go(
        first,
        addresses["mini"],
        side="backward",
        node="layers.1.ffn.up",
        role="dweight",
        cell="3,4",
        layer="2",
        head="1",
    )
    first.wait_for_selector("#gb-operation .gb-terms-value")
    shown = first.locator("#gb-operation .gb-terms").inner_text()
    second = open_page(width=390, height=844, dark=True)
    second.goto(first.url)
    second.wait_for_selector("#gb-operation .gb-terms-value")
    assert second.locator("#gb-operation .gb-terms").inner_text().split() == shown.split()
    assert second.locator("#gb-map [data-side=backward]").get_attribute("aria-checked") == "true"
    assert second.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert first.errors == second.errors == []


def test_every_control_has_a_name_for_screen_readers(page, addresses):
    go(page, addresses["rotary"])
    for section in ("operation", "gradient", "step", "attention", "saliency", "training", "compare", "positions"):
        page.locator(f"#gb-{section}").scroll_into_view_if_needed()
        page.wait_for_timeout(250)
    page.wait_for_timeout(1500)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, textarea, [role=radio], [role=grid]')]
          .filter((one) => !one.textContent.trim() && !one.getAttribute('aria-label') && !one.closest('label'))
          .map((one) => one.outerHTML)"""
    )
    assert nameless == []
    assert page.evaluate("document.documentElement.lang") == "en"


def test_512_tokens_do_not_stall(page, addresses):
    long = " ".join(sentences(120))
    page.goto(
        addresses["rotary"] + "#" + urlencode({"text": long, "mask": "5", "node": "layers.0.attention.attention"})
    )
    page.wait_for_selector("[data-ready=look]", timeout=SETTLED)
    page.wait_for_function("() => document.querySelector('#gb-text [role=status]').textContent.includes('first 512')")
    settled(page, "weights")
    assert page.locator("#gb-operation [data-role=weights] td[data-row]").count() < 400
    page.locator("#gb-attention").scroll_into_view_if_needed()
    page.wait_for_selector("#gb-attention .gb-head canvas")
    assert page.errors == []


def test_silencing_a_head_changes_the_whole_glass_and_back(page, addresses, glasses):
    go(page, addresses["rotary"], layer="1", head="2")
    before = page.locator("[data-loss]").inner_text()
    page.locator("#gb-attention").scroll_into_view_if_needed()
    page.get_by_role("button", name="Silence it in the whole glass").click()
    page.wait_for_selector(".gb-banner:not([hidden])")
    page.wait_for_function("(old) => document.querySelector('[data-loss]').textContent !== old", arg=before)
    expected = glasses["rotary"].ask("summary", {"view": {**VIEW, "silenced": [[1, 2]]}})["loss"]
    assert agrees(page.locator("[data-loss]").inner_text(), expected)
    page.get_by_role("button", name="Back to the model as it is").click()
    page.wait_for_function("(old) => document.querySelector('[data-loss]').textContent === old", arg=before)


def test_response_times_are_printed(page, addresses):
    """Medians of 20, printed and not asserted: they belong to the machine."""
    opened, clicks, texts = [], [], []
    for _ in range(20):
        page.goto("about:blank")
        begun = time.perf_counter()
        page.goto(addresses["mini"])
        page.wait_for_selector("[data-ready=look]", timeout=SETTLED)
        opened.append(time.perf_counter() - begun)
    settled(page, "y")
    rng = random.Random(1)
    for turn in range(20):
        row, column = rng.randrange(5), turn % 4
        clicks.append(
            page.evaluate(
                """([row, column]) => new Promise((done) => {
                  const panel = document.querySelector('#gb-operation .gb-terms');
                  const table = document.querySelector('#gb-operation [data-role=y] table');
                  const cell = table.querySelector(`td[data-row="${row}"][data-column="${column}"]`);
                  const begun = performance.now();
                  const end = (_, self) => { self.disconnect(); done(performance.now() - begun); };
                  new MutationObserver(end).observe(panel, { childList: true });
                  cell.click();
                })""",
                [row, column],
            )
            / 1e3
        )
    for turn in range(20):
        text = f"{turn} " + " ".join(sentences(12, seed=turn))
        texts.append(
            page.evaluate(
                """(text) => new Promise((done) => {
                  const box = document.querySelector('#gb-text textarea');
                  const pieces = document.querySelector('.gb-pieces');
                  box.value = text;
                  const begun = performance.now();
                  const end = (_, self) => { self.disconnect(); done(performance.now() - begun); };
                  new MutationObserver(end).observe(pieces, { childList: true });
                  box.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
                })""",
                text,
            )
            / 1e3
        )
    for what, times in (
        ("opening the page", opened),
        ("a click on a cell", clicks),
        ("a new text of 64 tokens", texts),
    ):
        print(f"\n{what}: median {1e3 * statistics.median(times):.0f} ms of {len(times)}", end="")
    assert len(opened) == len(clicks) == len(texts) == 20
