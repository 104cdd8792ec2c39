"""Text: for now a handful of sentences and a vocabulary trained on them."""
