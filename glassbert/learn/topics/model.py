"""Exercises of the whole model: the block and the number of parameters."""

from __future__ import annotations

import numpy as np

from glassbert.layers.block import PostNormBlock
from glassbert.learn.exercise import Exercise, mistake, register
from glassbert.learn.solutions import blocks as solutions
from glassbert.learn.topics.blocks import ORDINARY, random
from glassbert.models.model import Model


def block_cases():
    mixing, up = random(4, 4), random(5, 5, seed=1)

    def attention(x):
        return np.tanh(mixing @ x)  # mixes tokens

    def feed_forward(x):
        return np.maximum(x @ up, 0.0)  # mixes features

    def norm(x, scale):
        centred = x - x.mean(-1, keepdims=True)
        return scale * centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)

    return {
        ORDINARY: {
            "x": random(2, 4, 5),
            "attention": attention,
            "feed_forward": feed_forward,
            "first_norm": lambda x: norm(x, 1.5),
            "second_norm": lambda x: norm(x, 0.5),
        }
    }


class _Scope:
    """As much of a scope as `PostNormBlock.forward` uses, over given functions."""

    def __init__(self, norm=None, parts=None):
        self.norm_function, self.parts = norm, parts or {}

    def inside(self, name):
        return self.parts[name]

    def record(self, name, value):
        return value

    def dropout(self, x, name, rate):
        return x

    def norm(self, x, name, eps, donate=False):
        return self.norm_function(x)


class _Branch:
    def __init__(self, function):
        self.function = function

    def forward(self, x, *rest):
        return self.function(x)

    def take_read(self, x, *rest):
        return x  # every token is read


def block(x, attention, feed_forward, first_norm, second_norm):
    """The package's own block over the given functions."""
    one = object.__new__(PostNormBlock)
    one.attention, one.ffn = _Branch(attention), _Branch(feed_forward)  # type: ignore[assignment]
    one.rate, one.eps = 0.0, 1e-5
    scope = _Scope(parts={"attention": _Scope(first_norm), "ffn": _Scope(second_norm)})
    return one.forward(x, scope, None)  # type: ignore[arg-type]


FUNCTION = "a function [B, T, H] -> [B, T, H]"

register(
    Exercise(
        "block",
        lesson=7,
        task="BERT's block, post-norm: x = norm(x + attention(x)), then x = norm(x + feed_forward(x)).",
        shapes={
            "x": "[B, T, H]",
            "attention": FUNCTION,
            "feed_forward": FUNCTION,
            "first_norm": FUNCTION,
            "second_norm": FUNCTION,
        },
        outputs={"y": "[B, T, H]"},
        cases=block_cases,
        reference=block,
        solution=solutions.block,
        hints=(
            "Each branch is added to its own input, then the sum is normalised.",
            "The second half starts from the result of the first half.",
        ),
        mistakes=(
            mistake(
                "the first residual is missing",
                "This is what comes out when the attention's output replaces x instead of being added to it.",
                "x + attention(x): the input must have a way around the branch.",
                ("x + attention(x)", "attention(x)"),
            ),
            mistake(
                "the second residual is missing",
                "This is what comes out when the output of the feed-forward layer replaces x.",
                "x + feed_forward(x): the input must have a way around the branch.",
                ("x + feed_forward(x)", "feed_forward(x)"),
            ),
            mistake(
                "both residuals are missing",
                "This is what comes out when neither branch is added to its input.",
                "x + branch(x), twice.",
                ("x + attention(x)", "attention(x)"),
                ("x + feed_forward(x)", "feed_forward(x)"),
            ),
            mistake(
                "pre-norm instead of post-norm",
                "This is the pre-norm block of ModernBERT: x + branch(norm(x)).",
                "In BERT's block the norm comes after the sum: norm(x + branch(x)).",
                ("first_norm(x + attention(x))", "x + attention(first_norm(x))"),
                ("second_norm(x + feed_forward(x))", "x + feed_forward(second_norm(x))"),
            ),
            mistake(
                "the branch is normalised, not the sum",
                "This is what comes out when only the branch is normalised: x + norm(branch(x)).",
                "The sum is normalised, so that x cannot grow from block to block.",
                ("first_norm(x + attention(x))", "x + first_norm(attention(x))"),
                ("second_norm(x + feed_forward(x))", "x + second_norm(feed_forward(x))"),
            ),
            mistake(
                "the second residual adds the input of the block",
                "This is what comes out when the second sum adds the input of the block again.",
                "The second branch is added to its own input, the result of the first half.",
                ("x = first_norm(x + attention(x))", "h = first_norm(x + attention(x))"),
                ("second_norm(x + feed_forward(x))", "second_norm(x + feed_forward(h))"),
            ),
            mistake(
                "feed-forward before attention",
                "This is what comes out when the feed-forward layer comes first.",
                "Attention comes first, the feed-forward layer second.",
                ("first_norm(x + attention(x))", "first_norm(x + feed_forward(x))"),
                ("second_norm(x + feed_forward(x))", "second_norm(x + attention(x))"),
            ),
            mistake(
                "the norms are exchanged",
                "This is what comes out when the second norm is used first.",
                "first_norm belongs to attention, second_norm to the feed-forward layer.",
                ("first_norm(x + attention", "second_norm(x + attention"),
                ("second_norm(x + feed", "first_norm(x + feed"),
            ),
            mistake(
                "the feed-forward layer is missing",
                "This is the first half of the block.",
                "After attention follows the feed-forward layer with its own sum and norm.",
                ("    x = second_norm(x + feed_forward(x))\n", ""),
            ),
        ),
        library=PostNormBlock.forward,
    )
)


