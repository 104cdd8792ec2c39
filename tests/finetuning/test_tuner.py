"""`FineTuner`: training, best weights, early stopping, resumption."""

import numpy as np
import pytest

from glassbert.errors import TrainingError
from glassbert.finetuning.display import TuningStatus, panel, plain_line, progress_bar
from glassbert.finetuning.preparing import prepare
from glassbert.finetuning.scoring import compute_scores, score_examples
from glassbert.finetuning.tuner import FineTuner, SeedFolder, epoch_batches
from glassbert.metrics import Score, Scores, get_metric
from glassbert.training.log import RunLog, read_log
from tests.finetuning.toy import Stop, settings


def make_tuner(run, encoder, files, measure=None, metric="accuracy", should_stop=lambda: False, **changes):
    ready = prepare(settings(encoder, *files, **changes), progress_bar)

    def judged(model):
        outputs = score_examples(model, ready.dev_examples)
        return compute_scores(outputs, ready.dev_examples.truth, ready.card.replace(metric=metric))

    run.mkdir(parents=True, exist_ok=True)
    return FineTuner(
        ready.model(0),
        ready.train_examples,
        measure or judged,
        ready.settings,
        SeedFolder(run),
        metric=get_metric(metric),
        log=RunLog(run / "log.jsonl"),
        should_stop=should_stop,
    )


def measure_returning(values):
    """A measure function that returns these accuracies in turn; averages of weights get 0."""
    left = iter(values)
    return lambda model: Scores({"accuracy": Score(next(left, 0.0))})


def killed_at(step, monkeypatch):
    whole = FineTuner.one_step

    def until(self):
        if self.state.step == step:
            raise Stop
        whole(self)

    monkeypatch.setattr(FineTuner, "one_step", until)


def weights(tuner):
    return {name: np.array(values) for name, values in tuner.model.parameters.items()}


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


def test_training_and_log(tmp_path, encoder, reviews):
    tuner = make_tuner(tmp_path, encoder, reviews, epochs=8, learning_rate=1e-2)
    tuned = tuner.tune()
    tuner.log.close()
    lines = list(read_log(tmp_path / "log.jsonl"))
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    assert tuned.best > 0.9 and losses[-1] < losses[0]
    assert [line["epoch"] for line in lines if line["kind"] == "evaluation"] == pytest.approx(
        range(1, len([line for line in lines if line["kind"] == "evaluation"]) + 1)
    )
    assert tuned.steps == 12 * tuned.epochs and tuned.examples == 96 * tuned.epochs


EVERYTHING = {
    "dropout": 0.1, "ema": 0.9, "layer_decay": 0.8, "head_factor": 2.0, "unfreeze_every": 1, "physical_batch": 3,
    "evaluations": 2, "schedule": "cosine", "patience": 0,
}  # fmt: skip


@pytest.mark.parametrize("changes", [{}, EVERYTHING, {"low_rank": 2}, {"optimizer": "muon"}])
@pytest.mark.parametrize("step", [1, 17])
def test_resumed_training_is_bit_identical(tmp_path, encoder, reviews, monkeypatch, changes, step):
    whole = make_tuner(tmp_path / "whole", encoder, reviews, **changes)
    expected = whole.tune()
    with monkeypatch.context() as patch:
        killed_at(step, patch)
        with pytest.raises(Stop):
            make_tuner(tmp_path / "killed", encoder, reviews, **changes).tune()
    resumed = make_tuner(tmp_path / "killed", encoder, reviews, **changes)
    found = resumed.tune()
    assert resumed.folder.steps() and same(weights(resumed), weights(whole))
    assert found[:6] == expected[:6]


def test_should_stop(tmp_path, encoder, reviews):
    stop = iter([False] * 6 + [True])
    tuner = make_tuner(tmp_path / "run", encoder, reviews, should_stop=lambda: next(stop))
    assert tuner.tune().stopped == "interrupted" and tuner.folder.steps()[-1] == 7
    resumed = make_tuner(tmp_path / "run", encoder, reviews)
    whole = make_tuner(tmp_path / "whole", encoder, reviews)
    assert resumed.tune().stopped == whole.tune().stopped
    assert same(weights(resumed), weights(whole))


def test_best_weights_are_restored(tmp_path, encoder, reviews):
    first = make_tuner(tmp_path / "one", encoder, reviews, measure=measure_returning([0.9, 0.5, 0.6]), patience=0)
    tuned = first.tune()
    assert (tuned.best, tuned.epoch, tuned.epochs) == (0.9, 1.0, 3.0)
    after_one = make_tuner(tmp_path / "two", encoder, reviews, measure=measure_returning([0.9, 0.5]), patience=1)
    early = after_one.tune()
    assert early.stopped == "early" and early.epochs == 2.0
    assert same(weights(first), weights(after_one))
    last = make_tuner(tmp_path / "three", encoder, reviews, measure=measure_returning([0.1, 0.2, 0.3]))
    last.tune()
    assert not same(weights(first), weights(last))


