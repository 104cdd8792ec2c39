"""minibert.py: the same numbers and tokens as the package, in one file that needs only NumPy."""

import ast
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import glassbert
import minibert
from glassbert import MINI_BERT_CONFIG, AdamW, MiniBERT, TrainingStep, WordPieceTokenizer
from glassbert.text import character_ranges, characters
from glassbert.text.wordpiece_files import Description

FILE = Path(__file__).parents[1] / "minibert.py"
SMALL_CONFIG = MINI_BERT_CONFIG.replace(
    vocab_size=29, hidden_size=12, num_hidden_layers=2, num_attention_heads=3, intermediate_size=20,
    max_position_embeddings=9,
)  # fmt: skip
CONFIGS = {"mini": MINI_BERT_CONFIG, "small": SMALL_CONFIG}
TEXT = " ".join(
    f"The {noun} of the {place} was {what}, and nobody in the {place} knew why the {noun}'s door was {what}."
    for noun in ("doctor", "teacher", "baker", "unaffable captain")
    for place in ("village", "harbour", "valley", "café")
    for what in ("open", "closed", "painted green", "reopened")
)


def pair(config, seed=0):
    """The package's model and the one of the file, in float64."""
    theirs = MiniBERT(config, engine="numpy", kernels="plain", dtype="float64", seed=seed)
    ours = minibert.MiniBERT(
        config.vocab_size, config.hidden_size, config.num_hidden_layers, config.num_attention_heads,
        config.intermediate_size, config.max_position_embeddings, seed, np.float64,
    )  # fmt: skip
    return theirs, ours


def make_difficult(theirs, ours, seed=1):
    """Gammas that are not 1, biases that are not 0, and weights that matter."""
    rng = np.random.default_rng(seed)
    for name in ours.p:
        ours.p[name] += 0.1 * rng.standard_normal(ours.p[name].shape)
        theirs.parameters[name][...] = ours.p[name]


def batches(config, count, seed=2):
    """Repeated ids, padding, a row that is all padding, unmasked targets."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        shape = (5, config.max_position_embeddings)
        ids = np.minimum(rng.integers(5, config.vocab_size, shape), rng.integers(5, config.vocab_size, shape))
        ids, labels = minibert.mask_tokens(ids, config.vocab_size, rng)
        labels[:, 1] = ids[:, 1]
        mask = np.ones(shape, int)
        mask[1, -3:], mask[2, 2:], mask[3] = 0, 0, 0
        yield np.where(mask, ids, 0), np.where(mask, labels, -100), mask


def close(ours, theirs, tolerance=1e-10):
    assert set(ours) == set(theirs)
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_seed_gives_the_weights_of_the_package(config):
    theirs, ours = pair(config, seed=3)
    assert list(ours.p) == list(theirs.parameters)
    close(ours.p, dict(theirs.parameters), 0)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_loss_and_every_gradient_equal_the_package(config):
    theirs, ours = pair(config)
    make_difficult(theirs, ours)
    for ids, labels, mask in batches(config, 2):
        expected, cache = theirs.loss(ids, labels, mask)
        assert ours.loss(ids, labels, mask) == pytest.approx(float(expected), abs=1e-12)
        close(ours.g, dict(theirs.backward(cache)))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_ten_steps_of_adamw_equal_the_package(config):
    theirs, ours = pair(config)
    step = TrainingStep(theirs, AdamW(theirs, learning_rate=1e-3))
    optimizer = minibert.AdamW(ours.p)
    before, clipped = {name: value.copy() for name, value in ours.p.items()}, False
    for ids, labels, mask in batches(config, 10):
        expected = step(ids, labels, mask)
        assert ours.loss(ids, labels, mask) == pytest.approx(expected.loss, abs=1e-10)
        optimizer.step(ours.p, ours.g, 1e-3)
        clipped |= expected.gradient_norm > 1
    assert clipped, "clipping was not in use"
    close(ours.p, dict(theirs.parameters))
    assert all(np.abs(ours.p[name] - before[name]).max() > 1e-4 for name in ours.p)


def test_without_targets_loss_and_gradients_are_zero():
    _, ours = pair(SMALL_CONFIG)
    assert ours.loss(np.full((2, 4), 7), np.full((2, 4), -100)) == 0
    assert all((gradient == 0).all() for gradient in ours.g.values())


def test_float32_stays_float32():
    model = minibert.MiniBERT(50, 8, 1, 2, 16, 8)
    list(minibert.train(model, np.full((4, 8), 9), 2, batch=3))
    assert {x.dtype for x in (*model.p.values(), *model.g.values())} == {np.dtype("float32")}


# ---- text ----


def description(tokens):
    return Description(tuple(tokens), glassbert.text.normalise.Normaliser())


VOCABULARY = minibert.train_vocabulary(TEXT + " é中文Ωß", 150)
TOKENIZER = WordPieceTokenizer(description(VOCABULARY))
PUNCTUATION = characters.code_points(character_ranges.PUNCTUATION)


def same_class(code):
    """Whether Python's Unicode tables put a character where the package's do, which are older and never change."""
    c, kind = chr(code), unicodedata.category(chr(code))
    return (
        kind != "Cs"
        and characters.is_control(c) == (minibert.clean(c) == "")
        and characters.is_mark(c) == (kind == "Mn")
        and characters.lower(c) == c.lower()
        and characters.decompose(c) == unicodedata.normalize("NFD", c)
        and (code in PUNCTUATION) == (minibert.separate(c) == f" {c} ")
    )


OTHER_CLASS = {code for code in range(sys.maxunicode + 1) if not same_class(code) and not 0xD800 <= code < 0xE000}


def test_only_rare_characters_have_another_class():
    """Those that came into Unicode after the package's tables, and a few signs whose class was changed."""
    assert len(OTHER_CLASS) < 1000
    assert not [code for code in OTHER_CLASS if code < 0x340]


