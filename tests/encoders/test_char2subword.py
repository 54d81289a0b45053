"""Rows of a table from characters: spelling, the equation, and the fit."""

import math

import pytest
import torch
import torch.nn.functional as F
from checks import refused
from torch import nn
from toys import own_words

from polyembed.encoders import Char2Subword
from polyembed.encoders.char2subword import TableFit, row_loss
from polyembed.text.surfaces import PieceSurface

SYLLABLES = ["ba", "ce", "di", "fo", "gu"]
TEXTS = [a + b + c for a in SYLLABLES for b in SYLLABLES for c in ("", "n", "s")][:53]
VOCABULARY = [None, *(PieceSurface(text, edge) for text in TEXTS for edge in (True, False))]
DIM = 16
SMALL = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "readout_size": 128}
QUICK = {"num_train_epochs": 20, "batch_size": 8, "learning_rate": 5e-3}


def table(seed: int = 0, dim: int = DIM) -> torch.Tensor:
    """Small rows around a point, as encoders have them, and padding behind."""
    generator = torch.Generator().manual_seed(seed)
    return 0.05 * torch.randn(len(VOCABULARY) + 5, dim, generator=generator) + 0.03


def module(**options) -> Char2Subword:
    torch.manual_seed(0)
    return Char2Subword.for_vocabulary(VOCABULARY, DIM, **{**SMALL, **options})


def test_spelling() -> None:
    small = Char2Subword("abc", 3, hidden_size=4, num_heads=1, max_length=4)
    surfaces = [
        PieceSurface("cab", True),
        PieceSurface("cab", False),
        PieceSurface("", True),
        PieceSurface("añb", True),
    ]
    assert small.symbols(surfaces) == [[2, 6, 4, 5], [3, 6, 4, 5], [2], [2, 4, 1, 5]]
    assert small.symbols([PieceSurface("abcabc", True)]) == [[2, 4, 5, 5, 6]], (
        "both ends of long ones"
    )
    assert small.spell(surfaces).tolist() == [
        [2, 6, 4, 5],
        [3, 6, 4, 5],
        [2, 0, 0, 0],
        [2, 4, 1, 5],
    ]
    assert small.spell([]).shape == (0, 0)
    assert small.num_embeddings == 7
    assert Char2Subword.for_vocabulary([None, *surfaces], 3, **SMALL).spelling.characters == "abcñ"
    assert (
        Char2Subword.for_vocabulary([None, *surfaces], 3, min_count=3, **SMALL).spelling.characters
        == "ab"
    )


def test_the_equation() -> None:
    """Each place read by its own weights, projected, scaled and moved."""
    ours = module(num_places=4).double()
    nn.init.normal_(ours.mean)
    nn.init.constant_(ours.scale, 0.3)
    surface = PieceSurface("bacen", True)
    ids = ours.spell([surface])
    states = ours.transformer(ours.characters(ids.long()), None)[0]
    read = ours.readout_bias.clone()
    for i, state in enumerate(states):
        read = (
            read + state @ ours.readout[min(i, 3)]
        )  # the fourth place's weights serve those further on
    expected = ours.mean + 0.3 * (ours.projection.weight @ read.clamp(min=0) + ours.projection.bias)
    torch.testing.assert_close(ours(ids)[0], expected)
    edge, inside = ours(ours.spell([surface, PieceSurface("bacen", False)]))
    assert not torch.allclose(edge, inside), "a piece inside a word has a vector of its own"
    assert not torch.allclose(edge, ours(ours.spell([PieceSurface("nacen", True)]))[0])
    assert not torch.allclose(edge, ours(ours.spell([PieceSurface("abcen", True)]))[0]), (
        "the order counts"
    )


@pytest.fixture(scope="module")
def fitted() -> tuple[Char2Subword, TableFit]:
    ours = module()
    return ours, ours.fit_to(table(), VOCABULARY, **QUICK)


