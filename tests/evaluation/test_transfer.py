"""Transfer: frozen features and fine-tuning on a task that single words decide."""

import numpy as np
import pytest

from glassbert.errors import InputError
from glassbert.evaluation import SUITES, Options
from glassbert.evaluation import transfer as module
from glassbert.evaluation.encoding import layer_states
from glassbert.evaluation.transfer import fine_tuned, frozen, text_limit, text_vectors
from glassbert.tasks import TaskData
from tests.evaluation.subjects import subject

GOOD, BAD = ["the red bird sings", "the old king stands"], ["a small stone falls", "the green river runs"]


def reviews(count, seed=0):
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        label = int(generator.integers(2))
        rows.append(
            (str(generator.choice(GOOD if label else BAD)) + " and the night" * int(generator.integers(3)), label)
        )
    return rows


def task_data(count, seed=0):
    return TaskData.of(reviews(count, seed), text="column 1", target="column 2", kind="binary")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "sst2").mkdir()
    for name, count in (("train", 60), ("dev", 20)):
        lines = ["sentence\tlabel", *(f"{text}\t{label}" for text, label in reviews(count, count))]
        (folder / "sst2" / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_a_text_is_the_mean_of_its_tokens():
    one = subject()
    texts = ["the red bird", "a stone falls and falls"]
    found, cut = text_vectors(one, texts)
    assert cut == 0
    for row, text in enumerate(texts):
        states = layer_states(one.model, np.array([one.tokenizer.encode(text).ids]))
        for layer, values in enumerate(states):
            np.testing.assert_allclose(found[layer, row], values[0].mean(0), atol=1e-5)


def test_long_texts_are_read_in_windows():
    one = subject(max_position_embeddings=12)
    found, cut = text_vectors(one, ["the red bird " * 20, "a stone"])
    assert cut == 1 and found.shape[1] == 2
    assert np.isfinite(found).all() and found[:, 0].any()


def test_frozen_features_separate_the_classes():
    found, notes = frozen(subject(), task_data(80), task_data(30, 1))
    assert [one.view for one in found] == ["last layer", "all layers"]
    for one in found:
        assert one.minimum.converged
        assert (one.answers == one.truth).mean() > 0.9
    assert notes == []


def test_unsuitable_tasks_are_errors():
    numbers = TaskData.of([("a", 0.5), ("b", 1.5)], text="column 1", target="column 2", kind="regression")
    with pytest.raises(InputError, match="this task is regression"):
        frozen(subject(), numbers, numbers)
    same = TaskData.of([("a", 1), ("b", 1)], text="column 1", target="column 2", kind="binary")
    with pytest.raises(InputError, match="a single label"):
        frozen(subject(), same, same)


def test_fine_tuning_of_a_copy(tmp_path, folder):
    one = subject()
    before = one.fingerprint
    tuned = fine_tuned(
        one, tmp_path, task="sst2", data=str(folder), seeds=2, epochs=2, learning_rate=3e-3, resamples=20
    )
    assert tuned.stopped == "finished" and tuned.spread.seeds == 2
    del one.fingerprint
    assert one.fingerprint == before  # the subject itself stays as it was


def test_the_suite(folder, monkeypatch):
    monkeypatch.setattr(module, "SEEDS", 2)
    calls = []
    options = Options(
        data=folder, resamples=50, thorough=True, progress=lambda done, of, what="": calls.append((what, done, of))
    )
    found = SUITES["transfer"](subject(), options)
    assert not found.skipped_because
    shares = [done / of for _, done, of in calls]
    tuning = [done / of for what, done, of in calls if what.startswith("fine-tuning, seed 2 of 2")]
    assert shares == sorted(shares) and tuning[0] > module.FROZEN_SHARE and 0.9 < tuning[-1] <= 1
    tuned = found["sst2: fine-tuned"]
    assert tuned.interval is None and "2 seeds" in tuned.note and "no confidence interval" in tuned.note
    names = {row.name for row in found.rows}
    assert {"sst2: frozen, last layer", "sst2: random weights, frozen, all layers", "sst2: commonest label"} <= names
    assert [table.title for table in found.tables] == ["Frozen features", "Fine-tuning"]


def test_a_usual_evaluation_has_one_seed_with_an_interval(folder, monkeypatch):
    monkeypatch.setattr(module, "text_limit", lambda *given: 40)
    found = SUITES["transfer"](subject(), Options(data=folder, resamples=50))
    tuned = found["sst2: fine-tuned"]
    assert "one seed" in tuned.note and tuned.interval[0] <= tuned.value <= tuned.interval[1]
    assert any("random sample" in note and "--thorough" in note for note in found.notes)


def test_quick_and_missing_data(folder):
    quick = SUITES["transfer"](subject(), Options(data=folder, quick=True, resamples=50))
    assert all("fine-tuned" not in row.name for row in quick.rows)
    assert quick.notes[0].startswith("quick:")
    assert "sst2/train.tsv" in SUITES["transfer"](subject(), Options()).skipped_because


def test_large_encoders_learn_from_fewer_texts():
    one = subject()
    assert text_limit(one, 67_349) is None
    assert 100 <= text_limit(one, 67_349, flops=1e9) < 67_349
    assert text_limit(one, 10**9, seeds=3) == text_limit(one, 10**9) // 3
