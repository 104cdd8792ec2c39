"""The suite "language": masked language modelling on held-out text.

Accuracy, cross-entropy and perplexity with the published masks of `held_out`, in total and by source, frequency and
position; accuracy by part of speech if a treebank is given; and the pseudo-perplexity of sentences. Intervals are over
documents (over sentences for the last two), because the tokens of one text are not independent.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from glassbert.evaluation.held_out import MASKS_VERSION, HeldOut, held_out, published_masks, target_positions
from glassbert.evaluation.masked import blocks, pseudo_likelihoods, score
from glassbert.evaluation.measures import Measure, estimate, rate
from glassbert.evaluation.parts_of_speech import parts_of_speech
from glassbert.evaluation.references import nearest, reference_table
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import Options, SuiteResult, suite
from glassbert.metrics import perplexity
from glassbert.reports import share
from glassbert.tasks.checks import Finding

QUICK_ROWS, ROWS, THOROUGH_ROWS = 400, 2_500, 8_000
QUICK_SENTENCES, SENTENCES, THOROUGH_SENTENCES = 150, 400, 1_000
MIN_DOCUMENTS = 20  # with fewer documents the rows are the units
FREQUENCY_BANDS = (10, 100, 1_000, 4_000)  # frequency ranks of tokens
POSITION_BANDS = (8, 16, 32, 64, 96)
REPLACEMENTS = ("[MASK]", "another word", "the word itself")  # 80, 10 and 10 % of the targets
SENTENCE_TOKENS = (5, 60)  # for the pseudo-perplexity, whose cost is quadratic in the length


@suite("language", title="Language modelling", effort=10)
def language(subject: Subject, options: Options) -> SuiteResult:
    """Masked words (of a causal model: next words) of held-out text, and the perplexity of its sentences."""
    subject.require_words()
    text = held_out(subject, options)
    chosen = options.sample(len(text.rows), options.limit(ROWS, QUICK_ROWS, THOROUGH_ROWS), "held-out rows")
    scores = score_words(subject, text, chosen, options.part(0.0, 0.4))
    masks = "every word from those before it" if subject.predicts_next else f"masks of version {MASKS_VERSION}"
    result = SuiteResult(notes=[f"{masks}, rows of {text.length} tokens", *text.notes])
    sample = ", a sample" if len(chosen) < len(text.rows) else ""
    result.notes.insert(
        0, f"{len(chosen):,} of {len(text.rows):,} held-out rows{sample}; {scores.count:,} {scores.what} words"
    )
    if subject.history is not None and subject.history.held_out is not None:
        result.notes.append(
            f"the report of its run says a held-out loss of {subject.history.held_out[0]:.3f}, on rows packed as in "
            f"training and with other masks; these figures are on rows of whole sentences, with masks that are the "
            f"same for all models"
        )
    result.rows += scores.main(options)
    result.rows += scores.breakdowns(options)
    if not subject.predicts_next:
        result.rows += parts_of_speech(subject, options.part(0.4, 0.6), result.notes)
    result.rows += pseudo_perplexities(subject, text, options.part(0.6, 1.0), result.notes)
    _compare_with_references(subject, result, scores)
    return result


class WordScores:
    """Loss and rank of every target of some held-out rows, and the measures computed from them.

    `what` names the targets: "masked", or "next" for a causal model.
    """

    def __init__(self, text: HeldOut, columns: dict[str, np.ndarray], key: str, what: str):
        self.text, self.key, self.what = text, key, what
        self.loss, self.rank, self.target, self.position, self.replacement, row = columns.values()
        self.count = len(self.loss)
        documents = text.document[row]
        self.source = text.source[documents]
        self.unit_name = "documents"
        if len(np.unique(documents)) < MIN_DOCUMENTS:
            documents, self.unit_name = row, "rows"
        self.unit = np.unique(documents, return_inverse=True)[1]

    def sums(self, values: np.ndarray, some: np.ndarray | slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Sum and count of the values of each unit."""
        count = int(self.unit.max()) + 1
        units = self.unit[some]
        return np.bincount(units, values[some], count), np.bincount(units, minlength=count).astype(np.float64)

    def main(self, options: Options) -> list[Measure]:
        common: dict[str, Any] = {"key": self.key, "resamples": options.resamples}
        unigram = float(self.unigram_losses().mean())
        most_frequent = share(float(np.mean(self.target == int(self.text.counts.argmax()))))
        over = f"interval over {int(self.unit.max()) + 1:,} {self.unit_name}"
        return [
            estimate(f"{self.what} words right", rate, *self.sums(self.rank < 1), unit="share", note=over,
                     headline=True, reference=f"always the most frequent word {most_frequent}", **common),
            estimate("right within five guesses", rate, *self.sums(self.rank < 5), unit="share", **common),
            estimate("cross-entropy", rate, *self.sums(self.loss), unit="nats", higher_is_better=False,
                     reference=f"word counts alone {unigram:.2f}, uniform {math.log(len(self.text.counts)):.2f}",
                     **common),
            estimate("perplexity", perplexity, *self.sums(self.loss), higher_is_better=False, headline=True,
                     reference=f"word counts alone {math.exp(unigram):,.0f}", **common),
        ]  # fmt: skip

    def unigram_losses(self) -> np.ndarray:
        """The loss of a unigram model with add-one smoothing: -ln p(token)."""
        counts = self.text.counts + 1.0
        return -np.log(counts[self.target] / counts.sum())

    def breakdowns(self, options: Options) -> list[Measure]:
        order = np.argsort(-self.text.counts, kind="stable")
        rank_of = np.empty(len(order), np.int64)
        rank_of[order] = np.arange(len(order))
        frequency = np.searchsorted(FREQUENCY_BANDS, rank_of[self.target], side="right")
        position = np.searchsorted(POSITION_BANDS, self.position - 1, side="right")  # [CLS] has position 0
        found = []
        for group, labels, names in (
            ("right, by frequency of the word", frequency, _band_names(FREQUENCY_BANDS, len(order), "rank ")),
            ("right, by position in the row", position, _band_names(POSITION_BANDS, self.text.length, "")),
            ("right, by what stood in the word's place", self.replacement, list(REPLACEMENTS)),
        ):
            if labels is not self.replacement or self.what == "masked":
                found += self._by(group, labels, names, options, right=True)
        if len(self.text.source_names) > 1:
            found += self._by("cross-entropy, by source", self.source, self.text.source_names, options, right=False)
        return found

    def _by(self, group: str, labels: np.ndarray, names: list[str], options: Options, right: bool) -> list[Measure]:
        rows = []
        for label in np.unique(labels):
            some = np.flatnonzero(labels == label)
            sums, counts = self.sums(self.rank < 1 if right else self.loss, some)
            present = counts > 0
            rows.append(
                estimate(names[label], rate, sums[present], counts[present], key=f"{self.key}/{group}/{label}",
                         group=group, resamples=options.resamples, unit="share" if right else "nats",
                         higher_is_better=right, note=f"{len(some):,} words")
            )  # fmt: skip
        return rows


