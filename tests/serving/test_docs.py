"""The requests of docs/serving.md run as they are printed, and the files for containers say the same as the code."""

import json
import re
import shlex

import pytest
import yaml

from glassbert.cli import load_command
from glassbert.serving.app import Settings
from glassbert.serving.metrics import METRICS
from tests.docs.blocks import ROOT, blocks, commands, read
from tests.finetuning.test_predictor import save
from tests.serving.running import save_language_model, serving

PAGE = "docs/serving.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    with serving(save(root / "stars", "binary"), save_language_model(root / "mini"), truncate=True) as running:
        yield running


def asked(words):
    """Path, headers and body of a command line of curl."""
    headers = dict(words[i + 1].split(": ", 1) for i, word in enumerate(words) if word == "-H")
    body = next((words[i + 1] for i, word in enumerate(words) if word == "-d"), None)
    return words[1].removeprefix("localhost:8000"), headers, body


def test_every_request_of_the_page_is_answered(server):
    lines = [one.words for block in blocks(PAGE) if block.language == "bash" for one in commands(block)]
    requests = [asked(words) for words in lines if words[0] == "curl"]
    assert len(requests) == 5
    for path, headers, body in requests:
        changed = body.replace('"dimensions": 64', '"dimensions": 8') if body else None  # the toy model is narrower
        status, content, _ = server.ask(path, raw=changed.encode() if changed else None, headers=headers)
        assert status == 200, content
    assert json.loads(requests[1][2])["top"] == 2


def test_the_python_of_the_page_runs(server):
    code = next(block.text for block in blocks(PAGE) if block.language == "python")
    names: dict = {}
    exec(code.replace("localhost:8000", f"127.0.0.1:{server.port}"), names)
    assert len(names["vectors"]) == 2


def test_the_page_names_what_exists():
    text = read(PAGE)
    options = {flag for one in load_command("serve").params for flag in (*one.opts, *one.secondary_opts)}
    others = {"--read-only", "--rm", "--tmpfs", "--cap-drop", "--soak"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - others <= options
    assert set(re.findall(r"glassbert_[a-z_]+", text)) <= set(METRICS)


def test_the_image_and_the_cluster_start_the_command_with_options_that_exist():
    options = {flag for one in load_command("serve").params for flag in one.opts}
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    run = re.search(r"docker run .*", dockerfile)[0]
    assert run in read(PAGE) and '-v "$PWD/runs:/models:ro"' in run  # the folder above a model, which may be replaced
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", dockerfile, re.M)[1])
    assert entry[:2] == ["glassbert", "serve"] and {one for one in entry if one.startswith("--")} <= options
    assert re.search(r"^USER 10001:10001$", dockerfile, re.M) and "HEALTHCHECK" in dockerfile
    parts = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8")))
    pod = parts[0]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert {one for one in container["args"] if one.startswith("--")} <= options
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
    assert {container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")} == {
        "/readyz",
        "/healthz",
    }
    grace = float(container["args"][container["args"].index("--grace") + 1])
    assert grace + Settings().timeout + 5 < pod["terminationGracePeriodSeconds"]
    ignored = shlex.split((ROOT / ".dockerignore").read_text(encoding="utf-8"), comments=True)
    copied = {name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.M) for name in line.split()}
    assert copied == {name[1:] for name in ignored if name.startswith("!")}
