"""`adapt`: continue the pretraining of a model on a domain's text, with pieces of its own.

    from glassbert import adapt

    trainer = adapt("mini", corpus="letters.txt", general="corpora/general", new_pieces=1_000, minutes=10)
    result = trainer.train()

It prepares a run folder and returns an ordinary trainer, so that `glassbert resume` continues it:

    RUN/start/            the model with its new pieces, before training
    RUN/corpus/           the domain's text in the new pieces
    RUN/general/          the general text in the new pieces
    RUN/corpus-before/    the held-out part of each in the old pieces
    RUN/general-before/
    RUN/adaptation.json   the pieces, the losses before and after, and the share of the change that was kept
"""

from __future__ import annotations

import dataclasses
import math
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from glassbert.checkpoints.family import PRESETS
from glassbert.errors import TextError, TrainingError
from glassbert.files import new_folder, write_json
from glassbert.models.config import EncoderConfig
from glassbert.models.model import Model
from glassbert.text.corpus import Corpus, build_corpus
from glassbert.text.corpus.documents import sample_paragraphs
from glassbert.text.corpus.resplit import count_corpus_words, resplit
from glassbert.text.corpus.settings import Settings
from glassbert.text.corpus.sources import PYTHON, find_sources
from glassbert.text.corpus.storage import TRAIN, VALIDATION
from glassbert.text.fast import FastTokenizer, load_tokenizer
from glassbert.text.loading import load_with_tokenizer
from glassbert.text.new_pieces import NewPiece, choose_pieces, extended
from glassbert.text.vocabulary_training import count_words
from glassbert.text.wordpiece_files import Description, write
from glassbert.training.adapting.choices import LEAST_READ, NEW_PIECES, fitted, least_uses, tokens_of
from glassbert.training.adapting.extension import extend, load_masked
from glassbert.training.adapting.mixing import LIMIT, TRIALS, check_limit
from glassbert.training.adapting.outcome import FILE
from glassbert.training.adapting.paired import GENERAL, PairedRows, measured, part_of, text_counts
from glassbert.training.budget import FINAL_SHARE
from glassbert.training.checkpointing import remove_folder
from glassbert.training.data import HELD_OUT_BATCH, in_folder_of_run, open_data
from glassbert.training.objectives import Objectives
from glassbert.training.run_folder import RunFolder, new_run_folder
from glassbert.training.settings import CONFIG_FIELDS, TrainingSettings
from glassbert.training.trainer import Trainer

HELD_OUT = 0.05  # of the documents of text files
# Packed by tokens: rows of sentences have another context in other pieces, and their losses cannot be compared.
DEFAULTS: dict[str, Any] = {
    "objective": "mlm", "general_share": 0.5, "length": 128, "batch": 32, "learning_rate": 6e-4, "warmup": 0.1,
    "packing": "tokens",
}  # fmt: skip
ROWS_SHARE = 8  # the last evaluation has so many times the rows that are measured of each text, before and after
Message = Callable[[str], None]


class AdaptedText(NamedTuple):
    """A text in the new pieces, and its held-out documents in the old ones."""

    corpus: Corpus
    old: Corpus


