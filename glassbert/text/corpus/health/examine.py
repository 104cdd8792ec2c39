"""From an opened corpus to its health card."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glassbert.errors import TextError
from glassbert.text.corpus.health.card import Health
from glassbert.text.corpus.health.collect import Collection
from glassbert.text.corpus.health.findings import judge
from glassbert.text.corpus.health.measures import empty_sources, measure, source_rows
from glassbert.text.corpus.health.pieces import KINDS, kind_of
from glassbert.text.corpus.reader import Corpus

TOP_TOKENS = 40


def examine(corpus: Corpus, progress: Callable[[int], None] | None = None) -> Health:
    """Measure a corpus and judge it. `progress` hears of the tokens as they are read."""
    if not sum(split.tokens for split in corpus.splits.values()):
        raise TextError(f"the corpus in {corpus.folder} has no tokens: there is nothing to report on")
    found = Collection(corpus)
    found.run(progress or (lambda tokens: None))
    signs = found.pieces.character_counts(found.counts)
    kinds = dict.fromkeys(KINDS, 0)
    for sign, count in signs.items():
        kinds[kind_of(sign)] += count
    top = np.argsort(-found.counts, kind="stable")[:TOP_TOKENS]
    health = Health(
        folder=str(corpus.folder),
        splits={
            name: {"documents": split.documents, "sentences": split.sentences, "tokens": split.tokens}
            for name, split in corpus.splits.items()
        },
        sources=source_rows(found),
        builder={**corpus.manifest["cleaning"], **corpus.manifest["counts"]},
        measures=measure(found, np.array(list(signs.values())), kinds),
        document_lengths=found.documents,
        sentence_lengths=found.sentences,
        word_lengths=found.words,
        token_counts=found.counts,
        characters=kinds,
        top_tokens=[(corpus.tokenizer.id_to_token(int(id)), int(found.counts[id])) for id in top if found.counts[id]],
        excerpts={**found.excerpts(), "empty_sources": empty_sources(corpus.manifest)},
    )
    health.findings = judge(health)
    return health
