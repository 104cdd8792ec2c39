"""Everything a report needs, gathered while the shards of a corpus go by, in memory of a fixed size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glassbert.text.corpus.health.excerpts import Excerpts, Worst, shown
from glassbert.text.corpus.health.pieces import Pieces
from glassbert.text.corpus.health.repeats import LEAK_DOCUMENTS, LONG_ENOUGH, Leak, Repeats
from glassbert.text.corpus.health.scan import Lengths, Sentences, scan
from glassbert.text.corpus.layout import VALIDATION
from glassbert.text.corpus.reader import Corpus, Shard

SHORTEST_JUDGED = 16  # tokens: what is shorter says too little about itself
NOISE_SINGLE = 0.7  # a sentence with so many one-character or unknown tokens is no sentence
FEW_LETTERS = 0.5
GIANT_SENTENCE = 2048

SUMS = ("tokens", "characters", "letters", "unknown", "words", "word_tokens", "markup")  # of `Sentences`
ODDITIES = ("noise", "few_letters", "giant")  # tokens in sentences of that kind
# The odd multiplier of a sentence's place in its document, so that the order of the sentences counts.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Collection:
    """Counts and sums by source, lengths, digests, and the worst places."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.pieces = Pieces.of(corpus.tokenizer)
        self.counts = np.zeros(len(self.pieces.texts), np.int64)
        splits = corpus.splits.values()
        number = len(corpus.manifest["sources"])
        self.sources = {name: np.zeros(number, np.int64) for name in ("documents", *SUMS, *ODDITIES)}
        self.documents, self.sentences, self.words = Lengths(), Lengths(), Lengths()
        self.repeated_sentences = Repeats(sum(split.sentences for split in splits))
        self.repeated_documents = Repeats(sum(split.documents for split in splits))
        self.leak = Leak()
        worst = (*ODDITIES, "markup", "unknown", "longest_document", "longest_sentence")
        self.worst = {kind: Worst() for kind in worst}

    def run(self, progress: Callable[[int], None]) -> None:
        splits = sorted(self.corpus.splits.values(), key=lambda split: split.name != VALIDATION)
        for split in splits:  # the held-out text first: the leak is looked for in the rest
            for number, shard in enumerate(split.shards):
                found = scan(shard, self.pieces, self.counts, self.words, progress)
                self._add_documents(split.name, number, shard, found)
                self._add_sentences(split.name, number, shard, found)
            if split.name == VALIDATION:
                self.leak.seal()

    def _add_documents(self, split: str, number: int, shard: Shard, found: Sentences) -> None:
        ends = np.asarray(shard.document_ends, np.int64)
        begins = np.concatenate([[0], ends[:-1]])
        owner = np.asarray(shard.document_sources, np.int64)
        self.sources["documents"] += np.bincount(owner, minlength=len(self.sources["documents"]))
        lengths = np.add.reduceat(found.tokens, begins)
        self.documents.add(lengths)
        place = np.arange(len(found.digest)) - np.repeat(begins, ends - begins)
        ordered = found.digest * (2 * place.astype(np.uint64) + GOLDEN)
        self.repeated_documents.add(split, number, np.add.reduceat(ordered, begins), lengths >= LONG_ENOUGH)
        self.worst["longest_document"].add(split, number, begins, lengths)
        if split == VALIDATION:
            every = max(1, self.corpus.splits[split].documents // LEAK_DOCUMENTS)
            self.leak.hold_out(number, found.digest, found.tokens, begins, every)

    def _add_sentences(self, split: str, number: int, shard: Shard, found: Sentences) -> None:
        self.sentences.add(found.tokens)
        if split != VALIDATION:
            self.leak.meet(found.digest)
        self.repeated_sentences.add(split, number, found.digest, found.tokens >= LONG_ENOUGH)
        judged = found.tokens >= SHORTEST_JUDGED
        noise = judged & (found.single + found.unknown >= NOISE_SINGLE * found.tokens)
        few = judged & ~noise & (found.letters < FEW_LETTERS * found.characters)
        odd = {"noise": noise, "few_letters": few, "giant": found.tokens >= GIANT_SENTENCE}
        tokens_in = {kind: np.where(which, found.tokens, 0) for kind, which in odd.items()}
        ends = np.asarray(shard.document_ends, np.int64)
        owner = np.repeat(np.asarray(shard.document_sources, np.int64), ends - np.append(0, ends[:-1]))
        for name, total in self.sources.items():
            if name != "documents":
                values = tokens_in[name] if name in tokens_in else getattr(found, name)
                total += np.bincount(owner, weights=values, minlength=len(total)).astype(np.int64)
        everywhere = np.arange(len(found.tokens))
        scores = {"markup": found.markup, "unknown": found.unknown, "longest_sentence": found.tokens, **tokens_in}
        for kind, score in scores.items():
            self.worst[kind].add(split, number, everywhere, score)

    def excerpts(self) -> dict[str, list[str]]:
        """The worst places in words, and what the builder kept of the documents that it left out."""
        excerpts = Excerpts(self.corpus)
        show = {"unknown": self.pieces.unknown, "markup": self.pieces.opens_tag | self.pieces.ampersand}
        found = {kind: excerpts.sentences(worst.places(), show.get(kind)) for kind, worst in self.worst.items()}
        found["repeated_sentences"] = [
            f"{count:,} × {excerpts.sentence(place)}" for count, place in self.repeated_sentences.most_frequent()
        ]
        found["repeated_documents"] = [
            f"{count:,} × {excerpts.document(place)}" for count, place in self.repeated_documents.most_frequent(5)
        ]
        found["leaked_documents"] = [excerpts.document(place) for place in self.leak.shares()[2][:5]]
        for reason, examples in self.corpus.manifest["examples"].items():
            found[f"removed_{reason}"] = [shown(one["text"]) for one in examples]
        return {kind: texts for kind, texts in found.items() if texts}
