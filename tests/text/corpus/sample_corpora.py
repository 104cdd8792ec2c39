"""A small tokenizer, sample and generated documents for tests, and functions to read a finished corpus."""

from __future__ import annotations

import functools
import hashlib
import random
from pathlib import Path
from typing import Any

from glassbert.text import FastTokenizer, WordPieceTokenizer
from glassbert.text.corpus import Corpus, Shard, build_corpus
from tests.text.sample_sentences import SENTENCES

NO_NEAR = {"near_duplicates": None}


@functools.cache
def tokenizer() -> FastTokenizer:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        WordPieceTokenizer.train(SENTENCES, 400, min_frequency=1).save(folder)
        return FastTokenizer.load(folder)


def story(seed: int, sentences: int = 8) -> str:
    """Paragraphs of two sentences, one per line."""
    rng = random.Random(seed)
    chosen = [rng.choice(SENTENCES) for _ in range(sentences)]
    return "\n".join(" ".join(chosen[i : i + 2]) for i in range(0, sentences, 2))


def stories(count: int, first: int = 0) -> list[str]:
    return [story(first + i) for i in range(count)]


def write(path: Path, documents: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def build(sources: list[Any], output: Path, **settings: Any) -> Corpus:
    return build_corpus(sources, output, tokenizer(), **{"workers": 1, **NO_NEAR, **settings})


def texts(corpus: Corpus, split: str) -> list[str]:
    """The decoded documents of a split, with sentences joined by |."""
    return [text for shard in corpus.split(split).shards for text in shard_texts(corpus, shard)]


def shard_texts(corpus: Corpus, shard: Shard) -> list[str]:
    found = []
    sentence = token = 0
    for end in shard.document_ends.tolist():
        parts = []
        for stop in shard.sentence_ends[sentence:end].tolist():
            parts.append(corpus.tokenizer.decode(shard.tokens[token:stop]))
            token = stop
        sentence = end
        found.append(" | ".join(parts))
    return found


def fingerprints(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# ---- generated text: prose, binary data, HTML pages, a very long line ----

SUBJECTS = "the dog|my sister|the old man|a teacher|the queen|our neighbour|the captain|a child|the doctor|nobody"
VERBS = "saw|found|wanted|remembered|forgot|carried|painted|followed|lost|described"
OBJECTS = "the house|a letter|the river|an apple|the garden|some bread|a song|the mountain|his hat|the road"
ENDS = "in the morning|before the rain|with great care|for many years|of the village|and went home|on the table|at last"
SYLLABLES = "ka|lo|mi|ren|tas|vo|del|su|pan|gi|mor|fe|lin|tu|bar|so|nek|ri|dul|ha"  # for names: rare words


def sentence(rng: random.Random) -> str:
    subject, verb, thing, end = (rng.choice(words.split("|")) for words in (SUBJECTS, VERBS, OBJECTS, ENDS))
    name = "".join(rng.choice(SYLLABLES.split("|")) for _ in range(rng.randrange(2, 5)))
    return " ".join([subject, verb, thing, "of", name, end]).capitalize() + "."


def prose(documents: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(sentence(rng) for _ in range(rng.randrange(6, 14))) for _ in range(documents)]


def binary(documents: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    signs = [chr(code) for code in (*range(33, 65), *range(91, 97), *range(123, 127))]
    return ["".join(rng.choice([*signs, "q", " "]) for _ in range(400)) for _ in range(documents)]


def pages(documents: int, seed: int = 2) -> list[str]:
    body = "<div class='x'><ul><li>Menu</li><li>More</li></ul></div><p>{}&nbsp;</p><p>Foot</p><br/><hr/>"
    return ["<html><body>" + body.format(text) + "</body></html>" for text in prose(documents, seed)]


def giant_line(sentences: int = 2000, seed: int = 3) -> str:
    rng = random.Random(seed)
    return " ".join(sentence(rng).lower().rstrip(".") for _ in range(sentences))
