"""Table rows that are computed from characters: spelling, the equation, and the fit."""

import math

import pytest
import torch
import torch.nn.functional as F
from checks import refused
from torch import nn
from toys import own_words

from polyembed.encoders import Char2Subword
from polyembed.encoders.char2subword import row_loss
from polyembed.text.surfaces import PieceSurface

SYLLABLES = ["ba", "ce", "di", "fo", "gu"]
TEXTS = [a + b + c for a in SYLLABLES for b in SYLLABLES for c in ("", "n", "s")][:53]
VOCABULARY = [None, *(PieceSurface(text, edge) for text in TEXTS for edge in (True, False))]
DIM = 16
SMALL = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "readout_size": 128}
QUICK = {"num_train_epochs": 20, "batch_size": 8, "learning_rate": 5e-3}


def table() -> torch.Tensor:
    """Return small rows around a common point, as in encoders, with padding rows at the end."""
    generator = torch.Generator().manual_seed(0)
    return 0.05 * torch.randn(len(VOCABULARY) + 5, DIM, generator=generator) + 0.03


def module(**options) -> Char2Subword:
    torch.manual_seed(0)
    return Char2Subword.for_vocabulary(VOCABULARY, DIM, **{**SMALL, **options})


def test_the_equation():
    """Each position has its own readout weights, and the sum is projected, scaled and shifted."""
    ours = module(num_places=4).double()
    nn.init.normal_(ours.mean)
    nn.init.constant_(ours.scale, 0.3)
    surface = PieceSurface("bacen", True)
    ids = ours.spell([surface])
    states = ours.transformer(ours.characters(ids.long()), None)[0]
    # later positions use the weights of the fourth
    read = sum(state @ ours.readout[min(i, 3)] for i, state in enumerate(states))
    read = read + ours.readout_bias
    expected = ours.mean + 0.3 * (ours.projection.weight @ read.clamp(min=0) + ours.projection.bias)
    torch.testing.assert_close(ours(ids)[0], expected)
    others = PieceSurface("bacen", False), PieceSurface("nacen", True), PieceSurface("abcen", True)
    for vector in ours(ours.spell(others)):  # the edge, the characters and their order matter
        assert not torch.allclose(vector, expected)


def test_spelling():
    """Both ends of a long piece are read."""
    small = Char2Subword("abc", 3, hidden_size=4, num_heads=1, max_length=4)
    surfaces = [PieceSurface(text, True) for text in ("cab", "", "añb", "abcabc")]
    surfaces.append(PieceSurface("cab", False))
    rows = [[2, 6, 4, 5], [2], [2, 4, 1, 5], [2, 4, 5, 5, 6], [3, 6, 4, 5]]
    assert small.symbols(surfaces) == rows
    assert small.spell(surfaces[:2]).tolist() == [[2, 6, 4, 5], [2, 0, 0, 0]]
    assert small.num_embeddings == 7
    assert Char2Subword.for_vocabulary([None, *surfaces], 3, **SMALL).spelling.characters == "abcñ"


def test_rows_are_found():
    """The accuracy is the share of spellings whose nearest row is their own row.

    The test counts these rows one by one.
    """
    ours = module()
    found = ours.fit_to(table(), VOCABULARY, **QUICK)
    parts = found.trained, found.held_out
    assert found.trained.accuracy >= 0.9
    assert ([part.rows for part in parts], len(found.losses)) == ([96, 10], 20)
    assert found.losses[-1] < 0.2 * found.losses[0]
    assert not ours.training
    vectors = ours(ours.spell(VOCABULARY[1:])).detach()
    similarity = F.cosine_similarity(vectors[:, None], table()[None], dim=-1)
    own = torch.arange(1, len(VOCABULARY))
    right = int((similarity.argmax(1) == own).sum())
    assert right == round(sum(part.accuracy * part.rows for part in parts))
    total = float(similarity.gather(1, own[:, None]).sum())
    assert total == pytest.approx(sum(part.cosine * part.rows for part in parts), rel=1e-5)


def test_the_loss():
    found, rows, places = torch.randn(2, 5).double(), torch.randn(4, 5).double(), [2, 0]
    size = sum(float(row @ row) for row in rows) / 4
    total = 0.0
    for place, vector in zip(places, found, strict=True):
        cosines = [float(vector @ row / vector.norm() / row.norm()) for row in rows]
        below = sum(math.exp(cosine / 0.05) for cosine in cosines)
        distance = float((vector - rows[place]).square().sum()) / size
        total += (1 - cosines[place]) + distance - math.log(math.exp(cosines[place] / 0.05) / below)
    loss = row_loss(found, rows, torch.tensor(places))
    assert float(loss) == pytest.approx(total / 2, rel=1e-9)


def test_the_same_each_time_and_nothing_else_changes():
    rows, options = table(), {**QUICK, "num_train_epochs": 2}
    modules = module(), module(), module()
    state = torch.get_rng_state()
    first = modules[0].fit_to(rows, VOCABULARY, **options)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(rows, table())
    torch.rand(3)
    assert modules[1].fit_to(rows, VOCABULARY, **options) == first
    assert modules[2].fit_to(rows, VOCABULARY, **options, seed=1) != first


@own_words
@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"table": table()[:50]}, r"^table must have a row .* got shape \(50, 16\)$"),
        ({"vocabulary": [None] * 9}, "^vocabulary must leave a row to learn from"),
        ({"table": table() / 0}, "^the loss must stay finite, got nan$"),
    ],
)
def test_bad_input(change, text):
    arguments = {"table": table(), "vocabulary": VOCABULARY, **QUICK, **change}
    refused(ValueError, text, module().fit_to, **arguments)
