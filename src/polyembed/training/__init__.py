"""Loops over the parts, for those who have none of their own."""

from polyembed.training.checkpoints import load_checkpoint, save_checkpoint
from polyembed.training.fit import EnsembleResult, fit, fit_ensemble
from polyembed.training.masked_lm import AdaptationResult, MaskingCollator, adapt_masked_lm
from polyembed.training.masked_scores import (
    MaskedScore,
    SwitchPoints,
    perplexity,
    switch_points,
)
from polyembed.training.metaxl import MetaXLOptions, MetaXLTrainer, MetaXLTrainerStep
from polyembed.training.options import (
    FitOptions,
    default_optimizer,
    default_schedule,
    noam_schedule,
)
from polyembed.training.state import Epoch, FitResult
from polyembed.training.trainers import DataCollatorForWords

__all__ = [
    "AdaptationResult",
    "DataCollatorForWords",
    "EnsembleResult",
    "Epoch",
    "FitOptions",
    "FitResult",
    "MaskedScore",
    "MaskingCollator",
    "MetaXLOptions",
    "MetaXLTrainer",
    "MetaXLTrainerStep",
    "SwitchPoints",
    "adapt_masked_lm",
    "default_optimizer",
    "default_schedule",
    "fit",
    "fit_ensemble",
    "load_checkpoint",
    "noam_schedule",
    "perplexity",
    "save_checkpoint",
    "switch_points",
]
