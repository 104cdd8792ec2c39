"""Layers: operations composed, forward beside backward. Importing this package fills the tables of parts."""

from glassbert.layers import (
    attention,
    block,
    convolution,
    disentangled,
    embeddings,
    feed_forward,
    positions,
    two_streams,
)

__all__ = ["attention", "block", "convolution", "disentangled", "embeddings", "feed_forward", "positions"]
__all__ += ["two_streams"]
