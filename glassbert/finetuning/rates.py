"""Layer-wise learning rates: a factor for every parameter of a model, for `optimizer.rates`.

The head learns at the full rate, and each layer of the encoder slower than the layer above it:

    head, pooler          head_factor
    layer i of L          decayᴸ⁻ⁱ             the top layer (and the last norm): decay; the bottom one: decayᴸ
    embeddings            decayᴸ⁺¹
    numbers of a table    NUMBER_FACTOR        their vectors are new: at the rate of the encoder they hardly move

A factor of 0 freezes a parameter: it does not change at all, not even by weight decay, and the backward pass skips the
frozen layers at the bottom. Gradual unfreezing starts with the head and adds one layer from the top in every epoch:

    optimizer.rates = layer_rates(model, decay=0.9, unfrozen_layers=epoch)
"""

from __future__ import annotations

from glassbert.errors import TrainingError
from glassbert.models.model import Model

NUMBERS = "embeddings.number"
NUMBER_FACTOR = 10.0


def layer_rates(
    model: Model,
    *,
    decay: float = 1.0,
    head_factor: float = 1.0,
    freeze: int | str = 0,
    unfrozen_layers: int | None = None,
) -> dict[str, float]:
    """The factor of every parameter of `model`, by name.

    decay            factor from a layer to the one below it, above 0 and at most 1
    head_factor      factor of head and pooler
    freeze           "embeddings"; a number of lowest layers, including the embeddings; or "encoder"
    unfrozen_layers  for gradual unfreezing, the number of unfrozen layers from the top; the embeddings follow after the
                     lowest layer. None: all of them. Parameters named by `freeze` stay frozen.
    """
    layers = model.config.num_hidden_layers
    if isinstance(decay, bool) or not isinstance(decay, (int, float)) or not 0 < decay <= 1:
        raise TrainingError(f"decay must be above 0 and at most 1, got {decay!r}")
    if isinstance(head_factor, bool) or not isinstance(head_factor, (int, float)) or not head_factor >= 0:
        raise TrainingError(f"head_factor must be a number of at least 0, got {head_factor!r}")
    if unfrozen_layers is not None and (isinstance(unfrozen_layers, bool) or not unfrozen_layers >= 0):
        raise TrainingError(f"unfrozen_layers must be a number of layers, got {unfrozen_layers!r}")
    frozen = max(_frozen_levels(freeze, layers), 0 if unfrozen_layers is None else layers + 1 - unfrozen_layers)
    rates = {}
    for name in model.layout.shapes:
        level = _level(name, layers)
        if name == NUMBERS:
            rates[name] = NUMBER_FACTOR
        elif level > layers:
            rates[name] = float(head_factor)
        else:
            rates[name] = 0.0 if level < frozen else decay ** (layers + 1 - level)
    return rates


def _level(name: str, layers: int) -> int:
    """0 for embeddings and positions, 1 to L for the layers, L + 1 for the head; the final norm is in the top layer."""
    module, _, rest = name.partition(".")
    if module == "layers":
        return 1 + int(rest.partition(".")[0])
    return {"embeddings": 0, "positions": 0, "final_norm": layers}.get(module, layers + 1)


def _frozen_levels(freeze: int | str, layers: int) -> int:
    """The number of frozen levels from the bottom."""
    named = {"embeddings": 1, "encoder": layers + 1}
    if isinstance(freeze, str) and freeze in named:
        return named[freeze]
    if isinstance(freeze, int) and not isinstance(freeze, bool) and 0 <= freeze <= layers:
        return freeze + 1 if freeze else 0
    raise TrainingError(
        f"freeze must be 'embeddings', 'encoder' or a number of the lowest of the {layers} layers, got {freeze!r}"
    )
