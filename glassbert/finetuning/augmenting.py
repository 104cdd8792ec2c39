"""More texts from texts: words replaced by others that a masked language model finds likely there.

    changed = replace_words(["a fine film"], copies=2, model=model, tokenizer=tokenizer)
    changed                                      [["a good film"], ["the fine story"]]

A word is a candidate if it is one token of the model's vocabulary. A share of the candidates is hidden, all at once,
and each is replaced by a word drawn from the most likely ones, never by itself. The meaning may change with it ("a fine
film", "a dull film"), so the texts have no labels: a teacher answers for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from glassbert.arrays import namespace
from glassbert.errors import InputError
from glassbert.finetuning.rows import Progress
from glassbert.finetuning.scoring import BATCH_TOKENS, batches_longest_first
from glassbert.models.model import Model
from glassbert.ops import softmax
from glassbert.tasks import cut_windows
from glassbert.text.encoding import Encoding
from glassbert.text.tokenizer import Tokenizer
from glassbert.training.evaluate import evaluation_mode

RATE = 0.3  # of the candidates of a text, at least one
MOST_LIKELY = 15  # words to draw from
LENGTH = 128  # tokens; longer texts are read in parts
GPU_BATCH_TOKENS = 32_768
CHUNK = 20_000  # texts at a time, which bounds the memory


def replace_words(
    texts: Sequence[str],
    copies: int,
    model: Model,
    tokenizer: Tokenizer,
    *,
    rate: float = RATE,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[list[str]]:
    """`copies` lists of texts with other words; a text without a candidate stays as it is."""
    if model.head is None or model.head.kind != "mlm":
        raise InputError("words are replaced by a masked language model, and this model has no head for masked words")
    words = _whole_words(tokenizer)
    found: list[list[str]] = [[] for _ in range(copies)]
    for begin in range(0, len(texts), CHUNK):
        some = list(texts[begin : begin + CHUNK])
        length = min(LENGTH, model.config.max_length)
        windows = cut_windows(tokenizer, some, length=length, stride=length - 2)
        for copy in range(copies):
            rng = np.random.default_rng([seed, copy, begin])
            changes = _replacements(windows.encodings, model, tokenizer, words, rate, rng)
            found[copy] += _with_changes(some, windows.owners, windows.encodings, changes, tokenizer)
            if progress is not None:
                progress(begin * copies + len(some) * (copy + 1), len(texts) * copies)
    return found


def _whole_words(tokenizer: Tokenizer) -> np.ndarray:
    """Which entries of the vocabulary are words of at least two letters, [V]."""
    words = ~np.asarray(tokenizer.continues_word)
    for token, id in tokenizer.vocabulary.items():
        words[id] &= len(_word(token, tokenizer)) > 1 and _word(token, tokenizer).isalpha()
    return words


def _word(token: str, tokenizer: Tokenizer) -> str:
    """A token without the mark of a space before it, which some tokenizers have."""
    return token.removeprefix(getattr(tokenizer, "space_mark", None) or "")


def _replacements(
    encodings: Sequence[Encoding],
    model: Model,
    tokenizer: Tokenizer,
    words: np.ndarray,
    rate: float,
    rng: np.random.Generator,
) -> list[dict[int, int]]:
    """For each encoded text the new token of each replaced position."""
    continues = np.asarray(tokenizer.continues_word)
    ids = [np.array(encoding.ids, np.int64) for encoding in encodings]
    chosen = []
    for one in ids:
        single = words[one]
        single[:-1] &= ~continues[one[1:]]  # the next piece belongs to another word
        candidates = np.flatnonzero(single)
        count = math.ceil(rate * len(candidates))
        chosen.append(np.sort(rng.choice(candidates, count, replace=False)) if count else candidates)
    found: list[dict[int, int]] = [{} for _ in ids]
    lengths = np.array([len(row) for row in ids], np.int64)
    with evaluation_mode(model):
        size = GPU_BATCH_TOKENS if model.engine.compiles else BATCH_TOKENS
        for members in batches_longest_first(lengths, size):
            batch = np.full((len(members), int(lengths[members].max())), tokenizer.pad_id, np.int64)
            for row, member in enumerate(members):
                batch[row, : lengths[member]] = ids[member]
                batch[row, chosen[member]] = tokenizer.mask_id
            rows = np.concatenate([row * batch.shape[1] + chosen[member] for row, member in enumerate(members)])
            if not len(rows):
                continue
            old = np.concatenate([ids[member][chosen[member]] for member in members])
            mask = (np.arange(batch.shape[1]) < lengths[members][:, None]).astype(np.int32)
            new = _drawn(model, batch, mask, rows, old, words, rng)
            places = [(int(member), int(place)) for member in members for place in chosen[member]]
            for (member, place), token in zip(places, new.tolist(), strict=True):
                found[member][place] = token
    return found


def _drawn(
    model: Model,
    ids: np.ndarray,
    mask: np.ndarray,
    rows: np.ndarray,
    old: np.ndarray,
    words: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """A word for each hidden token, by the model's probabilities among the most likely ones; not the old word."""
    run = model.run(model.check(ids, mask), inference=True, skip_padding=True)
    scores = run.output(model.engine.integers(rows))  # [hidden, V]
    xp = namespace(scores)
    allowed = np.zeros(scores.shape[-1], bool)
    allowed[: len(words)] = words[: len(allowed)]
    scores = scores.reshape(-1, scores.shape[-1]) + model.engine.array(np.where(allowed, 0.0, -1e4))
    count = min(MOST_LIKELY + 1, int(allowed.sum()))
    best = xp.argpartition(-scores, count - 1, axis=-1)[:, :count]  # [hidden, count]
    top = model.engine.to_numpy(xp.take_along_axis(scores, best, -1)).astype(np.float64)
    best = np.asarray(model.engine.to_numpy(best))
    shares = np.where(best == old[:, None], 0.0, softmax(top)[0])
    edges = np.cumsum(shares, -1)
    drawn = rng.random(len(edges))[:, None] * edges[:, -1:]
    return best[np.arange(len(best)), np.minimum((edges <= drawn).sum(-1), count - 1)]


def _with_changes(
    texts: Sequence[str],
    owners: np.ndarray,
    encodings: Sequence[Encoding],
    changes: Sequence[dict[int, int]],
    tokenizer: Tokenizer,
) -> list[str]:
    """The texts with the changed tokens in place of their characters; a capital stays a capital."""
    spans: list[list[tuple[int, int, str]]] = [[] for _ in texts]
    for owner, encoding, changed in zip(owners.tolist(), encodings, changes, strict=True):
        for place, token in changed.items():
            spans[owner].append((*encoding.offsets[place], _word(tokenizer.id_to_token(token), tokenizer)))
    found = []
    for text, replaced in zip(texts, spans, strict=True):
        parts, end = [], 0
        for begin, stop, word in sorted(replaced):
            begin = stop - len(text[begin:stop].lstrip())  # an offset may include the space before a word
            parts += [text[end:begin], word.capitalize() if text[begin].isupper() else word]
            end = stop
        found.append("".join([*parts, text[end:]]))
    return found
