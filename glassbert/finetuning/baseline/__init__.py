"""Baselines: simple models, fitted on the same examples in the same run, to compare a fine-tuned model with."""

from glassbert.finetuning.baseline.fitting import MISSING, Baseline, BaselineMissing, fit_baseline

__all__ = ["MISSING", "Baseline", "BaselineMissing", "fit_baseline"]
