"""Fixtures with random scores of three tags for rows of four words."""

import pytest
import torch
from torch import Tensor

NUM_TAGS = 3


@pytest.fixture
def emissions() -> Tensor:
    return torch.randn(16, 4, NUM_TAGS, dtype=torch.float64)


@pytest.fixture
def scores() -> tuple[Tensor, Tensor, Tensor]:
    shapes = (NUM_TAGS, NUM_TAGS), (NUM_TAGS,), (NUM_TAGS,)
    return tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)
