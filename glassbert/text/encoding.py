"""An encoding: what a tokenizer gives for a text, ready for a model.

[CLS] a [SEP]               types 0 0 0
[CLS] a [SEP] b [SEP]       types 0 0 0 1 1
"""

from __future__ import annotations

from dataclasses import dataclass, field

from glassbert.errors import TextError


@dataclass(frozen=True)
class Encoding:
    """Tokens in a row; all lists have the same length.

    offsets              text[start:end] is what the token stands for; (0, 0) for what a text does not contain
    type_ids             0 in the first text, 1 in the second
    attention_mask       0 on padding
    special_tokens_mask  1 on [CLS], [SEP] and padding that were added; 0 on a "[MASK]" that stands in the text
    word_ids             the how-manieth word of its text a token belongs to; None for what was added
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
        """One more token of a text."""
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
        return Encoding(*(column[:length] for column in self._columns))

    def with_type(self, type_id: int) -> Encoding:
        ids, tokens, offsets, _, *rest = self._columns
        return Encoding(ids, tokens, offsets, [type_id] * len(self), *rest)

    def padded(self, length: int, token: str, id: int) -> Encoding:
        """With padding on the right up to `length`; a longer one stays as it is."""
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
    """A token that stands for nothing in the text."""
    return Encoding([id], [token], [(0, 0)], [0], [1], [1], [None])


def truncated(first: Encoding, second: Encoding | None, room: int) -> tuple[Encoding, Encoding | None]:
    """Both texts within `room` tokens: the longer one gives way first, then both, half the room each."""
    if room < 0:
        raise TextError("max_length leaves no room for the special tokens; 3 is the least that holds a token of text")
    if second is None:
        return first.first(room), None
    shorter, longer = sorted((len(first), len(second)))
    if shorter + longer > room:
        longer = max(shorter, room - shorter)
        if shorter + longer > room:
            shorter, longer = room // 2, room - room // 2
    # Which one is the longer is decided by strict comparison: of two equals the second gets the odd token.
    if len(first) > len(second):
        return first.first(longer), second.first(shorter)
    return first.first(shorter), second.first(longer)
