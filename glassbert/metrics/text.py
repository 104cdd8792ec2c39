"""Metrics for text: spans from tags, extracted answers, and perplexity.

Tags are BIO, BIOES or BILOU:

    B-PER I-PER O      B begins a span, I continues it, O is outside
    B-PER E-PER S-LOC  E ends a span, S is a span of one word; L and U are other names for E and S

Predicted tags may be inconsistent, such as I after O. By default they are read as in the CoNLL evaluation: everything
except O belongs to a span, and a span begins at B and S, after O, E and S, and where the type changes. `strict=True`
takes only spans with consistent tags. A span is correct if its type and both ends are:

    precision = correct / predicted      recall = correct / true      F1 = 2·correct / (predicted + true)

Answers are compared without case, punctuation and articles, as in the SQuAD evaluation. With several true answers the
best match counts. An empty answer means "no answer" and is correct only where the truth is empty too.

    exact match = share of equal answers      F1 = mean of 2·shared words / (words + true words)

    perplexity = exp(mean of -ln p(token))
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.metrics.classification import Average, LabelCounts
from glassbert.metrics.inputs import Undefined, Value, as_numbers, as_weights, check_lengths, ratio, weighted_mean
from glassbert.metrics.shares import Share, counted

LETTERS = {"O": 0, "B": 1, "I": 2, "E": 3, "L": 3, "S": 4, "U": 4}
OUTSIDE, BEGIN, INSIDE, END, SINGLE = range(5)
ARTICLES = re.compile(r"\b(?:a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
Tags = Sequence[Sequence[str]]
Answers = Sequence[str | Sequence[str]]

# ---- spans -----------------------------------------------------------------------------------------------------------


class Span(NamedTuple):
    """Words start to end of a sentence; `end` is exclusive."""

    type: str
    start: int
    end: int


class ParsedTags(NamedTuple):
    """The tags of all sentences in one sequence, [N] each, with an O after each sentence."""

    letters: np.ndarray
    types: np.ndarray
    names: list[str]
    starts: np.ndarray  # the index of each sentence's first tag


def spans(tags: Sequence[str], strict: bool = False) -> list[Span]:
    """The spans of one sentence."""
    return sentence_spans([tags], strict)[0]


def sentence_spans(sentences: Tags, strict: bool = False) -> list[list[Span]]:
    """The spans of every sentence."""
    parsed = _parse_tags(sentences)
    starts, ends, consistent = _span_bounds(parsed)
    if strict:
        starts, ends = starts[consistent], ends[consistent]
    owners = np.searchsorted(parsed.starts, starts, side="right") - 1
    found: list[list[Span]] = [[] for _ in sentences]
    offsets = parsed.starts[owners] if len(owners) else owners
    for owner, kind, start, end in zip(
        owners.tolist(),
        parsed.types[starts].tolist(),
        (starts - offsets).tolist(),
        (ends - offsets).tolist(),
        strict=True,
    ):
        found[owner].append(Span(parsed.names[kind], start, end))
    return found


def broken_spans(sentences: Tags) -> int:
    """The number of spans with inconsistent tags; 0 for correct annotations."""
    return int((~_span_bounds(_parse_tags(sentences))[2]).sum())


def _parse_tags(sentences: Tags) -> ParsedTags:
    codes_by_tag: dict[str, tuple[int, int]] = {"O": (OUTSIDE, 0)}
    names = [""]
    codes: list[tuple[int, int]] = []
    starts = []
    for number, sentence in enumerate(sentences):
        starts.append(len(codes))
        for word, tag in enumerate(sentence):
            code = codes_by_tag.get(tag)
            if code is None:
                code = codes_by_tag[tag] = _tag_code(tag, names, f"sentence {number}, word {word}")
            codes.append(code)
        codes.append((OUTSIDE, 0))
    table = np.array(codes, np.int64).reshape(-1, 2)
    return ParsedTags(table[:, 0], table[:, 1], names, np.array(starts, np.int64))


def _tag_code(tag: str, names: list[str], where: str) -> tuple[int, int]:
    letter, dash, kind = str(tag).partition("-")
    if letter not in LETTERS or letter == "O" or not (dash and kind):
        raise InputError(f"{where}: {tag!r} is no span tag; a tag is O, or B, I, E or S with a type, as in B-PER")
    if kind not in names:
        names.append(kind)
    return LETTERS[letter], names.index(kind)


def _span_bounds(parsed: ParsedTags) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts, ends, and which spans are consistent. If any tag is E or S, every span must mark its end."""
    letters, types = parsed.letters, parsed.types
    if not len(letters):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool)
    before, type_before = np.concatenate([[OUTSIDE], letters[:-1]]), np.concatenate([[0], types[:-1]])
    inside = letters != OUTSIDE
    begins = np.isin(letters, (BEGIN, SINGLE)) | np.isin(before, (OUTSIDE, END, SINGLE)) | (types != type_before)
    starts = np.flatnonzero(inside & begins)
    stops = np.flatnonzero(begins | ~inside)  # a span ends at the next start or O
    ends = stops[np.searchsorted(stops, starts, side="right")]
    first, last, length = letters[starts], letters[ends - 1], ends - starts
    with_end = np.where(length == 1, first == SINGLE, (first == BEGIN) & (last == END))
    return starts, ends, with_end if np.isin(letters, (END, SINGLE)).any() else first == BEGIN