any_character = st.characters(exclude_categories=("Cs",)).filter(lambda c: ord(c) not in OTHER_CLASS)
pieces = st.one_of(
    st.text(any_character, max_size=8),
    st.sampled_from(
        ["[MASK]", "[SEP]", "[mask]", "the", " ", "reopened", "É", "İ", "ΑΣ", "中文", "x" * 100, "a" * 101]
    ),
    st.sampled_from(
        ["e\u0301", "\u0301", "\x00", "\x85", "\u00a0", "\u037e", "\u1fef", "각", "ﬁ", "ẞ", "don't", "\t\r\n"]
    ),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(pieces, max_size=10).map("".join))
def test_encode_equals_the_tokenizer_of_the_package(text):
    assert minibert.encode(text, VOCABULARY) == TOKENIZER.encode(text, special_tokens=False).ids


def test_every_character_alone_gives_the_same_token():
    codes = [code for code in range(0x30000) if not 0xD800 <= code < 0xE000 and code not in OTHER_CLASS]
    for start in range(0, len(codes), 500):
        text = "a ".join(map(chr, codes[start : start + 500]))
        assert minibert.encode(text, VOCABULARY) == TOKENIZER.encode_ids([text])[0].tolist()


@pytest.mark.parametrize("size", [60, 100, 136])
def test_the_vocabulary_equals_the_one_of_the_package(size):
    ours = minibert.train_vocabulary(TEXT + " [MASK] 中文 Ωß", size)
    theirs = WordPieceTokenizer.train([TEXT + " [MASK] 中文 Ωß"], vocab_size=size)
    assert list(ours) == list(theirs.description.tokens)
    assert list(ours.values()) == list(range(size))


def test_a_vocabulary_ends_where_no_pair_occurs_twice():
    assert len(minibert.train_vocabulary("abc abd", 1000)) == 5 + 4 + 3 + 1  # letters, ##letters, ab


