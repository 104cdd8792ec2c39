"""A factor on the learning rate for every parameter. Zero means that it stands still: no step, no decay, no memory.

Few factors are different (one a layer, say), and the scalars of a step depend on the learning rate alone. So
parameters are sorted into groups of one factor, and a step computes its scalars once for each group. Compiled code has
the groups inside, and their factors come from outside: other factors of the same groups compile nothing anew.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping

from glassbert.errors import TrainingError


class Rates:
    """Checked factors of the parameters `names`; what is not given has the factor 1."""

    def __init__(self, names: Collection[str], given: Mapping[str, float] | None):
        for name, factor in (given or {}).items():
            if name not in names:
                close = difflib.get_close_matches(name, names, 1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise TrainingError(f"rates has a factor for {name!r}, which is no parameter of this model{hint}")
            if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 <= factor < math.inf:
                raise TrainingError(f"the rate of {name!r} must be a number of at least 0, got {factor!r}")
        factors = {name: float((given or {}).get(name, 1.0)) for name in names}
        self.given = None if given is None else dict(given)
        self.groups = tuple(dict.fromkeys(factor for factor in factors.values() if factor > 0))
        if not self.groups:
            raise TrainingError("every rate is 0, so nothing would learn; give some parameter a rate above 0")
        self.group_of = {name: self.groups.index(factor) for name, factor in factors.items() if factor > 0}
        self.learning = None if len(self.group_of) == len(factors) else frozenset(self.group_of)
