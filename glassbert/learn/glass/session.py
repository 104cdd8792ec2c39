"""The glass in Python: models and texts in, plain dictionaries out. Server, notebook and export ask here.

    glass = Glass([open_model("runs/mini")])
    glass.ask("look", {"view": {"text": "Paris is the capital of France.", "masked": [4]}})

A page keeps no state here: every question carries its view. Recorded passes are kept for the next question, the last
few of them.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glassbert.errors import GlassBertError, InputError
from glassbert.insight.inputs import LoadedModel
from glassbert.learn.glass.cells import encode
from glassbert.learn.glass.experiments import Nudge, heads_in_turn, moved_most, saliency
from glassbert.learn.glass.inputs import MAX_CHARACTERS, MAX_TOKENS, View, labels_for, tokens_of
from glassbert.learn.glass.look import Look
from glassbert.learn.glass.variants import after_steps, snapshot_steps, with_weights

KEPT_LOOKS = (2, 6)  # recorded passes that are kept, at least and at most
KEPT_NUMBERS = 400_000_000  # of gradients in all of them
KEPT_NUDGES = 1
TEXT = "The doctor opened the door and went into the house."

METHODS: dict[str, Callable[..., dict[str, Any]]] = {}


def question(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """A question that a page may ask, under the name of the method."""
    METHODS[function.__name__] = function
    return function


def finite(value: Any) -> Any:
    """The answer with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list) else value


