"""The plan of a study: models by size, tokens from minutes, and shared settings."""

import itertools

import pytest

from glassbert.errors import TrainingError
from glassbert.evaluation.scaling.budget import Pace, measure_pace, plan_tokens
from glassbert.evaluation.scaling.plan import MIN_STEPS, Point, StudyPlan, points_of, shapes_of
from glassbert.families.bert import BertWithHead
from glassbert.training.data import open_data
from glassbert.training.recipes import config_for
from tests.evaluation.scaling.small_study import LEAST, make_corpus, make_plan


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus") / "toy")


@pytest.fixture(scope="module")
def data(corpus, tmp_path_factory):
    return open_data(make_plan(corpus).settings_of(Point(1, 1, 0)), tmp_path_factory.mktemp("study"))


def test_points_share_everything_but_size_seed_and_rate():
    plan = StudyPlan(sizes=(3, 6, 12), tokens=(10**6,))
    settings = [plan.settings_of(Point(size, 10**6, 0)) for size in plan.sizes]
    assert {(one.length, one.batch, one.vocab_size) for one in settings} == {(64, 64, 8192)}  # Mini's, for all
    assert [one.learning_rate for one in settings] == [3e-3, 3e-3, 2e-3]  # by the rule of every run
    chosen = plan.replace(settings={"learning_rate": 1e-3, "batch": 8})
    assert {(chosen.settings_of(Point(s, 1, 0)).learning_rate, chosen.settings_of(Point(s, 1, 0)).batch)
            for s in plan.sizes} == {(1e-3, 8)}  # fmt: skip
    again = plan.settings_of(Point(3, 10**6, 2))
    assert (again.seed, again.data_seed) == (2, 2)


def test_points_share_model_settings(corpus, data):
    plan = make_plan(corpus)
    tied = plan.replace(settings={**plan.settings, "tie_word_embeddings": True})
    for size in plan.sizes:
        plain, other = (shapes_of(one, data)[size] for one in (plan, tied))
        assert other.encoder == plain.encoder
        assert plain.all - other.all == data.tokenizer.vocab_size * plain.width
    with pytest.raises(TrainingError, match="no field 'hidden_size'"):
        plan.replace(settings={"hidden_size": 64})


def test_the_next_size_is_one_step_beyond():
    assert StudyPlan(sizes=(2.5, 1, 2, 1.5), tokens=(1,)).sizes == (1, 1.5, 2, 2.5)
    assert StudyPlan(sizes=(1, 1.5, 2, 2.5), tokens=(1,)).next_size == 3
    assert StudyPlan(sizes=(1, 1.5, 2, 2.5), tokens=(1,), predict=6).next_size == 6


def test_a_plan_survives_json():
    import json

    plan = StudyPlan(sizes=(1, 2, 3), tokens=(10, 20), settings={"corpus": ("one", "two")})
    assert not plan.differences(StudyPlan.from_dict(json.loads(json.dumps(plan.to_dict()))))
    assert plan.differences(plan.replace(seeds=2, tokens=(10,))) == ["tokens", "seeds"]
    assert not plan.differences(plan.replace(predict=5, count="all"))


def test_shapes_count_the_parameters_of_the_models(corpus, data):
    plan = make_plan(corpus)
    shapes = shapes_of(plan, data)
    assert list(shapes) == [1, 1.5, 2, 2.5]
    for size, shape in shapes.items():
        config = config_for(plan.settings_of(Point(size, 1, 0)), data.tokenizer.vocab_size, data.tokenizer.pad_id)
        model = BertWithHead(config, "mlm", engine="numpy")
        assert shape.all == model.get_parameter_count()
        assert shape.encoder == sum(a.size for name, a in model.parameters.items() if name.startswith("layers."))
    assert all(a.flops < b.flops and a.encoder < b.encoder for a, b in itertools.pairwise(shapes.values()))


def test_seeds_and_repeats(corpus, data):
    plan = make_plan(corpus, seeds=2, repeats=3, tokens=(LEAST, 2 * LEAST))
    points = points_of(plan, shapes_of(plan, data), data, plan.sizes)
    assert len(points) == 3 * 2 * 2 + 3 == len({point.name for point in points})
    assert sum(point.size == 1 and point.tokens == LEAST for point in points) == 5
    assert points[0].size == 1 and points[-1].size == 2  # cheap ones first


def test_equal_compute(corpus, data):
    plan = make_plan(corpus, match="compute", tokens=(20 * LEAST, 60 * LEAST), repeats=0)
    shapes = shapes_of(plan, data)
    points = points_of(plan, shapes, data, plan.sizes)
    costs = sorted(point.tokens * shapes[point.size].flops for point in points)
    assert costs[0] == pytest.approx(costs[2], rel=0.01) and costs[3] == pytest.approx(costs[5], rel=0.01)
    assert {point.tokens for point in points if point.size == 2} == {20 * LEAST, 60 * LEAST}


@pytest.mark.parametrize("minutes", [0.5, 3, 60, 1000])
def test_minutes_become_the_largest_number_of_tokens_that_fits(minutes, corpus, data):
    plan = make_plan(corpus, tokens=(), minutes=minutes)
    shapes = shapes_of(plan, data)
    pace = Pace({1.0: 1e-4, 1.5: 2e-4, 2.0: 5e-4}, batch_tokens=32, length=16, evaluation_rows=16, final_rows=32)
    tokens = plan_tokens(plan, plan.sizes, shapes, pace, data)

    def seconds(tokens):
        return pace.total(points_of(plan.replace(tokens=(tokens,), minutes=None), shapes, data, plan.sizes))

    assert tokens % 32 == 0 and tokens >= MIN_STEPS * 32
    assert seconds(tokens) <= 0.95 * 60 * minutes < seconds(tokens + 32)


def test_the_pace_is_measured_by_size(corpus, data):
    messages = []
    plan = make_plan(corpus)
    pace = measure_pace(plan, (1.0, 2.0), data, messages.append)
    assert messages == ["Measuring size 1", "Measuring size 2"]
    assert set(pace.seconds) == {1, 2} and all(seconds > 0 for seconds in pace.seconds.values())
    assert pace.of(Point(2, 100 * LEAST, 0)) > pace.of(Point(2, LEAST, 0))
