"""The race of the family: its contestants, a run of seconds, its table, and what is said to wrong arguments."""

import json

import pytest

from benchmarks import family, family_exam, family_race, family_table
from glassbert.checkpoints.family import FAMILIES
from glassbert.errors import TrainingError
from glassbert.evaluation.suite import DoesNotApply
from glassbert.models.model import Model
from glassbert.training.display import NoDisplay
from glassbert.training.objectives import Objectives
from glassbert.training.recipes import config_for

CONTESTANTS = family_race.CONTESTANTS
VOCABULARY = 8_192
AIM, TOLERANCE = 2.95e6, 0.03
WAITING = {"longformer": 3 * 3 * 192 * 193}  # projections of global tokens, which take no part without such tokens


def test_every_member_of_the_family_takes_part():
    members = {name for name, one in FAMILIES.items() if one.mini}
    assert {one.family for one in CONTESTANTS.values()} == members - {"xlm-roberta"}  # RoBERTa with other texts


@pytest.mark.parametrize("name", CONTESTANTS)
def test_all_have_about_the_same_number_of_parameters(name):
    settings = CONTESTANTS[name].settings("corpus", 15.0)
    kept = {"rtd": "discriminator"}
    head = Objectives.parse(settings.objective).head_type
    config = config_for(settings, VOCABULARY, 0, 3)
    model = Model(config, kept.get(head, head), engine="numpy", initialize=False)
    assert model.get_parameter_count() - WAITING.get(name, 0) == pytest.approx(AIM, rel=TOLERANCE)
    assert (settings.length, settings.batch, settings.minutes) == (64, 32, 15.0)


def test_names():
    assert family_race.names_of(None) == list(CONTESTANTS)
    assert family_race.names_of("gpt2, bert,gpt2") == ["gpt2", "bert"]
    with pytest.raises(ValueError, match=r"no contestant is named t5; there are bert, roberta"):
        family_race.names_of("bert,t5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of CORPUS, --exam FOLDER and --table FOLDER"),
        (["corpus", "--table", "runs"], "give one of CORPUS"),
        (["corpus"], "name the folder of the runs by -o"),
        (["--exam", "runs"], "by --data"),
    ],
)
def test_wrong_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit):
        family.main(arguments)
    assert message in capsys.readouterr().err


def test_a_folder_without_runs(tmp_path, capsys):
    with pytest.raises(SystemExit):
        family.main(["--table", str(tmp_path), "--members", "bert"])
    assert "has no finished run of bert" in capsys.readouterr().err


@pytest.fixture(scope="module")
def raced(tmp_path_factory):
    """Two contestants after two steps on a small corpus."""
    from glassbert.text.corpus import build_corpus

    folder = tmp_path_factory.mktemp("race")
    text = folder / "text.txt"
    text.write_text(
        "".join(f"The river number {n} runs to the sea.\n\nA boat of {n} men sails.\n\n" for n in range(400))
    )
    build_corpus([str(text)], folder / "corpus", vocab_size=300)
    for name in ("gpt2", "electra"):
        settings = (
            CONTESTANTS[name]
            .settings(folder / "corpus", 1.0, engine="numpy", threads=1)
            .replace(minutes=None, steps=2, batch=4, final_evaluation_rows=64)
        )
        family_race.Trainer(settings, folder / name, display=NoDisplay()).train()
    return folder


def test_a_finished_run_is_left_as_it_is(raced):
    before = (raced / "gpt2" / "log.jsonl").stat().st_mtime_ns
    found = family_race.train("gpt2", raced / "corpus", raced, 15.0, display=NoDisplay())
    assert found["steps"] == 2
    assert (raced / "gpt2" / "log.jsonl").stat().st_mtime_ns == before


def test_other_minutes_than_those_of_the_interrupted_run(raced, tmp_path):
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "settings.json").write_text(json.dumps({"settings": {"minutes": 15.0}}))
    with pytest.raises(TrainingError, match="continue it with --minutes 15"):
        family_race.train("gpt2", raced / "corpus", tmp_path, 5.0, display=NoDisplay())


def test_a_paper_is_done_once_and_one_that_does_not_apply_keeps_its_reason(raced, monkeypatch):
    calls = []

    def words(subject, options, texts):
        calls.append(subject.name)
        subject.require_words()
        return {"what": "next", "right": {"value": 0.25, "low": 0.2, "high": 0.3}, "loss": {"value": 4.0}}

    monkeypatch.setattr(family_exam, "PAPERS", {"words": words})
    for _ in range(2):
        for name in ("gpt2", "electra"):
            family_exam.take(raced / name, raced, engine="numpy", threads=1)
    assert calls == ["gpt2", "electra"]
    assert "predicts words" in family_exam.read(raced / "electra")["words"]["skipped_because"]
    found = family_table.entries(raced, list(CONTESTANTS))
    assert [one.name for one in found] == ["electra", "gpt2"]
    table = family_table.table_of(found)
    assert table.rows[1][5:8] == ["4.000*", "25.0%*", "–"]
    assert table.rows[0][5:8] == ["–", "–", "–"]
    assert any(note.startswith("ELECTRA (words): this model has a head") for note in table.notes)


def test_the_words_of_the_held_out_text(raced):
    found = family_exam.take(raced / "gpt2", raced, papers=["words", "pos"], engine="numpy", threads=1)
    assert found["words"]["what"] == "next"
    again = family_exam.take(raced / "gpt2", raced, papers=["pos"], engine="numpy", threads=1)
    assert "there is no treebank" in again["pos"]["skipped_because"]


def test_the_curve_of_a_discriminator_is_that_of_its_own_loss(raced):
    one = family_table.entries(raced, ["electra"])[0]
    minutes, losses = one.curve()
    assert len(minutes) == len(losses) >= 2
    assert 0.5 < losses[0] < 1.0  # about log 2; the sum with the generator is far above
    assert one.curve(relative=True)[1][0] == 1.0


def test_a_suite_that_was_left_out():
    from glassbert.evaluation.suite import SuiteResult

    with pytest.raises(DoesNotApply, match="no pairs"):
        family_exam.passed(SuiteResult(skipped_because="no pairs"))


def test_the_picture(raced, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "folder" / "race.svg"
    family_table.draw(family_table.entries(raced, ["electra", "gpt2"]), path)
    assert "<svg" in path.read_text()