class Glass:
    """Answers the questions of a page about some models; several threads may ask."""

    def __init__(self, models: Sequence[LoadedModel], views: Sequence[dict[str, Any]] = ()):
        if not models:
            raise InputError("the glass needs at least one model")
        for loaded in models:
            if loaded.model.config.series is not None:
                raise InputError(f"{loaded.name} reads series of values; the glass shows models of text")
        self.models = list(models)
        largest = max(loaded.model.num_parameters for loaded in models)
        self._kept = min(max(KEPT_NUMBERS // largest, KEPT_LOOKS[0]), KEPT_LOOKS[1])
        self.views = list(views) or [{"text": TEXT}]
        self._looks: OrderedDict[View, Look] = OrderedDict()
        self._nudges: OrderedDict[View, Nudge] = OrderedDict()
        self._lock = threading.Lock()  # of the two tables
        self._making: dict[View, threading.Lock] = {}
        self._nudging = threading.Lock()

    def ask(self, method: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The answer, or {"error": a sentence} for a question that cannot be answered."""
        if method not in METHODS:
            return {"error": f"there is no question {method!r}; there are {', '.join(METHODS)}"}
        try:
            return finite(METHODS[method](self, **arguments))
        except GlassBertError as error:
            return {"error": str(error)}
        except (TypeError, IndexError, KeyError) as error:  # arguments of a wrong kind
            return {"error": f"the question {method!r} was not understood: {error}"}

    def look_at(self, given: Any) -> Look:
        """The recorded pass of a view; two threads that ask for the same one wait for a single pass."""
        view = View.of(given)
        with self._lock:
            if view in self._looks:
                self._looks.move_to_end(view)
                return self._looks[view]
            making = self._making.setdefault(view, threading.Lock())
        with making:
            with self._lock:
                if view in self._looks:
                    return self._looks[view]
            look = self._look(view)
            with self._lock:
                self._looks[view] = look
                while len(self._looks) > self._kept:
                    self._looks.popitem(last=False)
                self._making.pop(view, None)
        return look

    def _look(self, view: View) -> Look:
        if view.model >= len(self.models):
            raise InputError(f"there is no model {view.model}; the glass was opened with {len(self.models)}")
        loaded = self.models[view.model]
        model = with_weights(loaded, view)
        if view.step is None:
            return Look(loaded, model, view)
        tokens = tokens_of(loaded, view)
        labels = labels_for(loaded, model, view, tokens)
        if labels is None:
            raise InputError("without a loss there is no step; mask a word first")
        return Look(loaded, after_steps(model, tokens.ids, labels, view.step), view, labels)

    # ---- questions ---------------------------------------------------------------------------------------------------

    @question
    def about(self) -> dict[str, Any]:
        """Models, limits and the first view: what a page asks first."""
        return {
            "models": [self._about_model(loaded) for loaded in self.models],
            "view": self.views[0],
            "views": self.views,
            "limits": {"tokens": MAX_TOKENS, "characters": MAX_CHARACTERS},
            "live": True,
        }

    def _about_model(self, loaded: LoadedModel) -> dict[str, Any]:
        model, config = loaded.model, loaded.model.config
        layers = range(config.num_hidden_layers)
        return {
            "name": loaded.name,
            "family": config.family,
            "parameters": model.num_parameters,
            "layers": config.num_hidden_layers,
            "heads": config.num_attention_heads,
            "hidden": config.hidden_size,
            "vocabulary": config.vocab_size,
            "head": None if model.head is None else model.head.kind,
            "rotary": config.positions == "rotary",
            "windows": [config.window_of(i) for i in layers],
            "bases": [
                config.global_rope_theta if config.window_of(i) is None else config.local_rope_theta for i in layers
            ],
            "snapshots": list(snapshot_steps(loaded)),
        }

    @question
    def look(self, view: Any) -> dict[str, Any]:
        """Tokens, answers, loss and the map of one pass."""
        look = self.look_at(view)
        return {**look.summary(), "map": look.map()}

    @question
    def summary(self, view: Any) -> dict[str, Any]:
        """Tokens, answers and loss, without the map."""
        return self.look_at(view).summary()

    @question
    def operation(self, view: Any, name: str) -> dict[str, Any]:
        return self.look_at(view).operation(name)

    @question
    def values(
        self, view: Any, name: str, role: str, leading: list[int], row: int, column: int, height: int, width: int
    ) -> dict[str, Any]:
        return self.look_at(view).values(name, role, leading, row, column, height, width)

    @question
    def overview(self, view: Any, name: str, role: str, leading: list[int]) -> dict[str, Any]:
        return self.look_at(view).overview(name, role, leading)

    @question
    def terms(self, view: Any, name: str, role: str, index: list[int]) -> dict[str, Any]:
        return self.look_at(view).terms(name, role, index)

    @question
    def nudge(self, view: Any, parameter: str, index: list[int], epsilon: float) -> dict[str, Any]:
        """The predicted and the measured change of the loss when one weight changes by ε."""
        look = self.look_at(view)
        with self._nudging:
            if look.view not in self._nudges:
                self._nudges[look.view] = Nudge(look)
                while len(self._nudges) > KEPT_NUDGES:
                    self._nudges.popitem(last=False)
            return self._nudges[look.view](parameter, index, epsilon)

    @question
    def moved(self, view: Any, other: Any) -> dict[str, Any]:
        """What a step of an optimizer moved most, from one view to another."""
        return moved_most(self.look_at(view), self.look_at(other))

    @question
    def attention(self, view: Any, layer: int) -> dict[str, Any]:
        """The attention weights of all heads of a layer, [heads, T, T], and its window."""
        look = self.look_at(view)
        weights = look.recording.values.get(f"layers.{layer}.attention.weights")
        if weights is None:
            raise InputError(f"layer {layer} has no attention weights to show")
        return {
            "shape": list(weights.shape[1:]),
            "data": encode(weights[0]),
            "tokens": [look.shown_token(i) for i in range(weights.shape[-1])],
            "window": look.model.config.window_of(layer),
        }

    @question
    def heads(self, view: Any) -> dict[str, Any]:
        return heads_in_turn(self.look_at(view))

    @question
    def saliency(self, view: Any, position: int | None, target: int, method: str) -> dict[str, Any]:
        return saliency(self.look_at(view), position, target, method)

    @question
    def rotation(self, view: Any, layer: int, head: int, token: int) -> dict[str, Any]:
        """The pairs of features of one query before and after their rotation, and their angles."""
        look = self.look_at(view)
        name = f"layers.{layer}.attention.q_rotary"
        if name not in look.nodes:
            raise InputError(f"layer {layer} does not rotate its queries; its positions are not rotary")
        arrays = look.described(name).arrays
        heads, length, _ = arrays["x1"].shape
        if not (0 <= head < heads and 0 <= token < length):
            raise InputError(f"there is no token {token} of head {head}")
        angle = np.arctan2(arrays["sin"][token], arrays["cos"][token])
        return {
            "before": np.stack([arrays["x1"][head, token], arrays["x2"][head, token]], 1).tolist(),
            "after": np.stack([arrays["y1"][head, token], arrays["y2"][head, token]], 1).tolist(),
            "angle": angle.tolist(),
            "token": look.shown_token(token),
            "window": look.model.config.window_of(layer),
        }
