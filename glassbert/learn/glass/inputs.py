"""From a text to what a pass needs: tokens, masks, and the labels of a loss.

A view is what a page looks at, as a plain dictionary: text, masked positions, chosen targets or label, and which
variant of which model. It comes from a page, so every field is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glassbert.errors import InputError
from glassbert.insight.inputs import LoadedModel
from glassbert.models.model import Model
from glassbert.ops import IGNORED
from glassbert.training.fill_mask import MASK

MAX_TOKENS = 512
MAX_CHARACTERS = 100_000
MAX_STEPS = 20


@dataclass(frozen=True)
class Step:
    """Some steps of an optimizer on the text itself."""

    optimizer: str
    learning_rate: float
    count: int


@dataclass(frozen=True)
class View:
    """What a page looks at; equal views give equal numbers.

    masked    positions of tokens that are masked
    targets   the word that the loss wants at a masked position, by position; default: the word that was masked
    label     the label of a classifier; default: its own answer
    model     the number of the model among those that were given
    snapshot  the training step of a saved snapshot; None: the finished model
    silenced  heads (layer, head) that are switched off
    step      steps of an optimizer on this text
    """

    text: str
    masked: tuple[int, ...] = ()
    targets: tuple[tuple[int, int], ...] = ()
    label: Any = None
    model: int = 0
    snapshot: int | None = None
    silenced: tuple[tuple[int, int], ...] = ()
    step: Step | None = None

    @classmethod
    def of(cls, given: Any) -> View:
        """The view of a dictionary that a page sent."""
        if not isinstance(given, Mapping):
            raise InputError("a view must be an object with a text")
        unknown = [name for name in given if name not in cls.__dataclass_fields__]
        if unknown:
            raise InputError(f"a view has no field {unknown[0]!r}")
        text = given.get("text")
        if not isinstance(text, str):
            raise InputError("the text must be a string")
        if len(text) > MAX_CHARACTERS:
            raise InputError(
                f"the text has {len(text):,} characters and the glass takes {MAX_CHARACTERS:,} at most; give a part"
            )
        if not text.strip():
            raise InputError("the text is empty; type a sentence")
        targets = given.get("targets") or {}
        step = given.get("step")
        label = given.get("label")
        if not isinstance(targets, Mapping):
            raise InputError("targets must map positions to ids")
        if isinstance(label, list):
            label = tuple(label)
        if not isinstance(label, (int, float, tuple, type(None))):
            raise InputError("the label must be a number or a list of numbers")
        return cls(
            text,
            tuple(sorted({_integer(one, "a masked position") for one in given.get("masked") or ()})),
            tuple(sorted((_integer(k, "a position"), _integer(v, "a target")) for k, v in targets.items())),
            label,
            _integer(given.get("model") or 0, "the model"),
            None if given.get("snapshot") is None else _integer(given["snapshot"], "the snapshot"),
            tuple(sorted({_pair(one) for one in given.get("silenced") or ()})),
            None if step is None else _step(step),
        )


def _integer(value: Any, what: str) -> int:
    try:
        if isinstance(value, bool) or int(value) != float(value) or int(value) < 0:
            raise ValueError
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{what} must be a whole number of at least 0, got {value!r}") from None


def _pair(value: Any) -> tuple[int, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise InputError(f"a head is given as [layer, head], got {value!r}")
    return _integer(value[0], "a layer"), _integer(value[1], "a head")


def _step(value: Any) -> Step:
    if not isinstance(value, Mapping):
        raise InputError("a step must be an object with optimizer, learning_rate and count")
    optimizer, rate = value.get("optimizer", "adamw"), value.get("learning_rate", 1e-3)
    if optimizer not in ("adamw", "sgd"):
        raise InputError(f"the optimizer must be 'adamw' or 'sgd', got {optimizer!r}")
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not 0 < rate <= 10:
        raise InputError(f"the learning rate must be a number above 0 and at most 10, got {rate!r}")
    count = _integer(value.get("count", 1), "the number of steps")
    if not 1 <= count <= MAX_STEPS:
        raise InputError(f"the number of steps must be 1 to {MAX_STEPS}, got {count}")
    return Step(optimizer, float(rate), count)


@dataclass(frozen=True)
class Tokens:
    """A text in tokens.

    ids        [1, T] with masks, as the model reads them
    originals  [T], the ids before masking
    words      the number of the word of each token; None for [CLS] and [SEP]
    offsets    where each token stands in the text
    note       a sentence about the text, such as that it was cut
    """

    text: str
    ids: np.ndarray
    originals: np.ndarray
    tokens: list[str]
    words: list[int | None]
    offsets: list[tuple[int, int]]
    masked: list[int] = field(default_factory=list)
    typed: frozenset[int] = frozenset()  # positions of a [MASK] that was typed: nobody knows the word
    note: str = ""


def tokens_of(loaded: LoadedModel, view: View) -> Tokens:
    """Encode and mask the text of a view; a long text is cut."""
    tokenizer = loaded.tokenizer
    limit = min(MAX_TOKENS, loaded.model.config.max_length)
    text = view.text.replace(MASK, tokenizer.special_names[4])
    full = tokenizer.encode(text)
    encoding = tokenizer.encode(text, max_length=limit) if len(full) > limit else full
    note = ""
    if len(full) > limit:
        note = f"The text has {len(full):,} tokens. The glass shows the first {limit}."
    originals = np.array(encoding.ids)
    if all(word is None for word in encoding.word_ids):
        raise InputError("nothing of the text is in the vocabulary; type a sentence")
    typed = frozenset(int(i) for i in np.flatnonzero(originals == tokenizer.mask_id))
    allowed = {i for i, word in enumerate(encoding.word_ids) if word is not None}
    masked = sorted((set(view.masked) & allowed) | typed)
    ids = originals.copy()
    ids[masked] = tokenizer.mask_id
    return Tokens(
        text, ids[None], originals, list(encoding.tokens), list(encoding.word_ids), list(encoding.offsets), masked,
        typed, note,
    )  # fmt: skip


# ---- labels ----------------------------------------------------------------------------------------------------------


def labels_for(loaded: LoadedModel, model: Model, view: View, tokens: Tokens) -> dict[str, Any] | None:
    """The arguments of `model.loss` besides the ids; None: there is nothing to have a loss about."""
    head = model.head
    if head is None:
        return None
    if "mlm" in head.parts:
        if not tokens.masked:
            return None
        labels = np.full(tokens.ids.shape, IGNORED)
        chosen = dict(view.targets)
        unknown = [i for i in tokens.masked if i in tokens.typed and i not in chosen]
        best = best_words(loaded, model, tokens.ids, unknown) if unknown else {}
        for position in tokens.masked:
            target = chosen.get(position, best.get(position, int(tokens.originals[position])))
            if target >= model.config.vocab_size:
                raise InputError(f"{target} is not an id of this vocabulary (0 to {model.config.vocab_size - 1})")
            labels[0, position] = target
        return {"labels": labels, **({"pair_labels": np.array([IGNORED])} if "pair" in head.parts else {})}
    make = LABELS.get(head.kind)
    if make is None:
        return None
    output = np.asarray(model.engine.to_numpy(model.predict(tokens.ids)))
    return {"labels": make(head, output, view.label, tokens)}


def allowed_words(loaded: LoadedModel, model: Model) -> np.ndarray:
    """[V], false for special tokens and for rows of the table without a word: they are no answers."""
    allowed = np.ones(model.config.vocab_size, bool)
    allowed[list(loaded.tokenizer.special_ids)] = False
    allowed[loaded.tokenizer.vocab_size :] = False
    return allowed


def best_words(loaded: LoadedModel, model: Model, ids: np.ndarray, positions: list[int]) -> dict[int, int]:
    """The most probable word at each position."""
    output = model.predict(ids)
    logits = np.asarray(model.engine.to_numpy(output["mlm"] if isinstance(output, Mapping) else output))[0]
    scores = np.where(allowed_words(loaded, model), logits, -np.inf)
    return {position: int(scores[position].argmax()) for position in positions}


def _sequence(head: Any, output: np.ndarray, label: Any, tokens: Tokens) -> np.ndarray:
    decoded = head.decode(output)[0]
    if head.loss_name in ("cross_entropy", "ordinal"):
        chosen = int(decoded.argmax()) if label is None else _integer(label, "the label")
        if chosen >= head.num_labels:
            raise InputError(f"label {chosen} is outside the {head.num_labels} labels of this model")
        return np.array([chosen])
    if label is None:
        values = np.round(decoded) if head.loss_name == "binary_cross_entropy" else decoded
    else:
        values = np.atleast_1d(np.asarray(label, float))
    if values.shape != (head.num_labels,) or not np.isfinite(values).all():
        raise InputError(f"the label must be {head.num_labels} finite numbers, got {label!r}")
    return values[None]


def _token(head: Any, output: np.ndarray, label: Any, tokens: Tokens) -> np.ndarray:
    """The model's own answer for every token of the text."""
    best = output[0].argmax(-1)
    words = np.array([word is not None for word in tokens.words])
    return np.where(words, best, IGNORED)[None]


def _span(head: Any, output: np.ndarray, label: Any, tokens: Tokens) -> np.ndarray:
    return output[0].argmax(-1)[None]


LABELS = {"sequence": _sequence, "token": _token, "span": _span}
