"""The result of an adaptation: losses on the domain and on general text, before and after.

A longer piece is harder to guess than a short one, so losses per token of two vocabularies cannot be compared. Per word
they can: the same words are read.

    nats per word = nats per token · tokens / words

"Per old token" divides by the tokens that the old vocabulary needs for the same text: the scale of the loss before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from glassbert.files import write_json
from glassbert.text.corpus.reader import Corpus
from glassbert.training.run_folder import RunFolder

FILE = "adaptation.json"
PARTS = ("domain", "general")


def text_counts(corpus: Corpus, split: str = "validation") -> dict[str, int]:
    """Tokens and words of a split."""
    continues = corpus.tokenizer.continues_word
    tokens = [np.asarray(shard.tokens) for shard in corpus.split(split).shards]
    return {"tokens": sum(map(len, tokens)), "words": int(sum((~continues[ids]).sum() for ids in tokens))}


def measured(loss: float, accuracy: float, counts: Mapping[str, int], old_tokens: int) -> dict[str, float]:
    """A loss per token, per word and per token of the old vocabulary."""
    nats = loss * counts["tokens"]
    return {
        "loss": loss,
        "accuracy": accuracy,
        "per_word": nats / counts["words"],
        "per_old_token": nats / old_tokens,
        "tokens_per_word": counts["tokens"] / counts["words"],
    }


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
            entry["after"] = measured(one["loss"], one["accuracy"], entry["counts_after"], old)
    write_json(run.path / FILE, content)
    return content


def rows(content: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A table of the losses: part, unit, before, after, difference."""
    units = {"per_old_token": "nats per old token", "per_word": "nats per word", "loss": "nats per own token",
             "accuracy": "masked tokens right", "tokens_per_word": "tokens per word"}  # fmt: skip
    found: list[tuple[str, ...]] = []
    for part, entry in content["parts"].items():
        for key, unit in units.items():
            before, after = entry["before"][key], entry.get("after", {}).get(key)
            cells = ("", "") if after is None else (f"{after:.3f}", f"{after - before:+.3f}")
            found.append((part, unit, f"{before:.3f}", *cells))
    return found


COLUMNS = ("held-out text", "", "before", "after", "change")


def sentences(content: Mapping[str, Any]) -> list[str]:
    """What was done, in words."""
    pieces = content["pieces"]
    found = [content["why_no_pieces"] or (
        f"{len(pieces):,} new pieces, vocabulary now {content['vocabulary']:,}: "
        + ", ".join(piece["token"] for piece in pieces[:12]) + ("." if len(pieces) <= 12 else ", ...")
    )]  # fmt: skip
    return [*found, content["general"]]
