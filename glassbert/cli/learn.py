"""`glassbert learn`: the course. List the lessons, open one, check answers, see a solution, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from glassbert.cli.help import Group, new_app
from glassbert.cli.options import AsJson, chosen, counted
from glassbert.cli.output import print_json
from glassbert.errors import InputError


class Course(Group):
    """`glassbert learn 7` is `glassbert learn open 7`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["open", *args]
        return super().resolve_command(ctx, args)


app = new_app(
    cls=Course,
    no_args_is_help=False,
    help="The course: 18 lessons from a vector to a trained BERT. `glassbert learn 7` opens lesson 7.",
    invoke_without_command=True,
    subcommand_metavar="[NUMBER | COMMAND]",
)


@app.callback()
def overview(ctx: typer.Context, as_json: AsJson = False) -> None:
    if ctx.invoked_subcommand is None:
        show_course(Console(highlight=False), as_json)


def show_course(console: Console, as_json: bool = False) -> None:
    """The phases and lessons, with what has been done."""
    from glassbert.learn.course import LESSONS, PHASES, lesson_state
    from glassbert.learn.progress import Progress

    progress = Progress.load()
    if as_json:
        lessons = [
            {"number": one.number, "title": one.title, "phase": PHASES[one.phase - 1], "minutes": one.minutes,
             "state": lesson_state(one, progress)}
            for one in LESSONS
        ]  # fmt: skip
        print_json({"lessons": lessons, "problem": progress.problem})
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("lesson", ratio=1)
    table.add_column("minutes", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for number, phase in enumerate(PHASES, 1):
        table.add_row("", Text(f"{number}. {phase}", "bold"), "", "")
        for lesson in LESSONS:
            if lesson.phase == number:
                time = f"{lesson.minutes}{'+' if lesson.is_open else ''}"
                table.add_row(str(lesson.number), lesson.title, time, Text(lesson_state(lesson, progress), "green"))
    console.print(table)
    done = sum(lesson_state(lesson, progress) == "done" for lesson in LESSONS)
    console.print(f"\n{done} of {len(LESSONS)} lessons done. Open one: glassbert learn NUMBER", style="dim")
    if progress.problem:
        console.print(f"Your progress is not kept: {progress.problem}", style="yellow", markup=False)


@app.command("open", hidden=True)
def open_lesson(
    number: Annotated[str, typer.Argument(help="The number of the lesson.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where your copy of the lesson is. Without it: the data folder.")
    ] = None,
    port: Annotated[int | None, counted("The port of the notebook server.", most=65535)] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser; else print the address.")] = True,
) -> None:
    """Open a lesson: your own copy of its notebook, in the browser."""
    from glassbert.learn.course import NO_MARIMO, can_open_browser, get_lesson, has_marimo, open_command, own_copy
    from glassbert.learn.progress import Progress

    lesson = get_lesson(number)
    path, new = own_copy(lesson, folder)
    console = Console(highlight=False)
    console.print(Text(f"Lesson {lesson.number}: {lesson.title}", "bold"))
    console.print(f"{'Copied to' if new else 'Your copy:'} {path}", markup=False, soft_wrap=True)
    if not has_marimo():
        raise InputError(f"{NO_MARIMO}, then run glassbert learn {lesson.number} again")
    if browser and not can_open_browser():
        console.print("No browser can be opened from here: open the address below in one.", style="yellow")
        browser = False
    Progress.load().opened(lesson.number)
    raise typer.Exit(run_notebook(open_command(path, port, browser)))


def run_notebook(command: list[str]) -> int:
    """Run the notebook server until it ends; Ctrl-C ends it."""
    import subprocess

    from glassbert.learn.course import open_environment

    process = subprocess.Popen(command, env=open_environment())
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        return 0


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(help="A Python file with functions named like exercises.")],
    only: Annotated[str | None, typer.Option(metavar="NAME", help="Only this exercise.")] = None,
    seconds: Annotated[float, typer.Option(help="The time limit of the file.", min=1)] = 20.0,
    as_json: AsJson = False,
) -> None:
    """Check the answers in a file. It runs in a process of its own; the exit code is 0 if all of them are right.

    The process has a time limit, works in a temporary folder and is refused writing elsewhere, starting programs and
    opening connections. This guards against accidents, not against code that means harm.
    """
    from glassbert.learn.guard import check_file
    from glassbert.learn.progress import Progress

    result = check_file(file, only, seconds)
    progress = Progress.load()
    verdicts = [progress.remember(verdict) for verdict in result.verdicts]
    if as_json:
        found = [
            {"headline": one.headline, "passed": one.passed, "lines": [{"kind": k, "text": t} for k, t in one.lines()]}
            for one in verdicts
        ]
        print_json({"verdicts": found, "printed": result.printed})
        raise typer.Exit(0 if all(verdict.passed for verdict in verdicts) else 1)
    console = Console(highlight=False)
    if result.printed.strip():
        console.print(Text(result.printed.rstrip(), "dim"))
    styles = {"right": "green", "wrong": "red", "says": "bold", "hint": "", "note": "dim"}
    marks = {"right": "✓", "wrong": "✗", "says": "→", "hint": "·", "note": " "}
    for verdict in verdicts:
        console.print(Text(verdict.headline, "bold green" if verdict.passed else "bold red"))
        for kind, text in verdict.lines():
            console.print(Text(f"  {marks[kind]} {text}", styles[kind]), soft_wrap=True)
    if not all(verdict.passed for verdict in verdicts):
        raise typer.Exit(1)


