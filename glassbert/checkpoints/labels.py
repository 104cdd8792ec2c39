"""Names of labels: what config.json calls id2label, for whoever opens the model."""

from __future__ import annotations

from collections.abc import Sequence

from glassbert.errors import CheckpointError
from glassbert.models.model import Model


def name_labels(model: Model, names: Sequence[str]) -> None:
    """Give the outputs of a head their names, in the order of their numbers.

    A binary head has one output, the score of "yes": of two names ("no", "yes") it takes the second.
    """
    head, names = model.head, list(names)
    if head is None or not head.labelled:
        raise CheckpointError("only a head with labels can have names for them")
    if head.num_labels == 1 and head.loss_name == "binary_cross_entropy" and len(names) == 2:
        names = names[1:]
    if len(names) != head.num_labels:
        raise CheckpointError(f"the head has {head.num_labels} labels, and {len(names)} names were given for them")
    strange = [name for name in names if not isinstance(name, str) or not name]
    twice = [name for name in names if names.count(name) > 1]
    if strange or twice:
        what = f"{strange[0]!r} is none" if strange else f"{twice[0]!r} is there twice"
        raise CheckpointError(f"names of labels must be different texts, and {what}")
    model.carried_fields = {**model.carried_fields, "id2label": {str(i): name for i, name in enumerate(names)}}


def label_names(model: Model) -> list[str] | None:
    """The names that were given or came with a file, in the order of the outputs; None where nobody named them."""
    names = model.carried_fields.get("id2label")
    count = model.head.num_labels if model.head is not None else 0
    if not isinstance(names, dict) or not names or set(map(str, names)) != {str(i) for i in range(count)}:
        return None
    found = [str(dict(zip(map(str, names), names.values(), strict=True))[str(i)]) for i in range(count)]
    return None if found == [f"LABEL_{i}" for i in range(count)] else found