def count_cases():
    return {
        "small": {"vocab_size": 50, "positions": 8, "hidden_size": 12, "layers": 2, "intermediate_size": 20},
        "Mini-BERT": {"vocab_size": 8192, "positions": 64, "hidden_size": 192, "layers": 3, "intermediate_size": 768},
    }


def parameter_count(vocab_size, positions, hidden_size, layers, intermediate_size):
    """Counted on a model of the package, not by a formula."""
    from glassbert.families.bert import MINI_BERT_CONFIG

    config = MINI_BERT_CONFIG.replace(
        vocab_size=vocab_size,
        max_position_embeddings=positions,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        intermediate_size=intermediate_size,
    )
    return Model(config, "mlm", engine="numpy", initialize=False).get_parameter_count()


register(
    Exercise(
        "parameter_count",
        lesson=8,
        task=(
            "How many numbers a Mini-BERT has: token and position embeddings; in every layer qkv, output, up and down "
            "with their biases, and two norms; a final norm; a decoder with its own weight and bias."
        ),
        shapes={
            "vocab_size": "V",
            "positions": "longest row",
            "hidden_size": "H",
            "layers": "L",
            "intermediate_size": "I",
        },
        outputs={"count": "a whole number"},
        cases=count_cases,
        reference=parameter_count,
        solution=solutions.parameter_count,
        hints=(
            "Write down every array with its shape: MiniBERT().parameters lists them.",
            "A linear map from I to O has O · I weights and O biases; a norm has gamma and beta, 2 · H.",
            "qkv is one map from H to 3H. The decoder is not tied: it has V · H weights of its own, and V biases.",
        ),
        mistakes=(
            mistake(
                "the biases are forgotten",
                "This is the number without the biases of the linear maps.",
                "A linear map to O outputs has O biases. There are four in every layer, and the decoder's.",
                (" + 3 * hidden_size\n", "\n"),
                ("output = hidden_size * hidden_size + hidden_size", "output = hidden_size * hidden_size"),
                ("hidden_size * intermediate_size + intermediate_size", "hidden_size * intermediate_size"),
                ("intermediate_size * hidden_size + hidden_size", "intermediate_size * hidden_size"),
                ("vocab_size * hidden_size + vocab_size", "vocab_size * hidden_size"),
            ),
            mistake(
                "the norms are forgotten",
                "This is the number without the norms.",
                "A norm has gamma and beta: 2 · H. There are two in every layer, and one at the end.",
                ("norms = 2 * (hidden_size + hidden_size)", "norms = 0"),
                ("final_norm = hidden_size + hidden_size", "final_norm = 0"),
            ),
            mistake(
                "the final norm is forgotten",
                "This is the number without the final norm.",
                "After the last block there is one more norm, 2 · H.",
                ("final_norm = hidden_size + hidden_size", "final_norm = 0"),
            ),
            mistake(
                "the decoder is tied",
                "This is the number of a model whose decoder shares the table of tokens.",
                "Mini-BERT's decoder has a weight of its own, [V, H], and a bias [V].",
                ("vocab_size * hidden_size + vocab_size", "vocab_size"),
            ),
            mistake(
                "the decoder is forgotten",
                "This is the number of the encoder, without the decoder.",
                "The decoder turns H features into V scores: V · H weights and V biases.",
                ("decoder = vocab_size * hidden_size + vocab_size", "decoder = 0"),
            ),
            mistake(
                "the bias of the decoder is forgotten",
                "This is the number without the bias of the decoder.",
                "The decoder has V biases.",
                ("vocab_size * hidden_size + vocab_size", "vocab_size * hidden_size"),
            ),
            mistake(
                "the positions are forgotten",
                "This is the number without the table of positions.",
                "Positions have a row each, [positions, H].",
                (" + positions * hidden_size", ""),
            ),
            mistake(
                "the output map of attention is forgotten",
                "This is the number without the output map of attention.",
                "After the heads are merged, one more linear map from H to H follows.",
                ("output = hidden_size * hidden_size + hidden_size", "output = 0"),
            ),
            mistake(
                "one layer only",
                "This is the number for one layer.",
                "Every layer has its own numbers: multiply by layers.",
                ("layers * (", "1 * ("),
            ),
        ),
        library=Model.get_parameter_count,
    )
)
