"""Every lesson runs as a script, asks, moves, checks and shows the code it became; right answers pass in it."""

import importlib.util
import re

import pytest

marimo = pytest.importorskip("marimo")

from glassbert.learn.course import LESSONS, PHASES, get_lesson  # noqa: E402
from glassbert.learn.exercise import exercises, get_exercise  # noqa: E402
from glassbert.learn.lessons import __file__ as package  # noqa: E402
from glassbert.learn.verdict import Verdict, Verdicts  # noqa: E402

NUMBERS = [lesson.number for lesson in LESSONS]


def load(lesson):
    spec = importlib.util.spec_from_file_location(lesson.path.stem, lesson.path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app


def verdicts(outputs):
    found = {}
    for output in outputs:
        for one in output if isinstance(output, Verdicts) else [output]:
            if isinstance(one, Verdict):
                found[one.exercise] = one
    return found


def answers(lesson):
    """Right answers under the names that the lesson gives them, for its `check(exercise=name)`."""
    text = lesson.path.read_text(encoding="utf-8")
    found = {}
    for name in lesson.exercises:
        exercise = get_exercise(name)
        own = re.search(rf"\b{name}=(\w+)", text).group(1)
        found[own] = min(exercise.faulty_lines) if exercise.fault else exercise.solution
    return found


def test_there_are_six_phases_and_18_lessons_of_which_three_are_open():
    assert len(PHASES) == 6 and list(range(1, 19)) == NUMBERS
    assert [lesson.phase for lesson in LESSONS] == sorted(lesson.phase for lesson in LESSONS)
    assert sum(lesson.is_open for lesson in LESSONS) == 3
    assert {exercise.lesson for exercise in exercises().values()} == set(NUMBERS)
    files = {path.name for path in get_lesson(1).path.parent.glob("lesson_*.py")}
    assert files == {lesson.file for lesson in LESSONS}


@pytest.mark.parametrize("number", NUMBERS)
def test_a_lesson_has_all_its_parts(number):
    text = get_lesson(number).path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    assert "**One idea.**" in text and "**Predict.**" in text and "show.answer(" in text
    assert "mo.ui.slider(" in text and "show.became(" in text
    assert "surprise" in text or number == 18  # lesson 18 ends with an experiment
    for name in get_lesson(number).exercises:
        assert re.search(rf"\b{name}=", text), f"lesson {number} does not check {name}"
        assert f'"{name}"' in text, f"lesson {number} does not state {name}"


@pytest.mark.parametrize("number", NUMBERS)
def test_a_lesson_runs_as_a_script(number):
    outputs, _ = load(get_lesson(number)).run()
    found = verdicts(outputs)
    assert set(found) == set(get_lesson(number).exercises)
    assert not any(one.passed or one.answered for one in found.values())


@pytest.mark.parametrize("number", [1, 3, 10, 11, 12, 16])
def test_right_answers_pass_inside_the_lesson(number):
    lesson = get_lesson(number)
    outputs, _ = load(lesson).run(defs=answers(lesson))
    found = verdicts(outputs)
    assert found and all(one.passed for one in found.values()), found


def test_lessons_are_package_data():
    assert get_lesson(7).path.parent.samefile(package.rsplit("/", 1)[0])
