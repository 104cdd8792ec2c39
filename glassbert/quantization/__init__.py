"""Quantisation: weights in 8 or 4 bits, chosen by what each matrix costs, measured on the model's own task."""

from glassbert.quantization.choice import Choice, choose_bits
from glassbert.quantization.folder import Quantized, quantize
from glassbert.quantization.model import quantize_model
from glassbert.quantization.rounding import quantize_array
from glassbert.quantization.sensitivity import Cost, costs_of
from glassbert.quantization.settings import QuantizationSettings

__all__ = [
    "Choice",
    "Cost",
    "QuantizationSettings",
    "Quantized",
    "choose_bits",
    "costs_of",
    "quantize",
    "quantize_array",
    "quantize_model",
]
