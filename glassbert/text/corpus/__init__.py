"""Corpora: build memory-mapped tokens from text files, and open them.

    from glassbert.text.corpus import Corpus, build_corpus

    corpus = build_corpus(["texts/"], "corpus", vocab_size=8192)
    shard = corpus.split("train").shards[0]
    corpus.tokenizer.decode(shard.tokens[: shard.sentence_ends[0]])      # the first sentence

`storage` defines the files, `reader` opens them, and `builder` makes them: sources -> blocks -> documents -> cleaning
-> sentences -> tokens and MinHash sketches (parts) -> duplicates and split -> shards.
"""

from glassbert.text.corpus.build import build_corpus, write_corpus
from glassbert.text.corpus.builder import Progress
from glassbert.text.corpus.documents import read_documents
from glassbert.text.corpus.reader import Corpus, Shard, Split
from glassbert.text.corpus.settings import Settings

__all__ = ["Corpus", "Progress", "Settings", "Shard", "Split", "build_corpus", "read_documents", "write_corpus"]
