"""Adapting a trained model to a domain or a language: new pieces, a share of general text, losses before and after."""
