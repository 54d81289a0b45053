"""Loops over the parts, for those who have none of their own."""

from polyembed.training.adaptation import AdaptationResult, adapt_masked_lm
from polyembed.training.ensemble import EnsembleResult, fit_ensemble
from polyembed.training.fit import fit
from polyembed.training.metaxl import MetaXLTrainer
from polyembed.training.metaxl_options import MetaXLOptions, MetaXLTrainerStep
from polyembed.training.optimizers import default_optimizer, noam_schedule
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
    "MetaXLTrainerStep",
    "Run",
    "SwitchPoints",
    "TrainerModel",
    "adapt_masked_lm",
    "default_optimizer",
    "fit",
    "fit_ensemble",
    "noam_schedule",
    "perplexity",
    "switch_points",
    "trainer_metrics",
    "wrap_for_trainer",
]
