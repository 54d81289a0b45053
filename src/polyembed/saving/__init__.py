"""Saving modules as folders: the constructor call as configuration, safetensors, and the hub."""

from polyembed.saving.config import Configurable, VectorFiles
from polyembed.saving.module import PretrainedModule, model_card

__all__ = ["Configurable", "PretrainedModule", "VectorFiles", "model_card"]
