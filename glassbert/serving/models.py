"""What is served: models by name, with one copy of their weights for all kinds of answers and all threads.

A folder that is replaced while it is served is opened, verified and tried. Only then its model takes over; if anything
is wrong with it, the old model goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassbert.checkpoints.formats import saved_head
from glassbert.checkpoints.locate import MODEL_FILES, MODULES, open_checkpoint
from glassbert.checkpoints.packaged import packaged_names
from glassbert.errors import GlassBertError, InputError
from glassbert.files import CHECKSUMS
from glassbert.finetuning.card import TASK, TaskCard
from glassbert.finetuning.predictor import ONNX_RUNTIME, Predictor
from glassbert.models.encoder import Encoder
from glassbert.models.heads import EmbeddingHead, make_head, with_pooling
from glassbert.models.model import Model
from glassbert.serving.work import EmbedLane, MaskLane, PredictLane
from glassbert.text.loading import load_with_tokenizer
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.fill_mask import MASK

LANGUAGE_HEADS = (None, "core", "mlm", "causal", "pretraining", "rtd", "discriminator")  # that predict no task
POLL_SECONDS = 2.0
TRIAL = "a short text to try"


@dataclass(frozen=True)
class Served:
    """A model with the lanes that it has."""

    name: str
    path: str
    model: Model
    tokenizer: Tokenizer
    predict: PredictLane | None
    embed: EmbedLane | None
    fill: MaskLane | None
    state: Any = None  # of its files, when they were read
    loaded: float = field(default_factory=time.time)

    @property
    def answers(self) -> list[str]:
        """The kinds of answers that it gives."""
        have = {"predict": self.predict, "fill-mask": self.fill, "embed": self.embed, "tokens": self}
        return [name for name, lane in have.items() if lane is not None]

    def describe(self) -> dict[str, Any]:
        """As `/v1/models` shows it."""
        facts: dict[str, Any] = {
            "id": self.name, "object": "model", "created": int(self.loaded), "owned_by": "glassbert",
            "answers": self.answers, "max_tokens": self.model.config.max_length,
        }  # fmt: skip
        if self.embed is not None:
            facts["dimensions"] = self.embed.width
        if self.predict is not None:
            card = self.predict.predictor.card
            facts |= {"head": card.head, "labels": list(card.label_names), "input": input_of(card)}
            if card.template is not None:
                facts["columns"] = list(card.template.columns)
        return facts


def input_of(card: TaskCard) -> str:
    """What one input of a model is."""
    if card.template is not None:
        return "row"
    if card.head == "token":
        return "words"
    return "pair" if card.pair is not None and card.head != "embedding" else "text"


def open_served(
    name: str, path: str, *, engine: str = "auto", precision: str = "float32", threads: int | None = 1
) -> Served:
    """Open a run, a model folder or a packaged model, and try it once."""
    state = state_of(path)
    if engine == ONNX_RUNTIME:
        found = Predictor.load(path, engine=engine, precision=precision, threads=threads)
        embeds = found.card.head == "embedding"
        served = Served(name, path, found.model, found.tokenizer, PredictLane(found),
                        EmbedLane(found) if embeds else None, None, state)  # fmt: skip
    elif predicts_a_task(path):
        found = Predictor.load(path, engine=engine, precision=precision, threads=threads)
        embeds = found.card.head == "embedding"
        vectors = found if embeds else embedder_of(found.model, found.tokenizer, name)
        served = Served(name, path, found.model, found.tokenizer, PredictLane(found), EmbedLane(vectors), None, state)
    else:
        model, tokenizer = load_with_tokenizer(path, engine=engine, dtype=precision, threads=threads)
        model.read_only()
        if model.config.series is not None:
            raise InputError(f"{path} forecasts series and reads no text; give a text model")
        fills = model.head is not None and "mlm" in model.head.parts and not model.config.causal
        served = Served(name, path, model, tokenizer, None, EmbedLane(embedder_of(model, tokenizer, name)),
                        MaskLane(model, tokenizer) if fills else None, state)  # fmt: skip
    try_out(served)
    return served


def predicts_a_task(path: str) -> bool:
    checkpoint = open_checkpoint(path)
    folder = checkpoint.config_path.parent
    if (folder / TASK).exists() or (folder / MODULES).exists():
        return True
    return saved_head(checkpoint.fields, checkpoint.tensors) not in LANGUAGE_HEADS


def embedder_of(model: Model, tokenizer: Tokenizer, title: str) -> Predictor:
    """The mean of the last hidden states of a model, over the same parameters: no weight is copied."""
    config = with_pooling(model.config, EmbeddingHead.default_pooling)
    view = object.__new__(Model)
    parts = {"config": config, "encoder": Encoder(config), "head": make_head("embedding", config)}
    view.__setstate__({**model.__getstate__(), **parts})
    card = TaskCard(title=title, head="embedding", text="text", max_length=config.max_length)
    return Predictor(view, tokenizer, card)


def try_out(served: Served) -> None:
    """Compute one answer of every kind, so that a model that cannot answer is refused, and kernels are compiled."""
    if served.predict is not None:
        lane, card = served.predict, served.predict.predictor.card
        given: Any = {"row": dict.fromkeys(card.template.columns if card.template else ()), "words": [TRIAL],
                      "pair": (TRIAL, TRIAL), "text": TRIAL}[input_of(card)]  # fmt: skip
        item = lane.prepare([given])
        lane.finish(item, lane.run([(item, unit) for unit in range(len(item.lengths))]))
    if served.embed is not None:
        vectors = served.embed.prepare([TRIAL], True)
        served.embed.run([(vectors, 0)])
    if served.fill is not None:
        question = served.fill.prepare([f"a {MASK}."], 1)
        served.fill.run([(question, 0)])


def state_of(path: str) -> Any:
    """What changes when the files of a model are replaced: names, sizes, times and places on the disk."""
    try:
        folder = Path(path).expanduser()
        if not folder.exists() and path in packaged_names():
            return None
        inside = folder / "model" if (folder / "model").is_dir() else folder
        inside = inside if inside.is_dir() else inside.parent
        found = {file for pattern in (*MODEL_FILES, CHECKSUMS, "onnx/*.onnx") for file in inside.glob(pattern)}
        facts = [(str(file), file.stat()) for file in sorted(found)]
        return tuple((name, one.st_size, one.st_mtime_ns, one.st_ino) for name, one in facts)
    except OSError:
        return ()


def name_of(given: str) -> tuple[str, str]:
    """Name and path of a model as the command line has it: PATH, or NAME=PATH."""
    name, equals, path = given.partition("=")
    if equals and name and path and not os.path.exists(given):
        return name, path
    folder = Path(given)
    short = folder.resolve() if given in (".", "..") else folder
    return (short.parent if short.name == "model" and len(short.parts) > 1 else short).name or given, given


class Shelf:
    """The models by name; the first is the default."""

    def __init__(self, given: Sequence[str], **options: Any):
        self.options = options
        self.models: dict[str, Served] = {}
        named = [name_of(one) for one in given]
        for name, path in named:
            if [other for other, _ in named].count(name) > 1:
                raise InputError(f"two models have the name {name!r}; give them names: {name}-2={path}")
        for name, path in named:
            self.models[name] = open_served(name, path, **options)

    @property
    def default(self) -> Served:
        return next(iter(self.models.values()))

    def get(self, name: str | None) -> Served | None:
        return self.default if name is None else self.models.get(name)


class Watch:
    """Looks at the folders of a shelf every few seconds, in a thread of its own.

    `report(name, error)` is called for every replaced folder; `error` is None where its model has taken over.
    """

    def __init__(self, shelf: Shelf, report: Callable[[str, str | None], None], seconds: float = POLL_SECONDS):
        self.shelf, self.report, self.seconds = shelf, report, seconds
        self._seen = {name: one.state for name, one in shelf.models.items()}
        self._handled = dict(self._seen)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="glassbert-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self.seconds):
            self.look()

    def look(self) -> None:
        """Open what was replaced and has not changed since the last look."""
        paths = {name: served.path for name, served in self.shelf.models.items()}
        for name, path in paths.items():
            try:
                if self._replaced(name, state_of(path)):
                    self.shelf.models[name] = open_served(name, path, **self.shelf.options)
                    self.report(name, None)
            except GlassBertError as error:
                self.report(name, str(error))
            except Exception as error:  # whatever is wrong with new files, the old model goes on
                self.report(name, f"{type(error).__name__}: {error}")

    def _replaced(self, name: str, now: Any) -> bool:
        settled, self._seen[name] = now == self._seen[name], now
        if not settled or now == self._handled[name]:
            return False
        self._handled[name] = now
        return True