@app.command("exercises")
def list_exercises(as_json: AsJson = False) -> None:
    """List the exercises, with the lesson they belong to."""
    from glassbert.learn.exercise import exercises
    from glassbert.learn.progress import Progress

    progress = Progress.load()
    if as_json:
        print_json([
            {"lesson": one.lesson, "name": name, "task": one.task, "passed": progress.has_passed(name)}
            for name, one in exercises().items()
        ])  # fmt: skip
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("lesson", "exercise", "what to write", ""):
        table.add_column(heading, justify="right" if heading == "lesson" else "left")
    for name, one in exercises().items():
        state = Text("passed", "green") if progress.has_passed(name) else ""
        table.add_row(str(one.lesson), name, escape(one.task), state)
    Console(highlight=False).print(table)


@app.command("exercise")
def show_exercise(name: Annotated[str, typer.Argument(help="The name of the exercise.")]) -> None:
    """Show what an exercise asks for; of a planted fault also its code."""
    from glassbert.learn.exercise import get_exercise

    one = get_exercise(name)
    console = Console(highlight=False)
    console.print(one.statement, markup=False)
    if one.fault is not None:
        console.print()
        console.print(Syntax(one.faulty_source.rstrip(), "python", line_numbers=True, background_color="default"))


@app.command("solution")
def solution(name: Annotated[str, typer.Argument(help="The name of the exercise.")]) -> None:
    """Show a solution, and where the package has it."""
    from glassbert.learn.exercise import get_exercise
    from glassbert.learn.progress import Progress
    from glassbert.learn.referee import library_of

    one = get_exercise(name)
    console = Console(highlight=False)
    console.print(Syntax(one.source.rstrip(), "python", background_color="default"))
    if one.fault is not None:
        lines = ", ".join(map(str, sorted(one.faulty_lines)))
        console.print(f"\nThe fault is in line {lines}. {one.fault.says}", markup=False)
    console.print(f"\nIn the package: {library_of(one)}", markup=False, style="dim")
    Progress.load().saw_solution(name)


@app.command("export")
def export(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write to.")],
    kind: Annotated[str, chosen("The format of the files.", ("html", "ipynb"), "--format")] = "html",
) -> None:
    """Write all lessons as Jupyter notebooks, or as static pages with their results."""
    from glassbert.learn.course import export

    console = Console(stderr=True)
    with console.status("") as status:
        written = export(output, kind, lambda title: status.update(Text(title)))
    typer.echo(f"{len(written)} lessons written to {output}")
