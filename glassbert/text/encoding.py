"""`Encoding`: the result of tokenizing a text or a pair of texts.

[CLS] a [SEP]               type_ids 0 0 0
[CLS] a [SEP] b [SEP]       type_ids 0 0 0 1 1
"""

from __future__ import annotations

from dataclasses import dataclass, field

from glassbert.errors import TextError


@dataclass(frozen=True)
class Encoding:
    """A sequence of tokens; all lists have the same length.

    offsets              (start, end): the token covers text[start:end]; (0, 0) for added tokens
    type_ids             0 in the first text, 1 in the second
    attention_mask       0 on padding
    special_tokens_mask  1 on added [CLS], [SEP] and padding; 0 on a "[MASK]" that is part of the text
    word_ids             the index of the token's word in its text; None for added tokens
    """

    ids: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    type_ids: list[int] = field(default_factory=list)
    attention_mask: list[int] = field(default_factory=list)
    special_tokens_mask: list[int] = field(default_factory=list)
    word_ids: list[int | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)

    def append(self, token: str, id: int, offsets: tuple[int, int], word: int | None) -> None:
        """Append a token of the text."""
        self.ids.append(id)
        self.tokens.append(token)
        self.offsets.append(offsets)
        self.type_ids.append(0)
        self.attention_mask.append(1)
        self.special_tokens_mask.append(0)
        self.word_ids.append(word)

    def __add__(self, other: Encoding) -> Encoding:
        return Encoding(*(mine + theirs for mine, theirs in zip(self._columns, other._columns, strict=True)))

    def first(self, length: int) -> Encoding:
        """The first `length` tokens."""
        return Encoding(*(column[:length] for column in self._columns))

    def with_type(self, type_id: int) -> Encoding:
        ids, tokens, offsets, _, *rest = self._columns
        return Encoding(ids, tokens, offsets, [type_id] * len(self), *rest)

    def padded(self, length: int, token: str, id: int) -> Encoding:
        """Pad on the right to `length`; a longer encoding is returned unchanged."""
        missing = max(0, length - len(self))
        return self + Encoding(
            [id] * missing,
            [token] * missing,
            [(0, 0)] * missing,
            [0] * missing,
            [0] * missing,
            [1] * missing,
            [None] * missing,
        )

    @property
    def _columns(self) -> tuple[list, ...]:
        return (
            self.ids,
            self.tokens,
            self.offsets,
            self.type_ids,
            self.attention_mask,
            self.special_tokens_mask,
            self.word_ids,
        )


def added_token(token: str, id: int) -> Encoding:
    """An encoding of one token that is not part of the text, such as [CLS]."""
    return Encoding([id], [token], [(0, 0)], [0], [1], [1], [None])


def truncated(first: Encoding, second: Encoding | None, limit: int) -> tuple[Encoding, Encoding | None]:
    """Truncate both texts to `limit` tokens together: the longer one first, then both to half of the limit each."""
    if limit < 0:
        raise TextError("max_length is too small for the special tokens; use at least 3, or 5 for a pair")
    if second is None:
        return first.first(limit), None
    shorter, longer = sorted((len(first), len(second)))
    if shorter + longer > limit:
        longer = max(shorter, limit - shorter)
        if shorter + longer > limit:
            shorter, longer = limit // 2, limit - limit // 2
    # The comparison is strict: if both have the same length, the second gets the odd token.
    if len(first) > len(second):
        return first.first(longer), second.first(shorter)
    return first.first(shorter), second.first(longer)