def adapt(
    model: str,
    corpus: str | Sequence[str],
    general: str | Sequence[str] | None = None,
    *,
    general_limit: float = LIMIT,
    new_pieces: int | None = None,
    run: str | Path | None = None,
    on_message: Message = lambda text: None,
    display: Any = None,
    **settings: Any,
) -> Trainer:
    """Prepare the adaptation of a masked language model and return its trainer.

    corpus         text files, a corpus folder, or "python:" for the built-in texts
    general        the same, for text like that of the first training; default: the built-in texts, "" for none
    general_limit  by so many nats per word may general text rise (`mixing`); math.inf: by any number
    new_pieces     at most so many new entries of the vocabulary; 0 keeps it; default: by text and budget (`choices`)
    settings       fields of `TrainingSettings`: budget, general_share, learning rate and so on
    """
    limit = check_limit(general_limit)
    if new_pieces is not None and (not isinstance(new_pieces, int) or isinstance(new_pieces, bool) or new_pieces < 0):
        raise TrainingError(f"new_pieces must be a whole number of at least 0, got {new_pieces!r}")
    texts = _paths(corpus)
    if not texts:
        raise TrainingError("adapting needs a text of the domain; name files or a corpus folder with --corpus")
    folder = RunFolder(run) if run is not None else new_run_folder("runs", "adapted")
    if folder.settings_file.exists():
        raise TrainingError(
            f"{folder.path} already contains a run; continue it with: glassbert resume {shlex.quote(str(folder.path))}"
        )
    others, about_general = _general_texts(texts, general)
    if set(texts) & set(others):
        raise TrainingError(f"{texts[0]} is given as --corpus and as --general; general text must be another text")
    loaded = load_masked(model, engine="numpy", threads=settings.get("threads"))
    tokenizer = load_with_tokenizer(model, engine="numpy")[1]
    plan = _plan(loaded, settings)
    share = plan.general_share if others else 0.0
    on_message("Choosing pieces")
    pieces, description, why = _pieces(texts, tokenizer, new_pieces, plan, share)
    start = folder.path / "start"
    with suppress(FileNotFoundError):
        remove_folder(start)  # of an attempt that was killed
    with new_folder(start, TrainingError) as new:
        extend(loaded, tokenizer.vocab_size, [piece.replaces for piece in pieces]).save(new)
        if description is None:
            tokenizer.save(new)
        else:
            write(new, description)
    on_message("Reading the text of the domain")
    parts = {"domain": _part(texts, folder.path / "corpus", start, tokenizer)}
    if others:
        on_message("Reading the general text")
        parts["general"] = _part(others, folder.path / "general", start, tokenizer)
        _refuse_same_text(parts)
    plan = fitted(plan, parts["domain"].corpus.split(TRAIN).tokens, share, settings)
    training = plan.replace(
        start_from=str(start), corpus=str(parts["domain"].corpus.folder),
        general=str(parts["general"].corpus.folder) if others else (),
    )  # fmt: skip
    content: dict[str, Any] = {
        "model": str(model),
        "vocabulary": tokenizer.vocab_size + len(pieces),
        "pieces": [dataclasses.asdict(piece) for piece in pieces],
        "why_pieces": why,
        "general": about_general,
    }
    on_message("Measuring the losses before")
    content |= _before(parts, loaded, training, limit)
    write_json(folder.path / FILE, content)  # its data is that of an adaptation from here on
    return Trainer(training, folder.path, data=open_data(training, folder.path), display=display)


def _paths(given: str | Sequence[str] | Path | None) -> list[str]:
    if given is None or given == "":
        return []
    return [str(given)] if isinstance(given, str | Path) else [str(one) for one in given]


def _general_texts(domain: Iterable[str], general: str | Sequence[str] | None) -> tuple[list[str], str]:
    """The general texts, and a sentence about them."""
    if general is not None:
        paths = _paths(general)
        return paths, f"General text: {', '.join(paths)}." if paths else "No general text: forgetting is not measured."
    if any(path.startswith(PYTHON) for path in domain):
        return [], (
            "No general text: the domain is the built-in text, and no other was given with --general. Forgetting is "
            "neither prevented nor measured."
        )
    return [PYTHON], (
        "General text: the built-in one, Python's documentation, because none was given with --general. It prevents "
        "and measures forgetting only as far as it is like the text that the model was trained on."
    )


def _pieces(
    texts: Sequence[str], tokenizer: FastTokenizer, number: int | None, plan: TrainingSettings, share: float
) -> tuple[list[NewPiece], Description | None, str]:
    """The new pieces, the extended tokenizer (None where it stays), and why there are so many."""
    description = tokenizer.description
    if description is None:
        why = f"The tokenizer is {tokenizer.kind}, not a BERT WordPiece tokenizer: it keeps its vocabulary."
        return [], None, why
    if number == 0:
        return [], description, "The vocabulary stays as it is (--new-pieces 0)."
    counts = _count(texts, description)
    if number is not None:
        pieces = choose_pieces(counts, description, number)
        why = "" if pieces else "The text has no frequent words that the vocabulary splits: it stays as it is."
        return pieces, extended(description, pieces), why
    least = least_uses(plan, tokens_of(counts, description), share)
    pieces = choose_pieces(counts, description, NEW_PIECES, least)
    enough = f"{least:,} uses in the text, so that this run reads it {LEAST_READ} times; --new-pieces gives a number."
    why = f"New pieces are missing characters, and pieces with at least {enough}" if pieces else (
        f"No new pieces: none has {enough}"
    )  # fmt: skip
    return pieces, extended(description, pieces), why


def _count(texts: Sequence[str], description: Description) -> Counter[str]:
    if _is_corpus(texts):
        return count_corpus_words(Corpus.open(texts[0]), "train")
    settings = Settings()
    sources = find_sources(texts, settings)
    found = count_words(sample_paragraphs(sources, settings, lambda done: None), description.normaliser)
    if not found.counts:
        raise TextError(f"{', '.join(texts)} contains no words")
    return found.counts


def _is_corpus(texts: Sequence[str]) -> bool:
    return len(texts) == 1 and (Path(texts[0]) / "manifest.json").exists()