def test_rows_are_found(fitted) -> None:
    """Counted here row by row: the cosine to the own row is above that to every other row of the table."""
    ours, found = fitted
    assert found.trained.accuracy >= 0.9
    assert (found.trained.rows, found.held_out.rows, len(found.losses)) == (96, 10, 20)
    assert found.losses[-1] < 0.2 * found.losses[0]
    assert not ours.training
    ids = [i for i, surface in enumerate(VOCABULARY) if surface is not None]
    vectors = ours(ours.spell([VOCABULARY[i] for i in ids])).detach()
    similarity = F.cosine_similarity(vectors[:, None], table()[None], dim=-1)
    right = int((similarity.argmax(1) == torch.tensor(ids)).sum())
    parts = found.trained, found.held_out
    assert right == round(sum(part.accuracy * part.rows for part in parts))
    own = float(similarity[range(len(ids)), ids].sum())
    assert own == pytest.approx(sum(part.cosine * part.rows for part in parts), rel=1e-5)


@torch.no_grad()
def test_the_loss() -> None:
    ours, rows = module().double(), table().double()
    places = [2, 0]
    ids = ours.spell([VOCABULARY[[3, 5, 8, 13][place]] for place in places])
    learned = [rows[i] for i in (3, 5, 8, 13)]
    size = sum(float(row @ row) for row in learned) / 4
    total = 0.0
    for place, vector in zip(places, ours(ids), strict=True):
        cosines = [float(vector @ row / vector.norm() / row.norm()) for row in learned]
        below = sum(math.exp(cosine / 0.1) for cosine in cosines)
        distance = float((vector - learned[place]).square().sum()) / size
        total += (1 - cosines[place]) + distance - math.log(math.exp(cosines[place] / 0.1) / below)
    loss = row_loss(ours(ids), torch.stack(learned), torch.tensor(places), 0.1)
    assert float(loss) == pytest.approx(total / 2, rel=1e-9)


def test_the_same_each_time_and_nothing_else_changes(fitted) -> None:
    ours, rows, vocabulary = module(), table(), list(VOCABULARY)
    before, state = rows.clone(), torch.get_rng_state()
    options = {**QUICK, "num_train_epochs": 2}
    first = ours.fit_to(rows, vocabulary, **options)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(rows, before)
    assert vocabulary == VOCABULARY
    again = module()
    torch.rand(3)
    assert again.fit_to(rows, vocabulary, **options) == first
    assert all(
        torch.equal(a, b) for a, b in zip(ours.parameters(), again.parameters(), strict=True)
    )
    other = module()
    assert other.fit_to(rows, vocabulary, **options, seed=1) != first


def test_a_table_of_one_row_and_of_equal_rows() -> None:
    ours = module()
    one = ours.fit_to(
        torch.ones(1, DIM), [PieceSurface("ba", True)], num_train_epochs=1, held_out=0.5
    )
    assert one.trained.accuracy == 1.0
    assert math.isnan(one.held_out.accuracy)
    assert one.held_out.rows == 0
    flat = module().fit_to(torch.zeros(3, DIM), VOCABULARY[1:4], num_train_epochs=2, held_out=0.0)
    assert all(math.isfinite(loss) for loss in flat.losses)


@own_words
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"table": table()[:, 1:]}, ValueError, r"^table must have a row of size 16 for each of"),
        ({"table": table()[:50]}, ValueError, r"^table must have a row .* got shape \(50, 16\)$"),
        ({"vocabulary": [None] * 9}, ValueError, r"^vocabulary must leave a row to learn from"),
        ({"table": table() / 0}, ValueError, r"^the loss must stay finite, got nan$"),
        ({"held_out": 1.0}, ValueError, r"^held_out must be in \[0, 1\), got 1.0$"),
        (
            {"num_train_epochs": 0},
            ValueError,
            r"^num_train_epochs must be a positive integer, got 0$",
        ),
    ],
)
def test_bad_input(change: dict, error: type[Exception], text: str) -> None:
    arguments = {"table": table(), "vocabulary": VOCABULARY, **QUICK, **change}
    refused(error, text, module().fit_to, **arguments)


@own_words
def test_bad_sizes() -> None:
    refused(
        ValueError, r"^embedding_dim must be a positive integer, got 0$", Char2Subword, "abc", 0
    )
    with pytest.raises(ValueError, match=r"^hidden_size must be a multiple of num_heads=4, got 6$"):
        Char2Subword("abc", 3, hidden_size=6)
    with pytest.raises(ValueError, match=r"^min_count must be a positive integer, got 0$"):
        Char2Subword.for_vocabulary([], 3, min_count=0)
