"""The result of an adaptation: losses on the domain and on general text, before and after.

A longer piece is harder to guess than a short one, so losses per token of two vocabularies cannot be compared. Per word
they can, if whole words are masked: where single tokens are, the other pieces of a word give the masked one away, and a
new piece that replaces them loses this help.

    nats per whole word = nats per token, whole words masked · tokens / words
    nats per old token  = nats per token · tokens / tokens in the old vocabulary

"Per old token" has the scale of the loss before, and is unfair to new pieces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.files import write_json
from glassbert.text.corpus.reader import Corpus
from glassbert.training.data import ADAPTATION, WHOLE_WORDS
from glassbert.training.run_folder import RunFolder

FILE = ADAPTATION
COUNTS = ("counts_before", "counts_after")
MANY_UNKNOWN = 0.01  # of the words


def text_counts(corpus: Corpus, split: str = "validation") -> dict[str, int]:
    """Tokens, words and unknown words of a split."""
    continues, unknown = corpus.tokenizer.continues_word, corpus.tokenizer.unknown_id
    tokens = [np.asarray(shard.tokens) for shard in corpus.split(split).shards]
    return {
        "tokens": sum(map(len, tokens)),
        "words": int(sum((~continues[ids]).sum() for ids in tokens)),
        "unknown": int(sum((ids == unknown).sum() for ids in tokens)),
    }


def measured(
    loss: float, accuracy: float, words: float | None, counts: Mapping[str, int], old_tokens: int
) -> dict[str, float]:
    """A loss per token, per token of the old vocabulary, and, from `words` with whole words masked, per word."""
    tokens_per_word = counts["tokens"] / counts["words"]
    found = {
        "loss": loss,
        "accuracy": accuracy,
        "per_old_token": loss * counts["tokens"] / old_tokens,
        "tokens_per_word": tokens_per_word,
    }
    return found if words is None else {**found, "per_word": words * tokens_per_word}


def read(run: RunFolder) -> dict[str, Any] | None:
    """The content of RUN/adaptation.json, or None where the run is no adaptation."""
    try:
        return json.loads((run.path / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def complete(run: RunFolder, found: Mapping[str, Mapping[str, float]]) -> dict[str, Any] | None:
    """Add the losses after adaptation, by part; `found` are those of the last evaluation."""
    content = read(run)
    if content is None:
        return None
    for part, one in found.items():
        if part in content["parts"]:
            entry = content["parts"][part]
            old = entry["counts_before"]["tokens"]
            words = found.get(f"{part}{WHOLE_WORDS}", {}).get("loss")
            entry["after"] = measured(one["loss"], one["accuracy"], words, entry["counts_after"], old)
    write_json(run.path / FILE, content)
    return content


def rows(content: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A table of the losses: part, unit, before, after, difference."""
    units = {"per_word": "nats per word, masked as a whole", "per_old_token": "nats per old token",
             "loss": "nats per own token", "accuracy": "masked tokens right",
             "tokens_per_word": "tokens per word"}  # fmt: skip
    found: list[tuple[str, ...]] = []
    for part, entry in content["parts"].items():
        for key, unit in units.items():
            before, after = entry["before"].get(key), entry.get("after", {}).get(key)
            if before is None:
                continue
            cells = ("", "") if after is None else (f"{after:.3f}", f"{after - before:+.3f}")
            found.append((part, unit, f"{before:.3f}", *cells))
    return found


COLUMNS = ("held-out text", "", "before", "after", "change")


def sentences(content: Mapping[str, Any]) -> list[str]:
    """What was done, in words."""
    pieces = content["pieces"]
    new = f"{len(pieces):,} new pieces, vocabulary now {content['vocabulary']:,}: " + ", ".join(
        piece["token"] for piece in pieces[:12]
    )
    found = [new + ("." if len(pieces) <= 12 else ", ...")] if pieces else []
    found += [content.get("why_pieces", ""), _unknown(content), content["general"]]
    return [sentence for sentence in found if sentence]


def _unknown(content: Mapping[str, Any]) -> str:
    """A sentence where the old vocabulary lacked many words: they are never masked, so its loss leaves them out."""
    entry = content["parts"]["domain"]
    before, after = (entry[name].get("unknown", 0) / max(1, entry[name]["words"]) for name in COUNTS)
    if before < MANY_UNKNOWN:
        return ""
    return (
        f"{before:.1%} of the words of the domain were unknown before ({after:.1%} now). Unknown words are never "
        f"masked, so the losses before and after are not of the same words."
    )
