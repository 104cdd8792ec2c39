"""A real browser for the tests of pages: Chromium by Playwright, and local servers that end with their test."""

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

NAMES = (
    *("chromium", "chromium-browser", "google-chrome"),
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
LOCAL = {"127.0.0.1", "localhost", "[::1]"}
SCHEMES = {"data", "blob", "about", "file"}  # addresses that leave no machine
TIMEOUT = 60_000  # milliseconds: two busy cores are slow


def pytest_collection_modifyitems(items):
    """Every test of this folder has the marker `browser`."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


def find_chromium() -> str:
    for name in (os.environ.get("CHROMIUM", ""), *NAMES):
        path = shutil.which(name) if name else None
        if path:
            return path
    pytest.fail("no Chromium or Chrome was found: run `make browser`, or set CHROMIUM to its path")


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """`open_page(width=1280, height=900, dark=False)` gives a page.

    `page.errors` collects uncaught errors, `page.outside` the addresses outside this machine that the page asked for;
    they are not fetched.
    """
    contexts = []

    def open_page(width=1280, height=900, dark=False, **options):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", **options
        )
        contexts.append(context)
        context.set_default_timeout(TIMEOUT)
        page = context.new_page()
        page.errors, page.outside = [], []
        page.on("pageerror", lambda error: page.errors.append(str(error)))

        def only_local(route):
            address = urlsplit(route.request.url)
            if address.scheme in SCHEMES or address.hostname in LOCAL:
                route.continue_()
            else:
                page.outside.append(route.request.url)
                route.abort()

        context.route("**/*", only_local)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page):
    return open_page()


@pytest.fixture(scope="session")
def free_port():
    """A function that gives a port which nothing listens on."""

    def free_port():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return probe.getsockname()[1]

    return free_port


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    """`serve(command, url, **options)` starts a process and waits until `url` answers; it ends with the module."""
    started = []

    def serve(command, url, wait=60.0, **options):
        log = tmp_path_factory.mktemp("server") / "output.txt"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, **options)
        started.append(process)
        end = time.monotonic() + wait
        while time.monotonic() < end:
            if process.poll() is not None:
                pytest.fail(f"the server ended with {process.returncode}: {log.read_text(errors='replace')[-3000:]}")
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return process
            except urllib.error.HTTPError:
                return process  # it answers
            except OSError:
                time.sleep(0.1)
        pytest.fail(f"{url} did not answer in {wait:.0f} s: {log.read_text(errors='replace')[-3000:]}")

    yield serve
    for process in started:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
