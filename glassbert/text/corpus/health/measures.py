"""The measures of the report, computed from `CorpusStatistics`."""

from __future__ import annotations

from typing import Any

import numpy as np

from glassbert.text.corpus.health.statistics import SENTENCE_FLAGS, CorpusStatistics

LONG_WORD = 40
RARE = 20  # an entry with fewer occurrences is hardly trained
FREQUENT = 100
SHARES = ("unknown", *SENTENCE_FLAGS)  # of the tokens of a source


def measure(statistics: CorpusStatistics, character_counts: np.ndarray, kinds: dict[str, int]) -> dict[str, Any]:
    """All measures. `character_counts` has the count of each distinct character, `kinds` of each kind of character."""
    total = int(statistics.counts.sum())
    sums = {name: int(values.sum()) for name, values in statistics.sources.items()}
    used = np.delete(statistics.counts, list(statistics.corpus.tokenizer.special_ids))
    characters = max(sum(kinds.values()), 1)
    word_lengths, words_of = statistics.words.values()
    alphabetic = np.array([text.isalpha() for text in statistics.vocabulary.texts]) & ~statistics.vocabulary.continues
    words = np.sort(statistics.counts[alphabetic])
    leaked_sentences, leaked_documents, _ = statistics.leak.shares()
    held_out = statistics.corpus.splits["validation"].tokens
    return {
        "tokens": total,
        "words": sums["words"],
        "tokens_per_word": sums["word_tokens"] / max(sums["words"], 1),
        "vocabulary": len(used),
        "never_seen_share": float((used == 0).mean()),
        "rarely_seen_share": float((used < RARE).mean()),
        "token_entropy_bits": entropy(statistics.counts),
        "character_entropy_bits": entropy(character_counts),
        "zipf_slope": zipf_slope(statistics.counts),
        "frequent_words_share": float(words[-FREQUENT:].sum() / max(words.sum(), 1)),
        "letters_share": (kinds["Latin letters"] + kinds["other letters"]) / characters,
        "digits_share": kinds["digits"] / characters,
        "damaged_share": kinds["damaged"] / characters,
        "long_words_share": float(words_of[word_lengths > LONG_WORD].sum() / max(words_of.sum(), 1)),
        "markup_per_1000_tokens": 1000 * sums["markup"] / total,
        **{f"{name}_share": sums[name] / total for name in SHARES},
        "longest_sentence": int(statistics.top_scores["longest_sentence"].top_score()),
        "longest_document_share": statistics.top_scores["longest_document"].top_score() / total,
        "repeated_sentences_share": statistics.repeated_sentences.share(),
        "repeated_documents_share": statistics.repeated_documents.share(),
        "repeats_looked_at_share": statistics.repeated_sentences.sampled,
        "validation_tokens": held_out,
        "validation_share": held_out / total,
        "leaked_sentences_share": leaked_sentences,
        "leaked_documents_share": leaked_documents,
        "leak_documents_looked_at": len(statistics.leak.documents),
        **_builder_shares(statistics.corpus.manifest),
    }


def source_rows(statistics: CorpusStatistics) -> list[dict[str, Any]]:
    """The measures of each source."""
    rows = []
    for number, source in enumerate(statistics.corpus.manifest["sources"]):
        sums = {name: int(values[number]) for name, values in statistics.sources.items()}
        tokens = max(sums["tokens"], 1)
        rows.append(
            {
                "name": source["name"],
                "documents": sums["documents"],
                "tokens": sums["tokens"],
                "tokens_per_word": sums["word_tokens"] / max(sums["words"], 1),
                "letters_share": sums["letters"] / max(sums["characters"], 1),
                "markup_per_1000_tokens": 1000 * sums["markup"] / tokens,
                **{f"{name}_share": sums[name] / tokens for name in SHARES},
            }
        )
    return rows


def _builder_shares(manifest: dict[str, Any]) -> dict[str, float]:
    """The counts of the build as shares of the documents read."""
    counts, cleaning = manifest["counts"], manifest["cleaning"]
    read = max(counts["documents_read"], 1)
    copies = counts.get("exact_duplicates", 0) + counts.get("near_duplicates", 0)
    return {
        "removed_duplicates_share": copies / read,
        "removed_noise_share": counts["noise"] / read,
        "removed_unreadable_share": counts["unreadable"] / read,
        "removed_short_share": counts["too_short"] / read,
        "html_documents_share": cleaning["html_documents"] / read,
        "cut_documents": counts["cut"],
        "empty_sources": len(empty_sources(manifest)),
    }


def empty_sources(manifest: dict[str, Any]) -> list[str]:
    """The sources whose documents were all left out."""
    return [source["name"] for source in manifest["sources"] if source["documents"] and not source["kept"]]


def entropy(counts: np.ndarray) -> float:
    """The entropy of the relative frequencies, in bits per symbol."""
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log2(shares)).sum())


def zipf_slope(counts: np.ndarray) -> float | None:
    """The slope of log frequency over log rank between ranks 10 and 1,000; about -1 for natural languages.

    None if fewer than 100 entries occur.
    """
    ranked = np.sort(counts[counts > 0])[::-1]
    if len(ranked) < 100:
        return None
    ranks = np.unique(np.geomspace(10, min(1000, len(ranked)), 50).astype(int))
    return float(np.polyfit(np.log(ranks), np.log(ranked[ranks - 1]), 1)[0])
