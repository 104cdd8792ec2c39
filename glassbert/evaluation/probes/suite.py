"""The suite "probes": all tasks whose files exist, with baselines, tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from glassbert.errors import TextError
from glassbert.evaluation.measures import Measure, undefined
from glassbert.evaluation.probes.fitting import Extent, Vectors, probe_task
from glassbert.evaluation.probes.results import (
    ALL,
    BIAFFINE,
    HIDDEN,
    LINEAR,
    MIX,
    RANDOM,
    TRAINED,
    ProbeResult,
    Scorer,
    TaskResult,
    layer_name,
)
from glassbert.evaluation.probes.tasks import TASKS, ProbeTask
from glassbert.evaluation.probes.vectors import WordVectors, word_vectors
from glassbert.evaluation.subject import Subject
from glassbert.evaluation.suite import DoesNotApply, Options, Picture, SuiteResult, suite
from glassbert.evaluation.suite import Table as ReportTable
from glassbert.reports import figures, share
from glassbert.tasks.checks import Finding
from glassbert.tasks.reading import read_table
from glassbert.tasks.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUICK_WORDS = 12_000  # for training
QUICK_DEV = 600  # sentences
VECTORS = 0.15  # share of the time that the vectors take
SLOW = ("ner", "relations", "heads")  # not part of a quick evaluation
Files = tuple[Path, Path]
CITED = "Hewitt and Liang 2019: selectivity is the accuracy minus that on random labels by word type"


@suite("probes", title="Probes: information in the layers", effort=30)
def probes(subject: Subject, options: Options) -> SuiteResult:
    """Parts of speech, named entities, dependency relations and heads, from every layer and from mixes of layers."""
    by_files: dict[Files, list[ProbeTask]] = {}
    missing = []
    for task in TASKS.values():
        if options.quick and task.name in SLOW:
            continue
        try:
            files = options.file("treebank", task.train), options.file("treebank", task.dev)
            by_files.setdefault(files, []).append(task)
        except DoesNotApply as reason:
            missing.append(f"{task.title} left out: {reason}")
    if not by_files:
        raise DoesNotApply(missing[0] if missing else "no probe is registered")
    result = probe_files(subject, options, by_files)
    result.notes += missing
    return result


def probe_files(subject: Subject, options: Options, by_files: Mapping[Files, Sequence[ProbeTask]]) -> SuiteResult:
    """Run every task on its files (train, dev). Tasks with the same files share one pass of each encoder."""
    if subject.model.config.series is not None:
        raise DoesNotApply("this is a time series model; the suite needs a text model")
    result = SuiteResult()
    shares: dict[str, np.ndarray] = {}
    count = sum(map(len, by_files.values()))
    begun = 0
    for (train_file, dev_file), tasks in by_files.items():
        part = options.part(begun / count, (begun + len(tasks)) / count)
        begun += len(tasks)
        try:
            train, dev = read_table(train_file), read_table(dev_file)
        except TextError as error:  # a broken row, named with its line
            result.rows += [undefined(task.title, str(error), unit="share") for task in tasks]
            continue
        for found in probe_tables(subject, tasks, train, dev, part, result.notes):
            add_task(found, options, result)
            mixed = found.of(MIX)
            if mixed is not None and mixed.shares is not None:
                shares[found.task.name] = mixed.shares
    if shares:
        names = [layer_name(i) for i in range(subject.model.config.num_hidden_layers + 1)]
        caption = "Share of each layer in the learned mix. All layers are standardised first."
        result.figures.append(Picture(partial(mix_weights, names, shares, "Weights of the layer mix"), caption))
    result.notes += [
        "a word is the mean of its pieces; control labels are per word type, ignoring case",
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
    """Compute the vectors of both encoders in one pass each, then run every task on them."""
    limit = options.limit(None, QUICK_WORDS)
    if limit is not None:
        train = _sample_sentences(train, options, limit)
        dev = dev.select(options.sample(len(dev), QUICK_DEV, "probe dev sentences").tolist())
        notes.append(f"quick: trained on {len(train):,} sentences, tested on {len(dev):,}")
    vectors: dict[str, Vectors] = {}
    for name, who in ((TRAINED, subject), (RANDOM, subject.untrained(options.seed))):
        pair: list[WordVectors] = []
        for what, table in (("train", train), ("dev", dev)):
            begin = VECTORS * (len(vectors) + len(pair) / 2) / 2
            progress = partial(
                options.part(begin, begin + VECTORS / 4).progress, what=f"word vectors, {name} encoder, {what}"
            )
            made = word_vectors(who.model, who.tokenizer, table.column("words"), progress=progress)
            if name == TRAINED and made.cut:
                notes.append(f"{made.cut:,} sentences of {table.source} are longer than the input: read in windows")
            if name == TRAINED and made.lost:
                notes.append(f"{made.lost:,} words of {table.source} have no token; their vectors are 0")
            pair.append(made)
        vectors[name] = Vectors(*pair)
    extent = Extent(hidden_on_mix=not options.quick, every_layer=options.thorough or options.quick)
    each = (1 - VECTORS) / len(tasks)
    for number, task in enumerate(tasks):
        part = options.part(VECTORS + each * number, VECTORS + each * (number + 1))
        yield probe_task(task, train, dev, vectors, extent=extent, seed=options.seed, progress=part.progress)


def add_task(found: TaskResult, options: Options, result: SuiteResult) -> None:
    """Add the measures, the table and the figure of one task to the result."""
    scorer = Scorer(found, options.resamples)
    task, kind = found.task, BIAFFINE if found.task.of == "heads" else LINEAR
    layers = [
        one for one in found.probed if one.encoder == TRAINED and one.probe == kind and one.view not in (MIX, ALL)
    ]
    best = max(layers, key=lambda one: scorer.value(one.answers))
    what = {"spans": "span F1"}.get(task.score, "UAS" if task.of == "heads" else "accuracy")
    baseline = scorer.main(found.majority, f"{task.name}: majority by word type", note=what, higher_is_better=None)
    rows = [scorer.main(best.answers, f"{task.name}: best layer", note=f"{what}, {kind}, {best.view}")]
    for view, words in ((ALL, "a linear map per layer"), (MIX, "one weight per layer")):
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
    unfinished = [f"{one.encoder}, {one.view}, {one.probe}" for one in found.probed if not one.converged]
    if unfinished:
        result.findings.append(
            Finding("warning", f"{task.title}: {len(unfinished)} probes did not converge.",
                    f"These: {'; '.join(unfinished)}.", "Their figures are lower bounds.")
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
    note = "" if found.l2 is None else f"Regularisation λ = {found.l2:.1e}, chosen on training sentences. "
    note += "“Left” estimates how much the loss could still fall."
    return ReportTable(f"{found.task.title}: all probes", headers, rows, note=note, folded=True)


def picture_of(found: TaskResult, scorer: Scorer, kind: str, what: str, baseline: Measure) -> Picture:
    views = [layer_name(i) for i in range(len([o for o in found.probed if o.encoder == TRAINED and o.probe == kind]))]
    views = [view for view in views if found.of(view, kind) is not None]
    every_layer = all(found.of(view, kind, RANDOM) is not None for view in views)

    def values(probe: str, encoder: str = TRAINED) -> list[float | None]:
        probed = [found.of(view, probe, encoder) for view in views]
        return [None if one is None else scorer.value(one.answers) for one in probed]

    def selectivities(probe: str) -> list[float | None]:
        return [_selectivity(found, found.of(view, probe)) for view in views]

    kinds = [kind, *([HIDDEN] if found.of(views[0], HIDDEN) is not None else [])]
    scores = {probe: values(probe) for probe in kinds}
    if every_layer:
        scores |= {"random weights": values(kind, RANDOM)}
    selectivity = {probe: selectivities(probe) for probe in kinds} if every_layer else {}
    levels = {} if baseline.value is None else {"majority by word": baseline.value}
    if (one := found.of(ALL)) is not None:
        levels["all layers"] = scorer.value(one.answers)
    more = ", selectivity, and the baselines: random weights and word types." if every_layer else "."
    caption = f"{found.task.title}: {what} by layer{more}"
    return Picture(partial(by_layer, views, scores, selectivity, levels, f"{found.task.title}: {what}"), caption)


def _selectivity(found: TaskResult, one: ProbeResult | None) -> float | None:
    if one is None or one.control is None:
        return None
    return float((one.answers == found.dev.labels).mean() - (one.control == found.control.labels).mean())


def _sample_sentences(table: Table, options: Options, words: int) -> Table:
    """A fixed random sample of sentences with about `words` words, in the original order."""
    order = options.sample(
        len(table), max(1, words * len(table) // sum(map(len, table.column("words")))), "probe train"
    )
    return table.select(order.tolist())


def _cells(measure: Measure) -> tuple[str, str]:
    return measure.text, measure.range


Curves = Mapping[str, Sequence[float | None]]


def by_layer(
    names: Sequence[str], scores: Curves, selectivity: Curves, levels: Mapping[str, float], title: str
) -> Figure:
    """Scores above, selectivity (if any) below, in percent by layer; `levels` are lines, such as a baseline."""
    panels = 2 if selectivity else 1
    figure, axes = figures.grid(panels, 1, 7, 2.4 * panels, sharex=True)
    layers = np.arange(len(names))
    above = {name: figures.Series(layers, _percent(values)) for name, values in scores.items()}
    for number, (name, level) in enumerate(levels.items(), len(above)):
        above[name] = figures.Series(layers, np.full(len(layers), 100 * level), dashed=True, colour=number)
    below = {name: figures.Series(layers, _percent(values)) for name, values in selectivity.items()}
    figures.lines(above, ylabel="percent", title=title, axes=axes[0][0])
    if selectivity:
        figures.lines(below, ylabel="selectivity, percent", axes=axes[1][0])
    axes[panels - 1][0].set_xticks(layers, names)
    return figure


def _percent(values: Sequence[float | None]) -> list[float]:
    return [np.nan if value is None else 100 * value for value in values]


def mix_weights(names: Sequence[str], shares: Mapping[str, np.ndarray], title: str) -> Figure:
    """The share of every layer in the learned mix, for one or more tasks."""
    labels = [f"{task}, {name}" if len(shares) > 1 else name for task in shares for name in names]
    tasks = [number for number, _ in enumerate(shares) for _ in names]
    return figures.bars(labels, np.concatenate(list(shares.values())), write=share, series=tasks, title=title)
