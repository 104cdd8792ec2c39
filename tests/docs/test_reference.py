"""The references are complete, and what README and pages say about the project is so."""

import dataclasses
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

import glassbert
from docs.site import commands, formulas, settings
from docs.site.docstrings import as_markdown
from glassbert.cli import COMMANDS
from glassbert.finetuning.card import TaskCard
from tests.docs.blocks import ROOT, pages, read

PROJECT = tomllib.loads(read("pyproject.toml"))["project"]
FOR_DEVELOPERS = {"bench", "dev", "docs", "parity", "release"}
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")


def test_every_command_is_in_the_reference():
    page = commands.page()
    for name in COMMANDS:
        assert list(commands.leaves(name)), name
        for whole, one in commands.leaves(name):
            assert f"## `glassbert {whole}`" in page
            for parameter in one.params:
                if parameter.opts[0].startswith("--") and not getattr(parameter, "hidden", False):
                    assert f"`{parameter.opts[0]}`" in page, f"{whole} {parameter.opts[0]}"
        assert f"](#glassbert-{name})" in page
    assert re.search(r'^(A text: `)?glassbert predict runs/reviews "A film to remember."', page, re.M)
    assert "[bold]" not in page and "[dim]" not in page


def test_every_setting_is_in_the_reference_and_has_a_meaning():
    page = settings.page()
    for title, one, _ in settings.CLASSES:
        assert f"## {title}" in page
        for field in dataclasses.fields(one):
            assert f"| `{field.name}` |" in page
    corpus = settings.CLASSES[3][1]
    described = settings.trailing_comments(corpus)
    undescribed = {field.name for field in dataclasses.fields(corpus)} - described.keys()
    assert undescribed <= {"clean"}


def test_every_public_name_is_in_the_python_reference():
    reference = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
    tables = set(re.findall(r"`([A-Z_]+)`", reference))
    named = set(re.findall(r"^::: glassbert\.(\w+)$", reference, re.M))
    public = {*glassbert.__all__, *glassbert.LATER}
    assert public - named - tables == set()


def test_every_operation_file_is_in_the_reference():
    page = read("docs/reference/operations.md")
    files = {path.stem for path in (ROOT / "glassbert" / "ops").glob("*.py")} - {"__init__", "registry"}
    assert set(re.findall(r"^::: glassbert\.ops\.(\w+)$", page, re.M)) == files


def test_the_page_of_file_formats_names_every_key_of_a_task_card():
    page = read("docs/reference/formats.md")
    keys = set(re.findall(r"`(\w+)`", page.split("## task.json")[1].split("## ")[0]))
    assert {field.name for field in dataclasses.fields(TaskCard)} <= keys


def test_the_page_of_file_formats_names_every_key_of_a_manifest(tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(f"a bird sang number {i} by the river" for i in range(40)))
    glassbert.build_corpus([tmp_path / "text.txt"], tmp_path / "corpus", vocab_size=40, workers=1)
    manifest = json.loads((tmp_path / "corpus" / "manifest.json").read_text())
    part = read("docs/reference/formats.md").split("## Corpus")[1].split("## ")[0]
    assert manifest.keys() <= set(re.findall(r"`(\w+)`", part))
    shards = [path.name for path in (tmp_path / "corpus").glob("train-*")]
    assert shards and all(name in part for name in shards)


def test_every_environment_variable_is_in_the_page_of_file_formats():
    package = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "glassbert").rglob("*.py"))
    page = read("docs/reference/formats.md")
    for name in set(re.findall(r"\bGLASSBERT_[A-Z_]+", package)):
        assert f"`{name}" in page, name


def test_the_readme_lists_every_extra():
    named = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`[^|]*) \|", read("README.md"), re.M))))
    extras = set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS
    assert extras - named == set()
    page = read("docs/install.md")
    assert all(f"`{name}`" in page for name in extras)


def test_the_readme_is_short():
    assert 60 < len(read("README.md").splitlines()) <= 125


@pytest.mark.parametrize("page", [*pages(), "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    """Links of the files as they stand; MkDocs checks those of the site, with their anchors."""
    text = re.sub(r"```.*?```", "", read(page), flags=re.S)
    for target in LINK.findall(text):
        generated = Path(target).name in ("commands.md", "settings.md")
        if "://" not in target and not target.startswith("mailto:") and not generated:
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}"


def test_versions_agree():
    version = PROJECT["version"]
    assert glassbert.__version__ == version
    assert f"\nversion: {version}\n" in read("CITATION.cff")
    assert f"\n## {version}\n" in read("docs/release-notes.md")


def test_citation_workflow_and_templates_can_be_read():
    assert yaml.safe_load(read("CITATION.cff"))["license"] == PROJECT["license"]
    jobs = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"]
    assert any(step.get("run") == ".ci/run" for job in jobs.values() for step in job["steps"])
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))


def test_formulas_become_mathml():
    shown = formulas.displayed(r"y = \frac{a}{b} \tag{4.6}")
    assert 'id="f-4-6"' in shown and "<mfrac>" in shown and "(4.6)" in shown and "tag" not in shown
    linked = formulas.link_references("by (4.6) and `f(4.6)`, not (99.1)", {4: "04-x.md"})
    assert linked == "by ([4.6](04-x.md#f-4-6)) and `f(4.6)`, not (99.1)"


def test_every_formula_of_the_pages_can_be_drawn():
    count = 0
    for path in sorted((ROOT / "docs" / "derivations").glob("*.md")):
        text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.S)
        for match in re.finditer(r"\$\$\n(.*?)\n\$\$|\$([^$\n]+)\$", text, re.S):
            assert "<math" in formulas.displayed(match[1] or match[2])
            count += 1
    assert count > 500


def test_docstrings_become_markdown():
    assert as_markdown('Run it.\n\nrun(size="mini").train()\n\nFields:') == (
        'Run it.\n\n    run(size="mini").train()\n\nFields.'
    )
    text = "One [B, T] line.\n\nhead    which *one*\nsize    a number\n        that goes on\n\n    y = W x"
    assert as_markdown(text) == (
        "One \\[B, T\\] line.\n\n"
        "| | |\n|---|---|\n| `head` | which \\*one\\* |\n| `size` | a number that goes on |\n\n    y = W x"
    )
