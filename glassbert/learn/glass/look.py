"""One look: one text in one model, recorded forward and backward, and the questions a page asks about it.

Every answer is a plain dictionary of numbers, strings and lists. Windows of arrays are float32 in base64.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import glassbert
from glassbert.errors import InputError
from glassbert.insight.inputs import LoadedModel
from glassbert.learn.glass.cells import Cells, gradient_name, rms
from glassbert.learn.glass.described import Described
from glassbert.learn.glass.inputs import Tokens, View, allowed_words, labels_for, tokens_of
from glassbert.learn.glass.operations import describe
from glassbert.learn.glass.recorder import Node, Recording, record
from glassbert.models.model import Model
from glassbert.ops import IGNORED
from glassbert.ops.registry import OPERATIONS, SUFFIX
from glassbert.training.fill_mask import readable

HIDDEN = ("reshape", "join", "matmul")  # rearrangements, and what only the trace computes
ANSWERS = 5


class Look(Cells):
    """One recorded pass over one text. `model` is the variant that computed it, `loaded` knows names and words."""

    def __init__(self, loaded: LoadedModel, model: Model, view: View, labels: Mapping[str, Any] | None = None):
        self.loaded, self.model, self.view = loaded, model, view
        self.tokens: Tokens = tokens_of(loaded, view)
        self.labels = labels_for(loaded, model, view, self.tokens) if labels is None else labels
        self.recording: Recording = record(model, self.tokens.ids, self.labels)
        self._described: dict[str, Described] = {}
        self._index_nodes()

    # ---- names -------------------------------------------------------------------------------------------------------

    def _index_nodes(self) -> None:
        """Names for nodes and arrays: those of the pass where it has one, otherwise those of the operation."""
        self.nodes: dict[str, Node] = {}
        self._labels: dict[Any, str] = {}
        self._producers: dict[int, str] = {}
        for name, array in self.model.parameters.items():
            self._labels[_key(array)] = name
        values = self.recording.values
        for wanted in (False, True):  # "input" is another name of what came before
            for name, array in values.items():
                if isinstance(array, np.ndarray) and name.endswith("input") == wanted:
                    self._labels.setdefault(_key(array), name)
        for node in self.recording.nodes:
            if node.operation in HIDDEN or (node.operation in OPERATIONS and not node.name):
                continue
            name = node.name or self._name_of_expression(node)
            node.name = name
            self.nodes[name] = node
            if isinstance(node.output, np.ndarray):
                self._labels.setdefault(_key(node.output), name)
                self._producers.setdefault(id(_owner(node.output)), name)
        for name, node in self.nodes.items():
            if isinstance(node.dy, np.ndarray):
                self._labels.setdefault(_key(node.dy), gradient_name(self.label(node.output) or name))

    def _name_of_expression(self, node: Node) -> str:
        prefix = "embeddings" if node.phase == "forward" else ""
        for array in node.arguments:
            if not isinstance(array, np.ndarray):
                continue
            label = self._labels.get(_key(array), "")
            source = label or self._producers.get(id(_owner(array)), "")
            if source and source not in self.model.parameters:
                prefix = source.rpartition(".")[0] or source
        if node.phase == "backward":  # it ran just after the backward of some operation
            earlier = [n for n in self.nodes.values() if 0 <= n.backward_order < node.backward_order]
            last = max(earlier, key=lambda n: n.backward_order, default=None)
            prefix = last.name.rpartition(".")[0] if last is not None else prefix
        kind = {"add": "sum"}.get(node.operation, node.operation)
        base = f"{prefix}.{kind}" if node.phase == "forward" else f"{prefix}.d_{kind}"
        name, number = base, 2
        while name in self.nodes:
            name, number = f"{base}{number}", number + 1
        return name

    def label(self, array: Any) -> str:
        """The dotted name of an array, or ""."""
        return self._labels.get(_key(array), "") if isinstance(array, np.ndarray) else ""

    # ---- the text and its answers ------------------------------------------------------------------------------------

    @property
    def loss(self) -> float | None:
        return self.recording.loss

    def summary(self) -> dict[str, Any]:
        """Tokens, masks, answers and loss: all that is above the map."""
        tokens, tokenizer = self.tokens, self.loaded.tokenizer
        return {
            "text": self.view.text,
            "tokens": [
                {
                    "token": token,
                    "id": int(id),
                    "word": word,
                    "span": list(span),
                    "masked": i in tokens.masked,
                    "shown": readable(tokenizer.id_to_token(int(tokens.ids[0, i]))),
                }
                for i, (token, id, word, span) in enumerate(
                    zip(tokens.tokens, tokens.originals, tokens.words, tokens.offsets, strict=True)
                )
            ],
            "note": tokens.note,
            "loss": self.loss,
            "why_no_loss": self.why_no_loss(),
            "answers": self.answers(),
            "task": self.task(),
        }

    def why_no_loss(self) -> str:
        if self.loss is not None:
            return ""
        head = self.model.head
        if head is None:
            return "This model has no head, so it gives no answers and has no loss: there is no way back to show."
        if "mlm" in head.parts:
            return (
                "No word is masked. Click a word: only a masked word has a loss, and the way back begins at the loss."
            )
        return f"A {head.kind} head has no loss for a single text, so there is no way back to show."

    def task(self) -> dict[str, Any]:
        """What the head answers, and the label the loss was computed with."""
        head = self.model.head
        if head is None:
            return {"kind": "none"}
        if "mlm" in head.parts:
            return {"kind": "mlm"}
        names = [self.label_name(i) for i in range(head.num_labels)]
        given = None if self.labels is None else np.asarray(self.labels["labels"]).ravel().tolist()
        return {"kind": head.kind, "loss": head.loss_name, "labels": names, "label": given}

    def label_name(self, index: int) -> str:
        names = self.loaded.labels
        return names[index] if index < len(names) else f"label {index}"

    def answers(self) -> list[dict[str, Any]]:
        """For every mask the best words; for a classifier the labels with their probabilities."""
        head = self.model.head
        if head is None:
            return []
        if "mlm" not in head.parts:
            return self._labels_with_chances()
        if not self.tokens.masked or self.labels is None:
            return []
        logits = np.asarray(self.recording.values["head.logits"], np.float64)
        wanted = np.asarray(self.labels["labels"])[0]
        allowed = allowed_words(self.loaded, self.model)
        found = []
        for row, position in enumerate(np.flatnonzero(wanted != IGNORED)):
            scores = np.where(allowed, logits[row], -np.inf)
            chances = np.exp(scores - scores.max())
            chances /= chances.sum()
            target = int(wanted[position])
            best = np.argsort(-chances, kind="stable")[:ANSWERS]
            found.append(
                {
                    "position": int(position),
                    "target": {**self._word(target), "chance": float(chances[target])},
                    "rank": int((chances > chances[target]).sum()) + 1,
                    "best": [{**self._word(int(i)), "chance": float(chances[i])} for i in best],
                }
            )
        return found

    def _labels_with_chances(self) -> list[dict[str, Any]]:
        head: Any = self.model.head
        output = self.recording.values.get("head.logits")
        if output is None or head.kind != "sequence":
            return []
        decoded = head.decode(np.asarray(output))[0]
        is_number = head.loss_name == "mean_squared_error"
        best = [
            {"id": i, "word": self.label_name(i), ("value" if is_number else "chance"): float(value)}
            for i, value in enumerate(decoded)
        ]
        return [{"position": None, "best": sorted(best, key=lambda one: -one.get("chance", 0.0))}]

    def _word(self, id: int) -> dict[str, Any]:
        return {"id": id, "word": self.word(id)}

    def word(self, id: int) -> str:
        known = id < self.loaded.tokenizer.vocab_size
        return readable(self.loaded.tokenizer.id_to_token(id)) if known else f"[{id}]"

    # ---- the map -----------------------------------------------------------------------------------------------------

    def map(self) -> dict[str, Any]:
        """All operations in the order in which they ran, forward and backward, with the size of what they made."""
        forward, backward = [], []
        for name, node in self.nodes.items():
            entry: dict[str, Any] = {"name": name, "operation": node.operation, "group": group_of(name)}
            parameters = [self.label(x) for x in node.arguments]
            entry["parameters"] = [label for label in parameters if label in self.model.parameters]
            entry["inputs"] = [self.source(x) for x in node.arguments if self.source(x)]
            if node.phase == "forward":
                shape = list(np.shape(node.output))
                forward.append({**entry, "shape": shape, "rms": rms(node.output)})
                if node.dy is not None and node.backward_order >= 0:
                    backward.append((node.backward_order, {**entry, "shape": shape, "rms": rms(node.dy)}))
            else:
                backward.append(
                    (node.backward_order, {**entry, "shape": list(np.shape(node.output)), "rms": rms(node.output)})
                )
        return {
            "forward": forward,
            "backward": [entry for _, entry in sorted(backward, key=lambda pair: pair[0])],
            "parameters": self.parameters(),
        }

    def source(self, array: Any) -> str:
        """The node that made an array, also where the array is another view of its memory."""
        return self._producers.get(id(_owner(array)), "") if isinstance(array, np.ndarray) else ""

    def parameters(self) -> list[dict[str, Any]]:
        """Name, shape and size of every parameter and of its gradient."""
        gradients = self.recording.gradients
        return [
            {
                "name": name,
                "shape": list(array.shape),
                "rms": rms(array),
                "gradient_rms": None if gradients is None else rms(gradients[name]),
            }
            for name, array in self.model.parameters.items()
        ]

    # ---- one operation -----------------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        if name not in self.nodes:
            raise InputError(f"this pass has no operation {name!r}")
        return self.nodes[name]

    def described(self, name: str) -> Described:
        if name not in self._described:
            self._described[name] = describe(self.node(name))
        return self._described[name]

    def operation(self, name: str) -> dict[str, Any]:
        """Formula, arrays and Python lines of one operation, forward and backward."""
        node, described = self.node(name), self.described(name)
        arrays = described.arrays
        sides = {}
        for side, shown in (("forward", described.forward), ("backward", described.backward)):
            if (side == "backward") and not (node.dy is not None or node.phase == "backward"):
                continue
            sides[side] = [self._array_entry(name, role) for role in shown if role in arrays]
        functions = {"forward": source_lines(node.operation)} if node.operation in OPERATIONS else {}
        if node.dy is not None:
            functions["backward"] = source_lines(node.operation + SUFFIX)
        return {
            "name": name,
            "operation": node.operation,
            "phase": node.phase,
            "formula": described.formula,
            "backward_formula": described.backward_formula,
            "arrays": sides,
            "source": functions,
            "result": described.result,
        }

    def _array_entry(self, name: str, role: str) -> dict[str, Any]:
        described, node = self.described(name), self.node(name)
        array = described.arrays[role]
        formula = described.sums.get(role)
        kind, made_by = "inside", ""
        if role in described.operand and described.operand[role] < len(node.arguments):
            made_by = self.source(node.arguments[described.operand[role]])
            kind = "parameter" if self.full_name(name, role) in self.model.parameters else "input"
        elif role == described.result or role in ("y", "y2"):
            kind = "output"
        elif role in described.gradient:
            kind = "gradient"
        elif role in ("dy", "dy1", "dy2", "dcontext"):
            kind = "incoming"
        return {
            "role": role,
            "name": self.full_name(name, role),
            "kind": kind,
            "made_by": made_by,
            "shape": list(array.shape),
            "axes": list(described.axes(role)),
            "formula": str(formula) if formula else described.functions.get(role, ""),
            "opens": bool(formula) or role in described.functions,
        }

    def full_name(self, name: str, role: str) -> str:
        """The dotted name of an array of an operation: that of the pass, otherwise operation and role."""
        described, node = self.described(name), self.node(name)
        prefix = name.rpartition(".")[0]
        if role in described.operand and described.operand[role] < len(node.arguments):
            raw = node.arguments[described.operand[role]]
            return self.label(raw) or self.source(raw) or f"{name}.{role}"
        if role == described.result:
            return self.label(node.output) or name
        if role in ("dy", "dcontext"):
            return self.label(node.dy) or gradient_name(name)
        if role in described.gradient and f"d{role[1:]}" == role:
            place = described.gradient[role]
            own = self.label(node.gradients[place])
            operand = role[1:]
            if not own and operand in described.operand and described.operand[operand] < len(node.arguments):
                argument = node.arguments[described.operand[operand]]
                own = gradient_name(self.label(argument) or self.source(argument) or f"{name}.{operand}")
            return own or f"{name}.{role}"
        for known in (f"{prefix}.{role}", f"{prefix}.d_{role[1:]}" if role.startswith("d") else ""):
            if known in self.recording.values:
                return known
        return f"{name}.{role}"

    def place(self, letter: str, index: int, size: int) -> str:
        """What stands at an index of an axis: a token, a masked token, a word of the vocabulary, or a number."""
        if letter in ("t", "i", "j") and size == len(self.tokens.tokens):
            return self.shown_token(index)
        if letter in ("t", "m") and size == len(self.scored):
            return self.shown_token(self.scored[index])
        if letter in ("", "o", "v") and size == self.model.config.vocab_size:
            return self.word(index)
        return str(index)

    @cached_property
    def scored(self) -> list[int]:
        """The positions that the head scored."""
        if self.labels is None or self.model.head is None or "mlm" not in self.model.head.parts:
            return []
        return [int(i) for i in np.flatnonzero(np.asarray(self.labels["labels"])[0] != IGNORED)]

    def shown_token(self, position: int) -> str:
        return readable(self.loaded.tokenizer.id_to_token(int(self.tokens.ids[0, position])))


# ---- helpers ---------------------------------------------------------------------------------------------------------


def _owner(array: np.ndarray) -> Any:
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner


def _key(array: Any) -> Any:
    return (array.__array_interface__["data"][0], array.shape, array.strides)


def group_of(name: str) -> str:
    """The part of the model that a node belongs to: `embeddings`, `layers.0.attention`, `head`, ..."""
    parts = name.split(".")
    return ".".join(parts[:3]) if parts[0] == "layers" else parts[0]


def source_lines(operation: str) -> dict[str, Any]:
    """The Python lines of a plain operation, with file and first line."""
    function = OPERATIONS[operation]
    lines, first = inspect.getsourcelines(function)
    file = Path(inspect.getsourcefile(function) or "")
    root = Path(glassbert.__file__).parent.parent
    shown = file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name
    return {"file": shown, "line": first, "code": "".join(lines)}
