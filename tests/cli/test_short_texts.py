"""A command with one short text loads nothing that is compiled: that would take longer than the answer."""

import subprocess
import sys

import numpy as np
import pytest

import glassbert
from glassbert.cli.model_argument import SHORT_TEXT, kernels_for
from glassbert.training.fill_mask import fill_mask

SENTENCE = "She opened the [MASK] and went out."
SLOW_TO_LOAD = ("numba", "scipy", "matplotlib")


def test_fill_mask_loads_no_compiler():
    code = (
        "import sys; from glassbert.cli import main\n"
        f"sys.argv = ['glassbert', 'fill-mask', 'mini', {SENTENCE!r}, '--engine', 'numpy']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print([name for name in {SLOW_TO_LOAD} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "door" in done.stdout and done.stderr.splitlines()[-1] == "[]", done.stderr


def test_the_answers_are_the_same():
    fast, plain = (glassbert.load("mini", engine="numpy", kernels=kernels) for kernels in ("fast", "plain"))
    tokenizer = glassbert.load_tokenizer("mini")
    ((first, *_),), ((second, *_),) = (fill_mask(model, tokenizer, SENTENCE) for model in (fast, plain))
    assert first[0] == second[0] and np.isclose(first[1], second[1], atol=1e-5)


@pytest.mark.parametrize(
    "texts, kernels",
    [
        ((SENTENCE,), "plain"),
        ((SENTENCE, None), "plain"),
        (("a" * SHORT_TEXT,), "plain"),
        (("a" * SHORT_TEXT, "b"), "fast"),  # its attention would need all scores at once
    ],
)
def test_long_texts_take_the_fast_kernels(texts, kernels):
    assert kernels_for(*texts) == kernels
