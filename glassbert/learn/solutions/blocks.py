"""Solutions of the phases "Building blocks", "Attention" and "The whole model"."""

import math

import numpy as np


def embedding(table, ids):
    """y[n] = table[ids[n]]: indexing with an array of ids takes a row for each of them."""
    return table[ids]  # [..., H]


def linear(x, weight, bias):
    """y = x Wᵀ + b. W is stored as [output, input]."""
    y = x @ weight.T  # [..., O]
    return y + bias


def relu(x):
    """max(x, 0)"""
    return np.maximum(x, 0)


def gelu(x):
    """x · Φ(x), with the normal distribution function Φ(x) = (1 + erf(x / √2)) / 2."""
    erf = np.vectorize(math.erf, otypes=[float])
    cdf = 0.5 * (1.0 + erf(x / math.sqrt(2.0)))
    return x * cdf


def layer_norm(x, gamma, beta, eps):
    """x̂ = (x - mean) / sqrt(var + eps), y = gamma · x̂ + beta, for every row along the last axis."""
    centred = x - x.mean(-1, keepdims=True)  # [..., H]
    variance = (centred * centred).mean(-1, keepdims=True)  # [..., 1]
    x_hat = centred / np.sqrt(variance + eps)
    return gamma * x_hat + beta


def feed_forward(x, up_weight, up_bias, down_weight, down_bias):
    """down(relu(up(x))): the only place of a block where features of one token meet in a curve."""
    hidden = x @ up_weight.T + up_bias  # [..., I]
    activated = np.maximum(hidden, 0)
    return activated @ down_weight.T + down_bias  # [..., H]


def softmax(x):
    """exp(x - max) / Σ exp(x - max), along the last axis. The maximum keeps exp from overflowing."""
    shifted = x - x.max(-1, keepdims=True)
    exponentials = np.exp(shifted)
    return exponentials / exponentials.sum(-1, keepdims=True)


def split_heads(x, heads):
    """[B, T, H] -> [B, heads, T, d]: each token's features are cut into `heads` parts, then the heads come first."""
    batch, length, size = x.shape
    parts = x.reshape(batch, length, heads, size // heads)
    return parts.transpose(0, 2, 1, 3)


def attention(q, k, v, mask):
    """softmax(q kᵀ / √d) v, where keys with mask 0 get no weight. q, k, v [B, heads, T, d]; mask [B, T]."""
    scores = q @ k.swapaxes(-1, -2)  # [B, heads, T, T]
    scores = scores / math.sqrt(q.shape[-1])
    scores = np.where(mask[:, None, None, :] != 0, scores, -1e30)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return weights @ v  # [B, heads, T, d]


def attention_entropy(weights):
    """H_i = -Σ_j a_ij log a_ij, with 0 · log 0 = 0."""
    logs = np.log(np.maximum(weights, 1e-30))
    return -(weights * logs).sum(-1)  # [..., T]


def block(x, attention, feed_forward, first_norm, second_norm):
    """Post-norm: each branch is added to its input, and the sum is normalised."""
    x = first_norm(x + attention(x))
    x = second_norm(x + feed_forward(x))
    return x


def parameter_count(vocab_size, positions, hidden_size, layers, intermediate_size):
    """Every array of Mini-BERT: weights, biases and norms. The number of heads does not matter."""
    embeddings = vocab_size * hidden_size + positions * hidden_size
    qkv = 3 * hidden_size * hidden_size + 3 * hidden_size
    output = hidden_size * hidden_size + hidden_size
    up = hidden_size * intermediate_size + intermediate_size
    down = intermediate_size * hidden_size + hidden_size
    norms = 2 * (hidden_size + hidden_size)
    final_norm = hidden_size + hidden_size
    decoder = vocab_size * hidden_size + vocab_size
    return embeddings + layers * (qkv + output + up + down + norms) + final_norm + decoder
