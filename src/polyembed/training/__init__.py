"""Loops over the parts, for those who have none of their own."""

from polyembed.training.adaptation import AdaptationResult, adapt_masked_lm
from polyembed.training.ensemble import EnsembleResult, fit_ensemble
from polyembed.training.fit import Epoch, FitResult, fit
from polyembed.training.metaxl import MetaXLTrainer, TrainerStep
from polyembed.training.perplexity import MaskedScore, SwitchPoints, perplexity, switch_points
from polyembed.training.protocols import ProtocolResult, code_switched, gain, joint, merge, zero_shot
from polyembed.training.runs import Build, Corpus, Run, TrainingOptions
from polyembed.training.sweep import SweepResult, sweep_layers
from polyembed.training.trainers import DataCollatorForWords, TrainerModel, for_trainer, trainer_metrics

__all__ = [
    "AdaptationResult",
    "Build",
    "Corpus",
    "DataCollatorForWords",
    "EnsembleResult",
    "Epoch",
    "FitResult",
    "MaskedScore",
    "MetaXLTrainer",
    "ProtocolResult",
    "Run",
    "SweepResult",
    "SwitchPoints",
    "TrainerModel",
    "TrainerStep",
    "TrainingOptions",
    "adapt_masked_lm",
    "code_switched",
    "fit",
    "fit_ensemble",
    "for_trainer",
    "gain",
    "joint",
    "merge",
    "perplexity",
    "sweep_layers",
    "switch_points",
    "trainer_metrics",
    "zero_shot",
]
