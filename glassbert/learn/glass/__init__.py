"""The glass: a page on which one pass of a model is walked, forward and backward, with the real numbers."""
