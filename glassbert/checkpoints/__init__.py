"""Files in and out: safetensors and config.json, in Hugging Face's own layout wherever it has a class for the model.

    model = glassbert.load("folder or hub id")
    model.save("folder", labels=["no", "yes"], tokenizer=tokenizer)    # transformers opens it
    model.to_huggingface(gradients)            # Hugging Face's names for any arrays keyed by ours

A family is a table of names and a table of config fields (`families.py`); everything else here is one mechanism that
reads these tables in both directions. No pickle is ever opened.
"""

from glassbert.checkpoints.labels import label_names, name_labels
from glassbert.checkpoints.loading import load, load_weights
from glassbert.checkpoints.saving import save_model, to_huggingface

__all__ = ["label_names", "load", "load_weights", "name_labels", "save_model", "to_huggingface"]
