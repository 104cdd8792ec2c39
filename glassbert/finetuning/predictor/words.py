"""A text as words, for models that tag words: punctuation stands alone, as in the data such models learn from."""

from __future__ import annotations

import re

# Words with their inner apostrophes, points and hyphens (don't, U.S., well-known), addresses, tags and names of
# people as they stand in tweets, or any single sign.
WORDS = re.compile(r"https?://\S+|[@#]\w+|\w+(?:['’.-]\w+)*(?:(?<=\b\w\.\w)\.)?|[^\w\s]", re.UNICODE)


def split_words(text: str) -> list[str]:
    return WORDS.findall(text)
