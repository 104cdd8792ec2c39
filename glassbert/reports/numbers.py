"""Numbers as people read them: 1,234,567 in a table, 1.23 M on a card, 12.3 % for a share."""

from __future__ import annotations

import math
from typing import Any

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: Any) -> str:
    """Whole numbers in groups of three, others with four digits that count."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (hasattr(value, "dtype") and value.dtype.kind in "iu"):
        return f"{int(value):,}"
    value = float(value)
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        return f"{value:.2e}"
    return f"{value:.4g}".replace("-", "−")


def short(value: float) -> str:
    """Three digits and a unit: 53,164,000 becomes 53.2 M."""
    for size, unit in UNITS:
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g} {unit}" if abs(value) < 999.5 * size else f"{value / size:,.0f} {unit}"
    return number(value)


def share(value: float | None) -> str:
    """A share as percent, with enough digits to tell small ones from nothing."""
    if value is None:
        return "–"
    percent = 100 * value
    if percent == 0:
        return "0 %"
    if abs(percent) < 0.001:
        return "< 0.001 %"
    digits = 1 if abs(percent) >= 1 else 2 if abs(percent) >= 0.1 else 3
    return f"{percent:.{digits}f} %"
