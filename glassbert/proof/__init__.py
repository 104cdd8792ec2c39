"""Checks of all hand-written gradients, and of the checker itself by planted faults."""

from glassbert.proof.gradient_check import gradient_check
from glassbert.proof.report import GradientReport, TensorCheck

__all__ = ["GradientReport", "TensorCheck", "gradient_check"]
