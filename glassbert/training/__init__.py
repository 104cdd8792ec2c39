"""Optimizers and the training step."""
