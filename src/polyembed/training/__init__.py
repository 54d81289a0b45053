"""Loops over the parts, for those who have none of their own."""

from polyembed.training.ensemble import EnsembleResult, fit_ensemble
from polyembed.training.fit import Epoch, FitResult, fit
from polyembed.training.metaxl import MetaXLTrainer, TrainerStep
from polyembed.training.protocols import ProtocolResult, code_switched, gain, joint, merge, zero_shot
from polyembed.training.runs import Build, Corpus, Run, TrainingOptions

__all__ = [
    "Build",
    "Corpus",
    "EnsembleResult",
    "Epoch",
    "FitResult",
    "MetaXLTrainer",
    "ProtocolResult",
    "Run",
    "TrainerStep",
    "TrainingOptions",
    "code_switched",
    "fit",
    "fit_ensemble",
    "gain",
    "joint",
    "merge",
    "zero_shot",
]
