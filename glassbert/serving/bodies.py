"""JSON bodies of requests, checked: a wrong one raises `Refused` with a sentence and a status."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glassbert.errors import presentable

MOST_TOP = 100
MOST_MASKS = 1_024  # of a request; each costs a score for every word of the vocabulary
MOST_MASKS_OF_A_TEXT = 128
# Status -> the type of error, in the words of OpenAI's clients.
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refused(Exception):
    """A request that gets no answer: status, a sentence, a short code, and headers of the response."""

    def __init__(self, status: int, message: str, code: str, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status, self.code, self.headers = status, code, dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": presentable(str(self)), "type": kind, "code": self.code}}


@dataclass(frozen=True)
class Limits:
    """The largest request."""

    body_bytes: int = 4 * 2**20
    texts: int = 256
    tokens: int = 65_536


def parse(body: bytes) -> dict[str, Any]:
    """The object in a body."""
    if not body.strip():
        raise Refused(400, 'the body is empty; send JSON, as {"input": "a text"}', "no_body")
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise Refused(400, f"the body is not UTF-8: byte {error.start} cannot be read", "not_utf8") from None
    except RecursionError:
        raise Refused(400, "the body is nested too deeply", "not_json") from None
    except ValueError as error:  # no JSON, or an integer of more than 4,300 digits
        raise Refused(400, f"the body is not JSON: {error}", "not_json") from None
    if not isinstance(found, dict):
        raise Refused(400, f"the body must be a JSON object, not {kind_of(found)}", "not_an_object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def kind_of(value: Any) -> str:
    """The kind of a value in the words of JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    names = {str: "a string", int: "a number", float: "a number", list: "an array", dict: "an object"}
    return names[type(value)]


def wrong(message: str, code: str = "wrong_value") -> Refused:
    return Refused(422, message, code)


def only(body: Mapping[str, Any], *names: str) -> None:
    """Refuse fields that the address does not have, which are misspelled ones most of the time."""
    for name in body:
        if name not in names:
            raise wrong(f"there is no field {name!r} here; the fields are {', '.join(names)}", "unknown_field")


def inputs_in(body: Mapping[str, Any]) -> list[Any]:
    """The field `input` as a list: one text, or an array that is is not empty."""
    if "input" not in body:
        raise wrong('the field "input" is missing: a text, or an array of them', "no_input")
    given = body["input"]
    if isinstance(given, str | dict):
        given = [given]
    if not isinstance(given, list):
        raise wrong(f'"input" must be a text or an array, not {kind_of(given)}')
    if not given:
        raise wrong('"input" is an empty array; give at least one text', "no_input")
    return given


def few(given: list[Any], limits: Limits) -> list[Any]:
    """The same array, if it is not too long."""
    if len(given) > limits.texts:
        raise wrong(f'"input" has {len(given):,} entries, and at most {limits.texts:,} are accepted', "too_many_texts")
    return given


def texts_in(body: Mapping[str, Any], limits: Limits) -> list[str]:
    given = few(inputs_in(body), limits)
    for place, one in enumerate(given):
        if not isinstance(one, str):
            raise wrong(f"input {place} must be a text, not {kind_of(one)}")
    return given


def few_masks(texts: Sequence[str], mask: str) -> None:
    counts = [text.count(mask) for text in texts]
    for place, count in enumerate(counts):
        if count > MOST_MASKS_OF_A_TEXT:
            raise wrong(
                f"input {place} has {count:,} {mask}, and at most {MOST_MASKS_OF_A_TEXT} are accepted", "too_many_masks"
            )
    if sum(counts) > MOST_MASKS:
        raise wrong(
            f"the request has {sum(counts):,} {mask}, and at most {MOST_MASKS:,} are accepted", "too_many_masks"
        )


def texts_or_ids(body: Mapping[str, Any], limits: Limits) -> list[Any]:
    """Texts, or arrays of token ids; one array of ids is one text."""
    given = inputs_in(body)
    if is_id(given[0]):
        given = [given]
    few(given, limits)
    if isinstance(given[0], str):
        return texts_in(body, limits)
    for place, one in enumerate(given):
        if not isinstance(one, list) or not one or not all(map(is_id, one)):
            raise wrong(
                f"input {place} must be {'an array of token ids' if place else 'a text or an array of token ids'}"
            )
    return given


def is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def examples_in(body: Mapping[str, Any], limits: Limits, kind: str, columns: list[str], paired: bool) -> list[Any]:
    """Inputs of a fine-tuned model: texts, pairs of texts, lists of words, or rows of a table."""
    given = body.get("input")
    if kind == "pair" and isinstance(given, list) and len(given) == 2 and all(isinstance(one, str) for one in given):
        given = [given]  # one pair
    given = few(inputs_in({"input": given} if "input" in body else {}), limits)
    check = {"row": _row, "words": _words, "pair": _pair, "text": _text}[kind]
    found = [check(one, place, columns) for place, one in enumerate(given) if not (paired and isinstance(one, list))]
    if len(found) == len(given):
        return found
    if found:
        raise wrong("an input must be either texts or pairs of texts, not both")
    return [_pair(one, place, columns) for place, one in enumerate(given)]


def _text(one: Any, place: int, columns: list[str]) -> str:
    if not isinstance(one, str):
        raise wrong(f"input {place} must be a text, not {kind_of(one)}")
    return one


def _pair(one: Any, place: int, columns: list[str]) -> tuple[str, str]:
    if not isinstance(one, list) or len(one) != 2 or not all(isinstance(part, str) for part in one):
        raise wrong(f"input {place} must be an array of two texts: this model compares two texts")
    return one[0], one[1]


def _words(one: Any, place: int, columns: list[str]) -> str | list[str]:
    if isinstance(one, str) or (isinstance(one, list) and one and all(isinstance(word, str) for word in one)):
        return one
    raise wrong(f"input {place} must be a text or an array of words, not {kind_of(one)}")


def _row(one: Any, place: int, columns: list[str]) -> dict[str, Any]:
    """A row with every column of the model; a column that is not given is unknown."""
    if not isinstance(one, dict):
        raise wrong(f"input {place} must be an object with the columns {', '.join(columns)}, not {kind_of(one)}")
    for name, value in one.items():
        if name not in columns:
            raise wrong(f"input {place} has a column {name!r}; this model reads {', '.join(columns)}", "unknown_column")
        if isinstance(value, list | dict):
            raise wrong(f"input {place}, {name!r} must be a text, a number, true, false or null, not {kind_of(value)}")
        if isinstance(value, int | float) and not (abs(value) < 1e300 and math.isfinite(value)):
            raise wrong(f"input {place}, {name!r} is too large a number")
    return dict.fromkeys(columns) | one


def whole(body: Mapping[str, Any], name: str, default: int | None, least: int, most: int) -> int | None:
    """A whole number in a range; null and a missing field are the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise wrong(f"{name!r} must be a whole number from {least:,} to {most:,}")
    return value


def flag(body: Mapping[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong(f"{name!r} must be true or false, not {kind_of(value)}")
    return default if value is None else value


def choice(body: Mapping[str, Any], name: str, names: tuple[str, ...]) -> str:
    value = body.get(name)
    if value is None:
        return names[0]
    if value not in names:
        raise wrong(f"{name!r} must be {' or '.join(names)}")
    return value
