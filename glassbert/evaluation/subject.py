"""`Subject`: a model to evaluate, with its tokenizer and, if GlassBERT trained it, the history of its run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from glassbert.errors import GlassBertError
from glassbert.evaluation.suite import DoesNotApply
from glassbert.models.model import Model
from glassbert.text.corpus import Corpus
from glassbert.text.loading import load_with_tokenizer
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.history import History
from glassbert.training.run_folder import PRETRAINING, RunFolder, kind_of_run


@dataclass
class Subject:
    """A model to evaluate. `fresh(seed)` builds it with initial weights; without it `model.untrained` does."""

    name: str
    model: Model
    tokenizer: Tokenizer
    history: History | None = None
    corpus: Corpus | None = None  # the training corpus, if its folder still exists
    fresh: Callable[[int], Model] | None = None
    source: str = ""

    @classmethod
    def open(
        cls, path_or_name: str | Path, *, name: str = "", engine: Any = "auto", threads: int | None = None
    ) -> Self:
        """Load a run (finished or not), a folder with a model and its tokenizer, a packaged or a hub model."""
        model, tokenizer = load_with_tokenizer(path_or_name, engine=engine, threads=threads)
        path = Path(path_or_name).expanduser()
        history = _history(path)
        return cls(
            name or _name_of(path), model, tokenizer, history, _corpus_of(history, tokenizer), source=str(path_or_name)
        )

    def untrained(self, seed: int = 0) -> Subject:
        """The same model with initial weights, as a baseline."""
        return Subject(f"{self.name} untrained", self.fresh_model(seed), self.tokenizer, source=self.source)

    def fresh_model(self, seed: int = 0) -> Model:
        return self.model.untrained(seed) if self.fresh is None else self.fresh(seed)

    @property
    def fills_masks(self) -> bool:
        return self.model.head is not None and "mlm" in self.model.head.parts

    @property
    def predicts_next(self) -> bool:
        """Whether it predicts the next word from those before it; it has no masked words then."""
        return self.model.head is not None and "causal" in self.model.head.parts

    def require_words(self) -> None:
        """Raise `DoesNotApply` if the model predicts no words."""
        if not self.fills_masks and not self.predicts_next:
            head = "no head" if self.model.head is None else f"a head {self.model.head.kind!r}"
            raise DoesNotApply(
                f"this model has {head}, and this suite needs one that predicts words: masked ones, or the next"
            )

    @property
    def parameters(self) -> int:
        return self.model.get_parameter_count()

    @property
    def max_length(self) -> int:
        """The longest input in tokens, special tokens included."""
        return self.model.config.max_length

    @property
    def tokens_seen(self) -> int | None:
        """Tokens seen in training, if the run is known."""
        if self.history is None:
            return None
        return int((self.history.result or self.history.last).get("tokens", 0)) or None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all weights."""
        digest = hashlib.sha256()
        for name, array in self.model.parameters.items():
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(self.model.engine.to_numpy(array)).tobytes())
        return digest.hexdigest()

    def as_json(self) -> dict[str, Any]:
        config = self.model.config
        return {
            "name": self.name,
            "source": self.source,
            "family": config.family,
            "head": None if self.model.head is None else self.model.head.kind,
            "parameters": self.parameters,
            "layers": config.num_hidden_layers,
            "hidden_size": config.hidden_size,
            "vocabulary": config.vocab_size,
            "longest": self.max_length,
            "tokens_seen": self.tokens_seen,
            "engine": self.model.engine.name,
            "precision": self.model.engine.dtype_name,
            "weights_sha256": self.fingerprint,
            "tokenizer": self.tokenizer.fingerprint,
        }


def _name_of(path: Path) -> str:
    path = path.resolve() if path.exists() else path
    return path.parent.name if path.name == "model" else path.name


def _history(path: Path) -> History | None:
    """The history of the pretraining run that contains the model, if any."""
    for folder in (path, path.parent):
        if kind_of_run(folder) == PRETRAINING:
            try:
                return History.read(RunFolder(folder))
            except (GlassBertError, KeyError):
                return None
    return None


def _corpus_of(history: History | None, tokenizer: Tokenizer) -> Corpus | None:
    """The corpus of a run, if its folder exists and its tokenizer fits."""
    if history is None:
        return None
    for folder in (*history.settings.get("corpus", ()), history.run.path / "corpus"):
        if (Path(folder) / "manifest.json").exists():
            try:
                corpus = Corpus.open(folder)
                corpus.check_tokenizer(tokenizer)
                return corpus
            except GlassBertError:
                continue
    return None
