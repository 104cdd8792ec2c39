"""What the referee answers: readable in a terminal and in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any, Self

GREEN, RED, GREY = "#2da44e", "#e5534b", "#8a8a8a"  # of marks and borders; the text keeps the page's own colour


@dataclass(frozen=True)
class OutputVerdict:
    """One output: whether it is right, to how many digits, and else what is wrong with it."""

    name: str
    right: bool
    digits: int = 0
    problem: str = ""
    case: str = ""

    def __str__(self) -> str:
        if self.right:
            return f"{self.name} is right to {self.digits} digits"
        return f"{self.name} {self.problem}" + (f' (case "{self.case}")' if self.case else "")


@dataclass(frozen=True)
class Verdict:
    """The referee's answer to one exercise.

    passed    whether everything is right
    outputs   one line for each output
    problem   what is wrong with the answer as a whole: an error, nothing returned, another signature
    mistake   the name of the known mistake, if it is one
    says      a sentence about it
    hint      one hint; asking again gives the next one
    note      right, but worth knowing
    """

    exercise: str
    passed: bool
    outputs: tuple[OutputVerdict, ...] = ()
    problem: str = ""
    mistake: str | None = None
    says: str = ""
    hint: str = ""
    hints_left: int = 0
    note: str = ""
    library: str = ""
    answered: bool = True  # False for a function without a body
    available_hints: tuple[str, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return self.passed

    @property
    def headline(self) -> str:
        state = "right" if self.passed else "not yet" if self.answered else "not answered yet"
        return f"{self.exercise}: {state}"

    def lines(self) -> list[tuple[str, str]]:
        """The answer as (kind, sentence); kinds are "right", "wrong", "says", "hint" and "note"."""
        found = [("wrong" if self.answered else "note", self.problem)] if self.problem else []
        found += [("right" if one.right else "wrong", str(one)) for one in self.outputs]
        found += [("says", self.says)] if self.says else []
        if self.hint:
            found.append(("hint", f"Hint: {self.hint}"))
            if self.hints_left:
                found.append(("note", "Check again for the next hint."))
            else:
                found.append(
                    ("note", f"That was the last hint. The solution: glassbert learn solution {self.exercise}")
                )
        found += [("note", self.note)] if self.note else []
        if self.passed and self.library:
            found.append(("note", f"In the package it became {self.library}."))
        return found

    def __str__(self) -> str:
        marks = {"right": "✓", "wrong": "✗", "says": "→", "hint": "·", "note": " "}
        return "\n".join([self.headline, *(f"  {marks[kind]} {text}" for kind, text in self.lines())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        colours = {"right": GREEN, "wrong": RED, "says": GREY, "hint": GREY, "note": GREY}
        marks = {"right": "✓", "wrong": "✗", "says": "→", "hint": "•", "note": ""}
        rows = "".join(
            f'<div style="margin:2px 0{";opacity:0.75" if kind == "note" else ""}"><strong style="display:inline-block;'
            f'width:1.4em;color:{colours[kind]}" aria-hidden="true">{marks[kind]}</strong>{escape(text)}</div>'
            for kind, text in self.lines()
        )
        colour = GREEN if self.passed else RED if self.answered else GREY
        return (
            f'<div class="glassbert-verdict" data-exercise="{escape(self.exercise)}" data-passed="{self.passed}" '
            f'data-mistake="{escape(self.mistake or "")}" role="status" style="border-left:4px solid {colour};'
            f'padding:6px 12px;margin:8px 0"><strong>{escape(self.headline)}</strong>'
            f"{rows}</div>"
        )

    def with_hint(self, number: int) -> Self:
        """The verdict with its n-th hint, from 0; the last one stays."""
        if self.passed or not self.available_hints:
            return self
        number = min(number, len(self.available_hints) - 1)
        left = len(self.available_hints) - 1 - number
        return replace(self, hint=self.available_hints[number], hints_left=left)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        outputs = tuple(OutputVerdict(**one) for one in given["outputs"])
        return cls(**{**given, "outputs": outputs, "available_hints": tuple(given["available_hints"])})


class Verdicts(tuple[Verdict, ...]):
    """The answers to several exercises."""

    @property
    def passed(self) -> bool:
        return all(one.passed for one in self)

    def __repr__(self) -> str:
        return "\n\n".join(map(str, self))

    def _repr_html_(self) -> str:
        return "".join(one._repr_html_() for one in self)
