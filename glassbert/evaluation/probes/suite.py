"""The suite "probes": every task whose files are there, its probes beside what they must be held against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from glassbert.errors import TextError
from glassbert.evaluation.measures import Measure, undefined
from glassbert.evaluation.probes.fitting import Vectors
from glassbert.evaluation.probes.pictures import by_layer, mix_weights
from glassbert.evaluation.probes.probing import probe_task
from glassbert.evaluation.probes.results import (
    ALL,
    BIAFFINE,
    HIDDEN,
    LINEAR,
    MIX,
    RANDOM,
    TRAINED,
    Probed,
    TaskResult,
    layer_name,
)
from glassbert.evaluation.probes.scoring import Scorer
from glassbert.evaluation.probes.tasks import TASKS, ProbeTask
from glassbert.evaluation.probes.vectors import word_vectors
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import DoesNotApply, Options, Picture, SuiteResult, suite
from glassbert.evaluation.suite import Table as ReportTable
from glassbert.tasks.checks import Finding
from glassbert.tasks.reading import read_table
from glassbert.tasks.table import Table

QUICK_WORDS = 12_000  # to learn from
QUICK_DEV = 600  # sentences
SLOW = ("ner", "relations", "heads")  # not asked by a quick evaluation
Files = tuple[Path, Path]
CITED = "Hewitt and Liang 2019: selectivity is accuracy less that on random labels by word type"


@suite("probes", title="Probes: what can be read out of its layers?")
def probes(subject: Subject, options: Options) -> SuiteResult:
    """Parts of speech, names, dependency relations and heads, from every layer and from mixes of layers."""
    by_files: dict[Files, list[ProbeTask]] = {}
    missing = []
    for task in TASKS.values():
        if options.quick and task.name in SLOW:
            continue
        try:
            files = options.file("treebank", task.train), options.file("treebank", task.dev)
            by_files.setdefault(files, []).append(task)
        except DoesNotApply as why:
            missing.append(f"{task.title} left out: {why}")
    if not by_files:
        raise DoesNotApply(missing[0] if missing else "there are no probes")
    result = probe_files(subject, options, by_files)
    result.notes += missing
    return result


def probe_files(subject: Subject, options: Options, by_files: Mapping[Files, Sequence[ProbeTask]]) -> SuiteResult:
    """Every task on its files, (train, dev); the tasks of the same files share one pass of each encoder."""
    if subject.model.config.series is not None:
        raise DoesNotApply("this model reads numbers, not words")
    result = SuiteResult()
    shares: dict[str, np.ndarray] = {}
    for (train_file, dev_file), tasks in by_files.items():
        try:
            train, dev = read_table(train_file), read_table(dev_file)
        except TextError as error:  # a broken row, named with its line
            result.rows += [undefined(task.title, str(error), unit="share") for task in tasks]
            continue
        for found in probe_tables(subject, tasks, train, dev, options, result.notes):
            present(found, options, result)
            mixed = found.of(MIX)
            if mixed is not None and mixed.shares is not None:
                shares[found.task.name] = mixed.shares
    if shares:
        names = [layer_name(i) for i in range(subject.model.config.num_hidden_layers + 1)]
        caption = "How much of the learned mix each layer makes up. All layers were scaled alike before."
        result.figures.append(Picture(partial(mix_weights, names, shares, "Weights of the layer mix"), caption))
    result.notes += [
        "a word is the mean of its pieces; control labels belong to word types, whatever their case",
        CITED,
    ]
    return result


def probe_tables(
    subject: Subject,
    tasks: Sequence[ProbeTask],
    train: Table,
    dev: Table,
    options: Options,
    notes: list[str],
) -> Iterator[TaskResult]:
    """Vectors of both encoders from one pass each, then every task on them."""
    most = options.most(None, QUICK_WORDS)
    if most is not None:
        train = _some(train, options, most)
        dev = dev.select(options.sample(len(dev), QUICK_DEV, "probe dev sentences").tolist())
        notes.append(f"quick: learned from {len(train):,} sentences, asked about {len(dev):,}")
    vectors = {}
    for name, who in ((TRAINED, subject), (RANDOM, subject.untrained(options.seed))):
        pair = []
        for what, table in (("train", train), ("dev", dev)):
            told = partial(options.progress, what=f"word vectors, {name} encoder, {what}")
            made = word_vectors(who.model, who.tokenizer, table.column("words"), progress=told)
            if name == TRAINED and made.cut:
                notes.append(f"{made.cut:,} sentences of {table.source} are longer than the model: read in windows")
            if name == TRAINED and made.lost:
                notes.append(f"{made.lost:,} words of {table.source} have no token; they were asked all the same")
            pair.append(made)
        vectors[name] = Vectors(*pair)
    for task in tasks:
        yield probe_task(
            task, train, dev, vectors, hidden=not options.quick, seed=options.seed, progress=options.progress
        )


def present(found: TaskResult, options: Options, result: SuiteResult) -> None:
    """The measures, the table and the picture of one task."""
    scorer = Scorer(found, options.resamples)
    task, kind = found.task, BIAFFINE if found.task.of == "heads" else LINEAR
    layers = [
        one for one in found.probed if one.encoder == TRAINED and one.probe == kind and one.view not in (MIX, ALL)
    ]
    best = max(layers, key=lambda one: scorer.value(one.answers))
    what = {"spans": "span F1"}.get(task.score, "UAS" if task.of == "heads" else "accuracy")
    baseline = scorer.main(found.majority, f"{task.name}: majority by word type", note=what, higher_is_better=None)
    rows = [scorer.main(best.answers, f"{task.name}: best layer", note=f"{what}, {kind}, {best.view}")]
    for view, words in ((ALL, "a linear map for every layer"), (MIX, "one weight a layer")):
        if (one := found.of(view)) is not None:
            rows.insert(0, scorer.main(one.answers, f"{task.name}: {view}", note=f"{what}, linear, {words}"))
    richest = found.of(ALL) or best
    random = found.of(richest.view, kind, RANDOM)
    rows += filter(None, [
        scorer.trees(best, f"{task.name}: undirected tree", note=f"UUAS, {best.view}"),
        scorer.selectivity(richest, f"{task.name}: selectivity", note=f"{richest.view}", reference=CITED),
        scorer.unknown(richest.answers, f"{task.name}: unknown words", note=f"accuracy, {richest.view}"),
    ])  # fmt: skip
    if random is not None:
        name = f"{task.name}: random weights"
        rows.append(scorer.main(random.answers, name, note=f"{what}, {random.view}", higher_is_better=None))
    result.rows += [*rows, baseline]
    result.rows += [scorer.main(one.answers, one.view, group=f"{task.name} by layer", note=kind) for one in layers]
    result.tables.append(table_of(found, scorer, what))
    result.notes += [f"{task.name}: {note}" for note in found.notes]
    result.figures.append(picture_of(found, scorer, kind, what, baseline))
    loose = [f"{one.encoder}, {one.view}, {one.probe}" for one in found.probed if not one.converged]
    if loose:
        result.findings.append(
            Finding("warning", f"{task.title}: {len(loose)} probes had not converged.", f"These: {'; '.join(loose)}.",
                    "Their figures are lower bounds.")
        )  # fmt: skip


def table_of(found: TaskResult, scorer: Scorer, what: str) -> ReportTable:
    rows = []
    for one in found.probed:
        chosen = scorer.selectivity(one)
        rows.append([
            f"{one.view}, {one.probe}", one.encoder, *_cells(scorer.main(one.answers, what)),
            "–" if chosen is None else chosen.text, scorer.unknown(one.answers).text, one.steps, f"{one.left:.1e}",
            f"{one.seconds:.1f}",
        ])  # fmt: skip
    rows.append(["majority by word type", "–", *_cells(scorer.main(found.majority, what)), "–",
                 scorer.unknown(found.majority).text, "–", "–", "–"])  # fmt: skip
    headers = ["probe", "encoder", what, "95 %", "selectivity", "unknown words", "steps", "left, nats", "s"]
    note = "" if found.l2 is None else f"Weights held down by λ = {found.l2:.1e}, chosen on training sentences. "
    note += "“Left” is about how much the loss could still fall."
    return ReportTable(f"{found.task.title}: all probes", headers, rows, note=note, folded=True)


def picture_of(found: TaskResult, scorer: Scorer, kind: str, what: str, baseline: Measure) -> Picture:
    views = [layer_name(i) for i in range(len([o for o in found.probed if o.encoder == TRAINED and o.probe == kind]))]
    views = [view for view in views if found.of(view, kind) is not None]

    def values(probe: str, encoder: str = TRAINED) -> list[float | None]:
        probed = [found.of(view, probe, encoder) for view in views]
        return [None if one is None else scorer.value(one.answers) for one in probed]

    def selectivities(probe: str) -> list[float | None]:
        return [_selectivity(found, found.of(view, probe)) for view in views]

    kinds = [kind, *([HIDDEN] if found.of(views[0], HIDDEN) is not None else [])]
    scores = {probe: values(probe) for probe in kinds} | {"random weights": values(kind, RANDOM)}
    selectivity = {probe: selectivities(probe) for probe in kinds}
    levels = {} if baseline.value is None else {"majority by word": baseline.value}
    if (one := found.of(ALL)) is not None:
        levels["all layers"] = scorer.value(one.answers)
    caption = f"{found.task.title}: {what} by layer, selectivity, and what random weights and word types alone give."
    return Picture(partial(by_layer, views, scores, selectivity, levels, f"{found.task.title}: {what}"), caption)


def _selectivity(found: TaskResult, one: Probed | None) -> float | None:
    if one is None or one.control is None:
        return None
    return float((one.answers == found.dev.labels).mean() - (one.control == found.control.labels).mean())


def _some(table: Table, options: Options, words: int) -> Table:
    """Sentences in a fixed random order until there are so many words, then in their own order again."""
    order = options.sample(
        len(table), max(1, words * len(table) // sum(map(len, table.column("words")))), "probe train"
    )
    return table.select(order.tolist())


def _cells(measure: Measure) -> tuple[str, str]:
    return measure.text, measure.range
