"""Loops over the parts, for those who have none of their own."""

from polyembed.training.ensemble import EnsembleResult, fit_ensemble
from polyembed.training.fit import Epoch, FitResult, fit

__all__ = ["EnsembleResult", "Epoch", "FitResult", "fit", "fit_ensemble"]