def test_masking_chooses_as_told():
    ids = np.random.default_rng(0).integers(0, 100, (400, 64))
    inputs, labels = minibert.mask_tokens(ids, 100, np.random.default_rng(1))
    target = labels != -100
    assert (ids[target] > 4).all() and (labels[target] == ids[target]).all()
    assert (inputs[~target] == ids[~target]).all() and inputs[target].min() >= 4
    assert target.sum() / (ids > 4).sum() == pytest.approx(0.15, abs=0.01)
    assert (inputs[target] == 4).mean() == pytest.approx(0.8, abs=0.02)
    assert (inputs[target] == ids[target]).mean() == pytest.approx(0.1, abs=0.02)


# ---- the file ----


def test_it_imports_numpy_and_the_standard_library_alone_and_fits_on_few_pages():
    source = FILE.read_text(encoding="utf-8")
    tree = ast.parse(source)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    roots = {name.partition(".")[0] for name in imported}
    assert "numpy" in roots and roots - {"numpy"} <= sys.stdlib_module_names
    assert len(source.splitlines()) <= 420


def test_every_operation_has_its_backward_below_it():
    names = [
        node.name for node in ast.parse(FILE.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)
    ]
    backward = [name for name in names if name.endswith("_backward")]
    assert len(backward) == 7
    assert all(names.index(name) == names.index(name.removesuffix("_backward")) + 1 for name in backward)


def run(*arguments, cwd):
    command = [sys.executable, str(FILE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=cwd, timeout=300)


def test_it_trains_on_a_file_and_fills_a_mask(tmp_path):
    (tmp_path / "my text.txt").write_text("\ufeff" + TEXT, encoding="utf-8")
    done = run("my text.txt", "--steps", 12, "--vocab", 150, "--fill", "The [MASK] was [MASK].", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    losses = [float(line.split("loss")[1].split()[0]) for line in done.stdout.splitlines() if line.startswith("step")]
    assert len(losses) == 3 and losses[-1] < losses[0] - 0.3
    assert done.stdout.count("[MASK]:") == 2 and "the [MASK] was [MASK] ." in done.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "my text.txt"]


def test_it_needs_no_file_and_no_installed_package(tmp_path):
    alone = tmp_path / "minibert.py"
    alone.write_bytes(FILE.read_bytes())
    command = [sys.executable, str(alone), "--steps", "1", "--vocab", "300", "--dtype", "float64"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, timeout=300)
    assert done.returncode == 0 and "[MASK]:" in done.stdout, done.stderr


def test_help_teaches(tmp_path):
    said = run("--help", cwd=tmp_path).stdout
    assert "from top to bottom" in said and "--fill" in said and "`dx` is the derivative" in said


WRONG = {
    "missing": (["none.txt"], "cannot read none.txt: No such file"),
    "folder": (["."], "cannot read .: Is a directory"),
    "empty": (["empty.txt"], "the text has 0 tokens; at least 496 are needed"),
    "short": (["short.txt"], "at least 496 are needed"),
    "binary": (["binary.txt"], "binary.txt is not a text file in UTF-8"),
    "latin": (["latin.txt"], "latin.txt is not a text file in UTF-8"),
    "zeros": (["zeros.txt"], "zeros.txt is not a text file in UTF-8"),
    "no mask": (["good.txt", "--fill", "the cat"], "needs a [MASK] among its first 62 tokens"),
    "late mask": (["good.txt", "--fill", "the " * 70 + "[MASK]"], "needs a [MASK] among its first 62 tokens"),
    "no steps": (["good.txt", "--steps", "0"], "--steps must be at least 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_a_sentence(case, tmp_path):
    (tmp_path / "good.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "short.txt").write_text("Hello, world.")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "latin.txt").write_bytes("café ".encode("latin-1") * 500)
    (tmp_path / "zeros.txt").write_bytes(b"\0" * 5000)
    arguments, sentence = WRONG[case]
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert sentence in done.stderr and len(done.stderr.strip().splitlines()) <= 3


def test_text_of_one_repeated_character_and_text_without_spaces(tmp_path):
    for text in ("a " * 1000, "中" * 1000, "." * 1000):
        (tmp_path / "odd.txt").write_text(text, encoding="utf-8")
        done = run("odd.txt", "--steps", 1, cwd=tmp_path)
        assert done.returncode == 0 and "[MASK]:" in done.stdout, done.stderr
