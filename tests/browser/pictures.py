"""Makes the pictures of docs/glass.md: the twelve stops of the tour in light, dark and phone width, and a recording.

    python -m tests.browser.pictures MODEL [--run RUN] [--only tour,recording]

MODEL is a model folder; RUN is a run with snapshots, for the picture of its training.
"""

from __future__ import annotations

import argparse
import io
import threading
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from glassbert.learn.glass.opening import open_glass
from glassbert.learn.glass.server import free_socket, make_app
from tests.browser.conftest import find_chromium

OUT = Path(__file__).parents[2] / "docs" / "pictures"
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 800}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 800}},
}
WAIT = 120_000


def serve(model: str) -> str:
    import uvicorn

    listening = free_socket(0)
    port = listening.getsockname()[1]
    config = uvicorn.Config(make_app(open_glass([model]), port), log_level="error", lifespan="off")
    threading.Thread(target=uvicorn.Server(config).run, kwargs={"sockets": [listening]}, daemon=True).start()
    return f"http://127.0.0.1:{port}/"


def shot(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def ready(page: Page, address: str) -> None:
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("[data-ready=look]", timeout=WAIT)


def settle(page: Page, milliseconds: int = 700) -> None:
    """Wait until no section computes and nothing has been asked for a while."""
    page.wait_for_load_state("networkidle")
    page.wait_for_function("() => !document.querySelector('.gb-busy, [aria-busy=true]')", timeout=WAIT)
    page.wait_for_timeout(milliseconds)


def tour(browser, address: str) -> None:
    """One picture a look with all twelve stops."""
    for name, options in LOOKS.items():
        page = browser.new_context(reduced_motion="reduce", **options).new_page()
        stops = []
        for stop in range(1, 13):
            ready(page, f"{address}#stop={stop}")
            settle(page, 1200)
            settle(page, 500)
            stops.append(shot(page))
        page.context.close()
        columns, scale = (6, 0.62) if name == "phone" else (3, 0.5)
        width, height = (int(size * scale) for size in stops[0].size)
        sheet = Image.new("RGB", (columns * (width + 8) - 8, -(-12 // columns) * (height + 8) - 8), (128, 132, 140))
        for i, one in enumerate(stops):
            place = (i % columns * (width + 8), i // columns * (height + 8))
            sheet.paste(one.resize((width, height), Image.Resampling.LANCZOS), place)
        sheet.save(OUT / f"tour-{name}.webp", quality=82, method=6)
        if name != "phone":
            for stop, title in ((5, "sum"), (3, "map"), (9, "gradient"), (6, "attention"), (10, "referee")):
                if name == "light" or stop == 5:
                    stops[stop - 1].save(OUT / f"{title}-{name}.webp", quality=85, method=6)


def training(browser, address: str, text: str) -> None:
    """The slider over the snapshots of a run at three places, one below the other."""
    page = browser.new_context(reduced_motion="reduce", **LOOKS["light"]).new_page()
    ready(page, f"{address}#text={text}")
    page.locator("#gb-training").scroll_into_view_if_needed()
    page.wait_for_selector("#gb-training .gb-curve", timeout=WAIT)
    slider = page.locator("#gb-training input[type=range]")
    last = int(slider.get_attribute("max") or 0)
    shots = []
    for place in (0, 2 * last // 3, last):
        slider.fill(str(place))
        settle(page)
        shots.append(Image.open(io.BytesIO(page.locator("#gb-training").screenshot())).convert("RGB"))
    sheet = Image.new("RGB", (shots[0].width, sum(one.height + 8 for one in shots) - 8), (128, 132, 140))
    for i, one in enumerate(shots):
        sheet.paste(one, (0, sum(before.height + 8 for before in shots[:i])))
    sheet.save(OUT / "training.webp", quality=85, method=6)


def recording(browser, address: str) -> None:
    """About twenty seconds as an animated image."""
    page = browser.new_context(viewport={"width": 1160, "height": 725}, reduced_motion="reduce").new_page()
    ready(page, address)
    settle(page)
    frames: list[Image.Image] = []
    times: list[int] = []

    def keep(milliseconds: int) -> None:
        frames.append(shot(page).resize((928, 580), Image.Resampling.LANCZOS))
        times.append(milliseconds)

    def scroll(section: str, offset: int = 62) -> None:
        goal = page.evaluate(
            "([id, offset]) => document.querySelector(id).getBoundingClientRect().top + scrollY - offset",
            [f"#gb-{section}", offset],
        )
        begin = page.evaluate("() => scrollY")
        for part in (0.15, 0.5, 0.85, 1.0):
            page.evaluate("(y) => scrollTo(0, y)", begin + (goal - begin) * part)
            keep(70)

    keep(1100)
    page.locator("button.gb-word[aria-pressed=true]").click()
    settle(page, 200)
    keep(700)
    page.locator("button.gb-word").nth(2).click()
    settle(page, 300)
    keep(1200)
    page.locator("button.gb-word[aria-pressed=true]").click()
    settle(page, 100)
    page.locator("button.gb-word").nth(4).click()
    settle(page, 300)
    keep(900)
    scroll("map")
    for node in ("layers.0.attention.qkv", "layers.1.attention.attention", "layers.1.ffn.up"):
        if page.locator(f"#gb-map [data-node='{node}']").count():
            page.locator(f"#gb-map [data-node='{node}']").click()
            settle(page, 150)
            keep(500)
    page.keyboard.press("b")
    settle(page, 300)
    keep(1300)
    page.keyboard.press("f")
    settle(page, 100)
    page.locator("#gb-map [data-node='layers.1.attention.attention']").click()
    settle(page, 200)
    scroll("operation")
    for role, row, column in (("scores", 2, 1), ("weights", 2, 1), ("context", 2, 1)):
        cell = page.locator(f"#gb-operation [data-role={role}] td[data-row='{row}'][data-column='{column}']")
        cell.scroll_into_view_if_needed()
        cell.click()
        settle(page, 250)
        keep(1300)
    page.evaluate("(hash) => { location.hash = hash }", "#side=backward&node=layers.1.ffn.up&role=dweight&cell=3,4")
    settle(page, 500)
    scroll("operation")
    keep(1700)
    page.evaluate("(hash) => { location.hash = hash }", "#parameter=layers.1.ffn.up.weight&weight=3,4")
    settle(page, 300)
    scroll("gradient")
    settle(page, 500)
    scroll("gradient")
    keep(2200)
    scroll("step")
    settle(page, 800)
    scroll("step")
    keep(1800)
    scroll("attention")
    settle(page, 800)
    scroll("attention")
    keep(900)
    for head in (1, 3):
        page.locator("#gb-attention .gb-head").nth(head).click()
        settle(page, 500)
        keep(900)
    page.keyboard.press("d")
    scroll("text")
    settle(page, 300)
    keep(1500)
    frames[0].save(
        OUT.parent / "glass.webp", save_all=True, append_images=frames[1:], duration=times, loop=0, quality=72, method=6
    )
    print(f"{len(frames)} frames, {sum(times) / 1000:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--run")
    parser.add_argument("--text", default="She opened the [MASK] and went into the room.")
    parser.add_argument("--only", default="tour,training,recording")
    given = parser.parse_args()
    wanted = given.only.split(",")
    OUT.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        address = serve(given.model)
        if "recording" in wanted:
            recording(browser, address)
        if "tour" in wanted:
            tour(browser, address)
        if "training" in wanted and given.run:
            training(browser, serve(given.run), given.text)
        browser.close()


if __name__ == "__main__":
    main()
