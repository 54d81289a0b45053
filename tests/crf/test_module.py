"""The CRF as a module: its additions to the functions."""

from collections.abc import Callable

import pytest
import torch
from checks import refused
from torch import Tensor
from torch.func import grad, vmap
from toys import own_words

import polyembed as pe
from polyembed.crf import log_prob

MASK = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]], dtype=torch.bool)
EMISSIONS, TAGS = torch.zeros(3, 4, 5), torch.zeros(3, 4, dtype=torch.int64)
CRF = pe.CRF(5)


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(3, 4, 5), torch.randint(5, (3, 4))


def test_decode_is_ragged_and_its_tensor_is_not(batch):
    crf, (emissions, _) = CRF, batch
    paths, tensor = crf.decode(emissions, MASK), crf.decode_tensor(emissions, MASK, ignore_index=-1)
    assert [len(path) for path in paths] == [4, 2, 0]
    assert [row[mask].tolist() for row, mask in zip(tensor, MASK, strict=True)] == paths
    assert tensor[~MASK].eq(-1).all()


@pytest.mark.parametrize("batch_first", [True, False])
def test_methods_are_the_functions_on_the_parameters(batch, batch_first: bool):
    crf, (emissions, tags) = pe.CRF(5, batch_first=batch_first), batch
    arguments = emissions, MASK, crf.transitions, crf.start_transitions, crf.end_transitions
    x, y, mask = (
        one if batch_first else one.transpose(0, 1).contiguous() for one in (emissions, tags, MASK)
    )
    log_prob = pe.crf.log_prob(emissions, tags, *arguments[1:])
    known = torch.nn.functional.one_hot(y, 5).bool()
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    for found, expected in (
        (crf(x, y, mask, reduction="none"), log_prob),
        (crf.partial_log_prob(x, y, mask), log_prob),
        (crf.partial_log_prob(x, known, mask), log_prob),
        (crf.partial_log_prob(x, torch.full_like(y, -100), mask), torch.zeros(3)),
        (crf.decode_tensor(x, mask), pe.crf.viterbi(*arguments)),
        (crf.marginals(x, mask), pe.crf.marginals(*arguments)),
        (crf.entropy(x, mask), pe.crf.entropy(*arguments)),
        (tuple(crf.n_best(x, 3, mask)), tuple(pe.crf.n_best(*arguments, 3))),
        (
            crf.sample(x, 7, mask, generator=generators[0]),
            pe.crf.sample(*arguments, 7, generator=generators[1]),
        ),
    ):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_gradients_of_each_row(batch):
    found, expected = (
        vmap(grad(lambda x, y, of=of: of(x[None], y[None])[0]))(*batch)
        for of in (CRF.partial_log_prob, CRF.log_prob)
    )
    torch.testing.assert_close(found, expected)


def test_sums_are_in_float32_under_autocast(batch):
    crf, (emissions, tags) = pe.CRF(5), batch
    narrow = emissions.bfloat16()

    def values(emissions):
        return crf(emissions, tags, MASK, reduction="none"), crf.marginals(emissions, MASK)

    with torch.autocast("cpu", torch.bfloat16):
        found = values(narrow)
    torch.testing.assert_close(found, values(narrow.float()))


@own_words
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: pe.CRF(5, batch_first=False)(EMISSIONS[0], TAGS),
            r"^emissions must have the axes \(word, batch, tag\), got shape \(4, 5\)$",
        ),
        (
            lambda: CRF(EMISSIONS, TAGS, MASK.long()),
            r"^mask must be bool \(True = valid\), or torchcrf's uint8, got torch.int64$",
        ),
        (lambda: CRF(EMISSIONS, TAGS / 2), "^tags must be int64 or int32, got torch.float32"),
        (lambda: CRF(EMISSIONS, TAGS + 5), r"^tags must be in \[0, 5\) where the mask is on"),
        (
            lambda: CRF.partial_log_prob(EMISSIONS, TAGS + torch.tensor([-100, 5, 0, 0])),
            r"^tags must be in \[0, 5\) or -100 where the mask is on, got \[5\]$",
        ),
        (
            lambda: CRF(EMISSIONS, TAGS, reduction="max"),
            "^reduction must be one of 'none', 'sum', 'mean', 'token_mean', got 'max'$",
        ),
        (
            lambda: CRF.partial_log_prob(EMISSIONS, EMISSIONS[..., 1:].bool()),
            r"^tags must have shape \(3, 4, 5\), got \(3, 4, 4\)$",
        ),
        (
            lambda: CRF.partial_log_prob(EMISSIONS, TAGS, MASK[:, 1:]),
            r"^mask must have shape \(3, 4\), got \(3, 3\)$",
        ),
        (
            lambda: log_prob(EMISSIONS, TAGS[1:], MASK, *CRF.constrained_scores()),
            r"^tags must have shape \(3, 4\), got \(2, 4\)$",
        ),
        (
            lambda: log_prob(EMISSIONS, TAGS, None, *CRF.constrained_scores()),
            "^mask must be a tensor, got NoneType$",
        ),
        (lambda: CRF.n_best(EMISSIONS, 0), "^k must be a positive integer, got 0$"),
        (lambda: pe.CRF(0), "^num_tags must be a positive integer, got 0$"),
        (
            lambda: pe.CRF(5, constraints="bio"),
            "^constraints must be Constraints or None, got str$",
        ),
        (lambda: CRF.decode(EMISSIONS, [[True]]), "^mask must be a tensor, got list$"),
    ],
)
def test_wrong_arguments(call: Callable, message: str):
    refused((TypeError, ValueError), message, call)
