"""The limits of each measure, and the texts of the findings beyond them.

A row of CHECKS has a measure, its limits for a problem, a warning and a note, the meaning, and the remedy. The limits
were set so that seven kinds of good English text (novels, encyclopedia, textbooks, speeches, dictionary, manuals,
single sentences) give a note at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from glassbert.reports import number, share, short
from glassbert.text.corpus.health.measures import LONG_WORD, RARE
from glassbert.text.corpus.health.statistics import GIANT_SENTENCE

LEVELS = ("problem", "warning", "note")
BUILD = "Run `glassbert corpus build` again"


@dataclass(frozen=True)
class Check:
    """A measure and its limits (problem, warning, note); None if there is no such level."""

    measure: str
    limits: tuple[float | None, float | None, float | None]
    text: str
    evidence: str
    remedy: str
    samples: str = ""  # the kind of excerpts to show
    write: Callable[[float], str] = share
    below: bool = False  # whether values below the limits are bad
    show: int = 3  # maximum number of excerpts

    def level(self, value: float) -> str | None:
        for level, limit in zip(LEVELS, self.limits, strict=True):
            if limit is not None and (value < limit if self.below else value > limit):
                return level
        return None


CHECKS = (
    # ---- what the build removed or changed ----
    Check(
        "removed_duplicates_share", (None, 0.4, 0.1),
        "Many documents of the sources were copies of other documents.",
        "{value} of the documents read were exact or near copies and were removed.",
        "Training is safe, but check the sources: the same file or page may have been saved several times.",
        "removed_exact_duplicates",
    ),
    Check(
        "removed_noise_share", (0.25, 0.02, 0.001),
        "Some documents were binary data or tables of symbols, not text.",
        "{value} of the documents read had more symbols and digits than letters and were left out.",
        "Check the source: if it is an image, a program or a compressed file, remove it from the sources.",
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
        "Many documents were too short and were left out.",
        "{value} of the documents read had fewer characters than `--min-characters`.",
        f"{BUILD} with a smaller `--min-characters` to keep them, or another `--layout` if documents were split.",
        "removed_too_short",
    ),
    Check(
        "html_documents_share", (None, 0.05, 0.001),
        "Some documents were HTML pages.",
        "HTML tags were removed from {value} of the documents read; menus and footers may remain.",
        "For web pages, extract the article text first (for example with trafilatura) and build from that.",
    ),
    Check(
        "cut_documents", (None, 0.0, None),
        "A very long line or document was cut.",
        "{value} times there was no end of a document within 8 MB of text.",
        f"{BUILD} with `--layout lines` if every line is a document; otherwise put blank lines between documents.",
        write=number,
    ),
    Check(
        "empty_sources", (None, 0, None),
        "Some sources are not in the corpus.",
        "All documents of {value} sources were left out.",
        "See the table of what the build removed, and the examples below it.",
        "empty_sources", number,
    ),
    # ---- what is in the corpus ----
    Check(
        "repeated_documents_share", (0.2, 0.02, None),
        "The corpus contains copies of the same documents.",
        "{value} of the documents are exact copies of another one. A model memorises copies.",
        f"{BUILD} without `--keep-duplicates`.",
        "repeated_documents",
    ),
    Check(
        "repeated_sentences_share", (0.5, 0.25, 0.1),
        "Many sentences occur more than once.",
        "{value} of the sentences of 8 tokens or more are copies of another one.",
        "Often these are page headers, licences or menus: remove them and copied documents from the sources.",
        "repeated_sentences",
    ),
    Check(
        "markup_per_1000_tokens", (20.0, 1.0, None),
        "The text contains HTML.",
        "{value} tags or entities per 1,000 tokens.",
        "Extract the text of web pages first (for example with trafilatura), and build without `--no-clean`.",
        "markup", number,
    ),
    Check(
        "noise_share", (0.1, 0.01, None),
        "The text contains binary data: sequences of single characters that are not words.",
        "{value} of the tokens are in sentences of mostly single characters or unknown tokens.",
        "Remove the source with the smallest share of letters, and build without `--no-clean`.",
        "noise",
    ),
    Check(
        "damaged_share", (0.01, 0.0001, None),
        "The text contains damaged characters.",
        "{value} of the characters are control characters or �, which replaces bytes that could not be decoded.",
        "Find the encoding of the file and convert it: `iconv -f LATIN1 -t UTF-8 old.txt > new.txt`.",
    ),
    Check(
        "few_letters_share", (None, 0.2, 0.05),
        "A large part of the text is digits and symbols.",
        "{value} of the tokens are in sentences of mostly digits and symbols: tables, code, formulas.",
        "This is fine for a model of tables or code. Otherwise remove these sources.",
        "few_letters",
    ),
    Check(
        "longest_sentence", (None, 16_384, None),
        "There is a very long sentence.",
        "The longest sentence has {value} tokens.",
        "Check whether line breaks and full stops were lost; put the items of a list or table on separate lines.",
        "longest_sentence", number, show=1,
    ),
    Check(
        "giant_share", (0.1, 0.01, None),
        "Much of the text has no sentence ends.",
        f"{{value}} of the tokens are in sentences of {GIANT_SENTENCE:,} tokens or more.",
        "Put line breaks between paragraphs, and blank lines between documents.",
        "giant",
    ),
    Check(
        "longest_document_share", (None, 0.5, 0.25),
        "One document is a large part of the text.",
        "{value} of the tokens belong to the longest document.",
        "If the file contains many documents, put blank lines between them, or build with another `--layout`.",
        "longest_document", show=1,
    ),
    Check(
        "long_words_share", (None, 0.005, None),
        f"There are many words of more than {LONG_WORD} letters.",
        "{value} of the words are that long: missing spaces, addresses, or encoded data.",
        "Check the longest words below; repair or remove the source.",
    ),
    Check(
        "letters_share", (0.5, 0.7, None),
        "Too few of the characters are letters.",
        "{value} of the characters are letters; in prose more than 90 % are.",
        "Find the source with the smallest share of letters in the table of sources.",
        below=True,
    ),
    Check(
        "frequent_words_share", (0.1, 0.2, None),
        "The word frequencies are not those of a natural language.",
        "The 100 most frequent words are {value} of all words; in running text they are 40 to 60 %.",
        "Check the list of the most frequent tokens. A model learns little grammar from lists of names or numbers.",
        below=True,
    ),
    Check(
        "zipf_slope", (None, -0.5, None),
        "All tokens are about equally frequent, as in random data.",
        "The slope of log frequency over log rank is {value}; in natural languages it is about −1.",
        "Check the samples below: this may be compressed, encrypted or random data.",
        write=number,
    ),
    # ---- whether the tokenizer fits ----
    Check(
        "unknown_share", (0.05, 0.005, None),
        "Many words are unknown to the tokenizer.",
        "{value} of the tokens are [UNK]; a model cannot learn from them.",
        f"{BUILD} without `--tokenizer`, which trains a tokenizer on your text.",
        "unknown",
    ),
    Check(
        "tokens_per_word", (3.0, 2.0, None),
        "Words are split into many tokens.",
        "{value} tokens per word on average; 1.1 to 1.5 is usual with a suitable vocabulary.",
        f"{BUILD} without `--tokenizer`, which trains one on your text, and with a larger `--vocab-size`.",
        write=number,
    ),
    Check(
        "never_seen_share", (None, 0.4, 0.15),
        "Many entries of the vocabulary never occur.",
        "{value} of the entries do not occur in the text. Their embeddings stay random and cost memory and time.",
        f"{BUILD} without `--tokenizer` and with a smaller `--vocab-size`, unless the model will read other text.",
    ),
    Check(
        "rarely_seen_share", (None, None, 0.4),
        "Much of the vocabulary is rare.",
        f"{{value}} of the entries occur fewer than {RARE} times, too rarely to learn their meaning.",
        "Use more text, or build with a smaller `--vocab-size`.",
    ),
    # ---- the amount of text, and the held-out text ----
    Check(
        "tokens", (None, 20_000, 1_000_000),
        "There is little text for pretraining.",
        "{value} tokens. A model of a few million parameters needs tens of millions to learn grammar well.",
        "Enough for a first test. For better results add text, or fine-tune a pretrained model.",
        write=short, below=True,
    ),
    Check(
        "validation_tokens", (1, 10_000, None),
        "Too little text is held out to measure progress.",
        "{value} tokens are held out; with so few the held-out loss is mostly noise.",
        f"{BUILD} with a larger share, for example `--validation 0.05`, or use more documents.",
        write=number, below=True,
    ),
    Check(
        "validation_share", (None, None, 0.2),
        "Much of the text is held out.",
        "{value} of the tokens are not used for training.",
        f"{BUILD} with a smaller `--validation`; 0.01 is enough for most corpora.",
    ),
    Check(
        "leaked_documents_share", (0.2, 0.05, 0.01),
        "Some held-out documents are also in the training text.",
        "{value} of the held-out documents have half of their sentences or more in the training text, so the held-out "
        "loss will be too low.",
        f"{BUILD} with a lower similarity threshold for copies: `--near-duplicates 0.5`.",
        "leaked_documents",
    ),
    Check(
        "leaked_sentences_share", (None, 0.2, 0.05),
        "Some held-out sentences are also in the training text.",
        "{value} of the held-out sentences of 8 tokens or more occur in the training text.",
        "Usually these are page headers, licences or quotations: remove them from the sources if there are many.",
        "repeated_sentences",
    ),
)  # fmt: skip
