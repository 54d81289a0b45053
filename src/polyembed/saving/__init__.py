"""Saving modules as folders: the constructor call as configuration, safetensors, and the hub."""

from polyembed.saving.card import model_card
from polyembed.saving.config import Configurable, VectorFiles
from polyembed.saving.module import PretrainedModule

__all__ = ["Configurable", "PretrainedModule", "VectorFiles", "model_card"]
