"""A model fine-tuned here says the same about every example in transformers, and theirs goes on learning here."""

import numpy as np
import pytest

from glassbert.finetuning.card import TaskCard
from glassbert.finetuning.examples import encode_examples
from glassbert.text import load_tokenizer
from tests.finetuning.toy import make_tokenizer, sentences, tune, write_csv, write_reviews

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
         "max_position_embeddings": 32}  # fmt: skip


def their_encoder(folder, kind):
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    if kind == "bert":
        model = transformers.BertModel(transformers.BertConfig(vocab_size=tokenizer.vocab_size, **SIZES))
    else:
        special = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 2)
        config = transformers.ModernBertConfig(
            vocab_size=tokenizer.vocab_size, pad_token_id=0, global_attn_every_n_layers=1, **special, **SIZES
        )
        model = transformers.ModernBertModel(config)
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return folder


def their_outputs(model, examples):
    """Logits of every row, one row at a time: nothing is padded."""
    found = []
    with torch.no_grad():
        for row in range(len(examples.rows)):
            given = examples.inputs(np.array([row]))
            inputs = {name: torch.tensor(values).long() for name, values in given.items() if name != "labels"}
            if "token_type_ids" not in inputs and "Modern" not in type(model).__name__:
                inputs["token_type_ids"] = torch.zeros_like(inputs["input_ids"])
            found.append(model(**inputs).logits[0].double().numpy())
    return found


def reread(tuned, data_file):
    card = TaskCard.load(tuned.run)
    data = card.read(data_file, with_targets=True)
    return encode_examples(data, load_tokenizer(tuned.model), card)


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_a_fine_tuned_classifier_scores_the_same_in_transformers(tmp_path, kind):
    train, dev = write_reviews(tmp_path)
    tuned = tune(tmp_path / "run", their_encoder(tmp_path / "encoder", kind), train, dev, epochs=1)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tuned.model).eval()
    outputs = np.stack(their_outputs(theirs, reread(tuned, dev)))[:, 0]
    np.testing.assert_allclose(outputs, tuned.outcome.outputs, atol=1e-5)
    assert theirs.config.id2label == {0: "good"}


def test_a_fine_tuned_tagger_scores_the_same_in_transformers(tmp_path):
    path = tmp_path / "x.conll"
    path.write_text("".join("".join(f"{w}\t{w[0].upper()}\n" for w in t.split()) + "\n" for t, _ in sentences(48)))
    encoder = their_encoder(tmp_path / "encoder", "bert")
    tuned = tune(tmp_path / "run", encoder, path, path, epochs=1, text=None, target="tags", metric="accuracy")
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tuned.model).eval()
    examples = reread(tuned, path)
    words = examples.pieces.to_words(their_outputs(theirs, examples))
    for ours, other in zip(tuned.outcome.outputs, words, strict=True):
        np.testing.assert_allclose(ours, other, atol=1e-5)


def test_a_classifier_of_transformers_goes_on_learning_here(tmp_path):
    columns = ["review", "verdict"]
    path = write_csv(tmp_path / "t.csv", columns, [[t, "abc"[i % 3]] for i, (t, _) in enumerate(sentences(60))])
    folder = their_encoder(tmp_path / "encoder", "bert")
    theirs = transformers.BertForSequenceClassification.from_pretrained(folder, num_labels=3)
    theirs.save_pretrained(tmp_path / "theirs")
    make_tokenizer().save(tmp_path / "theirs")
    tuned = tune(tmp_path / "run", tmp_path / "theirs", path, epochs=1, learning_rate=1e-9)
    after = transformers.BertForSequenceClassification.from_pretrained(tuned.model)
    torch.testing.assert_close(after.classifier.weight, theirs.classifier.weight, atol=1e-6, rtol=0)