def _part(texts: Sequence[str], folder: Path, start: Path, old: FastTokenizer) -> AdaptedText:
    """The corpus of these texts in the new pieces, and its held-out part in the old ones."""
    new = load_tokenizer(start)
    if _is_corpus(texts):
        given = Corpus.open(texts[0])
        if given.manifest["tokenizer"]["fingerprint"] == new.fingerprint:
            corpus = given
        elif new.description is None:
            raise TrainingError(f"{texts[0]} was built with another tokenizer than the model's; name its text files")
        else:
            corpus = resplit(given, new.description, folder)
    else:
        with in_folder_of_run(folder):
            corpus = build_corpus(list(texts), folder, new, validation=HELD_OUT)
    if not corpus.split(VALIDATION).tokens:
        raise TrainingError(
            f"{', '.join(texts)} has no held-out documents to measure the adaptation: after cleaning it has "
            f"{corpus.split('train').documents:,}, and some of several are held out (a blank line separates documents)"
        )
    if new.fingerprint == old.fingerprint:
        return AdaptedText(corpus, corpus)
    assert old.description is not None
    return AdaptedText(
        corpus, resplit(corpus, old.description, folder.with_name(f"{folder.name}-before"), [VALIDATION])
    )


def _refuse_same_text(parts: dict[str, AdaptedText]) -> None:
    hashes = [{source["sha256"] for source in part.corpus.manifest["sources"]} for part in parts.values()]
    if set.intersection(*hashes):
        raise TrainingError("--corpus and --general share a source; general text must be another text")


def _plan(model: Model, given: dict[str, Any]) -> TrainingSettings:
    """The settings of a run from the model's own config, before its texts are known."""
    preset, changes = preset_of(model.config)
    chosen = {**DEFAULTS, **given, "preset": preset, "model": changes}
    settings = TrainingSettings.from_dict({**chosen, "corpus": "a text"})  # a sentence about general text
    if "mlm" not in Objectives.parse(settings.objective).names:
        raise TrainingError(
            f"adapting continues the prediction of masked words, and the objective {settings.objective!r} has none; "
            "give one with mlm, such as --objective mlm"
        )
    return settings.replace(corpus=(), length=min(settings.length, model.config.max_length))


def preset_of(config: EncoderConfig) -> tuple[str, dict[str, Any]]:
    """The preset that is most like a config, and the fields in which the config differs."""
    found = {}
    for name, preset in PRESETS.items():
        if type(preset) is type(config):
            own, theirs = config.to_dict(), preset.to_dict()
            found[name] = {
                field: own[field] for field in CONFIG_FIELDS if field in own and own[field] != theirs.get(field)
            }
    if not found:
        raise TrainingError(f"models of the family {config.family} cannot be adapted: it has no preset")
    best = min(found, key=lambda name: len(found[name]))
    return best, found[best]


def _before(parts: dict[str, AdaptedText], model: Model, settings: TrainingSettings, limit: float) -> dict[str, Any]:
    """What is measured of the model as it was: the losses of both texts, and those that a share is chosen by."""
    paired = {name: PairedRows(part.old, part.corpus, settings.length) for name, part in parts.items()}
    most = _rows_of_each(settings, model, paired["domain"], len(parts))
    content: dict[str, Any] = {"rows": most, "rows_at_end": 0, "parts": {}}
    for name, part in parts.items():
        own = part_of(name, paired[name], most)
        entry: dict[str, Any] = {
            "counts_before": text_counts(part.old),
            "counts_after": text_counts(part.corpus),
            "old_pieces": part.old.folder.name if part.old is not part.corpus else None,
        }
        entry["before"] = measured(own, model, "old", entry)
        content["parts"][name] = entry
        content["rows_at_end"] += 3 * len(own.report)  # tokens and words of the result, words of the trained weights
        if name == GENERAL and math.isfinite(limit):
            before = own.rows.whole_words(model, "old", own.choice)
            if len(before.words):
                found = [before.nats.tolist(), before.words.tolist()]
                content["general_limit"] = limit
                content["choice"] = {"before": found, "separate": own.rows.separate, "rows": len(own.choice)}
                content["rows_at_end"] += TRIALS * len(own.choice)
    return content


def _rows_of_each(settings: TrainingSettings, model: Model, rows: PairedRows, texts: int) -> int:
    """The held-out rows to measure of each text. With a budget in minutes the end takes a small share of them."""
    most = max(1, settings.final_evaluation_rows // ROWS_SHARE)
    if settings.minutes is None:
        return most
    some = rows.whole(HELD_OUT_BATCH)
    began = time.monotonic()
    rows.single_tokens(model, "old", some)
    seconds = (time.monotonic() - began) / len(some)
    times = 3 * texts + TRIALS * (texts > 1)
    return min(most, max(HELD_OUT_BATCH, int(FINAL_SHARE * 60 * settings.minutes / (times * seconds))))
