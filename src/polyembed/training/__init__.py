"""Loops over the parts, for those who have none of their own."""

from polyembed.training.adaptation import (
    AdaptationResult,
    MaskedScore,
    SwitchPoints,
    adapt_masked_lm,
    perplexity,
    switch_points,
)
from polyembed.training.ensemble import EnsembleResult, fit_ensemble
from polyembed.training.fit import Epoch, FitResult, fit
from polyembed.training.metaxl import MetaXLTrainer, TrainerStep
from polyembed.training.protocols import ProtocolResult, code_switched, gain, joint, merge, zero_shot
from polyembed.training.runs import Build, Corpus, Run, TrainingOptions
from polyembed.training.sweep import SweepResult, sweep_layers

__all__ = [
    "AdaptationResult",
    "Build",
    "Corpus",
    "EnsembleResult",
    "Epoch",
    "FitResult",
    "MaskedScore",
    "MetaXLTrainer",
    "ProtocolResult",
    "Run",
    "SweepResult",
    "SwitchPoints",
    "TrainerStep",
    "TrainingOptions",
    "adapt_masked_lm",
    "code_switched",
    "fit",
    "fit_ensemble",
    "gain",
    "joint",
    "merge",
    "perplexity",
    "sweep_layers",
    "switch_points",
    "zero_shot",
]
