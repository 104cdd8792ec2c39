"""What the numbers mean: the limits of a healthy corpus, and what to do beyond them.

CHECKS is the whole of it: a row names a measure, the value from which it is worth a note, a warning or a problem, what
that means, and the remedy. The limits were set so that seven kinds of healthy English (novels, encyclopedia, textbooks,
speeches, dictionary, manuals, single sentences) earn a note at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from glassbert.reports import number, share, short
from glassbert.text.corpus.health.collect import GIANT_SENTENCE
from glassbert.text.corpus.health.measures import LONG_WORD, RARE

LEVELS = ("problem", "warning", "note")
BUILD = "Run `glassbert corpus build` again"


@dataclass(frozen=True)
class Check:
    """A measure and its limits, as (problem, warning, note); None where there is no such level."""

    measure: str
    limits: tuple[float | None, float | None, float | None]
    text: str
    evidence: str
    remedy: str
    samples: str = ""  # which excerpts show it
    write: Callable[[float], str] = share
    below: bool = False  # whether small values are the bad ones
    show: int = 3  # how many excerpts at most

    def level(self, value: float) -> str | None:
        for level, limit in zip(LEVELS, self.limits, strict=True):
            if limit is not None and (value < limit if self.below else value > limit):
                return level
        return None


CHECKS = (
    # ---- what the builder met in the sources ----
    Check(
        "removed_duplicates_share", (None, 0.4, 0.1),
        "A large part of what you gave was copies of other documents.",
        "{value} of the documents read were exact or near copies. They were removed; the corpus is that much smaller.",
        "Training is safe. But check the sources: was the same file given twice, or the same page saved often?",
        "removed_exact_duplicates",
    ),
    Check(
        "removed_noise_share", (0.25, 0.02, 0.001),
        "Some documents were binary noise or tables of signs instead of text.",
        "{value} of the documents read had more signs and digits than letters and were left out.",
        "Look at the source: is it a picture, a program or a compressed file? Then take it off the list of sources.",
        "removed_noise",
    ),
    Check(
        "removed_unreadable_share", (0.25, 0.01, 0.0),
        "Some documents were not valid UTF-8.",
        "{value} of the documents read could not be decoded and were left out.",
        "Convert the file (`iconv -f LATIN1 -t UTF-8 old.txt > new.txt`) and build again.",
    ),
    Check(
        "removed_short_share", (None, 0.5, 0.2),
        "Many documents were too short to keep.",
        "{value} of the documents read had fewer characters than `--min-characters`.",
        f"{BUILD} with a smaller `--min-characters` to keep them, or another `--layout` if they were torn apart.",
        "removed_too_short",
    ),
    Check(
        "html_documents_share", (None, 0.05, 0.001),
        "Some documents were HTML pages.",
        "From {value} of the documents read the tags were taken out; menus and footers may still be there.",
        "For web pages, extract the article text first (with trafilatura, for instance) and build from that.",
    ),
    Check(
        "cut_documents", (None, 0.0, None),
        "A giant line or document had to be cut.",
        "{value} times the text went on for more than 8 MB without the end of a document.",
        f"{BUILD} with `--layout lines` if every line is a document; otherwise put blank lines between documents.",
        write=number,
    ),
    Check(
        "empty_sources", (None, 0, None),
        "Nothing is left of some sources.",
        "{value} sources gave documents, of which none is in the corpus.",
        "Look at the table of what the builder did, and at the examples below it.",
        "empty_sources", number,
    ),
    # ---- what is in the corpus ----
    Check(
        "repeated_documents_share", (0.2, 0.02, None),
        "The corpus holds copies of the same documents.",
        "{value} of the documents are exact copies of another one. A model learns copies by heart, not the language.",
        f"{BUILD} without `--keep-duplicates`.",
        "repeated_documents",
    ),
    Check(
        "repeated_sentences_share", (0.5, 0.25, 0.1),
        "Many sentences stand in the corpus more than once.",
        "{value} of the sentences of 8 tokens or more are copies of another one.",
        "Often these are page headers, licences or menus: take them out of the sources, and copied documents as well.",
        "repeated_sentences",
    ),
    Check(
        "markup_per_1000_tokens", (20.0, 1.0, None),
        "There is HTML in the text.",
        "{value} tags or entities in 1,000 tokens.",
        "Extract the text of web pages first (with trafilatura, for instance); build with cleaning, if it was off.",
        "markup", number,
    ),
    Check(
        "noise_share", (0.1, 0.01, None),
        "There is binary noise in the text: runs of single signs that make no words.",
        "{value} of the tokens stand in sentences that fall apart into single characters or unknown tokens.",
        "Take the source with the smallest share of letters off the list; build with cleaning, if it was off.",
        "noise",
    ),
    Check(
        "damaged_share", (0.01, 0.0001, None),
        "There are damaged characters in the text.",
        "{value} of the characters are control characters or the sign � that stands for bytes nobody could read.",
        "Find the encoding of the file and convert it: `iconv -f LATIN1 -t UTF-8 old.txt > new.txt`.",
    ),
    Check(
        "few_letters_share", (None, 0.2, 0.05),
        "A good part of the text is digits and signs.",
        "{value} of the tokens stand in sentences that are mostly digits and signs: tables, code, formulas.",
        "Fine if you want a model of tables or code. Otherwise leave these sources out.",
        "few_letters",
    ),
    Check(
        "longest_sentence", (None, 16_384, None),
        "There is a giant line: text that goes on and on without the end of a sentence.",
        "The longest has {value} tokens.",
        "Look whether line breaks and full stops were lost on the way; a list or a table may need lines of its own.",
        "longest_sentence", number, show=1,
    ),
    Check(
        "giant_share", (0.1, 0.01, None),
        "Much of the text has no ends of sentences.",
        f"{{value}} of the tokens stand in sentences of {GIANT_SENTENCE:,} tokens or more.",
        "Give the text line breaks between paragraphs, and blank lines between documents.",
        "giant",
    ),
    Check(
        "longest_document_share", (None, 0.5, 0.25),
        "One document holds a large part of the text.",
        "{value} of the tokens belong to the longest document.",
        "If it is many documents in one file, put blank lines between them, or build with another `--layout`.",
        "longest_document", show=1,
    ),
    Check(
        "long_words_share", (None, 0.005, None),
        f"There are many words of more than {LONG_WORD} letters.",
        "{value} of the words are that long: spaces lost, addresses, or encoded data.",
        "Look at the longest words below; repair the source or take it off the list.",
    ),
    Check(
        "letters_share", (0.5, 0.7, None),
        "Too few of the characters are letters.",
        "{value} of the characters are letters; in prose it is more than 90 %.",
        "Look at the table of sources for the one with the smallest share of letters.",
        below=True,
    ),
    Check(
        "frequent_words_share", (0.1, 0.2, None),
        "The text does not look like a language.",
        "The 100 most frequent words make up {value} of all words; in running text it is 40 to 60 %.",
        "Look at the list of most frequent tokens. Lists of names, keys or numbers teach a model little grammar.",
        below=True,
    ),
    Check(
        "zipf_slope", (None, -0.5, None),
        "All tokens are about equally frequent, as in noise.",
        "Frequency falls with rank by a slope of {value}; in languages it is about −1.",
        "Look at the samples below: is this text? Compressed, encrypted or random data looks like this.",
        write=number,
    ),
    # ---- whether the tokenizer fits ----
    Check(
        "unknown_share", (0.05, 0.005, None),
        "The tokenizer does not know many of the words.",
        "{value} of the tokens are [UNK]: nothing can be learnt from them.",
        f"{BUILD} without `--tokenizer`: then one is trained on your own text.",
        "unknown",
    ),
    Check(
        "tokens_per_word", (3.0, 2.0, None),
        "Words fall into many small pieces.",
        "{value} tokens for a word on average; 1.1 to 1.5 is usual with a vocabulary that fits.",
        f"{BUILD} without `--tokenizer`, so that one is trained on your text, and with a larger `--vocab-size`.",
        write=number,
    ),
    Check(
        "never_seen_share", (None, 0.4, 0.15),
        "Many entries of the vocabulary never occur.",
        "{value} of the entries are not in the text once. Their embeddings stay random and cost memory and time.",
        f"{BUILD} without `--tokenizer` and with a smaller `--vocab-size`, unless the model will read other text.",
    ),
    Check(
        "rarely_seen_share", (None, None, 0.4),
        "Much of the vocabulary is rare.",
        f"{{value}} of the entries occur fewer than {RARE} times: too seldom to learn what they mean.",
        "Use more text, or build with a smaller `--vocab-size`.",
    ),
    # ---- whether there is enough, and whether it can be measured ----
    Check(
        "tokens", (None, 20_000, 1_000_000),
        "This is little text to pretrain on.",
        "{value} tokens. A model of a few million parameters wants tens of millions to learn grammar well.",
        "Good for a first try. For more, add text, or fine-tune a pretrained model instead of starting from nothing.",
        write=short, below=True,
    ),
    Check(
        "validation_tokens", (1, 10_000, None),
        "Too little text is held out to measure progress.",
        "{value} tokens are held out; with so few the held-out loss is mostly chance.",
        f"{BUILD} with a larger share, for instance `--validation 0.05`, or give more documents.",
        write=number, below=True,
    ),
    Check(
        "validation_share", (None, None, 0.2),
        "Much of the text is held out.",
        "{value} of the tokens are never trained on.",
        f"{BUILD} with a smaller `--validation`; 0.01 is enough for most corpora.",
    ),
    Check(
        "leaked_documents_share", (0.2, 0.05, 0.01),
        "Some held-out documents are in the training text as well.",
        "{value} of the held-out documents have half of their sentences or more in the training text: the held-out "
        "loss will look better than the model is.",
        f"{BUILD} with a lower bar for what counts as a copy: `--near-duplicates 0.5`.",
        "leaked_documents",
    ),
    Check(
        "leaked_sentences_share", (None, 0.2, 0.05),
        "Some held-out sentences are in the training text as well.",
        "{value} of the held-out sentences of 8 tokens or more occur in training.",
        "Usually page headers, licences or quotations: take them out of the sources if there are many.",
        "repeated_sentences",
    ),
)  # fmt: skip
