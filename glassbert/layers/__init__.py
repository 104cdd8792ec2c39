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
from glassbert.layers.registry import ATTENTIONS, POSITIONS

__all__ = ["attention", "block", "convolution", "disentangled", "embeddings", "feed_forward", "positions"]
__all__ += ["two_streams"]

# Parts that a single family uses stand in its module, which is imported with them.
ATTENTIONS.later("window_and_global", "glassbert.families.longformer")
POSITIONS.later("buckets", "glassbert.families.mpnet")
