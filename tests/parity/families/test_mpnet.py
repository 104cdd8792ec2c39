"""The published layout of MPNet's sentence embeddings: modules.json with pooling and normalisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import glassbert
from glassbert.text import FastTokenizer
from tests.parity.families.members import MEMBERS
from tests.parity.families.mpnet import member  # noqa: F401  (enters the member)

library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
TEXTS = ["the old tree stands", "a red bird sings in the tree", "night", "the king sees a stone, and the river runs"]


def published(folder: Path) -> Path:
    """A folder as sentence-transformers writes it: an MPNet with mean pooling and normalisation."""
    tokenizer = FastTokenizer.train(TEXTS * 3, vocab_size=61, min_frequency=1)
    reference = MEMBERS["mpnet"].model(None)
    reference.save_pretrained(folder / "encoder")
    tokenizer.save(folder / "encoder")
    from sentence_transformers import models

    encoder = models.Transformer(str(folder / "encoder"))
    pooling = models.Pooling(encoder.get_word_embedding_dimension(), pooling_mode="mean")
    whole = library.SentenceTransformer(modules=[encoder, pooling, models.Normalize()], device="cpu")
    whole.save(str(folder / "published"))
    return folder / "published"


def test_published_embeddings_open(tmp_path: Path) -> None:
    folder = published(tmp_path)
    expected = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    model = glassbert.load(folder, head="embedding", engine="numpy")
    assert model.config.family == "mpnet" and model.config.classifier_pooling == "mean"
    batch = glassbert.load_tokenizer(folder).batch(TEXTS)
    found = model.head.decode(model.predict(batch["input_ids"], batch["attention_mask"]))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_what_we_save_opens_there(tmp_path: Path) -> None:
    folder = published(tmp_path)
    model = glassbert.load(folder, head="embedding", engine="numpy")
    tokenizer = glassbert.load_tokenizer(folder)
    model.save(tmp_path / "ours", tokenizer=tokenizer)
    batch = tokenizer.batch(TEXTS)
    found = model.head.decode(model.predict(batch["input_ids"], batch["attention_mask"]))
    expected = library.SentenceTransformer(str(tmp_path / "ours"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
