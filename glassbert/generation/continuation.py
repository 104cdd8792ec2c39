"""Generating text: the prompt is read once, then every token is computed alone.

    scores, memory = model(prompt)
    repeat: token ~ softmax(scores / temperature);  scores, memory = model(token, memory)

The memory holds keys and values of all tokens so far (the key-value cache). It gives the same scores as reading the
whole text again for every token. Prompts of different lengths are padded on the left, so that all of them end at the
same place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from glassbert.errors import InputError
from glassbert.generation.sampling import Sampling
from glassbert.models.encoder import Memory
from glassbert.models.model import Model
from glassbert.text.tokenizer import Tokenizer, check_text

MOST_TOKENS = 128  # where no number is given


class Generated(NamedTuple):
    """A prompt and its continuation. `ended`: the model ended the text itself."""

    prompt: str
    text: str
    ids: list[int]
    ended: bool


def generate(
    model: Model,
    tokenizer: Tokenizer,
    prompt: str | Sequence[str],
    *,
    tokens: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    cache: bool = True,
) -> Any:
    """Continue a prompt (a `Generated`), or several prompts at once (a list of them).

    tokens       how many at most; by default as many as fit, at most 128. The end-of-text token ends a text before
    temperature  below 1 the probable tokens become more probable; top_k=1 takes the most probable one
    top_k        draw only from the k most probable tokens
    top_p        draw only from the most probable tokens that together have this probability
    seed         of the random numbers; a prompt gives the same text alone and among others
    cache        False reads the whole text again for every token: slower, with the same result
    """
    single = isinstance(prompt, str)
    prompts: list[str] = [prompt] if isinstance(prompt, str) else list(prompt)
    text = Continuation(model, tokenizer, prompts, tokens, Sampling(temperature, top_k, top_p), seed, cache)
    for _ in text:
        pass
    return text.results()[0] if single else text.results()


def stream(model: Model, tokenizer: Tokenizer, prompt: str, **options: Any) -> Iterator[str]:
    """The continuation of one prompt piece by piece; `options` are those of `generate`, without several prompts.

    A piece ends where the text so far can no longer change: byte-level tokens may hold half a character.
    """
    sampling = Sampling(*(options.pop(name, default) for name, default in SAMPLING.items()))
    text = Continuation(model, tokenizer, [prompt], options.pop("tokens", None), sampling, **options)
    shown = ""
    for _ in text:
        now = text.results()[0].text
        if now.startswith(shown) and not now.endswith("\ufffd"):
            yield now[len(shown) :]
            shown = now
    last = text.results()[0].text
    if last.startswith(shown):
        yield last[len(shown) :]


SAMPLING = {"temperature": 1.0, "top_k": None, "top_p": None}


class Continuation:
    """Prompts that are being continued. Iterating gives the new token of every prompt, [B], until all have ended."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        prompts: Sequence[str],
        tokens: int | None,
        sampling: Sampling,
        seed: int = 0,
        cache: bool = True,
    ):
        require_causal(model)
        if not prompts:
            raise InputError("there is no prompt; give a text to continue")
        if tokenizer.vocab_size > model.config.vocab_size:
            raise InputError(
                f"the tokenizer has {tokenizer.vocab_size:,} tokens, but the model {model.config.vocab_size:,}; "
                f"give the tokenizer that the model was trained with"
            )
        self.model, self.tokenizer, self.sampling, self.cache = model, tokenizer, sampling, cache
        self.prompts = list(prompts)
        self.rows = [encode(tokenizer, prompt) for prompt in prompts]
        self.tokens = number_of_tokens(model, max(map(len, self.rows)), tokens)
        self.rngs = [np.random.default_rng(seed) for _ in prompts]
        self.end = tokenizer.sep_id
        self.never = [i for i in tokenizer.special_ids if i != self.end and i < model.config.vocab_size]
        self.new: list[list[int]] = [[] for _ in prompts]
        self.ended = np.zeros(len(prompts), np.bool_)

    def __iter__(self) -> Iterator[np.ndarray]:
        width = max(map(len, self.rows))
        pad = np.array([width - len(row) for row in self.rows])  # [B], tokens of padding on the left
        filler = self.model.config.pad_token_id or 0
        ids = np.array([[filler] * n + row for n, row in zip(pad, self.rows, strict=True)])  # [B, width]
        memory: Memory | None = None
        unread = ids
        for _ in range(self.tokens):
            scores, memory = next_scores(self.model, unread, pad, memory)
            if not np.isfinite(scores).all():
                raise InputError("the model's scores are not finite, so it continues no text: its weights are damaged")
            scores[:, self.never] = -np.inf
            drawn = self.sampling.draw(scores, self.rngs)
            for row, token in enumerate(drawn):
                if not self.ended[row]:
                    self.ended[row] = token == self.end
                    if not self.ended[row]:
                        self.new[row].append(int(token))
            yield drawn
            if self.ended.all():
                return
            ids = np.concatenate([ids, drawn[:, None]], 1)
            unread, memory = (ids[:, -1:], memory) if self.cache else (ids, None)

    def results(self) -> list[Generated]:
        """The prompts with what has been generated so far."""
        found = []
        for prompt, row, new, ended in zip(self.prompts, self.rows, self.new, self.ended, strict=True):
            before, whole = self.tokenizer.decode(row), self.tokenizer.decode([*row, *new])
            continued = whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(new)
            found.append(Generated(prompt, continued, list(new), bool(ended)))
        return found


