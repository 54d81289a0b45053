"""Saving modules as folders: configurations, safetensors, loading, and the hub."""

from polyembed.saving.card import CardScore, model_card
from polyembed.saving.config import Configurable, Detachable, VectorFiles, repr_call
from polyembed.saving.folder import checksum, sync, try_lock, usual_mode
from polyembed.saving.module import PretrainedModule
from polyembed.saving.writing import tied_names

__all__ = [
    "CardScore",
    "Configurable",
    "Detachable",
    "PretrainedModule",
    "VectorFiles",
    "checksum",
    "model_card",
    "repr_call",
    "sync",
    "tied_names",
    "try_lock",
    "usual_mode",
]
