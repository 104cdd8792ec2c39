"""The colours of the house, in light and in dark, for pages and pictures alike.

The six series differ in hue and in lightness, so that they stay apart for every common kind of colour blindness. Text
has a contrast of 4.5 or more on paper and cards, lines one of 3 or more.
"""

from __future__ import annotations

LIGHT = {
    "paper": "#ffffff",
    "card": "#f6f5f1",
    "ink": "#1d1f24",
    "muted": "#5b606a",
    "grid": "#e4e1da",
    "line": "#d5d1c7",
    "series-1": "#0b5fa5",
    "series-2": "#d9580d",
    "series-3": "#0f8a66",
    "series-4": "#b0478f",
    "series-5": "#a37a00",
    "series-6": "#45349b",
    "problem": "#b3261e",
    "warning": "#8a5300",
    "note": "#0b5fa6",
    "good": "#0a7354",
}
DARK = {
    "paper": "#15171b",
    "card": "#1e2126",
    "ink": "#e9e7e2",
    "muted": "#a4a8b0",
    "grid": "#31353c",
    "line": "#3a3e46",
    "series-1": "#5fb2ee",
    "series-2": "#ff9457",
    "series-3": "#35b38c",
    "series-4": "#ea86c3",
    "series-5": "#e3bb4a",
    "series-6": "#a9a6ff",
    "problem": "#ff8a80",
    "warning": "#f2b24c",
    "note": "#5fb2ef",
    "good": "#3cc79d",
}
SERIES = [name for name in LIGHT if name.startswith("series-")]


def variables() -> str:
    """The colours as CSS variables: light for daylight and print, dark for screens whose owner wants it dark."""
    light, dark = (" ".join(f"--{name}: {colour};" for name, colour in theme.items()) for theme in (LIGHT, DARK))
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
