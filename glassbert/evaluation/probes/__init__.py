"""Probes: what can be read out of a model's layers, beside what words alone and random weights would give.

    from glassbert.evaluation.probes import probe, probe_task

    @probe("long", title="Is the word long?")
    def long(table):
        return [["long" if len(word) > 6 else "short" for word in words] for words in table.column("words")]

`vectors → questions → probes → scores`: `word_vectors` takes a vector for every word from every layer in one pass,
`ask` turns annotations into questions (and their control), `probe_task` fits all probes, `Scorer` measures with
intervals over sentences. The suite "probes" does this for every task whose files it finds.
"""

from glassbert.evaluation.probes.features import Features
from glassbert.evaluation.probes.fitting import Vectors, probe_task
from glassbert.evaluation.probes.results import RANDOM, TRAINED, Probed, Scorer, TaskResult
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
    "ProbeTask",
    "Probed",
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
