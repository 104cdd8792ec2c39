"""Scaling studies: a few small sizes, a law through their losses, and an honest word on the next one.

    from glassbert.evaluation.scaling import Study, StudyPlan

    plan = StudyPlan(sizes=(1, 1.5, 2, 2.5), tokens=(2_000_000,), predict=3, settings={"corpus": "corpora/mine"})
    outcome = Study("studies/first", plan, confirm=True).run()
    outcome.prediction(), outcome.verdict

`law` is the mathematics and needs nothing but numbers; `plan` and `shapes` say what is trained, `budget` how long it
takes, `study` trains it, `outcome` holds what came out, and `page`, `pictures`, `terminal` and `wording` show it.
"""

from glassbert.evaluation.scaling.law import Law, Range, fit_law
from glassbert.evaluation.scaling.outcome import Outcome
from glassbert.evaluation.scaling.plan import Point, StudyPlan
from glassbert.evaluation.scaling.study import Study

__all__ = ["Law", "Outcome", "Point", "Range", "Study", "StudyPlan", "fit_law"]
