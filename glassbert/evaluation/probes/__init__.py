"""Probes: classifiers on the layers of a model, with control tasks, random weights and word types as baselines.

    from glassbert.evaluation.probes import probe, probe_task

    @probe("long", title="Length of the word")
    def long(table):
        return [["long" if len(word) > 6 else "short" for word in words] for words in table.column("words")]

`word_vectors` computes a vector for every word and layer in one pass, `make_questions` turns annotations into labels,
`probe_task` fits all probes, and `Scorer` computes measures with intervals over sentences. The suite "probes" does this
for every task whose files it finds.
"""

from glassbert.evaluation.probes.features import Features
from glassbert.evaluation.probes.fitting import Vectors, probe_task
from glassbert.evaluation.probes.results import RANDOM, TRAINED, ProbeResult, Scorer, TaskResult
from glassbert.evaluation.probes.softmax_regression import LinearProbe, fit_linear
from glassbert.evaluation.probes.suite import probe_files, probe_tables, probes
from glassbert.evaluation.probes.tasks import TASKS, ProbeTask, column_task, get_task, probe
from glassbert.evaluation.probes.vectors import WordVectors, word_vectors

__all__ = [
    "RANDOM",
    "TASKS",
    "TRAINED",
    "Features",
    "LinearProbe",
    "ProbeResult",
    "ProbeTask",
    "Scorer",
    "TaskResult",
    "Vectors",
    "WordVectors",
    "column_task",
    "fit_linear",
    "get_task",
    "probe",
    "probe_files",
    "probe_tables",
    "probe_task",
    "probes",
    "word_vectors",
]
