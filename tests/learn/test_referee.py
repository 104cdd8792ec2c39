"""The referee for learners: right answers in any style pass, known mistakes are named, everything else is explained."""

import numpy as np
import pytest

from glassbert import ops
from glassbert.errors import InputError
from glassbert.learn import check
from glassbert.learn.exercise import compile_source, exercises, get_exercise
from glassbert.learn.referee import judge, known_mistakes, library_of, same_outcome, truths
from tests.learn.mistakes import PLANTED
from tests.learn.right_answers import RIGHT

WRITTEN = [name for name, exercise in exercises().items() if exercise.fault is None]
FAULTS = [name for name, exercise in exercises().items() if exercise.fault is not None]


# ---- right answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITTEN)
def test_differently_written_right_answers_pass(name):
    assert len(RIGHT[name]) >= 3
    for answer in RIGHT[name]:
        verdict = judge(get_exercise(name), answer)
        assert verdict.passed, str(verdict)
        assert verdict.mistake is None


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_its_line_or_mended(name):
    exercise = get_exercise(name)
    for answer in RIGHT[name.removesuffix("_fault")]:
        assert judge(exercise, answer).passed
    lines = range(1, len(exercise.faulty_source.splitlines()) + 1)
    assert exercise.faulty_lines and exercise.faulty_lines < set(lines)
    assert {line for line in lines if judge(exercise, line).passed} == exercise.faulty_lines
    unmended = judge(exercise, compile_source(exercise.faulty_source, exercise.solution.__name__))
    assert not unmended.passed and unmended.mistake == exercise.fault.name
    assert not judge(exercise, 0).passed and "there is no line" in judge(exercise, 99).problem


# ---- mistakes ------------------------------------------------------------------------------------------------------


def test_at_least_40_of_the_45_planted_mistakes_are_named():
    assert len(PLANTED) == 45
    named = [one for one in PLANTED if judge(get_exercise(one.exercise), one.answer).mistake == one.mistake]
    missed = [f"{one.exercise}: {one.mistake}" for one in PLANTED if one not in named]
    print(f"{len(named)} of {len(PLANTED)} planted mistakes named; missed: {missed}")
    assert len(named) >= 40
    assert not any(judge(get_exercise(one.exercise), one.answer).passed for one in PLANTED)


@pytest.mark.parametrize("name", WRITTEN)
def test_every_known_mistake_is_wrong_and_different_from_the_others(name):
    right = truths(name)
    known = known_mistakes(name)
    assert len(known) >= 4
    for index, one in enumerate(known):
        assert one.mistake.says.endswith(".") and one.mistake.hint
        assert not all(same_outcome(one.outcomes[case], right[case]) for case in right), one.mistake.name
        for other in known[:index]:
            if other.mistake.name != one.mistake.name:
                assert not all(same_outcome(one.outcomes[c], other.outcomes[c]) for c in right), one.mistake.name


def test_two_mistakes_at_once_are_both_named():
    def mine(dy, x, gamma, eps):
        dx, _, _ = ops.layer_norm_backward(dy, ops.layer_norm(x, gamma, gamma, eps)[1])
        return dx, (dy * x).sum((0, 1)), dy.mean((0, 1))

    verdict = judge(get_exercise("layer_norm_backward"), mine)
    assert verdict.mistake == "the gradient of gamma takes x instead of x̂; the gradients of gamma and beta are means"
    assert [one.right for one in verdict.outputs] == [True, False, False]


@pytest.mark.parametrize(
    ("answer", "mistake"),
    [
        (lambda dy, x, w: (-(dy @ w), np.einsum("bto,bti->oi", dy, x), dy.sum((0, 1))), "the sign is wrong"),
        (lambda dy, x, w: (dy @ w, np.zeros_like(w), dy.sum((0, 1))), "all zeros"),
        (lambda dy, x, w: (dy @ w, np.einsum("bto,bti->oi", dy, x), 3 * dy.sum((0, 1))), "a constant factor"),
        (lambda dy, x, w: (x, np.einsum("bto,bti->oi", dy, x), dy.sum((0, 1))), "an input returned unchanged"),
    ],
)
def test_what_shows_in_the_numbers_is_said_without_a_table(answer, mistake):
    verdict = judge(get_exercise("linear_backward"), answer)
    assert not verdict.passed and verdict.mistake == mistake


