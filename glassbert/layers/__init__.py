"""Layers: operations composed, forward beside backward. Importing this package fills the tables of parts."""

from glassbert.layers import attention, block, embeddings, feed_forward, positions

__all__ = ["attention", "block", "embeddings", "feed_forward", "positions"]
