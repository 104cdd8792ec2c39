"""A study from its plan to its report: resuming, another prediction, and the check of the prediction."""

import json
import shutil

import pytest

from glassbert.errors import GlassBertError, TrainingError
from glassbert.evaluation.scaling.study import Study
from glassbert.reports import figures
from glassbert.training.trainer import Trainer
from tests.evaluation.scaling.small_study import LEAST, SHARED, make_corpus, make_plan, make_study, plant


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Skip the timing of matmul and the reports of the runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassbert.training.building.measure_matmul_rate", lambda *rest, **options: 100.0)
        patch.setattr("glassbert.training.finishing.write_report", lambda run, result: run.report.touch())
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus") / "toy")


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A study with its predicted size, trained once; tests work on copies."""
    folder = tmp_path_factory.mktemp("studies") / "first"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glassbert.evaluation.scaling.outcome.fit_law", falling_law)
        make_study(folder, make_plan(corpus), confirm=True).run()
    return folder


def falling_law(parameters, tokens, losses, **options):
    """Twenty steps give no falling curve, so the losses are replaced by falling ones."""
    from glassbert.evaluation.scaling.law import fit_law

    return fit_law(parameters, tokens, [[6.01], [5.32], [5.10]], **options)


@pytest.fixture
def study(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "study")


@pytest.fixture
def no_training(monkeypatch):
    def refuse(self):
        raise AssertionError("this point is finished and must not be trained again")

    monkeypatch.setattr(Trainer, "train", refuse)


FALLING = {
    "size-1-tokens-640-seed-0": 6.00, "size-1-tokens-640-seed-1": 6.02, "size-1.5": 5.32, "size-2-": 5.10,
    "size-2.5": 4.85,
}  # fmt: skip


def test_every_point_is_an_ordinary_run_and_only_the_size_differs(study):
    names = sorted(path.name for path in (study / "runs").iterdir())
    assert names == [f"size-{size}-tokens-{LEAST}-seed-{seed}" for size, seed in
                     (("1", 0), ("1", 1), ("1.5", 0), ("2", 0), ("2.5", 0))]  # fmt: skip
    settings = [json.loads((study / "runs" / name / "settings.json").read_text()) for name in names]
    different = {"size", "seed", "data_seed"}
    first, *others = [{k: v for k, v in one["settings"].items() if k not in different} for one in settings]
    assert all(other == first for other in others)
    assert len({one["fingerprint"] for one in settings}) == 1
    assert all((study / "runs" / name / "model" / "config.json").exists() for name in names)


def test_a_known_law_is_found_predicted_and_confirmed(study, no_training):
    plant(study, FALLING)
    outcome = make_study(study).run()
    assert outcome.verdict == "inside"
    assert [cell.loss for cell in outcome.cells] == pytest.approx([6.01, 5.32, 5.10])
    assert outcome.prediction().low < 4.85 < outcome.prediction().high
    assert outcome.standard_error > 0
    stored = json.loads((study / "result.json").read_text())
    assert stored["check"]["verdict"] == "inside" and stored["law"]["terms"]["parameters"]["power"] > 0
    assert stored["prediction"]["size"] == 2.5 and stored["prediction"]["level"] == 0.9
    page = (study / "report.html").read_text()
    for said in ("inside its interval", "Interpretation and limits", "Predicted for size 2.5", "3 × 160"):
        assert said in page


def test_a_loss_outside_its_interval_is_reported(study, no_training):
    plant(study, {**FALLING, "size-2.5": 5.6})
    outcome = make_study(study).run()
    assert outcome.verdict == "outside"
    assert "outside its interval" in (study / "report.html").read_text()


def test_an_interval_with_the_largest_point_is_a_caveat(study, no_training):
    plant(study, FALLING)
    assert not any("do not show that" in caveat for caveat in make_study(study).run().caveats())
    plant(study, {"size-1-tokens-640-seed-0": 5.9, "size-1-tokens-640-seed-1": 6.12})
    assert any("do not show that size 2.5 is better" in caveat for caveat in make_study(study).run().caveats())


def test_the_predicted_size_is_not_used_for_the_fit(study, no_training):
    predictions = []
    for loss in (4.85, 5.6):
        plant(study, {**FALLING, "size-2.5": loss})
        predictions.append(make_study(study).run().prediction())
    assert predictions[0] == predictions[1]


def test_points_without_a_law_give_a_reason(study, no_training):
    plant(study, {**FALLING, "size-1.5": 6.02, "size-2-": 6.0})
    outcome = make_study(study).run()
    assert outcome.law is None and outcome.prediction() is None and outcome.verdict == ""
    assert "does not fall with the size" in outcome.reason
    stored = json.loads((study / "result.json").read_text())
    assert stored["law"] is None and stored["prediction"] is None and "does not fall" in stored["reason"]
    assert "does not fall" in (study / "report.html").read_text()


def test_another_prediction_from_the_same_points(study, no_training):
    plant(study, FALLING)
    outcome = make_study(study, predict=4, count="all").run()
    assert outcome.target.size == 4 and not outcome.checks
    assert outcome.prediction().middle < 5.1
    assert outcome.plan.count == "all"


def test_a_resumed_study_gives_the_same_result(study, corpus, tmp_path, monkeypatch):
    plan = make_plan(corpus)
    folder = tmp_path / "stopped"
    steps = 0
    one_step = Trainer.one_step

    def stop_after_a_while(self):
        nonlocal steps
        one_step(self)
        steps += 1
        if steps == 50:  # in the middle of the third run
            self.stopped = "interrupted"

    monkeypatch.setattr(Trainer, "one_step", stop_after_a_while)
    assert make_study(folder, plan).run() is None
    assert not (folder / "result.json").exists()
    assert len(list((folder / "runs").glob("*/result.json"))) == 2
    outcome = make_study(folder).run()
    assert outcome is not None and steps == 80  # nothing was trained twice
    for run in outcome.trained:
        before = json.loads((study / run.run / "result.json").read_text())
        assert run.loss == before["loss"]


def test_a_run_killed_at_its_start_is_trained_again(study, tmp_path):
    (gone,) = (study / "runs").glob("size-2-*")
    before = json.loads((gone / "result.json").read_text())["loss"]
    for path in list(gone.iterdir()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (again,) = [run for run in make_study(study).run().trained if run.point.size == 2]
    assert again.loss == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sizes": (1, 2)}, "at least 3 sizes"),
        ({"sizes": (1, 2, 2, 3)}, "sizes must differ, but 2 is given twice"),
        ({"sizes": (1, 2, -3)}, "sizes must be numbers between 1 and 100"),
        ({"sizes": (1, 1.1, 2)}, "sizes 1 and 1.1 are the same model"),
        ({"predict": 1.5}, "size 1.5 is one of the trained sizes"),
        ({"predict": 2.1}, "sizes 2 and 2.1 are the same model"),
        ({"tokens": (LEAST - 1,)}, "are too few: a step takes 32"),
        ({"tokens": ()}, "one budget: --tokens for every point, or --minutes"),
        ({"minutes": 3.0}, "one budget"),
        ({"tokens": (LEAST, LEAST)}, "token counts must differ"),
        ({"tokens": (), "minutes": 0.001}, "minutes are too short"),
        ({"match": "compute"}, "give two or more token counts"),
        ({"match": "time"}, "match must be one of tokens, compute"),
        ({"count": "heads"}, "count must be one of encoder, all"),
        ({"seeds": 0}, "seeds must be"),
        ({"settings": {"bach": 3}}, "did you mean 'batch'"),
        ({"settings": {"size": 3}}, "no field 'size'"),
        ({"settings": {**SHARED, "mask_rate": 2}}, "mask_rate must be"),
        ({"settings": {**SHARED, "corpus": "nowhere/at/all"}}, "there is no file or folder nowhere/at/all"),
    ],
)
def test_bad_plans_are_refused_before_anything_is_written(changes, said, corpus, tmp_path):
    with pytest.raises(GlassBertError, match=said):
        make_study(tmp_path / "study", make_plan(corpus, **changes))
    assert not (tmp_path / "study" / "study.json").exists() and not (tmp_path / "study" / "runs").exists()


def test_a_folder_with_other_content_is_refused(study, corpus, tmp_path):
    with pytest.raises(TrainingError, match="is another study, with other sizes and tokens"):
        make_study(study, make_plan(corpus, sizes=(1, 2, 3), tokens=(2 * LEAST,)))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.txt").write_text("a cat")
    with pytest.raises(TrainingError, match="exists and is no study"):
        make_study(tmp_path / "photos", make_plan(corpus))
    with pytest.raises(TrainingError, match="there is no study"):
        make_study(tmp_path / "nothing")
    (study / "study.json").write_text('{"format": "else"}')
    with pytest.raises(TrainingError, match="cannot be used"):
        make_study(study)


def test_a_changed_corpus_is_refused(study, corpus):
    content = json.loads((study / "study.json").read_text())
    (study / "study.json").write_text(json.dumps({**content, "fingerprint": "another"}))
    with pytest.raises(TrainingError, match="has changed since the study started"):
        make_study(study)


def test_text_files_are_built_into_one_corpus_for_all_points(tmp_path):
    from tests.training.toy import texts

    (tmp_path / "book.txt").write_text("\n\n".join(texts(300)))
    plan = make_plan(
        tmp_path / "book.txt", settings={**SHARED, "corpus": [str(tmp_path / "book.txt")], "vocab_size": 64}
    )
    made = make_study(tmp_path / "study", plan)
    assert (tmp_path / "study" / "corpus" / "manifest.json").exists()
    assert made.plan.settings_of(made.points[0]).corpus == (str(tmp_path / "study" / "corpus"),)
    assert Study(tmp_path / "study").points == made.points


@pytest.mark.skipif(not figures.available(), reason="needs matplotlib")
def test_the_picture_shows_points_prediction_and_verdict(study, no_training):
    from glassbert.evaluation.scaling.pictures import law_figure

    plant(study, FALLING)
    svg = figures.to_svg(law_figure(make_study(study).run()))
    for said in ("trained", "predicted, 90% interval", "then trained: inside", "parameters of the blocks"):
        assert said in svg
    plant(study, {"size-1.5": 6.02, "size-2-": 6.0})
    assert "predicted" not in figures.to_svg(law_figure(make_study(study).run()))


def test_a_study_of_replaced_tokens(corpus, tmp_path):
    plan = make_plan(corpus, settings={**SHARED, "corpus": str(corpus), "objective": "rtd"})
    assert make_study(tmp_path / "study", plan).run().standard_error > 0
