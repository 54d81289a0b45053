"""Losses against loops, at the limits of floats and without counted labels; class weights."""

import math
from collections.abc import Callable

import oracles
import pytest
import torch
import torch.nn.functional as F
from checks import refused
from torch import Tensor, nn
from toys import TAGS, own_words, toy_corpus, toy_table

import polyembed as pe
from polyembed import functional
from polyembed.tagging import FocalLoss, LabelCrossEntropy, class_weights

WEIGHTS = [0.5, 2.0, 0.25, 3.0, 1.0]
LABELS = torch.tensor([[0, 1, -100], [3, 2, 2], [-100, -100, -100], [4, 0, 3]])
PLAIN = [None if label < 0 else label for label in LABELS.flatten().tolist()]

CRITERIA: dict[str, Callable[[], nn.Module]] = {
    "plain": LabelCrossEntropy,
    "both": lambda: LabelCrossEntropy(WEIGHTS, label_smoothing=0.1),
    "focal": FocalLoss,
    "focal weighted": lambda: FocalLoss(0.5, weights=WEIGHTS),
}


@pytest.fixture
def logits() -> Tensor:
    return 2 * torch.randn(4, 3, 5, dtype=torch.float64)


every = pytest.mark.parametrize("build", CRITERIA.values(), ids=CRITERIA)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.3])
def test_cross_entropy_is_the_equation(logits, weights, label_smoothing):
    options = {"label_smoothing": label_smoothing}
    criterion = LabelCrossEntropy(weights, **options)
    found, rows = criterion(logits, LABELS), logits.flatten(0, 1)
    expected = oracles.cross_entropy(rows.tolist(), PLAIN, weights or [1.0] * 5, **options)
    assert found.item() == pytest.approx(expected, rel=1e-12)
    given = None if weights is None else torch.tensor(weights, dtype=torch.float64)
    torch.testing.assert_close(found, F.cross_entropy(rows, LABELS.flatten(), given, **options))
    assert torch.equal(criterion(logits, LABELS.int()), found)
    # requires_grad_() of a model does not train the labels' weights
    assert not [*criterion.parameters()]


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("gamma", [0.0, 0.3, 2.0])
def test_focal_loss_is_the_equation(logits, weights, gamma):
    found = FocalLoss(gamma, weights=weights)(logits, LABELS)
    expected = oracles.focal_loss(
        logits.flatten(0, 1).tolist(), PLAIN, weights or [1.0] * 5, gamma=gamma
    )
    assert found.item() == pytest.approx(expected, rel=1e-12)
    if gamma == 0.0:
        torch.testing.assert_close(found, LabelCrossEntropy(weights)(logits, LABELS))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_focal_loss_of_labels_that_are_sure(gamma, dtype):
    """To first order, a label with log odds u has the loss FL = (1 - p)^(gamma + 1).

    Minus the slope over gamma + 1 has the same value. A naive (1 - p)^gamma has an infinite slope
    at p = 1.
    """
    for u in (30.0, 80.0, 1e4):
        logits = torch.tensor([[u, 0.0]], dtype=dtype, requires_grad=True)
        loss = functional.focal_loss(logits, torch.tensor([0]), gamma=gamma)
        (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
        (bend,) = torch.autograd.grad(slope[0, 0], logits)
        assert loss.isfinite()
        assert bend.isfinite().all()
        if u < 100:
            first = math.exp(-u * (gamma + 1))
            assert loss.item() == pytest.approx(first, rel=2e-5)
            assert slope[0, 0].item() == pytest.approx(-(gamma + 1) * first, rel=2e-5)
            assert bend[0, 0].item() == pytest.approx((gamma + 1) ** 2 * first, rel=2e-5)


@every
def test_what_does_not_count_may_be_nan(build, logits: Tensor):
    criterion = build().double()
    expected = criterion(logits, LABELS)
    spoilt = torch.where((LABELS == -100)[..., None], torch.nan, logits).requires_grad_()
    found = criterion(spoilt, LABELS)
    assert torch.equal(found, expected)
    found.backward()
    assert spoilt.grad.isfinite().all()
    assert not spoilt.grad[LABELS == -100].any()


@every
@pytest.mark.parametrize("shape", [(2, 3), (2, 0), ()])
def test_nothing_counts(build, shape):
    logits = torch.full((*shape, 5), torch.nan, requires_grad=True)
    loss = build()(logits, torch.full(shape, -100))
    loss.backward()
    assert loss.item() == 0.0
    assert not logits.grad.any()


def test_class_weights():
    labels = ["a"] * 3 + ["c"] * 17 + ["d"] * 80
    found = class_weights(iter(labels), ["a", "b", "c", "d"])
    assert found == pytest.approx([100 / (3 * 3), 0.0, 100 / (3 * 17), 100 / (3 * 80)])
    assert class_weights([], ["a"]) == [0.0]


@own_words
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LabelCrossEntropy([]), "weights must be finite numbers of 0 or more, at least"),
        (lambda: FocalLoss(weights=[1.0, -1.0]), r"weights must be .*, got \[1.0, -1.0\]$"),
        (lambda: LabelCrossEntropy(label_smoothing=1.0), r"label_smoothing must be in \[0, 1\)"),
        (lambda: FocalLoss(-0.5), "gamma must be a finite number of 0 or more, got -0.5$"),
        (lambda: class_weights(["a", "c"], ["a", "b"]), "labels must be among a, b, got 'c'$"),
        (
            lambda: pe.SoftmaxDecoder(5, 4, criterion=LabelCrossEntropy(WEIGHTS)),
            "criterion must have weights for 4 labels, got 5$",
        ),
    ],
)
def test_wrong_arguments(call, message):
    refused(ValueError, f"^{message}", call)


# In a decoder


def test_a_criterion_of_ones_own(tmp_path):
    class Mine(nn.Module):
        def forward(self, logits, labels):
            return logits.sum()

    decoder = pe.SoftmaxDecoder(7, 5, criterion=Mine())
    features = torch.randn(4, 3, 7)
    torch.testing.assert_close(decoder.loss(features, LABELS), decoder.linear(features).sum())
    refused(TypeError, "something that can be rebuilt", decoder.save_pretrained, tmp_path / "saved")


# In a tagger: TokenClassifier


def test_token_classifier_is_a_tagger_with_a_softmax():
    options = {"criterion": FocalLoss(1.0), "dropout": 0.25}
    model = pe.TokenClassifier(toy_table(5), TAGS, **options)
    decoder = pe.SoftmaxDecoder(5, TAGS, **options)
    decoder.load_state_dict(model.decoder.state_dict())
    tagger = pe.SequenceTagger(model.embedder, TAGS, decoder=decoder)
    batch = model.collate(toy_corpus(1))
    torch.manual_seed(1)
    found = model(**batch)
    torch.manual_seed(1)
    assert torch.equal(found, tagger(**batch))
