"""The glass as one file: everything recorded for some texts, forward and backward, for a browser without Python.

What is stored: all weights, and every array of every operation, in float32, or in float16 where that is exact. The
gradients of large matrices are not stored: the page computes a cell from the factors, as its formula says (dW = dyᵀ x).
Sums in float64 differ from the package's float32 in the last digits, so wherever that would change a digit that is
shown, the number of the package is stored beside it. A page so shows the package's numbers to the digits shown.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.files import atomic_write, explain_write_errors
from glassbert.learn.glass.bundle import bundle, style
from glassbert.learn.glass.cells import OVERVIEW, encode, largest, shrink
from glassbert.learn.glass.experiments import heads_in_turn, moved_most, saliency
from glassbert.learn.glass.formulas import Formula
from glassbert.learn.glass.look import Look
from glassbert.learn.glass.session import Glass

LIMIT = 20 * 10**6  # bytes of the file
DERIVED = 4_096  # gradients of parameters with more numbers than this are computed by the page
SHOWN_DIGITS = (3, 5)  # in tables, and in an opened sum
STEP = {"optimizer": "adamw", "learning_rate": 0.0001, "count": 1}
BYTES_OF_A_WEIGHT = {True: 2.1, False: 3.8}  # at least, in the file, compressed and in base64; True: float16 is exact
NUDGES = 4  # recorded weights of each parameter


class Store:
    """Arrays in one block of bytes, each stored once. The bytes of a number stand apart, which compresses better."""

    def __init__(self) -> None:
        self.entries: list[list[Any]] = []  # type, offset, shape
        self._parts: list[bytes] = []
        self._size = 0
        self._known: dict[Any, int] = {}
        self._kept: list[np.ndarray] = []

    def add(self, array: Any) -> int:
        array = np.asarray(array)
        key = (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str)
        if key in self._known:
            return self._known[key]
        self._kept.append(array)  # its address stays its own
        single = np.ascontiguousarray(array, np.float32)
        chosen = single.astype(np.float16) if fits_half(single) else single
        data = chosen.reshape(-1).view(np.uint8).reshape(-1, chosen.itemsize).T.tobytes()
        self.entries.append([chosen.itemsize, self._size, list(array.shape)])
        self._parts.append(data)
        self._size += len(data)
        self._known[key] = len(self.entries) - 1
        return self._known[key]

    def as_text(self) -> str:
        return base64.b64encode(gzip.compress(b"".join(self._parts), 9)).decode("ascii")


def fits_half(array: Any) -> bool:
    """Whether float16 holds these numbers without a change."""
    single = np.asarray(array, np.float32)
    return bool((single.astype(np.float16).astype(np.float32) == single).all())


def least_size(glass: Glass) -> float:
    """Bytes of the weights in the file, at least."""
    arrays = glass.models[0].model.parameters.values()
    return sum(BYTES_OF_A_WEIGHT[fits_half(array)] * array.size for array in arrays)


def export(glass: Glass, file: Path) -> int:
    """Write the page; returns its size in bytes."""
    least = least_size(glass)
    if least > LIMIT:
        raise too_large(least, glass)
    store = Store()
    recorded = [record_view(glass, dict(view), store) for view in glass.views]
    about = glass.ask("about", {})
    about = {**about, "live": False, "models": [{**about["models"][0], "snapshots": []}]}
    look = glass.look_at(glass.views[0])
    words = [look.word(i) for i in range(look.model.config.vocab_size)]
    data = {"about": about, "views": recorded, "arrays": store.entries, "words": words}
    text = page(data, store.as_text())
    size = len(text.encode())
    if size > LIMIT:
        raise too_large(size, glass)
    with explain_write_errors(file), atomic_write(file) as output:
        output.write(text)
    return size


def too_large(size: float, glass: Glass) -> InputError:
    weights, in_half = least_size(glass), BYTES_OF_A_WEIGHT[True] * glass.models[0].model.num_parameters
    roomy = 0.7 * LIMIT
    advice = "this model is too large for a page; take a smaller one"
    if weights < roomy:
        advice = "give fewer or shorter texts"
    elif in_half < roomy:
        advice = "weights in float16 take half of that: glassbert export RUN -o FOLDER, and glassbert glass FOLDER"
    return InputError(
        f"the page would have {size / 1e6:.0f} MB and the limit is {LIMIT // 10**6} MB, and the weights take about "
        f"{weights / 1e6:.0f} MB of it; {advice}"
    )


# ---- one text --------------------------------------------------------------------------------------------------------


def record_view(glass: Glass, view: dict[str, Any], store: Store) -> dict[str, Any]:
    look = glass.look_at(view)
    answers: dict[str, Any] = {"look": glass.ask("look", {"view": view}), "operations": {}, "nodes": {}}
    for name in look.nodes:
        answers["operations"][name] = look.operation(name)
        answers["nodes"][name] = record_node(look, name, store)
    answers["parameters"] = {name: store.add(array) for name, array in look.model.parameters.items()}
    answers["gradients"] = {}
    if look.recording.gradients is not None:
        for name in look.model.parameters:
            array = look.array("gradients", name)
            uses = look.uses(name)
            if array.size <= DERIVED or not uses:
                answers["gradients"][name] = {"array": store.add(array), "uses": uses}
            else:
                total: Any = sum(evaluated(look, node, role) for node, role in uses)
                answers["gradients"][name] = {**derived(array, total), "uses": uses}
    answers["tokens"] = [look.shown_token(i) for i in range(len(look.tokens.tokens))]
    answers["scored"] = look.scored
    answers.update(experiments(glass, look, view))
    return {"view": view, **answers}


def record_node(look: Look, name: str, store: Store) -> dict[str, Any]:
    """Arrays, formulas and names of one operation."""
    described = look.described(name)
    roles: dict[str, Any] = {}
    for role in described.arrays:
        array = look.array(name, role)
        entry: dict[str, Any] = {"name": look.full_name(name, role), "axes": list(described.axes(role))}
        if array.size > DERIVED and role.startswith("d") and role in described.sums and is_gradient(look, name, role):
            entry.update(derived(array, evaluated(look, name, role)))
        else:
            entry["array"] = store.add(array)
        if role in described.sums:
            entry["sum"] = described.sums[role].as_dict()
        if role in described.functions:
            entry["function"] = described.functions[role]
        roles[role] = entry
    return roles


def is_gradient(look: Look, name: str, role: str) -> bool:
    """Whether this array is the gradient of a parameter: nothing else is computed from it."""
    described, node = look.described(name), look.node(name)
    place = described.operand.get(role[1:])
    return place is not None and look.label(node.arguments[place]) in look.model.parameters


def evaluated(look: Look, name: str, role: str) -> np.ndarray:
    """A whole array by its formula, in float64 from float32 factors, as the page computes it."""
    described = look.described(name)
    formula: Formula | None = described.sums.get(role)
    if formula is None:
        return np.asarray(look.array(name, role), np.float64)
    return evaluate(formula, described.arrays, look.array(name, role).shape)


def evaluate(formula: Formula, arrays: Mapping[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    total = np.zeros(shape)
    (product,) = formula.products
    values = [np.asarray(arrays[f.name]).astype(np.float32).astype(np.float64) for f in product.factors]
    if all(isinstance(axis, str) for axis in formula.left.axes):
        letters = ",".join("".join(factor.letters) for factor in product.factors)
        return product.sign * np.einsum(f"{letters}->{''.join(formula.left.letters)}", *values)
    index = np.asarray(arrays[formula.left.axes[0][0]])  # rows of a table, added where they were looked up
    known = index >= 0
    np.add.at(total, index[known], product.sign * values[0][known])
    return total


def derived(array: np.ndarray, computed: np.ndarray) -> dict[str, Any]:
    """A small picture of an array that the page computes, and the cells where a shown digit would differ."""
    true = np.asarray(array, np.float32).astype(np.float64)
    wrong = np.zeros(true.shape, bool)
    for digits in SHOWN_DIGITS:
        wrong |= rounded(true, digits) != rounded(computed, digits)
    where = np.flatnonzero(wrong)
    top = largest(array)
    small = shrink(shrink(array if array.ndim == 2 else array[None], OVERVIEW[0], 0), OVERVIEW[1], 1)
    pixels = np.round(127 * small / (top or 1.0)).astype(np.int8)
    return {
        "shape": list(array.shape),
        "largest": top,
        "picture": {"size": list(small.shape), "data": base64.b64encode(pixels.tobytes()).decode("ascii")},
        "where": base64.b64encode(where.astype("<u4").tobytes()).decode("ascii"),
        "values": encode(true.reshape(-1)[where]),
    }


def rounded(values: np.ndarray, digits: int) -> np.ndarray:
    """Values to so many significant digits; a value next to a tie is marked, so that it never counts as equal."""
    size = np.abs(values)
    exponent = np.floor(np.log10(np.where(size > 0, size, 1.0)))
    scaled = values * 10.0 ** (digits - 1 - exponent)
    result = np.rint(scaled) * 10.0 ** (exponent - digits + 1)
    tie = np.abs(np.abs(scaled - np.floor(scaled)) - 0.5) < 1e-7
    return np.where(tie & (size > 0), np.nan, result)


def experiments(glass: Glass, look: Look, view: dict[str, Any]) -> dict[str, Any]:
    """What the page would ask Python for, recorded for the settings that it begins with."""
    found: dict[str, Any] = {"summary": look.summary(), "rotation": rotations(look)}
    found["saliency"] = {}
    for answer in found["summary"]["answers"]:
        words = {one["id"] for one in answer["best"]} | ({answer["target"]["id"]} if "target" in answer else set())
        for word in sorted(words):
            for method in ("gradient", "integrated"):
                key = f"{answer['position'] if answer['position'] is not None else ''}|{word}|{method}"
                found["saliency"][key] = saliency(look, answer["position"], word, method)
    if look.loss is None:
        return found
    stepped = {**view, "step": STEP}
    found["step"] = {"summary": glass.ask("summary", {"view": stepped}), "settings": STEP}
    found["moved"] = moved_most(look, glass.look_at(stepped))
    found["heads"] = heads_in_turn(look)
    config = look.model.config
    found["silenced"] = {
        f"{layer}.{head}": glass.ask("summary", {"view": {**view, "silenced": [[layer, head]]}})
        for layer in range(config.num_hidden_layers)
        for head in range(config.num_attention_heads)
    }
    found["nudge"] = {}
    for name in look.model.parameters:
        gradient = np.abs(look.array("gradients", name))
        chosen = [np.unravel_index(i, gradient.shape) for i in np.argsort(-gradient, axis=None)[:NUDGES]]
        if gradient.ndim == 2 and gradient.shape[0] > 3 and gradient.shape[1] > 4:
            chosen.append((np.intp(3), np.intp(4)))  # of the tour
        for place in chosen:
            index = [int(i) for i in place]
            asked = {"view": view, "parameter": name, "index": index, "epsilon": 1e-4}
            found["nudge"][f"{name}|{','.join(map(str, index))}"] = glass.ask("nudge", asked)
    return found


def rotations(look: Look) -> dict[str, Any]:
    """The angles of every layer that rotates, [T, d/2]."""
    angles = {}
    for layer in range(look.model.config.num_hidden_layers):
        name = f"layers.{layer}.attention.q_rotary"
        if name in look.nodes:
            arrays = look.described(name).arrays
            angle = np.arctan2(arrays["sin"], arrays["cos"])
            angles[str(layer)] = {"size": list(angle.shape), "data": encode(angle)}
    return angles


# ---- the file --------------------------------------------------------------------------------------------------------

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def page(data: dict[str, Any], arrays: str) -> str:
    described = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    script = bundle("recorded").replace("</script", "<\\/script")
    title = data["about"]["view"]["text"][:60].replace("&", "&amp;").replace("<", "&lt;")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{title} · GlassBERT</title>
<style>
{style()}
</style>
</head>
<body class="gb-body">
<div id="glass" class="gb"></div>
<noscript>This page needs JavaScript.</noscript>
<script type="application/json" id="recorded">{described}</script>
<script type="text/plain" id="arrays">{arrays}</script>
<script type="module">
{script}
openRecorded(document.getElementById("glass"));
</script>
</body>
</html>
"""