def test_exchanged_outputs_are_recognised():
    def mine(dy, x, gamma, eps):
        dx, dgamma, dbeta = ops.layer_norm_backward(dy, ops.layer_norm(x, gamma, gamma, eps)[1])
        return dx, dbeta, dgamma

    verdict = judge(get_exercise("layer_norm_backward"), mine)
    assert not verdict.passed and "dbeta" in str(verdict)


# ---- where it is wrong ---------------------------------------------------------------------------------------------


def test_the_verdict_says_which_output_is_wrong_and_where():
    def mine(dy, x, weight):
        dx, dweight, dbias = ops.linear_backward(dy, (x, weight, True))
        dweight[2] += 1.0
        return dx, dweight, dbias

    verdict = judge(get_exercise("linear_backward"), mine)
    text = str(verdict)
    assert "dx is right to 16 digits" in text and "dbias is right" in text
    assert "index 2 of axis 0" in text and "at [2, 0] it is" in text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x, weight, bias: [].append(x), "it returned nothing"),
        (lambda x, weight, bias: None, "not answered yet"),
        (lambda x, weight, bias: "y", "not an array of numbers"),
        (lambda x, weight, bias: [[1, 2], [3]], "different lengths"),
        (lambda x: x, "linear is called with 3 arguments, (x, weight, bias), but yours takes (x)"),
        (lambda x, weight, bias: (x @ weight.T + bias)[None], "an axis of length 1 is too many"),
        (lambda x, weight, bias: (x @ weight.T + bias)[0], "has the shape"),
        (lambda x, weight, bias: 1 / 0, "ZeroDivisionError"),
        (lambda x, weight, bias: exit(), "SystemExit"),
        (lambda x, weight, bias: x * np.nan, "has the shape"),
        (lambda x, weight, bias: (x @ weight.T + bias).astype(np.float16), "y is right"),
        ("not a function", "must be a function"),
        (7, "must be a function"),
    ],
)
def test_answers_that_do_not_fit_are_explained(answer, words):
    assert words in str(judge(get_exercise("linear"), answer))


def test_float32_is_held_to_fewer_digits_but_not_to_three():
    exercise = get_exercise("gelu")
    assert judge(exercise, lambda x: ops.gelu(x.astype(np.float32))[0]).passed
    assert not judge(exercise, lambda x: ops.gelu_tanh(x.astype(np.float32))[0]).passed


def test_an_overwritten_argument_is_a_mistake():
    def mine(x, gamma, beta, eps):
        x -= x.mean(-1, keepdims=True)
        return gamma * x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) + beta

    verdict = judge(get_exercise("layer_norm"), mine)
    assert not verdict.passed and verdict.mistake == "an argument is overwritten"


# ---- check, hints and verdicts -------------------------------------------------------------------------------------


def test_hints_come_one_at_a_time_and_start_again_for_another_mistake():
    wrong = next(one.answer for one in PLANTED if one.mistake == "gamma outside the means")
    first, second = check(layer_norm_backward=wrong), check(layer_norm_backward=wrong)
    assert first.hint and second.hint and first.hint != second.hint and first.says == second.says
    hints = [check(layer_norm_backward=wrong) for _ in range(5)]
    assert hints[-1].hint == hints[-2].hint and "glassbert learn solution layer_norm_backward" in str(hints[-1])
    other = next(one.answer for one in PLANTED if one.mistake == "mean and variance treated as constants")
    assert check(layer_norm_backward=other).hints_left > 0


def test_check_answers_for_several_exercises_and_refuses_unknown_ones():
    both = check(relu=lambda x: np.maximum(x, 0), linear=lambda x, weight, bias: x @ weight.T)
    assert [one.passed for one in both] == [True, False] and not both.passed
    assert "the bias is not added" in repr(both) and both._repr_html_().count("glassbert-verdict") == 2
    with pytest.raises(InputError, match="did you mean 'layer_norm'"):
        check(layernorm=print)
    with pytest.raises(InputError, match="needs an answer"):
        check()


def test_a_verdict_is_readable_as_html_and_escapes_it():
    def mine(x):
        raise ValueError("<b>no</b>")

    html = check(relu=mine)._repr_html_()
    assert "&lt;b&gt;no" in html and 'data-passed="False"' in html


def test_without_a_home_folder_the_verdict_comes_all_the_same(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    verdict = check(relu=lambda x: np.maximum(x, 0))
    assert verdict.passed and "Your progress is not kept: there is no home folder" in verdict.note


@pytest.mark.parametrize("name", WRITTEN)
def test_every_exercise_names_the_file_it_became(name):
    assert library_of(get_exercise(name)).startswith("glassbert/")
    assert "returns" in get_exercise(name).statement
