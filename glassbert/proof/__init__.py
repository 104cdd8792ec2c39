"""The proof that every hand-written gradient is right, and that a wrong one would be noticed."""

from glassbert.proof.gradient_check import gradient_check
from glassbert.proof.report import GradientReport, TensorCheck

__all__ = ["GradientReport", "TensorCheck", "gradient_check"]
