"""Is this data fit to learn from? Things that make results wrong or look better than they are, each with a remedy."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from glassbert.tasks.data import TaskData
from glassbert.tasks.findings import Finding, gravest_first
from glassbert.tasks.labels import flat, label_name
from glassbert.tasks.leakage import leaking_columns
from glassbert.tasks.normalised import normalised_texts
from glassbert.tasks.table import is_missing

LONG_TEXT = 20_000  # characters; some 4,000 tokens
RARE_LABEL = 10
IMBALANCE = 10
CLASSES = ("binary", "multiclass", "ordinal")


def check_data(train: TaskData, dev: TaskData | None = None) -> list[Finding]:
    """Everything worth telling about the data, gravest first; an empty list is good news."""
    known = normalised_texts(train)
    findings = [
        *_texts(train),
        *(_texts(dev) if dev else ()),
        *_labels(train),
        *_contradictions(train, known),
        *leaking_columns(train),
    ]
    if dev:
        findings += [*_overlap(train, dev, known), *_unseen(train, dev)]
    return gravest_first(findings)


def _texts(data: TaskData) -> Iterator[Finding]:
    empty = [row for row, text in enumerate(data.texts) if not text.strip()]
    if empty:
        yield Finding(
            "problem" if 2 * len(empty) > len(data) else "warning",
            "There are empty texts.",
            f"{data.where(empty[0])} has none, and {len(empty):,} of {len(data):,} are like it.",
            "Take these rows out, or check that the right column was chosen for the text.",
        )
    long = [row for row, text in enumerate(data.texts) if len(text) > LONG_TEXT]
    if long:
        row = max(long, key=lambda row: len(data.texts[row]))
        yield Finding(
            "warning",
            "There are very long texts.",
            f"{data.where(row)} has {len(data.texts[row]):,} characters, and {len(long):,} have over {LONG_TEXT:,}.",
            "They are cut into windows, which takes time. Is a whole file in one cell, or a quote missing?",
        )


def _labels(data: TaskData) -> Iterator[Finding]:
    if data.targets is None or data.kind not in (*CLASSES, "multilabel"):
        return
    known = [value for value in data.targets if isinstance(value, list) or not is_missing(value)]
    counts = Counter(label_name(label) for label in flat(known))
    if len(counts) < 2:
        only = next(iter(counts), "none")
        yield Finding(
            "problem",
            "There is one class only.",
            f"All {len(data):,} examples of {data.source} have the label {only!r}.",
            "Add examples of another label, or choose another column as the target.",
        )
        return
    (common, most), (rare, least) = counts.most_common()[0], counts.most_common()[-1]
    if data.kind in CLASSES and most >= IMBALANCE * least:
        yield Finding(
            "warning",
            "The classes are very unequal.",
            f"{common!r} has {most:,} examples and {rare!r} has {least:,}; always answering {common!r} would be right "
            f"in {most / len(data):.0%} of the cases.",
            "Do not trust accuracy alone: look at macro F1 or AUC, and try class weights.",
        )
    few = [name for name, count in counts.items() if count < RARE_LABEL]
    if few:
        yield Finding(
            "warning",
            "Some labels have very few examples.",
            f"Fewer than {RARE_LABEL}: {', '.join(f'{name!r} ({counts[name]})' for name in few[:5])}"
            f"{' and others' if len(few) > 5 else ''}.",
            "Collect more of them, or put labels together.",
        )


def _contradictions(data: TaskData, texts: Sequence[str]) -> Iterator[Finding]:
    if data.targets is None or data.kind not in CLASSES:
        return
    rows: dict[str, list[int]] = defaultdict(list)
    for row, text in enumerate(texts):
        rows[text].append(row)
    copies = sum(len(group) - 1 for group in rows.values())
    torn = [group for group in rows.values() if len({label_name(data.targets[row]) for row in group}) > 1]
    if torn:
        first = torn[0][0]
        other = next(row for row in torn[0] if label_name(data.targets[row]) != label_name(data.targets[first]))
        affected = sum(map(len, torn))
        yield Finding(
            "warning" if affected > 0.005 * len(data) else "note",
            "The same text has different labels.",
            f"{data.where(first)} says {data.targets[first]!r} and {data.table.unit} {data.table.lines[other]:,} says "
            f"{data.targets[other]!r} for {data.texts[first][:60]!r}; {affected:,} rows are in such groups.",
            "Decide which is right. No model can be right on both.",
        )
    if copies > 0.05 * len(data):
        yield Finding(
            "note",
            "Many texts come more than once.",
            f"{copies:,} of {len(data):,} rows repeat the text of another one.",
            "Take copies out unless they mean something; splits made here keep them on one side.",
        )


def _overlap(train: TaskData, dev: TaskData, known: Sequence[str]) -> Iterator[Finding]:
    similar = _shared(known, normalised_texts(dev))
    to_the_letter = set(_whole(train))
    exact = sum(text in to_the_letter for text in _whole(dev.select(similar)))
    if similar:
        share = len(similar) / len(dev)
        yield Finding(
            "problem" if share > 0.1 else "warning" if share > 0.01 else "note",
            "Texts of the validation data are in the training data as well.",
            f"{len(similar):,} of {len(dev):,} ({share:.1%}), {exact:,} of them to the letter; the first is "
            f"{dev.where(similar[0])}: {dev.texts[similar[0]][:60]!r}.",
            "Take them out of the training data: on these the score measures memory.",
        )


def _unseen(train: TaskData, dev: TaskData) -> Iterator[Finding]:
    if train.targets is None or dev.targets is None or train.kind not in (*CLASSES, "multilabel", "tokens"):
        return
    known = {label_name(label) for label in flat(train.targets)}
    for row, value in enumerate(dev.targets):
        strange = [name for name in map(label_name, flat([value])) if name not in known]
        if strange:
            yield Finding(
                "problem",
                "The validation data has a label that training never shows.",
                f"{dev.where(row)} has {strange[0]!r}.",
                "Correct the label, or add examples of it to the training data.",
            )
            return


def _whole(data: TaskData) -> list[str]:
    return data.texts if data.pairs is None else [f"{a}\n{b}" for a, b in zip(data.texts, data.pairs, strict=True)]


def _shared(train: Sequence[str], dev: Sequence[str]) -> list[int]:
    """Rows of dev whose text is in train; texts of two words or fewer are too common to count."""
    known = set(train)
    return [row for row, text in enumerate(dev) if text in known and len(text.split()) > 2]
