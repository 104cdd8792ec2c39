"""Embeddings, attention, feed-forward and the block: operations composed, forward beside backward."""
