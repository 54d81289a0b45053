"""Training loops over the parts, for users without a loop."""

from polyembed.training.fit import DataCollatorForWords, EnsembleResult, fit, fit_ensemble
from polyembed.training.masked_lm import adapt_masked_lm
from polyembed.training.masked_scores import perplexity
from polyembed.training.metaxl import MetaXLOptions, MetaXLTrainer
from polyembed.training.options import FitOptions, default_optimizer, noam_schedule
from polyembed.training.state import Epoch, FitResult, load_checkpoint, save_checkpoint

__all__ = [
    "DataCollatorForWords",
    "EnsembleResult",
    "Epoch",
    "FitOptions",
    "FitResult",
    "MetaXLOptions",
    "MetaXLTrainer",
    "adapt_masked_lm",
    "default_optimizer",
    "fit",
    "fit_ensemble",
    "load_checkpoint",
    "noam_schedule",
    "perplexity",
    "save_checkpoint",
]
