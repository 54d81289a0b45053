"""Combiners against Winata 2021's equations."""

import oracles
import pytest
import torch
from checks import refused

from polyembed.embeddings import AttentionCombiner, ConcatCombiner, LinearCombiner

DIMS = (5, 3, 2)


@pytest.fixture
def xs() -> list[torch.Tensor]:
    return [torch.randn(7, dim, dtype=torch.float64) for dim in DIMS]


def rows(xs: list[torch.Tensor]) -> list[list[list[float]]]:
    """Convert one tensor per source into lists of vectors by item and source."""
    return [[x[i].tolist() for x in xs] for i in range(len(xs[0]))]


def tensor(values: list) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_concat_is_equation_1(xs):
    torch.testing.assert_close(
        ConcatCombiner(DIMS)(xs), tensor([oracles.concat(row) for row in rows(xs)])
    )


def test_linear_is_a_sum_of_projections(xs):
    combiner = LinearCombiner(DIMS, 11, bias=True).double()
    weights = [block.tolist() for block in combiner.projection.weight.split(DIMS, dim=1)]
    expected = tensor([oracles.linear(row, weights) for row in rows(xs)]) + combiner.projection.bias
    torch.testing.assert_close(combiner(xs), expected)


def test_attention_by_dimension_is_equations_2_to_4(xs):
    combiner = AttentionCombiner(DIMS, 11).double()
    weights = [projection.weight.tolist() for projection in combiner.projections]
    expected = [oracles.attention_by_dimension(row, weights) for row in rows(xs)]
    torch.testing.assert_close(combiner(xs), tensor([combined for combined, _ in expected]))
    alphas = combiner.attention_weights(xs)
    torch.testing.assert_close(alphas, tensor([alpha for _, alpha in expected]).transpose(0, 1))


def test_attention_by_source_has_one_weight_a_source(xs):
    combiner = AttentionCombiner(DIMS, 11, attention="source").double()
    weights = [projection.weight.tolist() for projection in combiner.projections]
    scorer = combiner.scorer.weight[0].tolist()
    expected = [oracles.attention_by_source(row, weights, scorer) for row in rows(xs)]
    torch.testing.assert_close(combiner(xs), tensor([combined for combined, _ in expected]))
    alphas = combiner.attention_weights(xs)
    assert alphas.shape == (3, 7, 1)
    torch.testing.assert_close(alphas[..., 0], tensor([alpha for _, alpha in expected]).T)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ConcatCombiner([]), "in_dims must name at least one source, got none"),
        (lambda: LinearCombiner([3, 0], 2), r"in_dims\[1\] must be a positive integer, got 0"),
        (
            lambda: AttentionCombiner([3], 2, attention="head"),
            "attention must be one of 'dimension', 'source', got 'head'",
        ),
    ],
)
def test_wrong_constructions(build, message: str):
    refused(ValueError, f"^{message}$", build)
