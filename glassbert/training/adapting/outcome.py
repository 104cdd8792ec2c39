"""The result of an adaptation: losses on the domain and on general text, before and after.

A longer piece is harder to guess than a short one, so losses per token of two vocabularies cannot be compared. Per word
they can, if whole words are masked: where single tokens are, the other pieces of a word give the masked one away, and a
new piece that replaces them loses this help.

    nats per whole word = nats of all pieces of the masked words / masked words
    nats per old token  = nats per token · tokens / tokens in the old vocabulary

"Per old token" has the scale of the loss before, and is unfair to new pieces. All rows are those of `paired`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from glassbert.files import write_json
from glassbert.training.data import ADAPTATION
from glassbert.training.run_folder import RunFolder

FILE = ADAPTATION
COUNTS = ("counts_before", "counts_after")
MANY_UNKNOWN = 0.01  # of the words


def read(run: RunFolder) -> dict[str, Any] | None:
    """The content of RUN/adaptation.json, or None where the run is no adaptation."""
    try:
        return json.loads((run.path / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write(run: RunFolder, content: Mapping[str, Any]) -> None:
    write_json(run.path / FILE, content)


def rows(content: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A table of the losses: part, unit, before, after, difference."""
    units = {"per_word": "nats per word, masked as a whole", "per_old_token": "nats per old token",
             "accuracy": "masked tokens right", "tokens_per_word": "tokens per word"}  # fmt: skip
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
    found += [content.get("why_pieces", ""), _unknown(content), content["general"], _share(content)]
    return [sentence for sentence in found if sentence]


def _share(content: Mapping[str, Any]) -> str:
    """Sentences about the share of the change that was kept; "" where none was chosen."""
    choice = content.get("choice", {})
    if "share" not in choice:
        return ""
    share, limit = choice["share"], f"{content['general_limit']:g} nats per word, masked as a whole (--general-limit)"
    taken = next(one for one in choice["tried"] if one["share"] == share)
    rise = f"{taken['rise']:+.3f} ± {taken['error']:.3f}"
    where = "on held-out rows of their own" if choice["separate"] else (
        "on the rows that are reported, because there is too little held-out general text for two halves"
    )  # fmt: skip
    kept = "All" if share == 1 else f"{share:g}"
    if choice["kept"]:
        size = "" if share == 1 else "the largest share with which "
        why = f"{size}general text rises by at most {limit}"
    else:
        why = (
            f"general text rises least with it, but by more than {limit}; fewer --new-pieces or a larger "
            "--general-share may help"
        )
    said = f"{kept} of the change of the weights was kept: {why}. It was chosen {where}: {rise}."
    trained = {name: entry for name, entry in content["parts"].items() if "trained" in entry}
    each = "; ".join(
        f"{name} {entry['trained']['per_word']:.3f} ({entry['trained']['per_word'] - entry['before']['per_word']:+.3f})"
        for name, entry in trained.items()
    )
    return f"{said} With all of the change, nats per word: {each}." if trained else said


def _unknown(content: Mapping[str, Any]) -> str:
    """A sentence where the old vocabulary lacked many words: they are never masked, so its loss leaves them out."""
    entry = content["parts"]["domain"]
    before, after = (entry[name].get("unknown", 0) / max(1, entry[name]["words"]) for name in COUNTS)
    if before < MANY_UNKNOWN:
        return ""
    return (
        f"{before:.1%} of the words of the domain were unknown before ({after:.1%} now). Unknown words are never "
        f"masked: losses per word leave them out before and after, losses per old token only before."
    )
