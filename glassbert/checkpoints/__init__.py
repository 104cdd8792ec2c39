"""Reading and writing checkpoints: safetensors and config.json, in Hugging Face's layout where possible.

    model = glassbert.load("folder or hub id")
    model.save("folder", labels=["no", "yes"], tokenizer=tokenizer)    # transformers opens it
    model.to_huggingface(gradients)            # Hugging Face's names for any arrays keyed by ours

A family (`family.py`) is a table of names and a table of config fields; this package reads and writes by these tables.
Pickles are never opened.
"""

from glassbert.checkpoints.description import label_names, name_labels
from glassbert.checkpoints.loading import load, load_weights
from glassbert.checkpoints.saving import save_model, to_huggingface

__all__ = ["label_names", "load", "load_weights", "name_labels", "save_model", "to_huggingface"]