def next_scores(
    model: Model, ids: np.ndarray, pad: np.ndarray, memory: Memory | None = None
) -> tuple[np.ndarray, Memory]:
    """The scores [B, V] of the token after ids [B, T], and the memory with which the next call needs only that token.

    `pad` [B] is the number of tokens of padding on the left of each row, in the memory or in `ids`.
    """
    past = 0 if not memory else int(memory[0][0].shape[2])
    length = ids.shape[1]
    pairs = positions = None
    if pad.any():
        place = np.arange(past + length)
        real = place >= pad[:, None]  # [B, M + T]
        pairs = np.broadcast_to(real[:, None], (len(ids), length, past + length))
        positions = np.maximum(place - pad[:, None], 0)[:, past:]
    checked = model.check(ids, pairs, position_ids=positions, memory=memory or None)
    keep = [name for names in model.encoder.memory_names() for name in names]
    run = model.run(checked, inference=True, keep=keep)
    head: Any = model.head
    scores = head.forward(run.encode()[:, -1:], run.batch, run.head_scope())  # [B, 1, V]
    return np.array(model.engine.to_numpy(scores), np.float64)[:, 0], run.memory()


def require_causal(model: Model) -> None:
    """Raise `InputError` for a model that does not predict the next token."""
    head = model.head
    if head is None or not model.config.causal or "causal" not in head.parts:
        what = "no head" if head is None else f"the head {head.kind!r}"
        raise InputError(
            f"this model has {what} and attends to {'earlier' if model.config.causal else 'all'} tokens; generating "
            f"needs a causal model with the head 'causal', such as `glassbert pretrain --family gpt2` makes"
        )


def encode(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The ids of a prompt, after the token that begins a text where the tokenizer has one of its own."""
    check_text(prompt, "the prompt")
    ids = [int(i) for i in tokenizer.encode(prompt, special_tokens=False).ids]
    if not ids:
        raise InputError("the prompt is empty; give at least one word to continue")
    return [tokenizer.cls_id, *ids] if tokenizer.cls_id != tokenizer.sep_id else ids


def number_of_tokens(model: Model, longest: int, tokens: int | None) -> int:
    """How many tokens to generate at most. The last one is not read, so it needs no position."""
    room = model.config.max_length + 1 - longest
    if room < 1:
        raise InputError(
            f"the prompt has {longest} tokens, but this model has {model.config.max_length} positions; shorten it"
        )
    if tokens is None:
        return min(room, MOST_TOKENS)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise InputError(f"tokens must be a whole number of at least 1, got {tokens!r}")
    if tokens > room:
        raise InputError(
            f"{tokens} tokens after a prompt of {longest} do not fit the {model.config.max_length} positions of this "
            f"model; ask for at most {room}"
        )
    return tokens
