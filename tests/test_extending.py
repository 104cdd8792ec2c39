"""docs/extending.md: every example is checked, trains and can be used from the command line; mistakes are named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
FILES = {block.split("\n", 1)[0].removeprefix("# "): block for block in BLOCKS if block.startswith("# ")}
TRAINING = {
    "swish.py": ["--activation", "swish"],
    "previous.py": ["--attention", "previous"],
    "shared.py": ["--preset", "shared-small"],
    "gentle.py": ["--objective", "gentle"],
    "signed.py": ["--optimizer", "signed", "--learning-rate", "1e-3"],
}
WORDS = "house river bird tree night garden window table morning letter bridge mountain teacher winter market story"
TEXT = "\n\n".join(  # a document each
    "\n".join(f"the {a} near the {b} was old , and a {a} by the {b} sang ." for b in WORDS.split())
    for a in WORDS.split() * 4
)


def glassbert(*arguments, cwd):
    command = [sys.executable, "-m", "glassbert", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("extending")
    for name, block in FILES.items():
        (place / name).write_text(block, encoding="utf-8")
    (place / "texts").mkdir()
    for number, document in enumerate(TEXT.split("\n\n")):
        (place / "texts" / f"{number}.txt").write_text(f"{number} : {document}", encoding="utf-8")
    rows = [f"{'good' if i % 2 else 'bad'} film number {i},{'yes' if i % 2 else 'no'}" for i in range(60)]
    (place / "reviews.csv").write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return place


def test_the_page_has_an_example_of_each():
    assert set(FILES) == {*TRAINING, "ends.py"}


def test_the_other_blocks_run():
    for block in BLOCKS:
        if not block.startswith("# "):
            exec(compile(block, str(PAGE), "exec"), {})


@pytest.mark.parametrize("name", FILES)
def test_an_example_is_checked(name, folder):
    done = glassbert("check", "--with", name, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok" in done.stdout


@pytest.mark.parametrize("name", TRAINING)
def test_an_example_trains(name, folder):
    options = ["--num-hidden-layers", "2", "--hidden-size", "16", "--num-attention-heads", "2", "--batch", "8"]
    done = glassbert(
        "pretrain", "--with", name, *TRAINING[name], *options, "--corpus", "texts", "--vocab-size", "100",
        "--steps", "4", "--run", f"runs/{name}", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    filled = glassbert("fill-mask", "--with", name, f"runs/{name}", "the [MASK] house", cwd=folder)
    assert filled.returncode == 0, filled.stdout + filled.stderr


def test_a_head_of_ones_own_is_fine_tuned_and_predicts(folder):
    done = glassbert(
        "finetune", "--with", "ends.py", "--head", "ends", "--from-scratch", "--preset", "mini",
        "--train", "reviews.csv", "--target",
        "label", "--epochs", "1", "--run", "runs/ends", "--no-baseline", "--no-report", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    answer = glassbert("predict", "--with", "ends.py", "runs/ends", "a good film", cwd=folder)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    without = glassbert("predict", "runs/ends", "a good film", cwd=folder)
    assert without.returncode == 2 and "ends" in without.stderr and "Traceback" not in without.stderr


WRONG = {
    "no_backward.py": ("from glassbert import operation\n\n@operation\ndef cube(x):\n    return x**3, x\n",
                       "operation 'cube' has no backward: write cube_backward"),
    "wrong_gradient.py": (
        "from glassbert import operation\n\n@operation\ndef cube(x):\n    return x**3, x\n\n"
        "@operation\ndef cube_backward(dy, x):\n    return 2 * dy * x**2\n", "cube: one array"),
    "two_arrays.py": (
        "from glassbert import operation\n\n@operation\ndef both(x, y):\n    return x * y, (x, y)\n\n"
        "@operation\ndef both_backward(dy, state):\n    return dy * state[1], dy * state[0]\n",
        "takes more than one array"),
    "no_example.py": (
        "from glassbert import HEADS\nfrom glassbert.models.heads.sequence import SequenceHead\n\n"
        "@HEADS.register('mine')\nclass Mine(SequenceHead):\n    kind = 'mine'\n", "head 'mine' has no example"),
    "nothing.py": ("x = 1\n", "registers nothing that has a gradient"),
    "raises.py": ("x = 1\nraise ValueError('seven')\n", "raises.py, line 2, raised ValueError: seven"),
    "syntax.py": ("x = \n", "syntax.py, line 1, raised SyntaxError"),
    "taken.py": ("from glassbert import operation\n\n@operation\ndef gelu(x):\n    return x, x\n",
                 "there is already an operation 'gelu'"),
    "part_taken.py": ("from glassbert import ATTENTIONS\n\n@ATTENTIONS.register('self')\nclass Mine:\n    pass\n",
                      "the attention 'self' exists already"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_or_missing_is_named(name, tmp_path):
    source, sentence = WRONG[name]
    (tmp_path / name).write_text(source, encoding="utf-8")
    done = glassbert("check", "--with", name, cwd=tmp_path)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0 and sentence in said, said
    assert "Traceback" not in said


def test_a_file_that_is_not_there(tmp_path):
    for name, sentence in (("none.py", "there is no file none.py"), ("notes.txt", "its name must end in .py")):
        (tmp_path / "notes.txt").write_text("x")
        done = glassbert("check", "--with", name, cwd=tmp_path)
        assert done.returncode == 2 and sentence in " ".join(done.stderr.split())
