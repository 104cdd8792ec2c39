"""Which task a model is measured on, and the texts for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from glassbert.checkpoints import load
from glassbert.checkpoints.locate import MODULES, open_checkpoint
from glassbert.errors import GlassBertError, InputError
from glassbert.finetuning.card import TASK, TaskCard
from glassbert.finetuning.cross_validation import FINAL
from glassbert.finetuning.predictor import Predictor, card_of_model
from glassbert.finetuning.reading import read_examples, require_files
from glassbert.finetuning.settings import FineTuningSettings
from glassbert.models.model import Model
from glassbert.quantization.settings import check_quantizable
from glassbert.quantization.task import Agreement, Judged, OwnTask, Similarities, Words, spread
from glassbert.tasks import TaskData, read_table
from glassbert.tasks.reading import LINES
from glassbert.text.loading import check_together, find_tokenizer
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.run_folder import FINETUNING, RunFolder, kind_of_run

PLAIN = (".txt", ".md", ".rst", ".text", "")
MOST_TEXTS = 2_000
OWN_TEXTS = 400
PYTHON = "Python's documentation"


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
    kind = None if source.model.head is None else source.model.head.kind
    if data is not None and not data.is_file():
        raise InputError(f"--data: there is no file {data}")
    if source.card is None and kind in ("mlm", "causal", "pretraining"):
        texts, name = (own_texts(), PYTHON) if data is None else (read_texts(data), data.name)
        return Words(source.model, source.tokenizer, texts, name)
    if kind is None:  # its vectors are the means of hidden states
        source.model = load(source.folder, engine="numpy", head="embedding", threads=source.model.engine.threads)
    predictor = Predictor(source.model, source.tokenizer, source.card or card_of_model(source.model, source.name))
    card = predictor.card
    if data is not None:
        return _of_file(predictor, data, plain=source.card is None or data.suffix.lower() in PLAIN)
    run = Path(source.name).expanduser()
    if kind_of_run(run) == FINETUNING:
        settings = RunFolder.existing(run).settings_of(FineTuningSettings)
        if settings.folds is not None and settings.fold is None:  # its model has learned what the folds held out
            settings = RunFolder.existing(run / FINAL).settings_of(FineTuningSettings)
        require_files(settings, run, "; or name a file like it with --data")
        name = "the held-out examples of the run"
        examples = read_examples(settings).dev
        return _without_answers(predictor, examples, name) if card.target is None else Judged(predictor, examples, name)
    if _reads_rows(card):
        raise InputError(f"{source.name} reads {_columns(card)}; name a file of them with --data")
    return _without_answers(predictor, predictor.read(own_texts()), PYTHON)


def _of_file(predictor: Predictor, data: Path, plain: bool) -> OwnTask:
    """Examples with answers, where the file has them; otherwise examples, or plain texts."""
    card = predictor.card
    plain = plain and not _reads_rows(card)
    needed = _columns(card) if _reads_rows(card) else "a file like that of the training, or one text per line"
    if card.target is not None:
        try:
            with _reading(needed):
                examples = predictor.read(data, with_targets=True)
            return Judged(predictor, examples, data.name)
        except GlassBertError:
            if not plain:
                raise
    if plain:
        return _without_answers(predictor, predictor.read(read_texts(data)), data.name)
    with _reading(needed):
        examples = predictor.read(data)
    return _without_answers(predictor, examples, data.name)


@contextmanager
def _reading(needed: str) -> Iterator[None]:
    """Context manager: an error of the reader without flags of other commands, and what --data needs."""
    try:
        yield
    except GlassBertError as error:
        said = "; ".join(part for part in str(error).split("; ") if "--" not in part) or str(error)
        raise InputError(f"{said}; --data needs {needed}") from error


def _without_answers(predictor: Predictor, data: TaskData, name: str) -> OwnTask:
    data = data.select(spread(range(len(data)), MOST_TEXTS))
    if predictor.card.head == "embedding":
        return Similarities(predictor, [*data.texts, *(data.pairs or [])], name)
    return Agreement(predictor, data, name)


def _reads_rows(card: TaskCard) -> bool:
    """Whether a single text is no example; a model of vectors reads one."""
    return card.template is not None or (card.pair is not None and card.head != "embedding")


def _columns(card: TaskCard) -> str:
    names = card.template.columns if card.template is not None else [card.text, card.pair]
    return f"rows of a table with the columns {', '.join(map(str, names))}"


def read_texts(path: Path) -> list[str]:
    """The texts of a file: its lines, or the column "text" of a table."""
    plain, needed = path.suffix.lower() in PLAIN, "one text per line, or a column 'text'"
    with _reading(needed):
        table = read_table(path, format=LINES if plain else None)
    if "text" not in table.columns:
        raise InputError(f"{path} has no column 'text'; its columns are {table.names()}")
    found = [str(text) for text in table.column("text") if text is not None]
    found = [text for text in found if re.search(r"\w", text)]
    if not found:
        raise InputError(f"{path} has no text; --data needs {needed}")
    return spread(found, MOST_TEXTS)


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
    return spread(sentences, OWN_TEXTS)
