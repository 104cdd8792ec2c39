"""A model with quantised weights, made from one of floats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from glassbert.models.model import Model
from glassbert.models.quantized import QuantizedModel, on_engine
from glassbert.ops.quantized import TOKEN, QuantizedArray
from glassbert.quantization.calibration import Activations
from glassbert.quantization.rounding import compact, quantize_array
from glassbert.quantization.settings import TABLES, QuantizationSettings, quantizable


def quantize_model(
    model: Model,
    settings: QuantizationSettings | None = None,
    bits: Mapping[str, int] | None = None,
    activations: Mapping[str, Activations] | None = None,
) -> QuantizedModel:
    """The model with its matrices quantised; its own weights are not changed.

    bits         another number of bits for single matrices; 32 leaves one as it is
    activations  what real text puts into every matrix (`observe`): the range for static rounding, and which columns
                 matter most for the rounding of weights to 4 bits
    """
    settings = settings or QuantizationSettings()
    quantized = {}
    for name in quantizable(model):
        wanted = (bits or {}).get(name, settings.bits)
        if wanted != 32:
            seen = (activations or {}).get(name)
            quantized[name] = on_engine(quantize_parameter(model, name, wanted, settings, seen), model.engine)
    return QuantizedModel(model, quantized)


def quantize_parameter(
    model: Model, name: str, bits: int, settings: QuantizationSettings, seen: Activations | None = None
) -> QuantizedArray:
    values = np.asarray(model.engine.to_numpy(model.parameters[name]), np.float32)
    importance = None if seen is None else seen.mean_square
    weight = quantize_array(
        values, bits, group=settings.group_of(bits), symmetric=settings.symmetric_in(bits), importance=importance
    )
    table = name.endswith(TABLES)
    return replace(compact(weight), rounding=None if table or bits != 8 else _rounding(settings, seen))


def _rounding(settings: QuantizationSettings, seen: Activations | None) -> object:
    """A matrix that no text reached, such as one of a head that was not run, has its activations rounded by token."""
    return TOKEN if settings.method == "dynamic" or seen is None else seen.range