def test_ties_go_to_the_lower_loss(tmp_path, encoder, reviews):
    left = iter([(0.8, 0.5), (0.8, 0.3), (0.8, 0.4)])

    def measure(model):
        score, loss = next(left, (0.0, 0.0))
        return Scores({"accuracy": Score(score)}, loss)

    tuner = make_tuner(tmp_path, encoder, reviews, measure=measure, patience=0)
    assert tuner.tune().epoch == 2.0
    assert [one["loss"] for one in tuner.state.top] == [0.3, 0.4, 0.5]


def test_best_evaluations_are_averaged_if_that_is_better(tmp_path, encoder, reviews):
    """The second best evaluation improves the average, the third one does not."""
    scores, seen = [0.7, 0.9, 0.8, 0.95, 0.94], []

    def measure(model):
        seen.append({name: np.array(values) for name, values in model.parameters.items()})
        return Scores({"accuracy": Score(scores[len(seen) - 1])})

    tuner = make_tuner(tmp_path, encoder, reviews, measure=measure, patience=0)
    found = tuner.tune()
    assert found.averaged == (2.0, 3.0) and found.best == 0.95 and found.epoch == 2.0
    for name, values in weights(tuner).items():
        np.testing.assert_allclose(values, (seen[1][name] + seen[2][name]) / 2, atol=1e-6)


def test_token_dropout_hides_a_share_of_the_tokens(tmp_path, encoder, reviews):
    tuner = make_tuner(tmp_path, encoder, reviews, token_dropout=0.3)
    mask = np.ones((200, 20), np.int32)
    mask[:, 15:] = 0
    hidden = tuner._hide_tokens(mask)
    assert hidden[:, 0].all() and not hidden[:, 15:].any()
    assert 0.65 < hidden[:, 1:15].mean() < 0.75
    assert (tuner._hide_tokens(mask) == hidden).all()  # a function of seed and step, so that runs can be resumed
    tuner.state.step = 1
    assert (tuner._hide_tokens(mask) != hidden).any()


def test_no_average_of_one(tmp_path, encoder, reviews):
    tuner = make_tuner(tmp_path, encoder, reviews, measure=measure_returning([0.1, 0.9, 0.3, 1.0]), average=1)
    assert tuner.tune().averaged == () and len(list(tmp_path.glob("seed-0/top-*"))) == 1


def test_metric_with_lower_is_better(tmp_path, encoder, reviews):
    values = iter([3.0, 1.0, 2.0])
    tuner = make_tuner(
        tmp_path, encoder, reviews, measure=lambda model: Scores({"rmse": Score(next(values, 9.0))}), metric="rmse"
    )
    assert tuner.tune().best == 1.0


def test_undefined_score(tmp_path, encoder, reviews):
    tuner = make_tuner(tmp_path, encoder, reviews, measure=lambda model: Scores({"accuracy": Score(None, "why")}))
    assert tuner.tune().best is None


def test_frozen_layers_do_not_change(tmp_path, encoder, reviews):
    tuner = make_tuner(tmp_path, encoder, reviews, epochs=1, freeze="encoder")
    before = weights(tuner)
    tuner.tune()
    after = weights(tuner)
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert moved and all(name.startswith("head.") for name in moved)


def test_error_for_non_finite_gradients(tmp_path, encoder, reviews):
    tuner = make_tuner(tmp_path, encoder, reviews)
    tuner.model.parameters["head.classifier.bias"][:] = np.nan
    with pytest.raises(TrainingError, match=r"10 steps in a row had no finite gradient.*lower --learning-rate"):
        tuner.tune()


def test_epoch_batches():
    lengths = np.random.default_rng(0).integers(3, 60, 500)
    options = {"batch": 16, "batch_tokens": 512}
    one = epoch_batches(lengths, **options, seed=1, epoch=2)
    again = epoch_batches(lengths, **options, seed=1, epoch=2)
    other = epoch_batches(lengths, **options, seed=1, epoch=3)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert [b.tolist() for b in one] != [b.tolist() for b in other]
    assert sorted(np.concatenate(one).tolist()) == list(range(500))
    assert all(len(batch) <= 16 and len(batch) * lengths[batch].max() <= 512 for batch in one)
    assert len(epoch_batches(np.array([1_000, 5]), batch=4, batch_tokens=64)) == 2  # a row longer than the budget


def test_display():
    status = TuningStatus(title="toy", metric="accuracy", seeds=3, epochs=2, progress=0.5, scores=[0.7, 0.8], best=0.8)
    status.update_loss(0.5, 0.9)
    status.curve, status.left, status.examples_per_second = [0.7, 0.5], 61.0, 1234.0
    line = plain_line(status)
    assert "seed 1 of 3" in line and "accuracy 0.8000" in line and "1:01 left" in line and "1,234 examples/s" in line
    from rich.console import Console

    console = Console(record=True, width=100)
    console.print(panel(status))
    assert "epoch 1.00 of 2" in console.export_text()