def read_rows(subject: Subject, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Input rows [B, T], and for every target its flat position, the position that predicts it, and itself."""
    if subject.predicts_next:
        place = np.arange(ids.size).reshape(ids.shape)
        return ids, place[:, 1:].reshape(-1), place[:, :-1].reshape(-1), ids[:, 1:].reshape(-1)
    masked, labels = published_masks(ids, subject.tokenizer)
    positions = target_positions(labels)
    return masked, positions, positions, labels.reshape(-1)[positions]


def score_words(subject: Subject, text: HeldOut, chosen: np.ndarray, options: Options) -> WordScores:
    """Score the targets of the chosen rows."""
    rows = [text.rows[i] for i in chosen]
    names = ("loss", "rank", "target", "position", "replacement", "row")
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    done = 0
    masks = -1 if subject.predicts_next else subject.tokenizer.mask_id
    for block in blocks(rows):
        shown, positions, predicting, targets = read_rows(subject, block.ids)
        found = score(subject.model, shown, predicting, targets)
        row, position = np.divmod(positions, block.ids.shape[1])
        kept, original = (rows_.reshape(-1)[positions] for rows_ in (shown, block.ids))
        replacement = np.where(kept == original, 2, np.where(kept == masks, 0, 1))
        for name, column in zip(
            parts,
            (-found.log_probability, found.rank, targets, position, replacement, chosen[block.rows[row]]),
            strict=True,
        ):
            parts[name].append(column)
        done += len(block.rows)
        options.progress(done, len(rows), "words")
    columns = {name: np.concatenate(column) for name, column in parts.items()}
    what = "next" if subject.predicts_next else f"masks {MASKS_VERSION}"
    digest = hashlib.sha256(f"{what}, {text.length}, {subject.tokenizer.fingerprint}".encode())
    for row in rows:
        digest.update(row.tobytes())
    return WordScores(text, columns, digest.hexdigest()[:16], "next" if subject.predicts_next else "masked")


def pseudo_perplexities(subject: Subject, text: HeldOut, options: Options, notes: list[str]) -> list[Measure]:
    """exp of the mean loss per token and per word of sentences in which each token is masked in turn."""
    sentences = []
    for shard in text.shards:
        ends = shard.sentence_ends.astype(np.int64)
        lengths = np.diff(ends, prepend=0)
        fits = np.flatnonzero((lengths >= SENTENCE_TOKENS[0]) & (lengths <= min(SENTENCE_TOKENS[1], text.length - 2)))
        sentences += [np.asarray(shard.tokens[ends[i] - lengths[i] : ends[i]]) for i in fits]
    limit = options.limit(SENTENCES, QUICK_SENTENCES, THOROUGH_SENTENCES)
    chosen = options.sample(len(sentences), limit, "sentences")
    texts = [subject.tokenizer.decode(sentences[i]) for i in chosen]
    found = pseudo_likelihoods(subject, texts, lambda done, total: options.progress(done, total, "sentences"))
    kept = [(t, values) for t, values in zip(texts, found.tokens, strict=True) if values is not None]
    name = "perplexity" if subject.predicts_next else "pseudo-perplexity"
    how = "each token from those before it" if subject.predicts_next else "each token of a sentence masked in turn"
    notes.append(f"{name} of {len(kept):,} of {len(sentences):,} sentences of {SENTENCE_TOKENS[0]} to "
                 f"{SENTENCE_TOKENS[1]} tokens")  # fmt: skip
    losses = [-values.sum() for _, values in kept]
    key = hashlib.sha256(repr([t for t, _ in kept]).encode()).hexdigest()[:16]
    return [
        estimate(f"{name} of a token", perplexity, losses, [len(values) for _, values in kept],
                 key=key + subject.tokenizer.fingerprint, resamples=options.resamples, higher_is_better=False,
                 note=how),
        estimate(f"{name} of a word", perplexity, losses, [len(t.split()) for t, _ in kept], key=key,
                 resamples=options.resamples, higher_is_better=False, note="comparable across vocabularies"),
    ]  # fmt: skip


def _compare_with_references(subject: Subject, result: SuiteResult, scores: WordScores) -> None:
    """Add the table of reference models, and a finding if the loss is above the unigram or the reference loss."""
    loss = float(scores.loss.mean())
    right = float((scores.rank < 1).mean())
    if scores.what == "masked":  # the references predict masked words
        result.tables.append(reference_table(subject, math.exp(min(loss, 700.0)), right))
    near = nearest(subject)
    unigram = float(scores.unigram_losses().mean())
    if loss >= unigram:
        result.findings.append(
            Finding(
                "problem",
                "The model is worse than word frequencies.",
                f"Its cross-entropy is {loss:.2f}; a unigram model of word frequencies has {unigram:.2f}.",
                "It is untrained, or was trained on other text or with another tokenizer.",
            )
        )
    elif (
        scores.what == "masked"
        and near.perplexity is not None
        and math.exp(loss) > 2 * near.perplexity
        and near.vocabulary == len(scores.text.counts)
    ):
        result.findings.append(
            Finding(
                "note",
                "The perplexity is high for a model of this size.",
                f"Its perplexity is {math.exp(loss):.1f}; {near.model} reached {near.perplexity:.1f} ({near.text}).",
                "Train longer or with a higher learning rate, and check that the text is like the training text.",
            )
        )


def _band_names(edges: tuple[int, ...], end: int, word: str) -> list[str]:
    starts = [0, *edges]
    return [
        f"{word}{low + 1:,} to {high:,}" for low, high in zip(starts, [*edges, max(end, edges[-1] + 1)], strict=True)
    ]
