"""The report on a corpus as an HTML page: numbers, findings, plots and samples."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glassbert.reports import Page, figures, number, share, short
from glassbert.text.corpus.health.checks import CHECKS, LEVELS, Check
from glassbert.text.corpus.health.measures import RARE
from glassbert.text.corpus.health.report import Health

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICTS = {
    "good": "No check found a problem in this corpus.",
    "note": "This corpus is ready for training; see the notes.",
    "warning": "This corpus can be used for training, but some repairs would improve it.",
    "problem": "This corpus should be repaired before training.",
}
BUILDER = {
    "documents_read": "documents read",
    "documents_kept": "documents kept",
    "exact_duplicates": "exact copies of a document left out",
    "near_duplicates": "near copies of a document left out",
    "too_short": "documents left out as too short",
    "noise": "documents left out as noise",
    "unreadable": "documents left out because they could not be decoded",
    "cut": "documents cut because they were too long",
    "html_documents": "documents whose HTML tags were removed",
    "control_characters": "control characters removed",
    "lines_without_letters": "lines without letters removed",
    "repeated_lines": "repeated lines of a document removed",
    "special_tokens": "special tokens such as [MASK] in the text, removed",
}
SAMPLES = {
    "longest_document": "The longest documents (beginning)",
    "longest_sentence": "The longest sentences (beginning)",
    "few_letters": "Sentences of mostly digits and symbols",
    "noise": "Sentences of mostly single characters",
    "markup": "HTML",
    "unknown": "Unknown tokens and their context",
    "repeated_sentences": "The most repeated sentences",
}


def health_page(health: Health) -> Page:
    measures = health.measures
    page = Page("Corpus health", f"`{health.folder}`")
    page.facts(
        [
            ("Tokens", short(measures["tokens"]), f"{short(measures['words'])} words"),
            ("Documents", sum(split["documents"] for split in health.splits.values()), _held_out(health)),
            ("Tokens per word", f"{measures['tokens_per_word']:.2f}", f"{number(measures['vocabulary'])} entries"),
            ("Unknown tokens", share(measures["unknown_share"]), "of all tokens"),
            ("Copies removed", share(measures["removed_duplicates_share"]), "of the documents read"),
        ]
    )
    _findings(page, health)
    _sources(page, health)
    _lengths(page, health)
    _vocabulary(page, health)
    _language(page, health)
    _repeats(page, health)
    _samples(page, health)
    return page


def _held_out(health: Health) -> str:
    return f"{number(health.splits['validation']['documents'])} held out"


def _findings(page: Page, health: Health) -> None:
    page.heading("Findings")
    page.text(VERDICTS[health.verdict])
    for one in health.findings:
        page.message(one.level, one.text, one.remedy, one.evidence, one.samples)
    passed = len(CHECKS) - len(health.findings)
    page.good(f"{passed} of {len(CHECKS)} checks passed.")
    with page.details("All checks and their limits") as part:
        headers = ["measure", "here", *(f"{level}" for level in reversed(LEVELS))]
        part.table(headers, [_limits(check, health.measures[check.measure]) for check in CHECKS])


def _limits(check: Check, value: float | None) -> list[str]:
    sign = "below" if check.below else "above"
    limits = ["–" if limit is None else f"{sign} {check.write(limit)}" for limit in reversed(check.limits)]
    return [check.measure.replace("_", " "), "–" if value is None else check.write(value), *limits]


def _sources(page: Page, health: Health) -> None:
    page.heading("Sources")
    total = health.measures["tokens"]
    headers = ["source", "documents", "tokens", "of all tokens", "unknown", "tokens per word", "letters"]
    rows: list[list[Any]] = [
        [name, one["documents"], one["tokens"], share(one["tokens"] / total), share(one["unknown_share"]),
         f"{one['tokens_per_word']:.2f}", share(one["letters_share"])]
        for name, one in health.largest_sources()
    ]  # fmt: skip
    page.table(headers, rows)
    page.table(
        ["split", "documents", "sentences", "tokens", "of all tokens"],
        [
            [name, split["documents"], split["sentences"], split["tokens"], share(split["tokens"] / total)]
            for name, split in health.splits.items()
        ],
    )
    removed = [[words, health.builder[name]] for name, words in BUILDER.items() if health.builder.get(name)]
    if removed:
        page.table(["changes by the build", "count"], removed)
    for name, words in BUILDER.items():
        if texts := health.excerpts.get(f"removed_{name}"):
            with page.details(f"Examples: {words}") as part:
                part.table(["beginning"], [[text] for text in texts])


def _lengths(page: Page, health: Health) -> None:
    page.heading("Lengths")
    lengths = {"documents": health.document_lengths, "sentences": health.sentence_lengths}

    def draw(what: str) -> Figure:
        counts, edges = lengths[what].histogram()
        median = lengths[what].quantile(0.5)
        return figures.histogram(
            counts, edges, log_x=True, xlabel="tokens", ylabel=what, marks={f"median {median:,}": median},
            series=list(lengths).index(what), width=3.5, height=2.4,
        )  # fmt: skip

    with page.columns() as parts:
        for part, what in zip(parts, lengths, strict=True):
            part.figure(partial(draw, what), f"Lengths of the {what} in tokens.", f"Histogram of tokens in {what}.")
    summaries = {name: one.summary() for name, one in lengths.items()}
    summaries["words, in characters"] = health.word_lengths.summary()
    headers = list(summaries["documents"])
    page.table(["", *headers], [[name, *(round(one[key], 1) for key in headers)] for name, one in summaries.items()])


def _vocabulary(page: Page, health: Health) -> None:
    page.heading("Vocabulary")
    measures = health.measures
    slope = "unknown (too few entries)" if measures["zipf_slope"] is None else number(round(measures["zipf_slope"], 2))
    page.text(
        f"{share(1 - measures['never_seen_share'])} of the {number(measures['vocabulary'])} entries occur in the text, "
        f"{share(1 - measures['rarely_seen_share'])} of them {RARE} times or more. In natural languages the frequency "
        f"of a token is about inversely proportional to its rank: a slope of −1. Here the slope is {slope}."
    )
    page.figure(lambda: _zipf(health), "Frequency of each token over its rank, compared with Zipf's law.")
    tokens = health.top_tokens[:20]
    page.figure(
        lambda: figures.bars([token for token, _ in tokens], [count for _, count in tokens], write=short,
                             xlabel="times seen"),
        "The twenty most frequent tokens.",
    )  # fmt: skip


def _zipf(health: Health) -> Figure:
    ranked = np.sort(health.token_counts[health.token_counts > 0])[::-1]
    ranks = np.unique(np.geomspace(1, len(ranked), 160).astype(int))
    law = figures.Series(ranks, ranked[min(9, len(ranked) - 1)] * min(10, len(ranked)) / ranks, dashed=True)
    return figures.lines(
        {"this corpus": (ranks, ranked[ranks - 1]), "Zipf's law": law},
        log_x=True, log_y=True, xlabel="rank", ylabel="times seen",
    )  # fmt: skip


def _language(page: Page, health: Health) -> None:
    page.heading("Comparison with natural language")
    measures = health.measures
    rows = [
        ["letters among the characters", share(measures["letters_share"]), "prose: above 90 %"],
        ["share of the 100 most frequent words", share(measures["frequent_words_share"]), "running text: 40 to 60 %"],
        [
            "entropy of characters in bits",
            f"{measures['character_entropy_bits']:.2f}",
            "English in lower case: 4.2 to 4.6",
        ],
        ["entropy of tokens in bits", f"{measures['token_entropy_bits']:.2f}", "8,000 entries: 9.5 to 10.5"],
        ["tokens in noise sentences", share(measures["noise_share"]), "below 1 %"],
        ["tokens in sentences of digits and symbols", share(measures["few_letters_share"]), "below 5 %"],
        ["HTML tags per 1,000 tokens", f"{measures['markup_per_1000_tokens']:.3f}", "below 1"],
        ["damaged characters", share(measures["damaged_share"]), "none"],
        ["words of more than 40 letters", share(measures["long_words_share"]), "below 0.5 %"],
    ]
    page.table(["measure", "here", "usual"], rows)
    kinds = {kind: count for kind, count in health.characters.items() if count}
    total = sum(kinds.values())
    page.figure(
        lambda: figures.bars(list(kinds), [count / total for count in kinds.values()], write=share,
                             xlabel="share of the characters"),
        "Kinds of characters.",
    )  # fmt: skip


def _repeats(page: Page, health: Health) -> None:
    page.heading("Copies and leaks")
    measures = health.measures
    looked = measures["repeats_looked_at_share"]
    page.table(
        ["measure", "here"],
        [
            ["documents that are exact copies of another", share(measures["repeated_documents_share"])],
            ["sentences of 8 tokens or more that are copies", share(measures["repeated_sentences_share"])],
            ["held-out sentences that are in the training text", share(measures["leaked_sentences_share"])],
            ["held-out documents with half or more in the training text", share(measures["leaked_documents_share"])],
        ],
    )
    every = "all sentences" if looked == 1 else f"a sample of {share(looked)} of the distinct sentences"
    page.text(f"Copies were counted among {every}, leaks in {number(measures['leak_documents_looked_at'])} "
              "held-out documents.")  # fmt: skip


def _samples(page: Page, health: Health) -> None:
    page.heading("Samples")
    page.text("Text as the model sees it, decoded from tokens.")
    for kind, title in SAMPLES.items():
        if texts := health.excerpts.get(kind):
            with page.details(title) as part:
                part.table(["excerpt"], [[text] for text in texts])
