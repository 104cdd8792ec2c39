"""A request as rows of tokens, batches of rows from several requests, and answers from their outputs.

A lane computes one kind of answer of one model. Rows of the same lane may share a batch, whichever request they are
from; a long text has several rows.

    item = lane.prepare(given)                     a request, encoded; item.lengths: tokens of each row
    outputs = lane.run([(item, 0), (other, 3)])    one output for each row
    lane.finish(item, outputs)                     the answer to the request
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from glassbert.errors import InputError, NotFinite
from glassbert.finetuning.examples import Examples
from glassbert.finetuning.predictions import Predictions
from glassbert.finetuning.predictor import Predictor
from glassbert.finetuning.rows import Rows
from glassbert.finetuning.scoring import join_rows, row_outputs
from glassbert.layers.registry import ATTENTIONS
from glassbert.metrics import Scores
from glassbert.models.model import Model
from glassbert.ops import unit_length
from glassbert.tasks import TaskData
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.fill_mask import MASK, Answer, Question, answer, ask, readable

MASKS_AT_ONCE = 256  # each has a row of scores over the vocabulary


class Item(Protocol):
    """A prepared request. Rows of items with another `kind` cannot share a batch."""

    lengths: np.ndarray
    kind: Any


class Lane(Protocol):
    def run(self, members: Sequence[tuple[Any, int]]) -> list[Any]: ...


@dataclass(frozen=True)
class Encoded:
    """Examples of a request; `data` is what they were made from, where there was a table."""

    examples: Examples
    data: TaskData | None = None

    @property
    def lengths(self) -> np.ndarray:
        return self.examples.lengths

    @property
    def kind(self) -> Any:
        return self.examples.group, self.examples.rows.types is None

    @property
    def tokens(self) -> int:
        return len(self.examples.rows.ids)


class Merged:
    """Units of several `Examples` as one set, with what `row_outputs` needs of it."""

    def __init__(self, members: Sequence[tuple[Encoded, int]]):
        self.members = [(item.examples, unit) for item, unit in members]
        first = self.members[0][0]
        self.card, self.group, self.pad_id = first.card, first.group, first.pad_id
        self.lengths = np.array([int(item.lengths[unit]) for item, unit in members])

    def inputs(self, units: np.ndarray, multiple: int = 1) -> dict[str, np.ndarray]:
        """One padded batch of these units."""
        rows: dict[int, tuple[Examples, list[int], list[int]]] = {}  # units of the same request are cut out together
        for place, unit in enumerate(units.tolist()):
            examples, own = self.members[unit]
            known = rows.setdefault(id(examples), (examples, [], []))
            known[1].append(own)
            known[2].append(place)
        length = -(-int(self.lengths[units].max()) // multiple) * multiple
        batch: dict[str, np.ndarray] = {}
        for examples, own_units, places in rows.values():
            for name, values in examples.inputs(np.array(own_units)).items():
                if name == "labels":  # pairs of texts have some for their loss
                    continue
                if name not in batch:
                    filling = self.pad_id if name == "input_ids" else 0
                    batch[name] = np.full((len(units) * self.group, length), filling, values.dtype)
                into = (np.array(places)[:, None] * self.group + np.arange(self.group)).reshape(-1)
                batch[name][into, : values.shape[1]] = values
        return batch


def run_rows(model: Model, members: Sequence[tuple[Encoded, int]]) -> list[list[np.ndarray]]:
    """The outputs of the rows of every unit, computed as one batch."""
    merged = Merged(members)
    whole = len(members) * merged.group * int(merged.lengths.max())
    rows = row_outputs(model, merged, batch_tokens=whole)
    return [rows[i * merged.group : (i + 1) * merged.group] for i in range(len(members))]


class PredictLane:
    """What a fine-tuned model predicts: labels, numbers, tags, spans, cosines."""

    def __init__(self, predictor: Predictor):
        self.predictor = predictor

    def prepare(self, given: Sequence[Any]) -> Encoded:
        data = self.predictor.read(given)
        return Encoded(self.predictor.encode(data), data)

    def run(self, members: Sequence[tuple[Encoded, int]]) -> list[list[np.ndarray]]:
        return run_rows(self.predictor.model, members)

    def finish(self, item: Encoded, outputs: Sequence[list[np.ndarray]]) -> list[dict[str, Any]]:
        assert item.data is not None
        rows = [row for unit in outputs for row in unit]
        joined = join_rows(self.predictor.model, item.examples, rows)
        return describe(Predictions(item.examples.card, item.data, None, joined, Scores()))


def describe(found: Predictions) -> list[dict[str, Any]]:
    """Every prediction as an object, without the input."""
    columns: dict[str, Any] = {"prediction": found.answers()}
    if found.confidence is not None:
        columns["probability"] = [round(chance, 6) for chance in found.confidence]
    columns["probabilities"] = found.by_label()
    if found.data.words is not None:
        columns["words"] = found.data.words
    if found.entities is not None:
        columns["entities"] = [[one._asdict() for one in some] for some in found.entities]
    if found.card.head == "span":
        columns["start"], columns["end"] = (
            [getattr(one[0], name) for one in found.outputs] for name in ("start", "end")
        )
    kept = {name: values for name, values in columns.items() if values is not None}
    return [{name: values[i] for name, values in kept.items()} for i in range(len(found))]


class EmbedLane:
    """Vectors of unit length."""

    def __init__(self, predictor: Predictor):
        self.predictor, self.tokenizer = predictor, predictor.tokenizer
        self.card = predictor.card.replace(pair=None)
        self.width = predictor.model.config.hidden_size

    def prepare(self, given: Sequence[str] | Sequence[Sequence[int]], truncate: bool) -> Encoded:
        """Texts, or token ids that may lack the special tokens around them."""
        if isinstance(given[0], str):
            ids, counts = self.tokenizer.encode_ids(given)  # type: ignore[arg-type]
            bodies = np.split(ids.astype(np.int32), np.cumsum(counts)[:-1])
        else:
            bodies = [self._without_ends(np.array(one, np.int64)) for one in given]
        longest = self.card.max_length - 2
        for place, body in enumerate(bodies):
            if len(body) > longest:
                if not truncate:
                    raise InputError(
                        f"input {place} has {len(body) + 2:,} tokens, and this model reads at most {longest + 2:,}; "
                        'shorten it, or send "truncate": true to use its beginning'
                    )
                bodies[place] = body[:longest]
        first, last = (np.array([id], np.int32) for id in (self.tokenizer.cls_id, self.tokenizer.sep_id))
        parts = [part for body in bodies for part in (first, body.astype(np.int32), last)]
        starts = np.concatenate([[0], np.cumsum([len(body) + 2 for body in bodies])])
        rows = Rows(np.concatenate(parts), None, starts, np.arange(len(bodies)), len(bodies))
        return Encoded(Examples(self.card, rows, len(bodies), self.tokenizer.pad_id))

    def _without_ends(self, ids: np.ndarray) -> np.ndarray:
        size = self.predictor.model.config.vocab_size
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
            raise InputError(f"token ids of this model are 0 to {size - 1:,}")
        ids = ids[1:] if len(ids) and ids[0] == self.tokenizer.cls_id else ids
        return ids[:-1] if len(ids) and ids[-1] == self.tokenizer.sep_id else ids

    def run(self, members: Sequence[tuple[Encoded, int]]) -> list[list[np.ndarray]]:
        return run_rows(self.predictor.model, members)

    def finish(self, item: Encoded, outputs: Sequence[list[np.ndarray]], dimensions: int | None = None) -> np.ndarray:
        """Vectors [N, H] or [N, dimensions], float32."""
        vectors = np.stack([row for unit in outputs for row in unit])[:, :dimensions]
        return unit_length(vectors)[0].astype(np.float32)


@dataclass(frozen=True)
class Questions:
    """Sentences with [MASK] as a model reads them."""

    questions: list[Question]
    top: int
    lengths: np.ndarray

    kind = None

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum())


class MaskLane:
    """The words that a model predicts for [MASK]."""

    def __init__(self, model: Model, tokenizer: Tokenizer):
        self.model, self.tokenizer = model, tokenizer
        # A model that needs further inputs to know what is missing computes one sentence at a time.
        self.one_by_one = bool(ATTENTIONS[model.config.attention].inputs_for_missing(np.ones((1, 1), bool)))
        self.special = list(tokenizer.special_ids)

    def prepare(self, given: Sequence[str], top: int) -> Questions:
        for place, text in enumerate(given):
            if MASK not in text:
                raise InputError(f"input {place} must contain {MASK}, as in 'Paris is the {MASK} of France.'")
        questions = [ask(self.model, self.tokenizer, text) for text in given]
        limit = self.model.config.max_length
        for place, question in enumerate(questions):
            if question.ids.shape[1] > limit:
                raise InputError(
                    f"input {place} has {question.ids.shape[1]:,} tokens, and this model reads at most {limit:,}"
                )
        return Questions(questions, top, np.array([one.ids.shape[1] for one in questions]))

    def run(self, members: Sequence[tuple[Questions, int]]) -> list[list[list[Answer]]]:
        if self.one_by_one:
            return [answer(self.model, self.tokenizer, item.questions[i], item.top) for item, i in members]
        questions = [item.questions[i] for item, i in members]
        if len(members) > 1 and sum(len(one.positions) for one in questions) > MASKS_AT_ONCE:
            half = len(members) // 2
            return self.run(members[:half]) + self.run(members[half:])
        length = max(one.ids.shape[1] for one in questions)
        ids = np.full((len(questions), length), self.tokenizer.pad_id)
        mask = np.zeros(ids.shape, np.int64)
        for row, one in enumerate(questions):
            ids[row, : one.ids.shape[1]] = one.ids[0]
            mask[row, : one.ids.shape[1]] = 1
        rows = np.concatenate([row * length + one.positions for row, one in enumerate(questions)])
        found = self.model.run(self.model.check(ids, mask), inference=True, skip_padding=True).output(
            self.model.engine.array(rows) if self.model.engine.compiles else rows
        )
        words = found["mlm"] if isinstance(found, Mapping) else found  # a pretraining head has two outputs
        chances = self.model.engine.to_numpy(words).astype(np.float32)  # [masks, V]; scores until they are scaled
        if not np.isfinite(chances).all():
            raise NotFinite("the model's scores are not finite, so it predicts no word: its weights are damaged")
        chances[:, self.special] = -np.inf
        chances -= chances.max(-1, keepdims=True)
        np.exp(chances, out=chances)
        chances /= chances.sum(-1, keepdims=True)
        each = np.split(chances, np.cumsum([len(one.positions) for one in questions])[:-1])
        return [[self._best(row, item.top) for row in rows] for (item, _), rows in zip(members, each, strict=True)]

    def _best(self, chances: np.ndarray, top: int) -> list[Answer]:
        some = np.argpartition(-chances, min(top, len(chances) - 1))[:top]
        best = some[np.argsort(-chances[some])]
        return [Answer(readable(self.tokenizer.id_to_token(int(i))), float(chances[i])) for i in best]

    def finish(self, item: Questions, outputs: Sequence[list[list[Answer]]]) -> list[dict[str, Any]]:
        return [{"masks": [[one._asdict() for one in words] for words in masks]} for masks in outputs]
