"""The small trained model: its grammar, its cache, and what it has learned."""

import numpy as np

from glassbert import fill_mask
from glassbert.learn import models


def test_sentences_follow_the_grammar_and_repeat_with_their_seed():
    texts = models.sentences(300, seed=3)
    assert texts == models.sentences(300, seed=3) and texts != models.sentences(300, seed=4)
    assert all(word in models.TAGS for text in texts for word in text.split())
    for text in texts:
        words = text.split()
        plural = [word for word in words if word in {many for many, _ in models.PEOPLE.values()}]
        verb = next(word for word in words if word in models.VERBS or word in models.VERBS.values())
        assert bool(plural) == (verb in models.VERBS.values())


def test_words_of_the_grammar_are_single_tokens_and_others_fall_apart():
    tokenizer = models.tiny_tokenizer()
    ids, mask = models.encode(tokenizer, ["the queen loves her dog .", "zebra"])
    assert mask.sum(1).tolist() == [8, 7] and tokenizer.token_to_id("[UNK]") not in ids


def test_the_model_has_learned_agreement_and_comes_from_the_cache_the_second_time():
    first = models.tiny()
    models.tiny.cache_clear()
    second = models.tiny()
    for name, value in first.model.parameters.items():
        assert np.array_equal(value, second.model.parameters[name])
    best = [
        fill_mask(second.model, second.tokenizer, f"the {who} near the river [MASK] a cat .")[0][0]
        for who in ("king", "kings")
    ]
    assert best[0].word in models.VERBS and best[1].word in models.VERBS.values()


def test_a_damaged_cache_is_trained_again(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(models, "STEPS", 2)
    monkeypatch.setattr(models.train_tiny, "__defaults__", (2, 0, models.RATE))
    folder = tmp_path / "glassbert" / "learn" / f"tiny-{models.VERSION}"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{")
    models.tiny.cache_clear()
    try:
        assert models.tiny().model.get_parameter_count() > 0
        assert (folder / "model.safetensors").is_file()
    finally:
        models.tiny.cache_clear()
