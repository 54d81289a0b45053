"""Loops over the parts, for those who have none of their own."""

from polyembed.training.adaptation import AdaptationResult, adapt_masked_lm
from polyembed.training.ensemble import EnsembleResult, fit_ensemble
from polyembed.training.fit import fit
from polyembed.training.metaxl import MetaXLTrainer
from polyembed.training.metaxl_options import MetaXLOptions, TrainerStep
from polyembed.training.optimizers import adam_for, noam
from polyembed.training.options import FitOptions
from polyembed.training.perplexity import perplexity
from polyembed.training.runs import Run
from polyembed.training.state import Epoch, FitResult
from polyembed.training.switch_points import MaskedScore, SwitchPoints, switch_points
from polyembed.training.trainers import (
    DataCollatorForWords,
    TrainerModel,
    trainer_metrics,
    wrap_for_trainer,
)

__all__ = [
    "AdaptationResult",
    "DataCollatorForWords",
    "EnsembleResult",
    "Epoch",
    "FitOptions",
    "FitResult",
    "MaskedScore",
    "MetaXLOptions",
    "MetaXLTrainer",
    "Run",
    "SwitchPoints",
    "TrainerModel",
    "TrainerStep",
    "adam_for",
    "adapt_masked_lm",
    "fit",
    "fit_ensemble",
    "noam",
    "perplexity",
    "switch_points",
    "trainer_metrics",
    "wrap_for_trainer",
]
