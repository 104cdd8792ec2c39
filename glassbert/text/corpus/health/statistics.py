"""`CorpusStatistics`: everything the report needs, collected in one pass over the shards, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from glassbert.text.corpus.health.excerpts import Excerpts, TopScores, one_line
from glassbert.text.corpus.health.repeats import LEAK_DOCUMENTS, LONG_ENOUGH, LeakDetector, Repeats
from glassbert.text.corpus.health.scan import Lengths, Sentences, scan
from glassbert.text.corpus.health.vocabulary_tables import VocabularyTables
from glassbert.text.corpus.reader import Corpus, Shard
from glassbert.text.corpus.storage import VALIDATION

MIN_CLASSIFIED_TOKENS = 16  # tokens: shorter sentences are not classified
NOISE_SINGLE = 0.7  # a sentence with this share of one-character or unknown tokens is noise
FEW_LETTERS = 0.5
GIANT_SENTENCE = 2048

SUMS = ("tokens", "characters", "letters", "unknown", "words", "word_tokens", "markup")  # of `Sentences`
SENTENCE_FLAGS = ("noise", "few_letters", "giant")  # the number of tokens in sentences of that kind
# Sentence digests are multiplied by 2 * position + GOLDEN, so that document digests depend on the sentence order.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class CorpusStatistics:
    """Counts and sums per source, lengths, digests, and the locations with the highest scores."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self.vocabulary = VocabularyTables.of(corpus.tokenizer)
        self.counts = np.zeros(len(self.vocabulary.texts), np.int64)
        splits = corpus.splits.values()
        number = len(corpus.manifest["sources"])
        self.sources = {name: np.zeros(number, np.int64) for name in ("documents", *SUMS, *SENTENCE_FLAGS)}
        self.documents, self.sentences, self.words = Lengths(), Lengths(), Lengths()
        self.repeated_sentences = Repeats(sum(split.sentences for split in splits))
        self.repeated_documents = Repeats(sum(split.documents for split in splits))
        self.leak = LeakDetector()
        scored = (*SENTENCE_FLAGS, "markup", "unknown", "longest_document", "longest_sentence")
        self.top_scores = {kind: TopScores() for kind in scored}

    def run(self, progress: Callable[[int], None]) -> None:
        splits = sorted(self.corpus.splits.values(), key=lambda split: split.name != VALIDATION)
        for split in splits:  # held-out text first: its sentences are then searched in the training text
            for number, shard in enumerate(split.shards):
                found = scan(shard, self.vocabulary, self.counts, self.words, progress)
                self._add_documents(split.name, number, shard, found)
                self._add_sentences(split.name, number, shard, found)
            if split.name == VALIDATION:
                self.leak.finish_held_out()

    def _add_documents(self, split: str, number: int, shard: Shard, found: Sentences) -> None:
        ends = np.asarray(shard.document_ends, np.int64)
        begins = np.concatenate([[0], ends[:-1]])
        owner = np.asarray(shard.document_sources, np.int64)
        self.sources["documents"] += np.bincount(owner, minlength=len(self.sources["documents"]))
        lengths = np.add.reduceat(found.tokens, begins)
        self.documents.add(lengths)
        position = np.arange(len(found.digest)) - np.repeat(begins, ends - begins)
        ordered = found.digest * (2 * position.astype(np.uint64) + GOLDEN)
        self.repeated_documents.add(split, number, np.add.reduceat(ordered, begins), lengths >= LONG_ENOUGH)
        self.top_scores["longest_document"].add(split, number, begins, lengths)
        if split == VALIDATION:
            every = max(1, self.corpus.splits[split].documents // LEAK_DOCUMENTS)
            self.leak.add_held_out(number, found.digest, found.tokens, begins, every)

    def _add_sentences(self, split: str, number: int, shard: Shard, found: Sentences) -> None:
        self.sentences.add(found.tokens)
        if split != VALIDATION:
            self.leak.check_training(found.digest)
        self.repeated_sentences.add(split, number, found.digest, found.tokens >= LONG_ENOUGH)
        long_enough = found.tokens >= MIN_CLASSIFIED_TOKENS
        noise = long_enough & (found.single + found.unknown >= NOISE_SINGLE * found.tokens)
        few = long_enough & ~noise & (found.letters < FEW_LETTERS * found.characters)
        flags = {"noise": noise, "few_letters": few, "giant": found.tokens >= GIANT_SENTENCE}
        tokens_in = {kind: np.where(which, found.tokens, 0) for kind, which in flags.items()}
        ends = np.asarray(shard.document_ends, np.int64)
        owner = np.repeat(np.asarray(shard.document_sources, np.int64), ends - np.append(0, ends[:-1]))
        for name, total in self.sources.items():
            if name != "documents":
                values = tokens_in[name] if name in tokens_in else getattr(found, name)
                total += np.bincount(owner, weights=values, minlength=len(total)).astype(np.int64)
        numbers = np.arange(len(found.tokens))
        scores = {"markup": found.markup, "unknown": found.unknown, "longest_sentence": found.tokens, **tokens_in}
        for kind, score in scores.items():
            self.top_scores[kind].add(split, number, numbers, score)

    def excerpts(self) -> dict[str, list[str]]:
        """The text at the locations with the highest scores, and the examples of documents that the build removed."""
        excerpts = Excerpts(self.corpus)
        show = {"unknown": self.vocabulary.unknown, "markup": self.vocabulary.opens_tag | self.vocabulary.ampersand}
        found = {kind: excerpts.sentences(top.locations(), show.get(kind)) for kind, top in self.top_scores.items()}
        found["repeated_sentences"] = [
            f"{count:,} × {excerpts.sentence(location)}" for count, location in self.repeated_sentences.most_frequent()
        ]
        found["repeated_documents"] = [
            f"{count:,} × {excerpts.document(location)}" for count, location in self.repeated_documents.most_frequent(5)
        ]
        found["leaked_documents"] = [excerpts.document(location) for location in self.leak.shares()[2][:5]]
        for reason, examples in self.corpus.manifest["examples"].items():
            found[f"removed_{reason}"] = [one_line(example["text"]) for example in examples]
        return {kind: texts for kind, texts in found.items() if texts}
