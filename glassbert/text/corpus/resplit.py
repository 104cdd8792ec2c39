"""The same corpus in the pieces of another WordPiece vocabulary, without its text.

The pieces of a word depend on the word alone, and the joined pieces of a word are the word. So every distinct word of
a corpus is joined and split again. Words that were unknown stay unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import TextError
from glassbert.files import sha256, write_json
from glassbert.text.corpus.reader import Corpus, Shard
from glassbert.text.corpus.storage import MANIFEST, SPLITS, ShardWriter, TokenizedDocuments, token_type
from glassbert.text.fast import FastTokenizer
from glassbert.text.wordpiece import CONTINUATION_PREFIX, WordPiece
from glassbert.text.wordpiece_files import FILES, Description, write


class Words(NamedTuple):
    """The words of a shard: where each begins, and its number among the distinct ones."""

    begins: np.ndarray  # [words], into the tokens
    kinds: np.ndarray  # [words], into `ids`
    ids: list[tuple[int, ...]]  # the pieces of every distinct word


def words_of(shard: Shard, continues_word: np.ndarray) -> Words:
    """Find the distinct words of a shard by a hash of their pieces."""
    tokens = np.asarray(shard.tokens)
    if not len(tokens):
        return Words(np.zeros(0, np.int64), np.zeros(0, np.int64), [])
    starts = ~continues_word[tokens]
    starts[0] = True
    starts[np.asarray(shard.sentence_ends, np.int64)[:-1]] = True
    begins = np.flatnonzero(starts)
    lengths = np.diff(begins, append=len(tokens))
    positions = np.arange(len(tokens)) - np.repeat(begins, lengths)
    random = np.random.default_rng(0)
    by_id = random.integers(0, 2**63, len(continues_word), np.int64).astype(np.uint64)
    by_position = random.integers(0, 2**63, int(lengths.max()), np.int64).astype(np.uint64) | np.uint64(1)  # odd
    hashes = np.add.reduceat(by_id[tokens] * by_position[positions], begins)
    _, first, kinds = np.unique(hashes, return_index=True, return_inverse=True)
    spans = zip(begins[first].tolist(), lengths[first].tolist(), strict=True)
    return Words(begins, kinds, [tuple(tokens[begin : begin + length].tolist()) for begin, length in spans])


def count_corpus_words(corpus: Corpus, split: str) -> Counter[str]:
    """The words of a split with their counts; unknown words and special tokens are left out."""
    tokenizer, counts = corpus.tokenizer, Counter[str]()
    for shard in corpus.split(split).shards:
        found = words_of(shard, tokenizer.continues_word)
        times = np.bincount(found.kinds, minlength=len(found.ids))
        for ids, count in zip(found.ids, times.tolist(), strict=True):
            if ids[0] not in tokenizer.special_ids:
                counts[joined(ids, tokenizer)] += count
    return counts


def joined(ids: Sequence[int], tokenizer: FastTokenizer) -> str:
    """The word that the pieces spell."""
    return "".join(tokenizer.id_to_token(id).removeprefix(CONTINUATION_PREFIX) for id in ids)


def resplit(corpus: Corpus, description: Description, folder: Path, splits: Sequence[str] = SPLITS) -> Corpus:
    """Write the corpus in the pieces of `description` into `folder`; other splits than `splits` are left empty."""
    tokenizer = corpus.tokenizer
    own = tokenizer.description
    if own is None or own.normaliser != description.normaliser:
        raise TextError(
            f"the corpus in {corpus.folder} was made with another kind of tokenizer; name its text files instead"
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    wordpiece = WordPiece(description.vocabulary, longest_word=description.longest_word)
    facts = {}
    for split in SPLITS:
        limit = int(corpus.manifest["settings"]["shard_tokens"])
        writer = ShardWriter(folder, split, token_type(len(description.tokens)), limit)
        for shard in corpus.split(split).shards if split in splits else ():
            writer.add(_resplit_shard(shard, tokenizer, wordpiece))
        writer.close()
        facts[split] = writer.facts
    write(folder, description)
    manifest = {**corpus.manifest, "tokenizer": _tokenizer_facts(folder, description), "splits": facts}
    write_json(folder / MANIFEST, manifest, sealed=True)
    return Corpus.open(folder)


def _resplit_shard(shard: Shard, tokenizer: FastTokenizer, wordpiece: WordPiece) -> TokenizedDocuments:
    found = words_of(shard, tokenizer.continues_word)
    new = [_new_ids(ids, tokenizer, wordpiece) for ids in found.ids]
    sizes = np.array([len(ids) for ids in new], np.int64)
    flat = np.array([id for ids in new for id in ids], np.int64)
    lengths = sizes[found.kinds]  # [words]
    ends = np.cumsum(lengths)
    from_flat = (np.cumsum(sizes) - sizes)[found.kinds]
    tokens = flat[np.arange(int(lengths.sum())) + np.repeat(from_flat - (ends - lengths), lengths)]
    sentence_begins = np.concatenate([[0], np.asarray(shard.sentence_ends, np.int64)[:-1]])
    first_words = np.searchsorted(found.begins, sentence_begins)
    sentence_tokens = np.add.reduceat(lengths, first_words)
    documents = np.diff(np.asarray(shard.document_ends, np.int64), prepend=0)
    return TokenizedDocuments(tokens, sentence_tokens, documents, np.asarray(shard.document_sources))


def _new_ids(ids: tuple[int, ...], tokenizer: FastTokenizer, wordpiece: WordPiece) -> list[int]:
    if ids[0] in tokenizer.special_ids:
        return [wordpiece.vocabulary[tokenizer.id_to_token(id)] for id in ids]
    return [piece.id for piece in wordpiece.split(joined(ids, tokenizer))]


def _tokenizer_facts(folder: Path, description: Description) -> dict[str, Any]:
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in sorted(FILES)}
    size = len(description.tokens)
    return {"fingerprint": description.fingerprint, "vocab_size": size, "trained": None, "files": files}
