"""Texts without what makes no difference: case, punctuation, kinds of spaces."""

from __future__ import annotations

import re
import unicodedata

from glassbert.tasks.data import TaskData

NOT_WORDS = re.compile(r"(?:(?!-\d|(?<=\d)\.\d)[^\w])+")  # but -3 is not 3, and 1.5 not 15


def normalised(text: str) -> str:
    """ "Good  film!" and "good film" become the same; a text of punctuation alone stays as it is."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return NOT_WORDS.sub(" ", folded).strip() or folded.strip()


def normalised_texts(data: TaskData) -> list[str]:
    """One for each example; of a pair both texts count."""
    texts = [normalised(text) for text in data.texts]
    if data.pairs is None:
        return texts
    return [f"{first}\n{normalised(second)}" for first, second in zip(texts, data.pairs, strict=True)]
