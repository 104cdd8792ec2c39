"""The browser itself: pages run, local servers answer, and nothing outside this machine is asked."""

import sys


def test_a_page_of_a_local_server_runs_and_asks_for_nothing_outside(page, serve, free_port, tmp_path):
    (tmp_path / "index.html").write_text(
        "<p id=answer></p><script>document.getElementById('answer').textContent = 6 * 7;"
        "fetch('https://example.org/').catch(() => 0)</script>"
    )
    port = free_port()
    serve(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        f"http://127.0.0.1:{port}/",
        cwd=tmp_path,
    )
    page.goto(f"http://127.0.0.1:{port}/")
    assert page.locator("#answer").inner_text() == "42"
    assert page.outside == ["https://example.org/"]
    assert page.errors == []
