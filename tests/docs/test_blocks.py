"""Every code block of README and documentation: command lines are parsed, Python and commands run in a small folder."""

import re
import tomllib
from pathlib import Path

import pytest

from docs.site import commands as reference
from tests.docs import workshop
from tests.docs.blocks import FENCE, LANGUAGES, ROOT, Command, blocks, commands, pages, read, spans, split
from tests.docs.workshop import NOT_RUN, Workshop, reason_not_to_run

# Blocks that other tests run.
ELSEWHERE = {"docs/extending.md": "tests/test_extending.py"}
DATED = ("docs/lab-notes.md",)  # what was run on a day stays as it was
DERIVATIONS = "docs/derivations/"
# Pages whose blocks run in some seconds; the others run in `make docs`.
QUICK = {
    "README.md",
    "docs/corpus.md",
    "docs/huggingface.md",
    "docs/index.md",
    "docs/names.md",
    "docs/numerics.md",
    "docs/presets.md",
    "docs/tutorials/gradients.md",
}


def own_blocks(page):
    return [] if page in ELSEWHERE or page.startswith(DERIVATIONS) else blocks(page)


RUN = [page for page in pages() if any(block.language in ("python", "bash") for block in own_blocks(page))]


def all_commands() -> list[Command]:
    found = []
    for page in pages():
        for block in blocks(page):
            if block.language == "bash":
                found += commands(block)
            elif block.language == "text":
                lines = [line[2:] for line in block.text.split("\n") if line.startswith("$ ")]
                found += [Command(page, block.line, split(line)) for line in lines]
    return found


@pytest.mark.parametrize("page", pages())
def test_every_block_says_what_it_is(page):
    wrong = [block.where for block in blocks(page) if block.language not in LANGUAGES]
    assert not wrong, f"the blocks at {', '.join(wrong)} must begin with one of {', '.join(LANGUAGES)} behind ```"


@pytest.mark.parametrize("page", pages())
def test_every_command_line_parses(page):
    wrong = []
    for command in all_commands():
        arguments = command.glassbert if command.page == page else None
        if arguments is not None:
            try:
                reference.parse(arguments)
            except Exception as error:
                wrong.append(f"{command.where}: glassbert {' '.join(arguments)}\n    {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", [page for page in pages() if page not in DATED])
def test_every_command_in_the_text_exists_with_its_options(page):
    wrong = []
    for command in spans(page):
        try:
            reference.parse(["1" if word == "N" else word for word in command.words[1:]])
        except Exception as error:
            if type(error).__name__ != "MissingParameter" and not is_a_bare_group(command):
                wrong.append(f"{command.where}: {' '.join(command.words)}\n    {error}")
    assert not wrong, "\n".join(wrong)


def is_a_bare_group(command: Command) -> bool:
    """`glassbert corpus`, named without one of its commands, or a place for a name: `glassbert COMMAND --help`."""
    name = command.words[1]
    return name.isupper() or (len(command.words) == 2 and bool(getattr(reference.command(name), "commands", {})))


def test_wrong_lines_are_noticed():
    for line in ("pretrain --no-such-option 1", "no-such-command", "pretrain --batch many", "corpus no-such-command"):
        with pytest.raises(Exception, match=r"[Nn]o such|no command|valid integer|whole number"):
            reference.parse(line.split())
    assert reference.parse(["pretrain", "--batch", "8"])["batch"] == 8


def test_other_programs_exist():
    """Targets of make, modules and files of python, extras of pip."""
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    makefile = read("Makefile")
    for command in all_commands():
        words = command.words
        if words[0] == "make":
            target = next((word for word in words[1:] if "=" not in word), "help")
            assert re.search(rf"^{target}:", makefile, re.M), command.where
        elif words[0] == "python" and words[1:2] == ("-m",):
            path = ROOT / words[2].replace(".", "/")
            program = path.with_name(f"{path.name}.py").exists() or (path / "__main__.py").exists()
            assert words[2] in ("pytest", "pip") or program, command.where
        elif words[0] == "python":
            assert (ROOT / words[1]).exists(), command.where
        elif words[0] == "pip":
            for name in re.findall(r"\[([\w,]+)\]", " ".join(words)):
                assert set(name.split(",")) <= set(extras), f"{command.where}: there is no extra {name}"


def test_toml_blocks_are_settings():
    from glassbert.training.settings import TrainingSettings

    found = [block for page in pages() for block in own_blocks(page) if block.language == "toml"]
    assert found
    for block in found:
        TrainingSettings.from_dict(tomllib.loads(block.text))


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("workshop"))


@pytest.mark.parametrize("page", [pytest.param(page, marks=() if page in QUICK else pytest.mark.docs) for page in RUN])
def test_the_blocks_of_a_page_run(page, shop, tmp_path):
    shop.run_page(page, tmp_path / "place")


def test_every_reason_is_needed():
    """A line of the table that fits no command would hide the next one."""
    lines = [(c.page, " ".join(c.words)) for c in all_commands()]
    lines += [(b.page, b.text.split("\n", 1)[0]) for page in pages() for b in blocks(page) if b.language == "python"]
    for page, start, reason in NOT_RUN:
        assert len(reason) > 10
        assert any(page == where and (start == "*" or line.startswith(start)) for where, line in lines), (page, start)


def test_other_tests_run_the_other_blocks():
    for page, test in ELSEWHERE.items():
        assert Path(page).name in read(test)
    assert (ROOT / "tests" / "test_derivations.py").exists()


def test_a_wrong_block_is_noticed(shop, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    monkeypatch.setattr(workshop, "blocks", lambda _: blocks(page))
    page.write_text("```python\nimport glassbert\n\nglassbert.no_such_name\n```\n", encoding="utf-8")
    with pytest.raises(AttributeError, match="no_such_name"):
        shop.run_page("page.md", tmp_path / "a")
    page.write_text("```bash\nglassbert fill-mask nowhere 'a [MASK]'\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="exits with 2"):
        shop.run_page("page.md", tmp_path / "b")


def test_what_is_not_run_has_a_reason():
    command = Command("docs/glass.md", 1, ("glassbert", "glass", "runs/mine"))
    assert "server" in (reason_not_to_run(command) or "")
    assert reason_not_to_run(Command("docs/corpus.md", 1, ("glassbert", "corpus"))) is None


# Options in the text that belong to no command alone, or to other programs.
OTHER_PROGRAMS = {
    "--help": "every program",
    "--no-verify": "every command of GlassBERT",
    "--bucket": "tests/training/distributed_losses.py",
    **dict.fromkeys(("--what", "--fail-over", "--clock"), "python -m benchmarks.compare"),
}


def test_every_option_in_the_text_is_one_of_some_command():
    found = [reference.command(name) for name in reference.COMMANDS]
    found += [one for group in found for one in getattr(group, "commands", {}).values()]
    known = {name for one in found for p in one.params for name in (*p.opts, *p.secondary_opts)} | OTHER_PROGRAMS.keys()
    wrong = []
    for page in pages():
        text = FENCE.sub("", read(page)) if page not in DATED else ""
        wrong += [
            f"{page}: {name}" for name in re.findall(r"(?<!`)`(--[a-z][\w-]*)[^`\n]*`", text) if name not in known
        ]
    assert not wrong, "\n".join(wrong)
