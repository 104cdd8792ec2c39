"""A folder with small files, and functions that run the blocks of a page in it."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import random
import re
import shutil
from pathlib import Path

from glassbert.cli import main
from tests.docs.blocks import ROOT, Block, Command, blocks, commands, table

SHORTER = {row[0]: (row[1].split(), row[2].split()) for row in table("How commands are made shorter")}
IN_PYTHON = [(row[0], row[1]) for row in table("How Python is made shorter")]
NOT_RUN = [tuple(row) for row in table("What is not run")]
WITH_FINDINGS = ("doctor", "evaluate")  # these exit with 1 if they find a problem of the machine or of the model

SMALL = ["--batch", "8", "--num-hidden-layers", "1", "--hidden-size", "16", "--num-attention-heads", "2"]
RUNS = {
    "runs/mine": ["pretrain", "--corpus", "corpus", "--steps", "3", "--intermediate-size", "32", *SMALL],
    "runs/other": ["pretrain", "--corpus", "corpus", "--steps", "2", "--intermediate-size", "32", *SMALL],
    "runs/mini": ["pretrain", "--corpus", "corpus", "--steps", "2", "--intermediate-size", "32", *SMALL],
    "runs/larger": ["pretrain", "--corpus", "corpus", "--steps", "3", "--intermediate-size", "32", *SMALL],
    "RUN": ["pretrain", "--corpus", "corpus", "--steps", "8", "--snapshots", "3", *SMALL, "--num-hidden-layers", "2"],
    "runs/stars": [
        *("finetune", "--model", "runs/other", "--train", "reviews.csv", "--target", "stars", "--epochs", "1"),
        *("--no-baseline", "--no-report"),
    ],
    "runs/passengers": ["forecast", "--series", "passengers.csv", "--horizon", "12", "--steps", "3", "--seeds", "1"],
}  # fmt: skip
NEEDS = {"runs/stars": ["runs/other"]}


def write_files(place: Path) -> None:
    """Texts from these pages, a table of reviews, a series, a treebank."""
    paragraphs = [
        re.sub(r"[`*_\[\]|#]", " ", part)
        for path in sorted((ROOT / "docs").glob("*.md"))
        for part in path.read_text(encoding="utf-8").split("\n\n")
        if len(part) > 300 and not part.startswith(("|", "```"))
    ]
    (place / "texts").mkdir()
    for number, text in enumerate(paragraphs[:120]):
        (place / "texts" / f"{number}.txt").write_text(text, encoding="utf-8")
    rng = random.Random(0)
    good, bad = ["great", "lovely", "warm", "clever", "funny"], ["dull", "weak", "slow", "empty", "cold"]
    things = ["story", "ending", "hero", "city", "winter", "family", "song", "secret"]
    rows = []
    for number in range(80):
        words = good if number % 2 else bad
        first, second = (f"a {rng.choice(words)} {rng.choice(things)}" for _ in range(2))
        rows.append((f"a film about {first} with {second} {number}", "yes" if number % 2 else "no"))
    for name, columns, content in (
        ("reviews.csv", ("text", "stars"), rows),
        ("new.csv", ("text",), [(text,) for text, _ in rows[:5]]),
        ("passengers.csv", ("month", "passengers"), series()),
    ):
        with (place / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([columns, *content])
    (place / "dev.conllu").write_text(treebank(), encoding="utf-8")
    (place / "data").mkdir()
    (place / "data" / "sentences.txt").write_text("A bird sang.\nThe river was wide.\n", encoding="utf-8")


def series() -> list[tuple[str, float]]:
    return [
        (f"{1990 + i // 12}-{i % 12 + 1:02d}-01", round(100 + i + 20 * math.sin(i * math.pi / 6), 1)) for i in range(96)
    ]


def treebank() -> str:
    """Small sentences with parts of speech and relations."""
    nouns, verbs = (
        ["bird", "river", "teacher", "letter", "garden", "window"],
        ["saw", "found", "crossed", "opened", "liked"],
    )
    lines = []
    for number in range(60):
        subject, verb, thing = nouns[number % 6], verbs[number % 5], nouns[(number * 7 + 1) % 6]
        for place, (word, tag, head, relation) in enumerate(
            [
                *(("the", "DET", 2, "det"), (subject, "NOUN", 3, "nsubj"), (verb, "VERB", 0, "root")),
                *(("a", "DET", 5, "det"), (thing, "NOUN", 3, "obj"), (".", "PUNCT", 3, "punct")),
            ],
            1,
        ):
            lines.append(f"{place}\t{word}\t{word}\t{tag}\t_\t_\t{head}\t{relation}\t_\t_")
        lines.append("")
    return "\n".join(lines) + "\n"


def run_command(arguments: list[str]) -> str:
    """Run a command in this process and give its output; AssertionError unless it ended as it should."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            main(arguments)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    allowed = (0, 1) if arguments[0] in WITH_FINDINGS else (0,)
    assert code in allowed, f"glassbert {' '.join(arguments)} exits with {code}:\n{output.getvalue()[-3000:]}"
    return output.getvalue()