def count_spans(truth: Tags, predicted: Tags, strict: bool = False, weights: Any = None) -> LabelCounts:
    """Counts by span type, from the tags of sentences; `weights` are those of sentences."""
    check_lengths(truth=truth, predicted=predicted)
    for number, (a, b) in enumerate(zip(truth, predicted, strict=True)):
        if len(a) != len(b):
            raise InputError(f"sentence {number} has {len(a)} tags and {len(b)} predicted ones")
    found = sentence_spans([*truth, *predicted], strict)
    pairs = list(zip(found[: len(truth)], found[len(truth) :], strict=True))
    names = sorted({span.type for both in pairs for some in both for span in some})
    if not names:
        raise Undefined("there are no spans, neither in the truth nor in the predictions")
    column = {name: index for index, name in enumerate(names)}
    counts = np.zeros((3, len(pairs), len(names)))  # correct, predicted, true
    for row, (real, guessed) in enumerate(pairs):
        for some, kind in ((set(real) & set(guessed), 0), (guessed, 1), (real, 2)):
            for span in some:
                counts[kind, row, column[span.type]] += 1
    weights = as_weights(weights, len(pairs))
    correct, predicted_count, true_count = (weights @ part for part in counts)
    return LabelCounts(correct, predicted_count - correct, true_count - correct, tuple(names))


def span_f1(
    truth: Tags, predicted: Tags, average: Average = "micro", strict: bool = False, weights: Any = None
) -> Value:
    """F1 of spans, averaged over span types."""
    return count_spans(truth, predicted, strict, weights).average("f1", average)


def span_precision(
    truth: Tags, predicted: Tags, average: Average = "micro", strict: bool = False, weights: Any = None
) -> Value:
    """Precision of spans, averaged over span types."""
    return count_spans(truth, predicted, strict, weights).average("precision", average)


def span_recall(
    truth: Tags, predicted: Tags, average: Average = "micro", strict: bool = False, weights: Any = None
) -> Value:
    """Recall of spans, averaged over span types."""
    return count_spans(truth, predicted, strict, weights).average("recall", average)


# ---- answers ---------------------------------------------------------------------------------------------------------


def _count_exact(truth: Answers, predicted: Sequence[str]) -> Share:
    return Share(float(_exact(truth, predicted).sum()), len(predicted))


@counted(_count_exact)
def exact_match(truth: Answers, predicted: Sequence[str], weights: Any = None) -> Value:
    """The share of answers equal to a true answer after normalisation."""
    return weighted_mean(_exact(truth, predicted), weights)


def _exact(truth: Answers, predicted: Sequence[str]) -> np.ndarray:
    return _best_match(truth, predicted, lambda a, b: float(a == b))


def answer_f1(truth: Answers, predicted: Sequence[str], weights: Any = None) -> Value:
    """The mean F1 of the words of answers."""
    return weighted_mean(_best_match(truth, predicted, _word_overlap), weights)


def _normalised_answer(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def _word_overlap(a: str, b: str) -> float:
    words_a, words_b = a.split(), b.split()
    if not words_a or not words_b:
        return float(words_a == words_b)
    shared = (Counter(words_a) & Counter(words_b)).total()
    return 2 * shared / (len(words_a) + len(words_b))


def _best_match(truth: Answers, predicted: Sequence[str], score: Callable[[str, str], float]) -> np.ndarray:
    """The highest score over the true answers of each example, [N]."""
    check_lengths(truth=truth, predicted=predicted)
    scores = np.zeros(len(predicted))
    for row, (real, guessed) in enumerate(zip(truth, predicted, strict=True)):
        answers = [real] if isinstance(real, str) else list(real)
        if not answers:
            raise InputError(f"truth[{row}] holds no answer; use an empty string '' for 'no answer'")
        scores[row] = max(score(_normalised_answer(answer), _normalised_answer(guessed)) for answer in answers)
    return scores


# ---- language modelling ----------------------------------------------------------------------------------------------


def perplexity(losses: Any, tokens: Any = None, weights: Any = None) -> Value:
    """`losses` [N] in nats: of single tokens, or summed over texts with `tokens` [N] as their lengths.

    Beyond exp(700) the result is infinity.
    """
    losses = as_numbers(losses, "losses")
    tokens = np.ones_like(losses) if tokens is None else as_numbers(tokens, "tokens")
    if losses.ndim != 1 or (tokens < 0).any():
        raise InputError("losses must be [N], one for each token or text, and token counts must not be negative")
    check_lengths(losses=losses, tokens=tokens)
    weights = as_weights(weights, len(losses))
    with np.errstate(over="ignore"):
        values = np.exp(ratio(weights @ losses, weights @ tokens, "perplexity: there are no tokens"))
    return float(values) if np.ndim(values) == 0 else values
