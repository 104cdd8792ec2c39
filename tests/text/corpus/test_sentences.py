"""Sentence splitting, with full stops that do not end a sentence."""

import pytest

from glassbert.text.corpus.sentences import split_sentences


@pytest.mark.parametrize(
    "marked",
    [
        "One.| Two!| Three?",
        "Mr. Smith met Dr. Jones on St. James St. in London.| They talked.",
        "J. R. R. Tolkien wrote it.| I read it.",
        "It was I.| You know that.",
        "Pi is 3.14, and No. 5 is on p. 12 of vol. 2.| See Fig. 3 there.",
        "No.| Never again.",
        "He said, “Come here.”| She came.",
        'He asked, "Why?" and left.| "Because!"| she said.'.replace("| she", " she"),
        "(It rained.)| The sun came out.",
        "Apples, pears, etc. are fruit.| We sell tea, coffee, etc.| The shop is open.",
        "The U.S. Senate met at 5 p.m. Friday.| It rose at 9 p.m.| He went home.",
        "Wait... what?| Oh… Never mind.".replace("… Never", "…| Never"),
        "1. Introduction to the matter.| 2. The rest.".replace("| 2. The", "| 2. The"),
        "He was born in 1999.| In 2001 he moved.",
        "See glassbert.text.corpus for this.| It is e.g. a package.",
        "今日は。| 元気ですか？| はい。".replace("| ", "|"),
        "Привет.| Как дела?",
        "no capital. so no end",
        "Done!!!| Really?!| Yes.",
        "",
    ],
)
def test_sentences(marked: str) -> None:
    expected = [part.strip() for part in marked.split("|")] if marked else []
    assert split_sentences(marked.replace("|", "")) == expected


def test_nothing_is_lost() -> None:
    text = 'A. B. "C." D? (E!) F... g. 7. H etc. The end. ...'
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
