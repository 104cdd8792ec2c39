"""The suite "embeddings": sentence similarity and the geometry of the representations.

A sentence vector is the mean of its last hidden states, [CLS] and [SEP] included. Its cosines are correlated with human
judgements of similarity. The baseline is the overlap of words; models trained on masked words only are seldom far above
it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from glassbert.errors import TextError
from glassbert.evaluation.encoding import encoder_output
from glassbert.evaluation.masked import blocks
from glassbert.evaluation.measures import Measure, estimate, undefined
from glassbert.evaluation.references import reference_for, sources
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import DoesNotApply, Options, SuiteResult, Table, suite
from glassbert.insight.geometry import anisotropy, intrinsic_dimension, isotropy
from glassbert.metrics import Undefined, spearman
from glassbert.tasks.ready import ready_task
from glassbert.training.evaluate import evaluation_mode

QUICK_PAIRS = 500
WORDS = ("king", "water", "river", "happy", "red", "seven", "monday", "france", "walked", "because")
NEIGHBOURS = 6
SENTENCES = 6
GEOMETRY_TOKENS = 2_000
GEOMETRY = {
    "anisotropy": (anisotropy, "the mean cosine of two: 0 if directions are uniform, 1 if all are equal"),
    "intrinsic dimension": (intrinsic_dimension, "TwoNN estimate"),
    "isotropy": (isotropy, "1: the same variance in every direction"),
}


@suite("embeddings", title="Embeddings", effort=2)
def embeddings(subject: Subject, options: Options) -> SuiteResult:
    """Sentence similarity against human judgement, and geometry of the representations."""
    if subject.model.config.series is not None:
        raise DoesNotApply("this is a time series model; the suite needs a text model")
    result = SuiteResult(tables=[nearest_words(subject)])
    try:
        pairs = _pairs(options)
    except (DoesNotApply, TextError) as reason:
        result.rows.append(undefined("similarity of sentences", str(reason)))
        return result
    first, second, gold, notes = pairs
    result.notes += notes
    texts = list(dict.fromkeys([*first, *second]))
    vectors, tokens, cut = sentence_vectors(subject, texts, options)
    if cut:
        result.notes.append(f"{cut:,} sentences are longer than {subject.max_length} tokens and were truncated")
    index = {text: i for i, text in enumerate(texts)}
    one, two = (vectors[[index[text] for text in side]] for side in (first, second))
    key = hashlib.sha256(repr((first, second)).encode()).hexdigest()[:16]
    result.rows += [
        estimate("similarity of sentences", spearman, gold, _cosines(one, two), key=key, resamples=options.resamples,
                 note=f"Spearman with human judgement, {len(gold):,} pairs", reference=reference_for("similarity")),
        estimate("sharing words alone", spearman, gold, [_overlap(a, b) for a, b in zip(first, second, strict=True)],
                 key=key, resamples=options.resamples, higher_is_better=None, note="baseline: overlap of words"),
    ]  # fmt: skip
    for what, cloud in (("sentences", vectors), ("words in context", tokens)):
        result.rows += [
            _geometry(f"{name} of {what}", function, cloud, note) for name, (function, note) in GEOMETRY.items()
        ]
    result.tables += [nearest_sentences(texts, vectors), sources("similarity")]
    return result


def sentence_vectors(subject: Subject, texts: Sequence[str], options: Options) -> tuple[np.ndarray, np.ndarray, int]:
    """[texts, H] means over tokens, [n, H] single tokens of different sentences, and the number of truncated texts."""
    whole = subject.tokenizer.encode_batch(texts)
    rows = [np.array(e.ids, np.int64) for e in whole]
    cut = sum(len(row) > subject.max_length for row in rows)
    rows = [
        row if len(row) <= subject.max_length else np.append(row[: subject.max_length - 1], row[-1]) for row in rows
    ]
    vectors = np.empty((len(rows), subject.model.config.hidden_size))
    tokens = np.empty_like(vectors)
    done = 0
    with evaluation_mode(subject.model):
        for block in blocks(rows):
            hidden = encoder_output(subject.model, block.ids)
            vectors[block.rows] = hidden.mean(1)
            position = block.rows % max(block.ids.shape[1] - 2, 1) + 1  # one token per sentence, at varying positions
            tokens[block.rows] = hidden[np.arange(len(position)), np.minimum(position, block.ids.shape[1] - 1)]
            done += len(block.rows)
            options.progress(done, len(rows), "sentences")
    return vectors, tokens[options.sample(len(tokens), GEOMETRY_TOKENS, "words in context")], cut


def nearest_words(subject: Subject) -> Table:
    """The nearest whole words in the embedding table, for a few words."""
    table = np.asarray(subject.model.engine.to_numpy(subject.model.token_embeddings), np.float64)
    continues = subject.tokenizer.continues_word
    known = {
        id: token
        for token, id in subject.tokenizer.vocabulary.items()
        if id < len(table) and not continues[id] and len(token) > 2 and token.isalpha()
    }
    ids = np.array(sorted(known), np.int64)
    directions = table[ids] / np.maximum(np.linalg.norm(table[ids], axis=1, keepdims=True), 1e-30)
    rows = []
    index = {known[id]: i for i, id in enumerate(ids.tolist())}
    for word in [word for word in WORDS if word in index]:
        cosines = directions @ directions[index[word]]
        best = [i for i in np.argsort(-cosines)[: NEIGHBOURS + 1] if i != index[word]][:NEIGHBOURS]
        rows.append((word, ", ".join(f"{known[int(ids[i])]} {cosines[i]:.2f}" for i in best)))
    return Table("Nearest words", ["word", "nearest in the embedding table, with their cosine"], rows, folded=True)


def nearest_sentences(texts: Sequence[str], vectors: np.ndarray) -> Table:
    """The nearest other sentence, for a few sentences."""
    directions = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    rows = []
    for i in np.linspace(0, len(texts) - 1, min(SENTENCES, len(texts))).astype(int):
        cosines = directions @ directions[i]
        cosines[i] = -np.inf
        rows.append((texts[i], texts[int(cosines.argmax())], f"{cosines.max():.3f}"))
    return Table("Nearest sentences", ["sentence", "nearest other sentence", "cosine"], rows, folded=True)


def _pairs(options: Options) -> tuple[list[str], list[str], list[float], list[str]]:
    task = ready_task("stsb")
    path = options.file("set of sentence pairs with judgements", str(task.dev))
    data = task.open(path.parents[1], "dev")
    judged = [row for row, value in enumerate(data.targets or ()) if _number(value) is not None]
    notes = [f"{len(data) - len(judged):,} rows have no judgement and were left out"] if len(judged) < len(data) else []
    some = [judged[i] for i in options.sample(len(judged), options.limit(None, QUICK_PAIRS), "sentence pairs")]
    notes.append(f"{len(some):,} of {len(data):,} pairs of {path.name}")
    texts, pairs, targets = data.texts, data.pairs or [], data.targets or []
    return [texts[i] for i in some], [pairs[i] for i in some], [float(targets[i]) for i in some], notes


def _geometry(name: str, function: Any, cloud: np.ndarray, note: str) -> Measure:
    try:
        return Measure(name, function(cloud), higher_is_better=None, note=note)
    except Undefined as reason:
        return undefined(name, str(reason), higher_is_better=None)


def _cosines(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    return (one * two).sum(1) / np.maximum(lengths, 1e-30)


def _overlap(one: str, two: str) -> float:
    a, b = (set(text.lower().split()) for text in (one, two))
    return len(a & b) / max(len(a | b), 1)


def _number(value: Any) -> float | None:
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if np.isfinite(found) else None
