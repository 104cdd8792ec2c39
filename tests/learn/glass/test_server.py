"""The server: who may ask, what is served, ports and browsers; the widget, the bundle and the exported file."""

import base64
import gzip
import json
import re
import socket
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from glassbert.errors import GlassBertError, InputError
from glassbert.learn.glass import server
from glassbert.learn.glass.bundle import PAGE, bundle, modules, widget
from glassbert.learn.glass.export import Store, evaluated, export, least_size, rounded, too_large
from glassbert.learn.glass.opening import as_loaded, first_view, open_glass
from glassbert.learn.glass.session import Glass
from tests.insight.specimen import sentences, specimen

TEXT = sentences(1, seed=5)[0]
VIEW = {"text": TEXT, "masked": [2, 3]}
PORT = 8421
OWN = f"http://127.0.0.1:{PORT}"


@pytest.fixture(scope="module")
def glass():
    return Glass([specimen("modernbert", dtype="float32")], [VIEW])


@pytest.fixture
def client(glass):
    return TestClient(server.make_app(glass, PORT), base_url=OWN)


def test_the_page_and_its_files_are_served(client):
    page = client.get("/")
    assert page.status_code == 200 and "page/main.js" in page.text
    for name in [*(f"{one}.js" for one in modules("main")), "style.css", "icon.svg"]:
        assert client.get(f"/page/{name}").status_code == 200, name
        assert f"page/{name}" in page.text or name == "main.js", name  # asked for at once, not one after the other
    for answer in (page, client.get("/page/main.js"), client.get("/page/nothing.js")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/page/../server.py", "/page/%2e%2e/server.py", "/page/..%2fserver.py", "/page//etc/passwd", "/etc/passwd",
        "/page/%2e%2e%2f%2e%2e%2f__init__.py", "/page/server.py", "/page/", "/page/main.js%00.py", "/ask/look",
        "/page/..%5cserver.py",
    ],
)  # fmt: skip
def test_nothing_else_is_served(client, path):
    answer = client.get(path)
    assert answer.status_code in (404, 405)
    assert "make_app" not in answer.text and "root:" not in answer.text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:8421", ""])
def test_another_host_is_refused(client, host):
    """A name that an attacker points to 127.0.0.1 (DNS rebinding) is another host."""
    for answer in (
        client.get("/", headers={"host": host}),
        client.get("/page/main.js", headers={"host": host}),
        client.post("/ask/about", json={}, headers={"host": host}),
    ):
        assert answer.status_code == 403
        assert "models" not in answer.text


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost"])
def test_another_origin_may_ask_nothing(client, origin):
    assert client.post("/ask/about", json={}, headers={"origin": origin}).status_code == 403


def test_the_own_page_may_ask(client):
    for origin in (OWN, f"http://localhost:{PORT}"):
        assert client.post("/ask/about", json={}, headers={"origin": origin}).json()["models"][0]["layers"] == 2
    assert client.get("/", headers={"host": f"localhost:{PORT}"}).status_code == 200


def test_questions_are_json_objects_of_limited_size(client):
    as_form = client.post("/ask/about", content=b"{}", headers={"content-type": "text/plain"})
    assert as_form.status_code == 415  # what another site can send without being asked
    assert client.post("/ask/about", content=b"{", headers={"content-type": "application/json"}).status_code == 400
    assert client.post("/ask/about", json=[1]).status_code == 400
    assert client.post("/ask/look", json={"view": {"text": "x" * 3_000_000}}).status_code == 413


def test_errors_are_sentences_and_the_server_goes_on(client):
    for view, words in (({"text": ""}, "empty"), ({"text": "x" * 100_001}, "100,000"), ({}, "string")):
        answer = client.post("/ask/look", json={"view": view})
        assert answer.status_code == 400 and words in answer.json()["error"]
    assert client.post("/ask/nothing", json={}).status_code == 400
    assert client.post("/ask/look", json={"view": VIEW}).json()["loss"] > 0


def test_a_port_in_use_is_passed_over_or_named(monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"--port {port} cannot be used"):
            server.free_socket(port)
        monkeypatch.setattr(server, "FIRST_PORT", port)
        found = server.free_socket(None)
        assert found.getsockname()[0] == "127.0.0.1" and found.getsockname()[1] > port
        found.close()
        monkeypatch.setattr(server, "PORTS_TRIED", 1)
        with pytest.raises(InputError, match="all in use"):
            server.free_socket(None)
    with pytest.raises(InputError, match="no port"):
        server.free_socket(99_999)


