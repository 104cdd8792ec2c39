"""Split paragraphs into sentences by rules.

A sentence ends at . ! ? … and the quotes and brackets that follow, if white space comes next and then a possible start
of a sentence: a capital, a digit, an opening quote or bracket, or a letter of a script without capitals. A full stop
does not end a sentence after some words:

    Mr. Dr. St.           after a title: never
    J. R. R. Tolkien      after an initial: never
    No. 5, p. 12, Fig. 3  after an abbreviation before its number: never
    etc. a.m. U.S. Inc.   only before a word that usually starts a sentence, such as "The" or "But"
    1. Introduction       after the number of a list item: never

Chinese and Japanese full stops need no space after them. The abbreviations are English; text in other languages is
split somewhat too often.
"""

from __future__ import annotations

import re

CLOSING = "\"'”’»)\\]}"
SPACED = rf"[.!?…]+[{CLOSING}]*\s+(?=[^\s.,;:!?)\]}}%a-zà-öø-ÿ])"
CANDIDATE = re.compile(SPACED)
CANDIDATE_OR_IDEOGRAPHIC = re.compile(rf"{SPACED}|[。！？]+[{CLOSING}」』）]*(?=\S)")  # three times slower to search
IDEOGRAPHIC_STOPS = "。！？"


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


NEVER = _words(
    "mr mrs ms messrs mme mlle m dr prof st ste mt ft rev hon capt col gen lt sgt maj adm gov sen rep pres supt "
    "esq fr sra msgr cf viz vs al e.g i.e approx ca op ibid seq"
)
BEFORE_NUMBERS = _words("no nos p pp fig figs vol vols ch chap sec art eq eqs ed eds sect par v")
SOMETIMES = _words("etc inc ltd co corp bros jr sr dept univ a.m p.m u.s u.k u.n ph.d d.c b.c a.d m.d b.a m.a")
STARTERS = _words(
    "The A An This That These Those He She It They We You I In On At But And If When While After Before As There Here "
    "His Her Its Their Our My What Why How Who Where So Then For By To From With Although However Since Once"
)
NEXT_WORD = re.compile(r"\w+")
LONGEST_ABBREVIATION = 8


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, without the white space between them."""
    sentences = []
    begin = 0
    ideographic = not paragraph.isascii() and any(stop in paragraph for stop in IDEOGRAPHIC_STOPS)
    for match in (CANDIDATE_OR_IDEOGRAPHIC if ideographic else CANDIDATE).finditer(paragraph):
        stop = match.start()
        if paragraph[stop] == "." and _continues(paragraph, begin, stop, match.end()):
            continue
        sentences.append(paragraph[begin : match.end()].rstrip())
        begin = match.end()
    if begin < len(paragraph):
        sentences.append(paragraph[begin:].rstrip())
    return sentences


def _continues(text: str, begin: int, stop: int, following: int) -> bool:
    """Whether the full stop at `stop` belongs to a word, so that the sentence from `begin` continues at `following`."""
    space = text.rfind(" ", max(begin, stop - LONGEST_ABBREVIATION), stop)
    if space < 0 and stop - begin > LONGEST_ABBREVIATION:
        return False  # a long word
    word = text[max(space + 1, begin) : stop].lstrip("(\"'“‘[«")
    if not word:
        return False
    if len(word) == 1:
        initial = word.isupper() and word != "I"
        return initial or (word.isdigit() and stop - begin <= 2) or _before_number(word, text, following)
    lowered = word.lower()
    if lowered in NEVER:
        return True
    if lowered in SOMETIMES or "." in word:
        next_word = NEXT_WORD.match(text, following)
        return next_word is not None and next_word[0] not in STARTERS
    if lowered in BEFORE_NUMBERS:
        return _before_number(lowered, text, following)
    return word.isdigit() and stop - begin == len(word)


def _before_number(word: str, text: str, following: int) -> bool:
    return word in BEFORE_NUMBERS and text[following].isdigit()
