"""Which task a model is measured on, and the texts for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from glassbert.checkpoints import load
from glassbert.checkpoints.locate import MODULES, open_checkpoint
from glassbert.errors import GlassBertError, InputError
from glassbert.finetuning.card import TASK, TaskCard
from glassbert.finetuning.predictor import Predictor
from glassbert.finetuning.reading import read_examples
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.models.model import Model
from glassbert.quantization.settings import check_quantizable
from glassbert.quantization.task import Agreement, Judged, OwnTask, Similarities, Words
from glassbert.tasks import read_table
from glassbert.tasks.reading import LINES
from glassbert.text.loading import check_together, find_tokenizer
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.run_folder import FINETUNING, RunFolder, kind_of_run

PLAIN = (".txt", ".md", ".rst", ".text", "")
MOST_TEXTS = 2_000
OWN_TEXTS = 400


@dataclass
class Source:
    """A float model with its tokenizer and, where it was fine-tuned, its card."""

    name: str
    folder: Path
    model: Model
    tokenizer: Tokenizer
    card: TaskCard | None


def open_source(path: str | Path, threads: int | None = None) -> Source:
    """A run, a model folder or a packaged model, on NumPy."""
    folder = open_checkpoint(path).config_path.parent
    card = TaskCard.load(folder) if (folder / TASK).exists() else None
    head = "embedding" if card is None and (folder / MODULES).exists() else None
    model = load(folder, engine="numpy", head=head, threads=threads)
    check_quantizable(model, str(path))
    tokenizer = find_tokenizer(folder)
    check_together(model, tokenizer, folder)
    return Source(str(path), folder, model, tokenizer, card)


def own_task(source: Source, data: Path | None = None) -> OwnTask:
    """The task to measure on: the file, the held-out examples of a run, or text of Python's documentation."""
    model, tokenizer, card = source.model, source.tokenizer, source.card
    kind = None if model.head is None else model.head.kind
    if data is not None and not data.is_file():
        raise InputError(f"--data: there is no file {data}")
    if card is not None and card.head != "embedding":
        return _of_card(source, card, data)
    texts, name = (read_texts(data), data.name) if data is not None else (own_texts(), "Python's documentation")
    if kind in ("mlm", "causal", "pretraining"):
        return Words(model, tokenizer, texts, name)
    card = TaskCard(title=source.name, head="embedding", text="text", max_length=model.config.max_length)
    if kind in (None, "embedding"):
        return Similarities(Predictor(_vectors_of(source), tokenizer, card), texts, name)
    predictor = Predictor.load(source.folder, engine="numpy")
    return Agreement(tokenizer, predictor.card, predictor.read(texts), name)


def _vectors_of(source: Source) -> Model:
    """A model without a head gives the mean of its hidden states as vectors."""
    if source.model.head is None:
        source.model = load(source.folder, engine="numpy", head="embedding")
    return source.model


def _of_card(source: Source, card: TaskCard, data: Path | None) -> OwnTask:
    predictor = Predictor(source.model, source.tokenizer, card)
    if data is not None:
        if card.target is not None:
            try:
                return Judged(source.tokenizer, card, predictor.read(data, with_targets=True), data.name)
            except GlassBertError:
                if data.suffix not in PLAIN:
                    raise
        return Agreement(source.tokenizer, card, predictor.read(read_texts(data)), data.name)
    run = Path(source.name).expanduser()
    if kind_of_run(run) == FINETUNING:
        examples = read_examples(RunFolder.existing(run).settings_of(FineTuningSettings))
        return Judged(source.tokenizer, card, examples.dev, "the held-out examples of the run")
    if card.template is not None or card.pair is not None:
        raise InputError(f"{source.name} reads rows of a table; name a file of them with --data")
    return Agreement(source.tokenizer, card, predictor.read(own_texts()), "Python's documentation")


def read_texts(path: Path) -> list[str]:
    """The texts of a file: its lines, or the column "text" of a table."""
    if path.suffix.lower() in PLAIN:
        table = read_table(path, format=LINES)
        found = [str(text) for text in table.column("text")]
    else:
        table = read_table(path)
        if "text" not in table.columns:
            raise InputError(f"{path} has no column 'text'; its columns are {table.names()}")
        found = [str(text) for text in table.column("text") if text is not None]
    found = [text for text in found if re.search(r"\w", text)]
    if not found:
        raise InputError(f"{path} has no text; --data needs one text per line, or a column 'text'")
    step = max(1, len(found) // MOST_TEXTS)
    return found[::step][:MOST_TEXTS]


def own_texts() -> list[str]:
    """Sentences of Python's documentation, where no text is given."""
    from pydoc_data.topics import topics

    sentences = []
    for text in topics.values():
        for paragraph in re.split(r"\n\s*\n", text):
            plain = " ".join(paragraph.split())
            if re.match(r"[A-Z][a-z]+ .*\.$", plain) and "::" not in plain and "*" not in plain[:2]:
                sentences += [one for one in re.split(r"(?<=[.!?]) (?=[A-Z])", plain) if 30 < len(one) < 300]
    sentences = list(dict.fromkeys(sentences))
    return sentences[:: max(1, len(sentences) // OWN_TEXTS)][:OWN_TEXTS]
