"""Our evaluation of masked words beside transformers' own model on the same masks."""

import numpy as np
import pytest
import torch

import glassbert
from glassbert.evaluation import Options, Subject
from glassbert.evaluation.held_out import held_out, published_masks, target_positions
from glassbert.evaluation.language import score_words
from glassbert.evaluation.masked import pseudo_likelihoods
from glassbert.text.corpus import write_corpus
from tests.evaluation.subjects import tokenizer
from tests.parity.reference import reference_model
from tests.training.toy import texts

SIZES = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
         "max_position_embeddings": 64, "pad_token_id": 0}  # fmt: skip


@pytest.fixture(scope="module", params=["bert", "modernbert"])
def both(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    theirs = reference_model(request.param, "mlm", "float32", **SIZES)
    theirs.save_pretrained(folder)
    ours = Subject(request.param, glassbert.load(folder, engine="numpy", threads=1), tokenizer())
    write_corpus(folder / "corpus", ours.tokenizer, texts(40), validation=0.5)
    return theirs, ours, folder / "corpus"


def test_accuracy_and_cross_entropy_are_those_of_transformers(both):
    theirs, ours, corpus = both
    text = held_out(ours, Options(text=corpus))
    answers = score_words(ours, text, np.arange(len(text.rows)), Options())
    losses, right, five = [], [], []
    for row in text.rows:
        seen, labels = published_masks(row[None], ours.tokenizer)
        asked = target_positions(labels)
        with torch.no_grad():
            logits = theirs(input_ids=torch.tensor(seen, dtype=torch.long)).logits[0, asked].double()
        targets = torch.tensor(labels[0, asked], dtype=torch.long)
        losses += torch.nn.functional.cross_entropy(logits, targets, reduction="none").tolist()
        best = logits.topk(5).indices
        right += (best[:, 0] == targets).tolist()
        five += (best == targets[:, None]).any(1).tolist()
    assert answers.count == len(losses)
    assert abs(answers.loss.mean() - np.mean(losses)) < 1e-6
    assert (answers.rank < 1).sum() == sum(right) and (answers.rank < 5).sum() == sum(five)
    np.testing.assert_allclose(np.sort(answers.loss), np.sort(losses), atol=1e-5)


def test_pseudo_likelihoods_are_those_of_transformers(both):
    theirs, ours, _ = both
    sentences = ["the old king sees a stone.", "a bird sings in the night and the river runs."]
    found = pseudo_likelihoods(ours, sentences)
    for sentence, values in zip(sentences, found.tokens, strict=True):
        ids = torch.tensor([ours.tokenizer.encode(sentence).ids])
        expected = 0.0
        for place in range(1, ids.shape[1] - 1):
            hidden = ids.clone()
            hidden[0, place] = ours.tokenizer.mask_id
            with torch.no_grad():
                expected += float(theirs(input_ids=hidden).logits[0, place].double().log_softmax(0)[ids[0, place]])
        assert abs(values.sum() - expected) < 1e-5
