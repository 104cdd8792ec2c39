"""Scaling studies: train a few small sizes, fit a power law to their losses, and predict the next size.

    from glassbert.evaluation.scaling import Study, StudyPlan

    plan = StudyPlan(sizes=(1, 1.5, 2, 2.5), tokens=(2_000_000,), predict=3, settings={"corpus": "corpora/mine"})
    outcome = Study("studies/first", plan, confirm=True).run()
    outcome.prediction(), outcome.verdict

`law` fits the power law, `plan` lists the runs, `budget` estimates their time, `study` trains them, `outcome` is the
result, `report` and `pictures` show it.
"""

from glassbert.evaluation.scaling.law import Law, fit_law
from glassbert.evaluation.scaling.outcome import Outcome
from glassbert.evaluation.scaling.plan import Point, StudyPlan
from glassbert.evaluation.scaling.study import Study
from glassbert.training.planning.expectation import Range

__all__ = ["Law", "Outcome", "Point", "Range", "Study", "StudyPlan", "fit_law"]
