"""The referee for learners: is an answer right, and if not, which known mistake is it?

An answer runs on every case of its exercise. Its outputs are compared with those of the package, then with those of
the known mistakes: the mistake whose outputs are the same in every case is named. `judge` keeps no state; `check` also
remembers which hints were given.
"""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.learn.calling import CallError, Outcome, caller, read_result, run_case
from glassbert.learn.comparing import agreeing_digits, digits_needed, looks_like, matches, where_wrong, wrong_shape
from glassbert.learn.exercise import Exercise, Inputs, Mistake, compile_source, get_exercise
from glassbert.learn.verdict import OutputVerdict, Verdict, Verdicts

Outcomes = dict[str, Outcome]  # by case


def check(**answers: Any) -> Verdict | Verdicts:
    """Check answers: `check(layer_norm=mine)`. An answer is a function, or the number of a line for a planted fault.

    Asking again gives the next hint; which hints were given is kept in your progress file.
    """
    from glassbert.learn.progress import Progress

    if not answers:
        raise InputError("check needs an answer: check(linear=my_linear), where linear is the name of the exercise")
    progress = Progress.load()
    found = Verdicts(progress.remember(judge(get_exercise(name), answer)) for name, answer in answers.items())
    return found[0] if len(found) == 1 else found


def judge(exercise: Exercise, answer: Any) -> Verdict:
    """The verdict on an answer, with all hints that there are."""
    if isinstance(answer, (int, np.integer)) and not isinstance(answer, bool) and exercise.fault is not None:
        return judge_line(exercise, int(answer))
    if not callable(answer):
        kind = "a function, or the number of the wrong line" if exercise.fault else "a function"
        return stopped(exercise, f"the answer must be {kind}, and it is {type(answer).__name__}")
    if is_empty(answer):
        task = f"Write the body of {exercise.signature} and run it."
        return Verdict(exercise.name, False, problem=task, answered=False)
    try:
        call = caller(exercise, answer)
    except CallError as error:
        return stopped(exercise, str(error))
    cases = exercise.cases()
    outcomes = {name: run_case(exercise, call, inputs) for name, inputs in cases.items()}
    right = truths(exercise.name)
    outputs = [judge_output(exercise, name, outcomes, right) for name in exercise.outputs]
    if all(one.right for one in outputs) and all(outcome.readable for outcome in outcomes.values()):
        return judge_side_effects(exercise, outcomes, outputs)
    known = find_mistake(exercise, outcomes)
    if known is not None:
        return not_yet(exercise, outcomes, outputs, known.name, known.says, (known.hint, *exercise.hints))
    seen = seen_in_numbers(exercise, outcomes, right, cases, outputs)
    if seen is not None:
        return not_yet(exercise, outcomes, outputs, *seen, tuple(exercise.hints))
    return not_yet(exercise, outcomes, outputs, None, "", tuple(exercise.hints))


def is_empty(answer: Any) -> bool:
    """Whether a function has no body yet: only `...` or `pass`."""
    code = getattr(answer, "__code__", None)
    return code is not None and code.co_code == without_body.__code__.co_code and set(code.co_consts) <= {None, ...}


def without_body(): ...


def stopped(exercise: Exercise, problem: str) -> Verdict:
    """A verdict on an answer that cannot be run."""
    return Verdict(exercise.name, False, problem=problem)


def judge_side_effects(exercise: Exercise, outcomes: Outcomes, outputs: list[OutputVerdict]) -> Verdict:
    """All values are right; an answer that overwrites its arguments is still a mistake."""
    changed = sorted({name for outcome in outcomes.values() for name in outcome.changed})
    if changed:
        names = ", ".join(changed)
        return Verdict(
            exercise.name,
            False,
            tuple(outputs),
            mistake="an argument is overwritten",
            says=f"All values are right, but {names} changed: the caller's array was overwritten.",
            available_hints=(f"x -= mean writes into x itself. Write x = x - mean, or begin with a copy of {names}.",),
        )
    single = any(value.dtype == np.float32 for outcome in outcomes.values() for value in outcome.values.values())
    note = "The answer is in float32, so it is held to 5 digits." if single else ""
    return Verdict(exercise.name, True, tuple(outputs), note=note, library=library_of(exercise))


def not_yet(
    exercise: Exercise,
    outcomes: Outcomes,
    outputs: list[OutputVerdict],
    name: str | None,
    says: str,
    hints: tuple[str, ...],
) -> Verdict:
    problem = ""
    for case, outcome in outcomes.items():
        if outcome.error is not None:
            problem = f'in the case "{case}" it stopped with {describe_error(outcome.error)}. {given(exercise, case)}'
        elif outcome.complaint:
            problem = outcome.complaint
        if problem:
            break
    readable = all(outcome.readable for outcome in outcomes.values())
    return Verdict(
        exercise.name,
        False,
        tuple(one for one in outputs if readable or one.problem != "was not computed"),
        problem,
        name,
        says,
        available_hints=hints,
    )


