"""Number formats: 1,234,567 in tables, 1.23 M on cards, 12.3 % for shares."""

from __future__ import annotations

import math
from typing import Any

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: Any) -> str:
    """Integers with thousands separators, other numbers with four significant digits."""
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
    """Three significant digits and a unit: 53,164,000 becomes 53.2 M."""
    for size, unit in UNITS:
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g} {unit}" if abs(value) < 999.5 * size else f"{value / size:,.0f} {unit}"
    return number(value)


def share(value: float | None) -> str:
    """A share in percent, with more digits for small shares."""
    if value is None:
        return "–"
    percent = 100 * value
    if percent == 0:
        return "0 %"
    if abs(percent) < 0.001:
        return "< 0.001 %"
    digits = 1 if abs(percent) >= 1 else 2 if abs(percent) >= 0.1 else 3
    return f"{percent:.{digits}f} %"
