"""Accuracy by part of speech: every word of a treebank is masked once, all its pieces together.

A word is right if each of its pieces is the first choice. The whole word is masked, because the other pieces of a long
word would give a masked piece away.
"""

from __future__ import annotations

import hashlib

import numpy as np

from glassbert.errors import TextError
from glassbert.evaluation.masked import blocks, score
from glassbert.evaluation.measures import Measure, estimate, rate, undefined
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import DoesNotApply, Options
from glassbert.tasks.alignment import align_words
from glassbert.tasks.conll import read_conllu

PATTERNS = ("*dev*.conllu*", "*.conllu*")
QUICK_WORDS, WORDS, THOROUGH_WORDS = 1_500, 6_000, 20_000
MIN_WORDS = 20  # of a part of speech
GROUP = "right, by part of speech"


def parts_of_speech(subject: Subject, options: Options, notes: list[str]) -> list[Measure]:
    """One row per part of speech; none without a treebank; a row with the reason if the treebank cannot be read."""
    try:
        path = options.file("treebank", *PATTERNS)
    except DoesNotApply as reason:
        notes.append(f"accuracy by part of speech is left out: {reason}")
        return []
    try:
        table = read_conllu(path)
    except TextError as error:
        return [undefined("all", str(error), unit="share", group=GROUP)]
    sentences, tags = table.column("words"), table.column("upos")
    aligned = align_words(subject.tokenizer, sentences, length=subject.max_length)
    words = []  # window, pieces of the word, tag, sentence
    skipped = 0
    for window, (encoding, owner, firsts) in enumerate(
        zip(aligned.windows.encodings, aligned.windows.owners, aligned.firsts, strict=True)
    ):
        if aligned.windows.starts[window]:  # the overlap of a long sentence is in its first window
            skipped += 1
            continue
        ends = [*firsts[1:, 1].tolist(), len(encoding) - 1]
        for (word, first), end in zip(firsts.tolist(), ends, strict=True):
            words.append((window, np.arange(first, end), tags[owner][word], int(owner)))
    chosen = options.sample(len(words), options.limit(WORDS, QUICK_WORDS, THOROUGH_WORDS), "treebank words")
    sampled = [words[i] for i in chosen]
    right = _first_choice(subject, options, aligned.windows.encodings, sampled)
    notes.append(
        f"parts of speech: {len(sampled):,} of {len(words):,} words of {path.name}, each masked whole"
        + (f"; {skipped:,} long sentences truncated" if skipped else "")
        + (f"; {len(aligned.lost):,} words have no token" if aligned.lost else "")
    )
    labels = np.array([tag for _, _, tag, _ in sampled])
    owner = np.array([sentence for _, _, _, sentence in sampled])
    rows = []
    for tag in sorted(set(labels.tolist())):
        some = labels == tag
        if some.sum() < MIN_WORDS:
            rows.append(undefined(tag, f"{some.sum()} words are too few", unit="share", group=GROUP))
            continue
        units = np.unique(owner[some], return_inverse=True)[1]
        key = hashlib.sha256(repr([(w, p.tolist()) for w, p, t, _ in sampled if t == tag]).encode()).hexdigest()[:16]
        rows.append(
            estimate(tag, rate, np.bincount(units, right[some]), np.bincount(units), key=key + tag,
                     resamples=options.resamples, unit="share", group=GROUP, note=f"{int(some.sum()):,} words")
        )  # fmt: skip
    return rows


def _first_choice(subject: Subject, options: Options, encodings: list, words: list) -> np.ndarray:
    """[words] 1 where every piece of the word is the first choice."""
    rows = []
    for window, pieces, _, _ in words:
        ids = np.array(encodings[window].ids, np.int64)
        ids[pieces] = subject.tokenizer.mask_id
        rows.append(ids)
    right = np.zeros(len(words))
    done = 0
    for block in blocks(rows):
        length = block.ids.shape[1]
        sizes = [len(words[i][1]) for i in block.rows]
        positions = np.concatenate([row * length + words[i][1] for row, i in enumerate(block.rows)])
        targets = np.concatenate([np.array(encodings[words[i][0]].ids)[words[i][1]] for i in block.rows])
        missed = score(subject.model, block.ids, positions, targets).rank > 0
        right[block.rows] = np.bincount(np.repeat(np.arange(len(sizes)), sizes), missed, len(sizes)) == 0
        done += len(block.rows)
        options.progress(done, len(rows), "parts of speech")
    return right
