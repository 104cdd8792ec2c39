"""The guided tour in docs/architecture.md: the files that a gradient passes, and links to the lines that it names."""

import re
import sys
from pathlib import Path

import numpy as np

import glassbert

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LINK = re.compile(r"\[`([\w.]+)`\]\(\.\./(glassbert/[\w/.]+)#L(\d+)\)")
WEIGHT = "layers.0.attention.qkv.weight"


def files_on_the_way() -> list[str]:
    """Files whose functions run from `model.backward` until the gradient of WEIGHT is added."""
    model = glassbert.MiniBERT(engine="numpy", kernels="plain")
    ids, mask = np.array([[2, 17, 4, 99, 3, 0, 0]]), np.array([[1, 1, 1, 1, 1, 0, 0]])
    _, cache = model.loss(ids, np.where(ids == 4, 42, -100), mask)
    package = str(Path(glassbert.__file__).parent)
    found: dict[str, None] = {}
    arrived = False

    def on_call(frame, event, argument):
        nonlocal arrived
        code = frame.f_code
        if event == "call" and not arrived and code.co_filename.startswith(package):
            found["glassbert" + code.co_filename.removeprefix(package).replace("\\", "/")] = None
            arrived = code.co_name == "add" and frame.f_locals.get("name") == WEIGHT

    before = sys.getprofile()
    sys.setprofile(on_call)
    try:
        model.backward(cache)
    finally:
        sys.setprofile(before)
    assert arrived
    return list(found)


def test_the_tour_lists_the_files_that_run_and_no_others():
    tour = PAGE[PAGE.index("## Guided tour") : PAGE.index("## Engines own their kernels")]
    listed = [file for _, file, _ in LINK.findall(tour)]
    found = files_on_the_way()
    assert len(found) <= 14
    assert set(listed) == set(found)
    assert "14 files" in tour and len(set(listed)) == 14


def line_of(name: str, file: str) -> int:
    """The line of a function, or of a method as `Class.method`."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    owner, _, last = name.rpartition(".")
    start = next(i for i, line in enumerate(lines) if line.startswith(f"class {owner}")) if owner else 0
    return next(i for i in range(start, len(lines)) if re.search(rf"\bdef {last}\b", lines[i])) + 1


def updated(page: str) -> str:
    return LINK.sub(lambda m: f"[`{m[1]}`](../{m[2]}#L{line_of(m[1], m[2])})", page)


def test_every_link_leads_to_the_line_it_names():
    assert len(LINK.findall(PAGE)) >= 14
    assert updated(PAGE) == PAGE, "lines have moved; `python tests/test_tour.py` updates the links"


if __name__ == "__main__":
    (ROOT / "docs" / "architecture.md").write_text(updated(PAGE), encoding="utf-8")