def shorter(arguments: list[str]) -> list[str]:
    """The command with the options of the table: some left out with their values, others put in front."""
    if arguments[0] == "forecast" and "--model" in arguments:  # nothing is trained
        return arguments
    left_out, added = SHORTER.get(arguments[0], ([], []))
    kept: list[str] = []
    words = iter(arguments[1:])
    for word in words:
        if word in left_out:
            next(words)
        else:
            kept.append(word)
    group = [kept.pop(0)] if arguments[0] in ("corpus", "tokenizer") else []
    added = [] if arguments[0] == "corpus" and group != ["build"] else added
    return [arguments[0], *group, *added, *kept]


def reason_not_to_run(command: Command) -> str | None:
    """The reason that the table gives, or None."""
    line = " ".join(command.words)
    for page, start, reason in NOT_RUN:
        if page == command.page and (start == "*" or line.startswith(start)):
            return reason
    return None


def wanted_runs(page: str) -> list[str]:
    """The ready runs that a page uses and does not make itself."""
    code = "".join(block.text for block in blocks(page) if block.language in ("python", "bash"))
    names = [name for name in RUNS if re.search(rf"\b{name}\b", code) and f"--run {name}" not in code]
    return [*(need for name in names for need in NEEDS.get(name, []) if need not in names), *names]


class Workshop:
    """Makes what pages need once, and a copy of it for each page."""

    def __init__(self, place: Path):
        self.place = place
        write_files(place)
        with contextlib.chdir(place):
            run_command(["corpus", "build", "texts/", "-o", "corpus", "--vocab-size", "600"])
            run_command([*RUNS["runs/mine"], "--run", "runs/mine"])
        shutil.copytree(place / "corpus", place / "mycorpus")
        shutil.copytree(place / "runs" / "mine" / "model", place / "small")

    def copy_for(self, page: str, target: Path) -> None:
        with contextlib.chdir(self.place):
            for name in wanted_runs(page):
                if not Path(name).exists():
                    run_command([*RUNS[name], "--run", name])
        code = "".join(block.text for block in blocks(page))
        shutil.copytree(self.place, target, ignore=shutil.ignore_patterns("runs"))
        if "corpus build texts/ -o corpus" in code or 'build_corpus(["texts/"], "corpus"' in code:
            shutil.rmtree(target / "corpus")
        for name in wanted_runs(page):
            shutil.copytree(self.place / name, target / name, dirs_exist_ok=True)

    def run_page(self, page: str, target: Path) -> int:
        """Run all blocks of a page; the number of blocks and commands that ran."""
        self.copy_for(page, target)
        names: dict[str, object] = {"__name__": "__main__"}
        ran = 0
        with contextlib.chdir(target):
            for block in blocks(page):
                if block.language == "python":
                    ran += self.run_python(block, names)
                elif block.language == "bash":
                    for command in commands(block):
                        if command.words[0] == "glassbert" and reason_not_to_run(command) is None:
                            run_command(shorter(list(command.words[1:])))
                            ran += 1
        return ran

    def run_python(self, block: Block, names: dict[str, object]) -> int:
        first = block.text.split("\n", 1)[0]
        if reason_not_to_run(Command(block.page, block.line, tuple(first.split()))) is not None:
            return 0
        if re.fullmatch(r"# \w+\.py", first):  # a file that commands use
            Path(first[2:]).write_text(block.text, encoding="utf-8")
        text = block.text
        for given, instead in IN_PYTHON:
            text = text.replace(given, instead)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile("\n" * (block.line - 1) + text, str(ROOT / block.page), "exec"), names)
        return 1
