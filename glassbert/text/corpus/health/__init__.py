"""Check a corpus before training: statistics, findings with remedies, and an HTML page.

    health = examine(Corpus.open("corpus"))
    print(health.verdict, [finding.text for finding in health.findings])
    health_page(health).write("report.html")

The modules in the order of use: `vocabulary_tables` (properties of each entry), `scan` (sums per sentence),
`statistics` (sums and samples of the corpus, in one pass), `measures`, `checks` (their limits), `report`, `page`.
"""

from glassbert.text.corpus.health.checks import CHECKS
from glassbert.text.corpus.health.page import health_page
from glassbert.text.corpus.health.report import Finding, Health, examine

__all__ = ["CHECKS", "Finding", "Health", "examine", "health_page"]
