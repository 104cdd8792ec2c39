"""Cases and planted faults of GPT-2: the next token as target, the last token of a sequence, a memory of keys."""

from __future__ import annotations

import numpy as np

from glassbert.families.gpt2 import Gpt2Config
from glassbert.layers.scope import Scope
from glassbert.ops import attention_backward, last_pool_backward
from glassbert.proof.layer_cases import DROPOUT, IDS, MASK, NO_DROPOUT, SEGMENTS
from glassbert.proof.model_cases import register
from glassbert.proof.mutants import wrong, wrong_in

TINY_GPT2 = Gpt2Config(
    vocab_size=11, hidden_size=6, num_hidden_layers=2, num_attention_heads=2, intermediate_size=7,
    max_position_embeddings=8, **NO_DROPOUT,
)  # fmt: skip
NEXT = np.where(np.array(MASK) == 1, IDS, -100)  # labels where the tokens are, as in transformers
PADDED = {"attention_mask": MASK}
PAST = [tuple(np.random.default_rng(4).standard_normal((2, 3, 2, 2, 3))) for _ in range(2)]  # two tokens, two layers

register("gpt2", "next token, tied, ragged and all-padding rows", TINY_GPT2, "causal", labels=NEXT, inputs=PADDED)
register("gpt2", "next token, untied, packed, dropout, two threads",
         TINY_GPT2.replace(tie_word_embeddings=False, **DROPOUT), "causal", labels=NEXT,
         inputs={"segment_ids": SEGMENTS}, training=True, threads=2)  # fmt: skip
register("gpt2", "next token, checkpointing", TINY_GPT2, "causal", labels=NEXT, inputs=PADDED, checkpointing=True)
register("gpt2", "sequence, last real token, no bias", TINY_GPT2, "sequence", num_labels=3, labels=[2, 1, 0],
         inputs=PADDED)  # fmt: skip
register("gpt2", "memory of earlier keys and values", TINY_GPT2, inputs={"memory": PAST})
register("gpt2", "memory, packed prompts by a mask of pairs", TINY_GPT2,
         inputs={"memory": PAST, "attention_mask": np.tril(np.ones((3, 5, 7), int), 2)})  # fmt: skip

right_run_backward = Scope.run_backward


@wrong("last_pool_backward", "last: the gradient goes to the last position, padding or not")
def _(dy, chosen):
    return np.concatenate([0.0 * chosen[:, 1:, None] * dy[:, None], dy[:, None]], 1)


@wrong("last_pool_backward", "last: every real token gets the gradient")
def _(dy, chosen):
    return np.maximum.accumulate(chosen[:, ::-1], 1)[:, ::-1, None] * dy[:, None]


@wrong("last_pool_backward", "control: last by an index", harmless=True)
def _(dy, chosen):
    dx = np.zeros((*chosen.shape, dy.shape[-1]))
    dx[np.arange(len(dx)), chosen.argmax(1)] = dy
    return dx if len(dx) else last_pool_backward(dy, chosen)


@wrong_in({Scope: "run_backward"}, "next token: the gradient reaches the token that was predicted", "gpt2: next token")
def _(self, key, dy, **hints):
    dx = right_run_backward(self, key, dy, **hints)
    return np.roll(dx, 1, axis=0 if dx.ndim == 2 else 1) if key in ("rows", "read") else dx


@wrong(
    "attention_backward", "memory: the gradients of the stored keys are taken for those of this pass", "gpt2: memory"
)
def _(dcontext, state):
    dq, dk, dv, dbias = attention_backward(dcontext, state)
    past = dk.shape[2] - dq.shape[2]
    return dq, np.roll(dk, -past, 2), np.roll(dv, -past, 2), dbias
