"""Plans: the table of reference runs, the expected loss, the seconds of a run, and the receipt of every run."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from glassbert import plan
from glassbert.errors import TrainingError
from glassbert.training.history import History
from glassbert.training.planning import receipt, table
from glassbert.training.planning.expectation import CORPUS_SPREAD, ExpectedLoss, Range, leave_one_out, useful_tokens
from glassbert.training.planning.table import ReferenceRun, read_table, row_of
from glassbert.training.planning.timing import PLAIN_REPORT, REPORT_FIGURES, Timing, time_report
from glassbert.training.run_folder import RunFolder
from glassbert.training.settings import TrainingSettings
from tests.training.toy import SETTINGS, make_trainer


@pytest.fixture(autouse=True)
def own_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GLASSBERT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("glassbert.training.planning.timing.SECONDS", 0.0)


@pytest.fixture(scope="module")
def rows():
    return table.read_rows(table.Path(table.__file__).with_name(table.FILE))


@pytest.fixture(scope="module")
def a_row(rows):
    return next(row for row in rows if row.tied and row.positions == "rotary" and row.tokens > 1_500_000)


def test_a_report_takes_as_long_as_the_figures_of_this_machine(monkeypatch):
    clock = iter([0.0, 3.0, 10.0, 10.5])
    monkeypatch.setattr("glassbert.training.planning.timing.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert time_report() == 3.0 + REPORT_FIGURES * 0.5  # the first figure loads the library
    monkeypatch.setattr("glassbert.training.planning.timing.figures.available", lambda: False)
    assert time_report() == PLAIN_REPORT


def test_every_shipped_row_names_its_source(rows):
    assert len(rows) > 40
    for row in rows:
        assert row.source and row.blocks < row.parameters and 0 < row.loss < 9 and (row.accuracy or 0.5) < 1


def test_rows_that_are_left_out_lie_in_their_intervals(rows):
    found = leave_one_out(rows)
    inside = sum(row.loss in expected.loss for row, expected in found) / len(found)
    assert 0.85 <= inside <= 1.0
    widths = [expected.loss.high / expected.loss.low for _, expected in found]
    assert sum(widths) / len(widths) < 1.5  # an interval that holds everything would say nothing


def test_more_tokens_and_parameters_are_expected_to_help(rows, a_row):
    expected = ExpectedLoss(rows)
    losses = [expected.at(dataclasses.replace(a_row, tokens=tokens)).loss.middle for tokens in (10**6, 10**7, 10**8)]
    assert losses == sorted(losses, reverse=True)
    smaller = dataclasses.replace(a_row, blocks=a_row.blocks // 10)
    assert expected.at(smaller).loss.middle > expected.at(a_row).loss.middle


def test_tokens_that_are_read_again_count_less(a_row):
    def worth(passes, tokens=1_000_000):
        return useful_tokens(dataclasses.replace(a_row, tokens=int(passes * tokens), corpus_tokens=tokens)) / tokens

    assert worth(0.5) == 0.5 and worth(1) == 1
    assert worth(2) == pytest.approx(1.97, abs=0.01)  # a second pass is nearly as good as new text
    assert 8 < worth(13) < 10 and worth(1_000) == pytest.approx(16)  # there is an end to it
    assert useful_tokens(dataclasses.replace(a_row, corpus_tokens=None)) == a_row.tokens


def test_repeating_a_text_raises_the_expected_loss(rows, a_row):
    expected = ExpectedLoss(rows)
    new, again = (dataclasses.replace(a_row, tokens=10**7, corpus_tokens=n) for n in (10**8, 10**5))
    assert expected.at(again).loss.middle > expected.at(new).loss.middle + 0.3


def test_the_interval_is_wider_away_from_the_table(rows, a_row):
    expected = ExpectedLoss(rows)
    near = expected.at(a_row)
    assert not near.notes and near.loss.low < a_row.loss < near.loss.high
    for change, said in (
        ({"corpus": "letters"}, "another text"),
        ({"tokens": 10**12}, "beyond the reference runs"),
        ({"vocabulary": 100_000}, "vocabulary of 100,000"),
        ({"blocks": 10**10, "tokens": 10**12}, "No reference run is like this one"),
        ({"corpus_tokens": 1_000}, "by heart"),
    ):
        other = expected.at(dataclasses.replace(a_row, **change))
        assert any(said in note for note in other.notes), said
        if change.keys() != {"corpus_tokens"}:
            assert other.loss.high / other.loss.low > near.loss.high / near.loss.low


def test_runs_of_ones_own_text_narrow_the_interval(rows, a_row):
    mine = dataclasses.replace(a_row, corpus="mine")
    before = ExpectedLoss(rows).at(mine).loss
    own = [dataclasses.replace(mine, tokens=tokens, loss=mine.loss + 0.3) for tokens in (10**6, 2 * 10**6)]
    after = ExpectedLoss([*rows, *own]).at(mine).loss
    assert after.high - after.low < before.high - before.low and after.middle > before.middle
    assert CORPUS_SPREAD > 0


def test_accuracy_falls_where_the_loss_rises(rows, a_row):
    expected = ExpectedLoss(rows).at(a_row)
    assert 0 < expected.accuracy.low < expected.accuracy.middle < expected.accuracy.high < 1


def test_a_range_contains_its_bounds():
    assert 1.0 in Range(2, 1, 3) and 3.5 not in Range(2, 1, 3) and "2" not in Range(2, 1, 3)


# ---- the table of the user ----


def test_a_finished_run_is_added_once(corpus, tmp_path, quick_runs):
    make_trainer(corpus, tmp_path / "run").train()
    row = row_of(History.read(RunFolder(tmp_path / "run")))
    assert (row.tokens, row.vocabulary, row.length, row.corpus) == (12 * 8 * 16, 64, 16, "documents")
    before = len(read_table())
    assert table.add_rows([row]) == 1 and table.add_rows([row, row]) == 0
    assert len(read_table()) == before + 1 and read_table()[-1] == row


def test_runs_that_cannot_be_compared_are_refused(corpus, tmp_path, quick_runs):
    make_trainer(corpus, tmp_path / "run").train()
    second = make_trainer(corpus, tmp_path / "second", start_from=str(tmp_path / "run"))
    second.train()
    with pytest.raises(TrainingError, match="starts from trained weights"):
        row_of(History.read(RunFolder(tmp_path / "second")))
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(TrainingError, match="not finished"):
        row_of(History.read(RunFolder(tmp_path / "run")))


def test_a_damaged_table_names_the_line():
    path = table.user_table()
    path.parent.mkdir(parents=True)
    path.write_text('\n{"loss": 3}\n')
    with pytest.raises(TrainingError, match="line 2 of"):
        read_table()


# ---- time ----


class FixedCosts:
    def __init__(self):
        self.seconds = {"row": 0.01, "save": 0.5, "report": 1.0, "step": 0.1}

    def evaluation_rows(self, settings):
        return 100

    def of_ending(self, settings):
        return 6.0


def test_the_seconds_of_a_run_are_those_of_its_parts():
    timing = Timing(before=4.0, step=0.1, costs=FixedCosts())
    settings = TrainingSettings.from_dict({"steps": 200, "evaluate_every": 50, "checkpoint_every": 100})
    assert timing.of_steps(200, settings) == pytest.approx(4 + 200 * 0.1 * 1.025 + 4 * 1.0 + 4 * 0.5 + 6)
    minutes = TrainingSettings.from_dict({"minutes": 5})
    steps = timing.steps_in(300, minutes)
    assert timing.of_steps(steps, minutes) <= 300 < timing.of_steps(steps + 1, minutes)
    assert timing.steps_in(5, minutes) == 0


def test_a_plan_without_a_corpus_times_random_words(tmp_path):
    small = {name: value for name, value in SETTINGS.items() if name not in ("sentence", "steps")}
    found = plan(**small, vocab_size=64, tokens=1_000)
    assert (found.steps, found.tokens) == (8, 1_024)  # whole steps
    assert found.seconds > 8 * found.step_seconds and found.epoch_seconds is None
    assert any("random words" in note for note in found.notes)
    assert [one.rows for one in found.memory] == sorted(one.rows for one in found.memory)
    assert json.loads(json.dumps(found.as_json()))["settings"]["length"] == 16


def test_a_plan_of_a_corpus_knows_its_epochs_and_sizes(corpus):
    found = plan(corpus=str(corpus), size=1, batch=4, length=16, tokens=100_000, engine="numpy", threads=1)
    assert found.epoch_tokens and found.epoch_seconds and not any("random" in note for note in found.notes)
    assert found.best in found.sizes and 1 in [one.size for one in found.sizes]
    assert found.best.expectation.loss.middle == min(one.expectation.loss.middle for one in found.sizes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"minutes": 0.001}, "minutes are too short"),
        ({"corpus": "nowhere"}, "there is no corpus nowhere"),
        ({"objective": "mlm+sop"}, "needs a corpus folder"),
        ({"minutes": 1, "steps": 1}, "one budget"),
    ],
)
def test_impossible_plans_are_refused(changes, said):
    small = {name: value for name, value in SETTINGS.items() if name not in ("sentence", "steps")}
    with pytest.raises(TrainingError, match=said):
        plan(**{**small, "vocab_size": 64, **changes}, sizes=False)


def test_no_loss_is_expected_of_trained_weights(corpus, tmp_path, quick_runs):
    make_trainer(corpus, tmp_path / "run").train()
    settings = TrainingSettings.from_dict({**SETTINGS, "corpus": str(corpus), "start_from": str(tmp_path / "run")})
    found = plan(settings)
    assert found.expectation is None and "trained weights" in found.reason and not found.sizes and found.best is None


# ---- receipts ----


def test_every_run_says_how_its_plan_did(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
    trainer = make_trainer(corpus, tmp_path / "run", steps=20)
    result = trainer.train()
    stored = json.loads((tmp_path / "run" / "result.json").read_text())["plan"]
    assert stored == json.loads(json.dumps(result.plan))
    assert stored["tokens"] == {"predicted": 20 * 128, "real": 20 * 128}
    assert stored["seconds"]["real"] == result.seconds and stored["seconds"]["predicted"] > 0
    assert stored["loss"]["inside"] == (
        stored["loss"]["predicted"]["low"] <= result.loss <= stored["loss"]["predicted"]["high"]
    )
    assert "How the plan did" in (tmp_path / "run" / "report.html").read_text()
    assert "inside" in receipt.sentences(stored)[-1] or "outside" in receipt.sentences(stored)[-1]


def test_a_run_too_short_to_plan_has_no_receipt(corpus, tmp_path, quick_runs):
    assert make_trainer(corpus, tmp_path / "run", steps=12).train().plan is None


def test_a_resumed_run_keeps_the_plan_it_began_with(corpus, tmp_path, quick_runs):
    trainer = make_trainer(corpus, tmp_path / "run", steps=20, checkpoint_every=15)
    with trainer.prepared():
        for _ in range(16):
            trainer.one_step()
    from glassbert.training.display import NoDisplay
    from glassbert.training.trainer import Trainer

    result = Trainer.resume(tmp_path / "run", display=NoDisplay()).train()
    assert result.plan is not None
    lines = [line for line in History.read(RunFolder(tmp_path / "run")).kind(receipt.KIND)]
    assert len(lines) == 1 and lines[0]["step"] == receipt.LAST


def test_a_reference_run_is_a_plain_row():
    assert {field.name for field in dataclasses.fields(ReferenceRun)} >= {"loss", "accuracy", "source", "corpus"}
