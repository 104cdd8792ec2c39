"""Reports: one look for every page the program writes.

    from glassbert.reports import Page, figures

    page = Page("A small run", "Mini-BERT, five minutes")
    page.facts([("Held-out loss", 4.31), ("Tokens", 12_400_000, "two epochs")])
    page.figure(lambda: figures.lines({"loss": (steps, losses)}, xlabel="step"), "The loss falls.")
    page.write("report.html")

A page is one file that needs neither a network nor a script, and reads well in light, in dark and in print. Pictures
need matplotlib (`pip install "glassbert[plots]"`); a page without it says so and keeps its numbers.
"""

from glassbert.reports import figures
from glassbert.reports.numbers import number, share, short
from glassbert.reports.page import Page
from glassbert.reports.section import Html, Section

__all__ = ["Html", "Page", "Section", "figures", "number", "share", "short"]
