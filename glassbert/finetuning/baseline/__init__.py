"""The simple model that every fine-tuning is held against, fitted on the same examples in the same run."""

from glassbert.finetuning.baseline.fitting import MISSING, Baseline, BaselineMissing, fit_baseline

__all__ = ["MISSING", "Baseline", "BaselineMissing", "fit_baseline"]
