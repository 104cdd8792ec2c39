"""Generating text with a causal model: one token after another, each drawn from the model's prediction."""

from glassbert.generation.continuation import Generated, generate, stream
from glassbert.generation.sampling import Sampling

__all__ = ["Generated", "Sampling", "generate", "stream"]
