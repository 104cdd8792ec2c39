"""transformers opens the packaged Mini, and computes the same."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from glassbert.checkpoints.packaged import packaged_folder
from glassbert.text.loading import load_with_tokenizer

pytestmark = pytest.mark.parity


def test_logits_and_tokens_agree():
    folder = packaged_folder("mini")
    theirs = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = AutoTokenizer.from_pretrained(folder)
    ours, tokenizer = load_with_tokenizer("mini", engine="numpy")
    for text in ("Paris is the [MASK] of France.", "Reading maketh a full man; conference a ready man." * 12):
        ids = tokens(text, return_tensors="pt")["input_ids"]
        assert ids[0].tolist() == list(tokenizer.encode(text).ids) or "[MASK]" in text
        with torch.no_grad():
            expected = theirs(ids).logits.numpy()
        assert np.abs(ours.predict(ids.numpy()) - expected).max() < 1e-4
