"""Cleaning rules: what they remove, what they keep, and what they count."""

from __future__ import annotations

from collections import Counter

from glassbert.text.corpus.cleaning import RULES, clean
from glassbert.text.corpus.markdown import plain_text


def cleaned(text: str, least: int = 0) -> tuple[list[str], dict[str, int]]:
    counts: Counter[str] = Counter()
    lines, _ = clean(text, counts, least)
    assert set(counts) <= set(RULES)
    return lines, {name: count for name, count in counts.items() if count}


def test_good_text_stays_as_it_is() -> None:
    text = "Größe, naïve café: 5 € für «alle».\nहिन्दी में क्‍ष, فارسی می‌خواهم, 👩‍🚀 日本語。"
    assert cleaned(text) == (text.split("\n"), {})


def test_control_characters_and_spaces() -> None:
    lines, counts = cleaned("A\u00ad word\x00 with\u200b things\u00a0 in\tit.  \n\n  Second\x0cThird")
    assert lines == ["A word with things in it.", "Second", "Third"]
    assert counts == {"control_characters": 3, "spaces_squeezed": 2}


def test_lines_without_letters() -> None:
    lines, counts = cleaned("A line of words\n* * *\n- 12 -\n=====\nAnother line")
    assert lines == ["A line of words", "Another line"] and counts == {"lines_without_letters": 3}


def test_repeated_lines() -> None:
    header = "The Annals of Somewhere, volume two"
    pages = [f"{header}\nThis is the text of page {page}\nYes." for page in "abcd"]
    lines, counts = cleaned("\n".join(pages))
    assert lines.count(header) == 1 and lines.count("Yes.") == 4 and counts == {"repeated_lines": 3}
    assert cleaned("\n".join(pages[:3]))[0].count(header) == 3


def test_html() -> None:
    page = (
        "<!doctype html><html><head><title>T</title><style>p {}</style></head><body><script>var a = 1 < 2;</script>"
        "<p>Fish &amp; chips are <b>good</b>.</p><p>So is tea.</p><!-- not this --><br/></body></html>"
    )
    lines, counts = cleaned(page)
    assert lines == ["Fish & chips are good.", "So is tea."] and counts["html_documents"] == 1
    prose = "Use </b> after <b>, says the manual, if x < y and y > z. " * 1
    assert cleaned(prose)[0] == [prose.strip()]


def test_scripts_full_of_marks_are_no_noise() -> None:
    for text in ("की कि कू के कै को कौ कं कः" * 9, "ที่นี่มีผู้รู้", "ក្រុំក្រៀម", "שָׁלוֹם", "תּוֹרָה"):
        assert cleaned(text)[0]


def test_noise_and_short_documents() -> None:
    assert cleaned("\x01\x02%$#@!^&*()_+{}0123456789" * 20) == ([], {"noise": 1})
    assert cleaned("12 34 56 78\n" * 50)[1].keys() <= {"noise", "too_short", "lines_without_letters"}
    assert cleaned("Too short.", 20) == ([], {"too_short": 1})


def test_markdown() -> None:
    text = """---
title: A note
---
# The *first* heading #

Some **bold** text that
is [wrapped](http://example.org/a_(b)) here, with `code` and a snake_case name.

```python
print("# not this")
```

~~~
nor this
~~~

- one item
- [x] another
  that goes on
1. numbered

> quoted words

| a | b |
|---|---|
| 1 | 2 |

    indented code

![a picture](x.png)
<!-- a
comment -->
Setext heading
==============
[ref]: http://example.org
The end[^1], with \\*stars\\*.
"""
    assert plain_text(text).split("\n") == [
        "The first heading",
        "Some bold text that is wrapped here, with code and a snake_case name.",
        "one item",
        "another that goes on",
        "numbered",
        "quoted words",
        "Setext heading",
        "The end, with *stars*.",
    ]
