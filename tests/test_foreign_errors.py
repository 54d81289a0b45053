"""Errors that name an argument of wrong type, precision, range or shape at a module's entrance."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from checks import refused
from tiny_models import tiny_model
from toys import toy_table

import polyembed as pe
from polyembed import crf, encoders, functional
from polyembed.embeddings import AttentionCombiner, LinearCombiner

X, MASK = torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
PAIR, TAG = torch.randn(4, 4), torch.randn(4)
DECODER = pe.SoftmaxDecoder(4, ["a", "b"])

WEIGHTED: dict[str, Callable[[Any], Any]] = {
    "softmax emissions": lambda x: DECODER.emissions(x, MASK),
    "softmax decode": lambda x: DECODER.decode(x, MASK),
    "crf probabilities": lambda x: pe.CRFDecoder(4, ["a", "b"]).probabilities(x, MASK),
    "lstm": lambda x: pe.LSTMSequenceEncoder(4, hidden_size=2)(x, MASK),
    "transformer": lambda x: pe.TransformerSequenceEncoder(4, hidden_size=8, num_heads=2)(x, MASK),
    "aif": lambda x: encoders.AIF(4)(x, MASK),
    "rtn": lambda x: pe.RepresentationTransformationNetwork(4, bottleneck=2)(x),
}
PLAIN: dict[str, Callable[[Any], Any]] = {
    "linear": lambda x: LinearCombiner([4, 4], 3)([x, x]),
    "attention": lambda x: AttentionCombiner([4, 4], 3)([x, x]),
    "masked mean": lambda x: functional.masked_mean(x, MASK),
    "masked max": lambda x: functional.masked_max(x, MASK),
    "hausdorff": lambda x: functional.hausdorff_distance(x, x),
    "pool words": lambda x: encoders.pool_words(x, torch.zeros(2, 3, dtype=torch.long), 1),
    "viterbi": lambda x: crf.viterbi(x, MASK, PAIR, TAG, TAG),
}
NOT_TENSORS = {"None": None, "array": X.numpy(), "list": X.tolist(), "string": "words"}


@pytest.mark.parametrize("found", NOT_TENSORS.values(), ids=NOT_TENSORS)
@pytest.mark.parametrize("call", [*WEIGHTED.values(), *PLAIN.values()], ids=[*WEIGHTED, *PLAIN])
def test_what_is_no_tensor_is_named(call: Callable[[Any], Any], found: object):
    refused(TypeError, rf"must be a tensor, got {type(found).__name__}$", call, found)


@pytest.mark.parametrize("call", WEIGHTED.values(), ids=WEIGHTED)
def test_features_are_of_the_weights_precision(call: Callable[[Any], Any]):
    refused(TypeError, r"must be floating point, got torch.int64$", call, X.long())
    refused(TypeError, r"must be torch.float32, as the weights, got torch.float", call, X.double())
    with torch.autocast("cpu", torch.bfloat16):
        call(X.bfloat16())


@pytest.mark.parametrize(
    "call", [crf.viterbi, crf.log_partition, crf.marginals, crf.sample, crf.entropy]
)
def test_transitions_fit_the_tags(call: Callable[..., Any]):
    refused(
        ValueError,
        r"^transitions must have shape \(4, 4\), got \(3, 4\)$",
        call,
        X,
        MASK,
        PAIR[:3],
        TAG,
        TAG,
    )
    refused(
        ValueError, r"^end must have shape \(4,\), got \(3,\)$", call, X, MASK, PAIR, TAG, TAG[:3]
    )
    refused(TypeError, r"^start must be a tensor, got NoneType$", call, X, MASK, PAIR, None, TAG)


IDS: dict[str, Callable[[Any], Any]] = {
    "source": lambda ids: toy_table(4)(ids),
    "characters": lambda ids: encoders.Char2Subword("abc", 8)(ids),
    "pieces": lambda ids: pe.PretrainedWordEncoder(tiny_model("bert"))(
        pe.Pieces(ids, torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0, 1]]))
    ),
}


@pytest.mark.parametrize("call", IDS.values(), ids=IDS)
def test_ids_are_whole_numbers_in_range(call: Callable[[Any], Any]):
    for outside in (10_000, -7):
        refused(ValueError, r"ids must be (in|among)", call, torch.tensor([[1, outside]]))
    for found in (None, [[1, 2]]):
        refused(TypeError, r"ids must be a tensor", call, found)
    refused(TypeError, r"ids must be int64 or int32, got torch.float32$", call, torch.ones(1, 2))
