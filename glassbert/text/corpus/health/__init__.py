"""The health of a corpus: what is in it, what is wrong with it, what to do about it.

    health = examine(Corpus.open("corpus"))
    print(health.verdict, [finding.text for finding in health.findings])
    health_page(health).write("report.html")

The way of the numbers: `pieces` (what each vocabulary entry is) -> `scan` (sums for every sentence) -> `collect`
(everything a report needs, in one pass) -> `measures` -> `checks` (their limits) -> `findings` -> `page`.
"""

from glassbert.text.corpus.health.card import Health
from glassbert.text.corpus.health.checks import CHECKS
from glassbert.text.corpus.health.examine import examine
from glassbert.text.corpus.health.findings import Finding
from glassbert.text.corpus.health.page import health_page

__all__ = ["CHECKS", "Finding", "Health", "examine", "health_page"]