def test_a_browser_that_cannot_be_opened_leaves_the_address(glass, monkeypatch):
    import uvicorn

    said = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: sockets[0].close())
    for opener in (lambda address: False, lambda address: 1 / 0):
        monkeypatch.setattr(server.webbrowser, "open", opener)
        server.serve(glass, 0, True, said.append)
        assert re.search(r"No browser could be opened. Open this address yourself: http://127\.0\.0\.1:\d+/", said[-1])
    server.serve(glass, 0, False, said.append)
    assert "The glass is open" in said[-1]


def test_without_the_extra_a_sentence_says_what_to_install(glass, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "starlette.applications", None)
    with pytest.raises(InputError, match="pip install starlette uvicorn"):
        server.make_app(glass, PORT)


# ---- opening ---------------------------------------------------------------------------------------------------------


def test_the_longest_word_of_a_text_is_masked_at_first():
    loaded = specimen("mini")
    view = first_view(loaded, TEXT)
    assert len(view["masked"]) == 1
    assert first_view(loaded, "a [MASK]")["masked"] == []
    assert first_view(specimen("bert", None), TEXT)["masked"] == []


def test_a_model_that_is_none_is_named(tmp_path):
    with pytest.raises(GlassBertError, match="nowhere"):
        open_glass([str(tmp_path / "nowhere")])
    with pytest.raises(InputError, match="tokenizer"):
        as_loaded(specimen("mini").model)


# ---- the bundle and the widget ---------------------------------------------------------------------------------------


def test_every_module_is_in_the_bundle_and_none_is_left_out():
    used = {*modules("main"), *modules("recorded")}
    assert used == {path.stem for path in PAGE.glob("*.js")}
    text = bundle("main")
    assert "import " not in re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    assert text.count("export ") == 1
    assert widget().endswith("export default { render };\n")


def test_the_page_names_no_address_outside():
    for path in PAGE.iterdir():
        found = re.findall(r"https?://[^\s\"')]+", path.read_text(encoding="utf-8"))
        assert set(found) <= {"http://www.w3.org/2000/svg"}, path.name


def test_the_widget_answers_the_questions_of_its_page():
    pytest.importorskip("anywidget")
    import glassbert
    from glassbert.learn.glass.widget import _answer

    shown = glassbert.glass(specimen("mini"), TEXT)
    assert "mount(" in shown._esm and ".gb" in shown._css
    sent = []

    class Sender:
        send = staticmethod(sent.append)

    answers = Glass([specimen("mini")], [VIEW])
    _answer(answers, Sender, {"number": 3, "method": "look", "given": {"view": VIEW}})
    _answer(answers, Sender, {"number": 4, "method": "look", "given": None})
    _answer(answers, Sender, "not a question")
    assert sent[0]["number"] == 3 and sent[0]["answer"]["loss"] > 0
    assert "not understood" in sent[1]["answer"]["error"] and len(sent) == 2


# ---- the exported file -----------------------------------------------------------------------------------------------


def parts(file: Path):
    text = file.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="recorded">(.*?)</script>', text, re.S)[1])
    block = gzip.decompress(base64.b64decode(re.search(r'id="arrays">(.*?)</script>', text, re.S)[1]))
    return text, data, block


def stored(data, block, number):
    width, offset, shape = data["arrays"][number]
    count = int(np.prod(shape, dtype=int))
    raw = np.frombuffer(block, np.uint8, width * count, offset).reshape(width, count).T
    return np.ascontiguousarray(raw).reshape(-1).view("<f2" if width == 2 else "<f4").reshape(shape)


def test_an_exported_file_holds_every_array(glass, tmp_path):
    file = tmp_path / "page.html"
    size = export(glass, file)
    assert size == file.stat().st_size < 20e6
    text, data, block = parts(file)
    assert "http-equiv" in text and "default-src 'none'" in text
    assert not re.findall(r"https?://(?!www\.w3\.org)", text)
    look, view = glass.look_at(VIEW), data["views"][0]
    for name in look.nodes:
        for role, entry in view["nodes"][name].items():
            if "array" in entry:
                expected = np.asarray(look.array(name, role), np.float32)
                np.testing.assert_array_equal(stored(data, block, entry["array"]), expected, f"{name} {role}")
    for name, number in view["parameters"].items():
        np.testing.assert_array_equal(stored(data, block, number), look.model.parameters[name], name)
    assert set(view["silenced"]) == {"0.0", "0.1", "1.0", "1.1"}
    assert len(view["nudge"]) > len(look.model.parameters)


