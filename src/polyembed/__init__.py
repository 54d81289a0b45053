"""polyembed: composable PyTorch modules for multilingual and code-switched text.

This package has the names that the README and the guides use; all others are in its subpackages. A
name is loaded when it is first asked for, so that importing polyembed takes no time.
"""

import importlib
from typing import Any

from polyembed._version import __version__ as __version__

_ROOMS = {
    "crf": "CRF Constraints",
    "embeddings": (
        "CharCNN HierarchicalMetaEmbedding MetaEmbedding SourceEmbedding SpelledEmbedding "
        "UniqueWords WordEmbedder bake"
    ),
    "encoders": (
        "DLFA CharWordEncoder LastLayer LayerAverage "
        "LSTMSequenceEncoder PretrainedWordEncoder ScalarMix TransformerSequenceEncoder"
    ),
    "tagging": (
        "CRFDecoder PairClassifier SequenceClassifier SequenceTagger SoftmaxDecoder "
        "TokenClassifier VotingEnsemble build_tagger"
    ),
    "text": "Lexicon Normalizer Pieces",
    "training": "FitOptions MetaXLTrainer adapt_masked_lm fit fit_ensemble",
    "transfer": (
        "RepresentationTransformationNetwork align_spaces extend_vocabulary "
        "metaxl_gradients metaxl_step transformed_output translation_accuracy"
    ),
    "vectors": "BPEmbVectors FastTextVectors JoinedVectors TextVectors",
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names.split()}
_SUBPACKAGES = {*_ROOMS, "data", "evaluation", "functional", "metrics", "saving", "tables"}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"polyembed.{name}")
    if name in _HOMES:
        value = globals()[name] = getattr(
            importlib.import_module(f"polyembed.{_HOMES[name]}"), name
        )
        return value
    raise AttributeError(f"module 'polyembed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBPACKAGES})