def describe_error(error: BaseException) -> str:
    """The error and the line of the learner's code that raised it."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent != HERE]
    place = f", in line {own[0].lineno} ({own[0].line})" if own and own[0].line else ""
    return f"{type(error).__name__}: {error}{place}"


def given(exercise: Exercise, case: str) -> str:
    """The arguments of a case with their shapes."""
    inputs = exercise.cases()[case]
    shown = [f"{name} {list(value.shape)}" for name, value in inputs.items() if isinstance(value, np.ndarray)]
    return f"The arguments: {', '.join(shown)}." if shown else ""


HERE = Path(__file__).parent


def judge_output(exercise: Exercise, name: str, outcomes: Outcomes, right: Outcomes) -> OutputVerdict:
    """One output over all cases: the digits of the worst case, or the first case in which it is wrong."""
    least = math.inf
    for case, outcome in outcomes.items():
        for each, truth in right[case].values.items():
            if each.partition("[")[0] != name:  # a list has outputs name[0], name[1], ...
                continue
            if each not in outcome.values:
                return OutputVerdict(name, False, problem="was not computed", case=case)
            value = outcome.values[each]
            if value.shape != truth.shape:
                return OutputVerdict(each, False, problem=wrong_shape(value, truth), case=case)
            wanted = digits_needed(value, exercise.digits)
            digits = agreeing_digits(value, truth)
            if digits < wanted:
                return OutputVerdict(each, False, int(digits), where_wrong(value, truth, wanted), case)
            least = min(least, digits)
    return OutputVerdict(name, True, int(least))


@dataclass(frozen=True)
class Known:
    """A known mistake and what comes out of it."""

    mistake: Mistake
    outcomes: Outcomes


@cache
def truths(name: str) -> Outcomes:
    """The right outcome of every case."""
    exercise = get_exercise(name)
    return {case: read_result(exercise, exercise.reference(**inputs)) for case, inputs in exercise.cases().items()}


@cache
def known_mistakes(name: str) -> list[Known]:
    """The known mistakes of an exercise with their outcomes."""
    exercise = get_exercise(name)
    cases = exercise.cases()
    found = []
    for one in exercise.mistakes:
        function = compile_source(one.apply(exercise.source), exercise.solution.__name__)
        outcomes = {
            case: run_case(exercise, lambda given, function=function: function(**given), inputs)  # type: ignore[misc]
            for case, inputs in cases.items()
        }
        found.append(Known(one, outcomes))
    return found


def find_mistake(exercise: Exercise, outcomes: Outcomes) -> Mistake | None:
    """The known mistake with the same outcome in every case; else one that explains every output that is wrong."""
    known = known_mistakes(exercise.name)
    for one in known:
        if all(same_outcome(outcomes[case], one.outcomes[case]) for case in outcomes):
            return one.mistake
    right = truths(exercise.name)
    explained: list[Mistake] = []
    for name in exercise.outputs:
        if all(same_output(outcomes[case], right[case], name) for case in outcomes):
            continue
        fitting = [one for one in known if all(same_output(outcomes[c], one.outcomes[c], name) for c in outcomes)]
        if not fitting:
            return None
        explained.append(fitting[0].mistake)
    return joined(explained)


def joined(mistakes: list[Mistake]) -> Mistake | None:
    """Several mistakes at once, each of which explains one output."""
    different = list(dict.fromkeys(mistakes))
    if len(different) <= 1:
        return different[0] if different else None
    return Mistake(
        "; ".join(one.name for one in different),
        " ".join([f"{len(different)} mistakes at once.", *(one.says for one in different)]),
        different[0].hint,
        (),
    )


def same_outcome(mine: Outcome, other: Outcome) -> bool:
    if mine.error is not None or other.error is not None:
        return type(mine.error) is type(other.error)
    if not (mine.readable and other.readable):
        return False
    return mine.values.keys() == other.values.keys() and all(
        matches(value, other.values[name]) for name, value in mine.values.items()
    )


def same_output(mine: Outcome, other: Outcome, name: str) -> bool:
    return name in mine.values and name in other.values and matches(mine.values[name], other.values[name])


def seen_in_numbers(
    exercise: Exercise,
    outcomes: Outcomes,
    right: Outcomes,
    cases: Mapping[str, Inputs],
    outputs: list[OutputVerdict],
) -> tuple[str, str] | None:
    """A mistake that shows in the numbers of the first wrong output: a sign, a factor, another order."""
    for one in outputs:
        if one.right or one.case not in outcomes or not outcomes[one.case].readable:
            continue
        truth = right[one.case].values
        others = {name: value for name, value in truth.items() if name != one.name}
        seen = looks_like(outcomes[one.case].values[one.name], truth[one.name], cases[one.case], others)
        if seen is not None:
            return seen[0], f"Look at {one.name}. {seen[1]}"
    return None


def judge_line(exercise: Exercise, line: int) -> Verdict:
    """The verdict on a line number of a planted fault."""
    assert exercise.fault is not None
    lines = exercise.faulty_source.splitlines()
    if line == 0:
        task = "Answer with the number of the wrong line, or with the mended function."
        return Verdict(exercise.name, False, problem=task, answered=False)
    if line in exercise.faulty_lines:
        return Verdict(exercise.name, True, note=f"Line {line}: {exercise.fault.says}", library=library_of(exercise))
    if not 1 <= line <= len(lines):
        return Verdict(exercise.name, False, problem=f"there is no line {line}: the function has {len(lines)} lines")
    middle = len(lines) // 2
    half = "first" if min(exercise.faulty_lines) <= middle else "second"
    hints = (
        "Run the function and the exercise's own solution on small numbers, and look where they part.",
        f"The fault is in the {half} half of the function.",
        exercise.fault.says,
    )
    return Verdict(
        exercise.name, False, problem=f"line {line} is right: {lines[line - 1].strip()}", available_hints=hints
    )


def library_of(exercise: Exercise) -> str:
    """The file and line of the package that the exercise became."""
    function: Callable[..., Any] = inspect.unwrap(exercise.library)
    path = Path(inspect.getsourcefile(function) or "")
    line = inspect.getsourcelines(function)[1]
    package = Path(__file__).resolve().parents[1]
    return f"glassbert/{path.resolve().relative_to(package).as_posix()}, line {line}"