def test_a_gradient_that_the_page_computes_shows_the_digits_of_the_package(glass, monkeypatch, tmp_path):
    monkeypatch.setattr("glassbert.learn.glass.export.DERIVED", 64)
    export(glass, tmp_path / "page.html")
    _, data, _ = parts(tmp_path / "page.html")
    look, view = glass.look_at(VIEW), data["views"][0]
    checked = 0
    for name, entry in view["gradients"].items():
        if "where" not in entry:
            continue
        computed = sum(evaluated(look, node, role) for node, role in entry["uses"])
        where = np.frombuffer(base64.b64decode(entry["where"]), "<u4")
        computed.reshape(-1)[where] = np.frombuffer(base64.b64decode(entry["values"]), "<f4")
        true = look.array("gradients", name).astype(np.float64)
        for digits in (3, 5):
            one, other = rounded(computed, digits), rounded(true, digits)
            assert ((one == other) | (computed == true)).all(), name
        checked += 1
    assert checked > 5


def test_values_are_rounded_as_they_are_shown():
    values = np.array([0.0, 1.2346, -0.00012345, 99999.0, 0.5])
    np.testing.assert_allclose(rounded(values, 3), [0.0, 1.23, -0.000123, 100000.0, 0.5], rtol=1e-12)
    assert np.isnan(rounded(np.array([1.225]), 3)[0])  # a tie is never trusted


def test_arrays_are_stored_once_and_in_half_precision_only_where_that_is_exact():
    store = Store()
    array = np.array([1.0, 0.1], np.float32)
    assert store.add(array) == store.add(array) == 0
    store.add(np.array([1.0, 0.5], np.float32))
    assert [entry[0] for entry in store.entries] == [4, 2]


def test_a_file_that_would_be_too_large_is_refused_with_its_size(glass, monkeypatch, tmp_path):
    monkeypatch.setattr("glassbert.learn.glass.export.LIMIT", 10_000)
    with pytest.raises(InputError, match=r"the page would have .* MB and the limit is"):
        export(glass, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_weights_that_float16_would_fit_are_named_as_the_remedy(monkeypatch):
    loaded = specimen("mini", dtype="float32")
    glass, count = Glass([loaded], [VIEW]), loaded.model.num_parameters
    monkeypatch.setattr("glassbert.learn.glass.export.LIMIT", 4 * count)
    assert least_size(glass) > 3.5 * count
    assert "float16 take half of that: glassbert export RUN" in str(too_large(1e9, glass))
    for array in loaded.model.parameters.values():
        array[...] = array.astype(np.float16)
    assert least_size(glass) < 2.2 * count
    assert "fewer or shorter texts" in str(too_large(1e9, glass))


def test_a_model_of_two_texts_is_refused(tmp_path):
    loaded = specimen("mini", head="aligned", num_labels=1)
    loaded.model.save(tmp_path / "two", tokenizer=loaded.tokenizer)
    with pytest.raises(InputError, match="two compares two texts word by word, and the glass shows a pass over one"):
        open_glass([str(tmp_path / "two")])


def test_a_file_that_cannot_be_written_is_named(glass, tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(GlassBertError, match="cannot write"):
        export(glass, tmp_path / "taken" / "page.html")


def test_the_command_exports_a_page_and_says_so(tmp_path, capsys):
    from glassbert.cli import main

    folder = tmp_path / "model"
    loaded = specimen("mini", dtype="float32")
    loaded.model.save(folder, tokenizer=loaded.tokenizer)
    file = tmp_path / "page.html"
    with pytest.raises(SystemExit) as ended:
        main(["glass", str(folder), "--sentence", TEXT, "--sentence", "the red [MASK].", "-o", str(file)])
    assert not ended.value.code
    assert "2 texts" in capsys.readouterr().out
    assert [one["view"]["text"] for one in parts(file)[1]["views"]] == [TEXT, "the red [MASK]."]


def test_a_text_that_looks_like_html_stays_text(tmp_path):
    text = "a </script><script>alert(1)</script> [MASK]"
    glass = Glass([specimen("mini", dtype="float32")], [{"text": text, "masked": []}])
    export(glass, tmp_path / "page.html")
    page, data, _ = parts(tmp_path / "page.html")
    assert data["views"][0]["view"]["text"] == text
    assert "<script>alert" not in page


def test_a_quantised_model_is_shown_in_floats(tmp_path, monkeypatch):
    from glassbert.quantization import quantize_model

    monkeypatch.setattr("glassbert.quantization.settings.SMALLEST", 200)
    loaded = specimen("bert", dtype="float32")
    small = quantize_model(loaded.model)
    assert small.quantized
    small.save(tmp_path / "small", tokenizer=loaded.tokenizer)
    for glass in (open_glass([str(tmp_path / "small")], [TEXT]), Glass([as_loaded(small, loaded.tokenizer)], [VIEW])):
        assert "quantised, shown in floats" in glass.ask("about", {})["models"][0]["name"]
        assert "error" not in glass.ask("look", {"view": glass.views[0]})
    assert export(glass, tmp_path / "page.html") > 0
