"""Decoders against loops."""

import math
from collections.abc import Callable

import numpy as np
import oracles
import pytest
import torch
from torch import Tensor, nn

import polyembed as pe

MASK = torch.tensor([[1, 1, 1], [0, 1, 1], [0, 0, 0]], dtype=torch.bool)
TAGS = torch.tensor([[0, 1, 3], [-100, 2, 2], [-100, -100, -100]])


@pytest.fixture
def features() -> Tensor:
    return torch.randn(3, 3, 5, dtype=torch.float64)


def emissions(decoder, features: Tensor) -> list:
    weight, bias = decoder.linear.weight.tolist(), decoder.linear.bias.tolist()
    return [
        [oracles.matvec(weight, word, bias) for word in oracles.valid(row, mask)]
        for row, mask in zip(features.tolist(), MASK.tolist(), strict=True)
    ]


def gold() -> list[list[int]]:
    return [
        oracles.valid(row, mask) for row, mask in zip(TAGS.tolist(), MASK.tolist(), strict=True)
    ]


def check_decoded(decoder, features: Tensor, best: Callable) -> None:
    found = decoder.decode(features, MASK)
    for row, mask, chain in zip(found, MASK, emissions(decoder, features), strict=True):
        assert row[mask].tolist() == ([*best(chain)] if chain else [])
    assert found[~MASK].eq(-100).all()


def test_crf_loss_is_a_mean_over_sentences(features: Tensor):
    decoder = pe.CRFDecoder(5, np.int64(4)).double()
    crf = decoder.crf
    scores = [x.tolist() for x in (crf.transitions, crf.start_transitions, crf.end_transitions)]
    losses = [
        oracles.log_partition(chain, *scores) - oracles.path_score(chain, tuple(tags), *scores)
        if chain
        else 0.0
        for chain, tags in zip(emissions(decoder, features), gold(), strict=True)
    ]
    torch.testing.assert_close(decoder.loss(features, TAGS, MASK).item(), sum(losses) / 3)
    check_decoded(decoder, features, lambda chain: oracles.viterbi(chain, *scores))


def test_softmax_loss_is_a_mean_over_words(features: Tensor):
    decoder = pe.SoftmaxDecoder(5, 4).double()
    losses = [
        -math.log(oracles.softmax(word)[tag])
        for chain, tags in zip(emissions(decoder, features), gold(), strict=True)
        for word, tag in zip(chain, tags, strict=True)
    ]
    for decoder.criterion in (None, nn.CrossEntropyLoss()):
        torch.testing.assert_close(decoder.loss(features, TAGS, MASK).item(), sum(losses) / 5)
    check_decoded(
        decoder, features, lambda chain: [max(range(4), key=word.__getitem__) for word in chain]
    )


def test_a_softmax_has_no_best_tag_where_scores_are_nan():
    decoder = pe.SoftmaxDecoder(2, 3)
    features = torch.tensor([[[1.0, 2.0], [torch.nan, 1.0], [torch.nan, torch.nan]]])
    for mask in (None, torch.tensor([[True, True, False]])):
        assert decoder.decode(features, mask).eq(-100).tolist() == [[False, True, True]]
    torch.nn.init.constant_(decoder.linear.bias, -torch.inf)
    assert decoder.decode(features[:, :1]).tolist() == [[-100]]
