"""The CRF as a module: what it adds to the functions."""

import pytest
import torch
from checks import refused
from torch import Tensor
from toys import own_words

import polyembed as pe

MASK = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]], dtype=torch.bool)


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(3, 4, 5), torch.randint(5, (3, 4))


def test_reductions(batch) -> None:
    crf, (emissions, tags) = pe.CRF(5), batch
    each = crf(emissions, tags, MASK, reduction="none")
    torch.testing.assert_close(each, crf.log_prob(emissions, tags, MASK))
    assert each[2].item() == 0.0
    torch.testing.assert_close(crf(emissions, tags, MASK), each.sum())
    torch.testing.assert_close(crf(emissions, tags, MASK, reduction="mean"), each.mean())
    torch.testing.assert_close(crf(emissions, tags, MASK, reduction="token_mean"), each.sum() / 6)
    with pytest.raises(
        ValueError,
        match=r"^reduction must be one of 'none', 'sum', 'mean', 'token_mean', got 'max'$",
    ):
        crf(emissions, tags, MASK, reduction="max")


@pytest.mark.parametrize("reduction", ["sum", "mean", "token_mean"])
def test_nothing_at_all_is_zero(reduction: str) -> None:
    crf = pe.CRF(5)
    for rows, width in ((0, 4), (3, 0)):
        for mask in (None, torch.ones(rows, width, dtype=torch.bool)):
            tags = torch.zeros(rows, width, dtype=torch.int64)
            assert crf(torch.zeros(rows, width, 5), tags, mask, reduction=reduction).item() == 0.0


def test_decode_is_ragged_and_its_tensor_is_not(batch) -> None:
    crf, (emissions, _) = pe.CRF(5), batch
    paths, tensor = crf.decode(emissions, MASK), crf.decode_tensor(emissions, MASK, ignore_index=-1)
    assert [len(path) for path in paths] == [4, 2, 0]
    assert [row[mask].tolist() for row, mask in zip(tensor, MASK, strict=True)] == paths
    assert tensor[~MASK].eq(-1).all()
    assert crf.decode_tensor(emissions, MASK)[~MASK].eq(-100).all()


def test_word_first_is_batch_first_turned(batch) -> None:
    crf, (emissions, tags) = pe.CRF(5), batch
    other = pe.CRF(5, batch_first=False)
    other.load_state_dict(crf.state_dict())
    turned = emissions.transpose(0, 1), tags.T, MASK.T
    torch.testing.assert_close(
        other(*turned, reduction="none"), crf(emissions, tags, MASK, reduction="none")
    )
    assert other.decode(turned[0], turned[2]) == crf.decode(emissions, MASK)


def test_uint8_masks(batch) -> None:
    crf, (emissions, tags) = pe.CRF(5), batch
    torch.testing.assert_close(
        crf(emissions, tags, MASK.to(torch.uint8)), crf(emissions, tags, MASK)
    )


@own_words
def test_wrong_arguments(batch) -> None:
    crf, (emissions, tags) = pe.CRF(5), batch
    with pytest.raises(
        ValueError, match=r"^emissions must have the axes \(word, batch, tag\), got shape \(4, 5\)$"
    ):
        pe.CRF(5, batch_first=False)(emissions[0], tags, MASK)
    with pytest.raises(
        TypeError,
        match=r"^mask must be bool \(True = valid\), or torchcrf's uint8, got torch.int64$",
    ):
        crf(emissions, tags, MASK.long())
    refused(
        TypeError,
        r"^tags must be int64 or int32, got torch.float32$",
        crf,
        emissions,
        tags.float(),
        MASK,
    )
    refused(ValueError, r"^num_tags must be a positive integer, got 0$", pe.CRF, 0)


@pytest.mark.parametrize("batch_first", [True, False])
def test_what_torchcrf_lacks_is_the_functions_on_the_parameters(batch, batch_first: bool) -> None:
    crf, (emissions, _) = pe.CRF(5, batch_first=batch_first), batch
    emissions, mask = (emissions, MASK) if batch_first else (emissions.transpose(0, 1), MASK.T)
    arguments = batch[0], MASK, crf.transitions, crf.start_transitions, crf.end_transitions
    torch.testing.assert_close(crf.marginals(emissions, mask), pe.crf.marginals(*arguments))
    torch.testing.assert_close(crf.entropy(emissions, mask), pe.crf.entropy(*arguments))
    for found, expected in zip(
        crf.n_best(emissions, 3, mask), pe.crf.n_best(*arguments, 3), strict=True
    ):
        torch.testing.assert_close(found, expected)
    generators = (torch.Generator().manual_seed(3) for _ in range(2))
    found = crf.sample(emissions, 7, mask, generator=next(generators))
    assert torch.equal(found, pe.crf.sample(*arguments, 7, generator=next(generators)))


def test_sums_are_in_float32_under_autocast(batch) -> None:
    crf, (emissions, tags) = pe.CRF(5), batch
    narrow = emissions.bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        found = crf(narrow, tags, MASK, reduction="none"), crf.marginals(narrow, MASK)
    expected = (
        crf(narrow.float(), tags, MASK, reduction="none"),
        crf.marginals(narrow.float(), MASK),
    )
    torch.testing.assert_close(found, expected)
