"""Layer fusion in float64 against loops over equations 1-4, for all branches and both readings."""

import copy
from itertools import chain

import oracles
import pytest
import torch
from checks import refused
from torch import Tensor, nn
from toys import own_words

import polyembed as pe
from polyembed.encoders import AIF, SingleLayer
from polyembed.encoders.fusion import MaskedBatchNorm

# figure 4: the other branch is used twice in place of a missing one
BRANCHES = {"both": ("global", "local"), "global": ("global",) * 2, "local": ("local",) * 2}
MASK = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [1, 0, 0, 0, 0]], dtype=torch.bool)


@pytest.fixture
def states() -> list[Tensor]:
    return list(torch.randn(4, 3, 5, 6, dtype=torch.float64).unbind())


def shaken(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():  # norms and biases are not neutral either
        nn.init.normal_(parameter)
    return module.double()


def weight_by_loops(aif: AIF, x: Tensor) -> Tensor:
    """Compute the weights of all valid positions, one after another."""
    branches = []
    for module in (aif.first, aif.second):
        parts = {name: getattr(module, name) for name in ("down", "up", "down_norm", "up_norm")}
        weights = {name: part.weight.tolist() for name, part in parts.items()}
        biases = {f"{name}_bias": part.bias.tolist() for name, part in parts.items()}
        branches.append({**weights, **biases})
    sentences = [row[valid].tolist() for row, valid in zip(x, MASK, strict=True)]
    found = oracles.aif_weight(sentences, BRANCHES[aif.branches], branches)
    return torch.tensor([*chain.from_iterable(found)], dtype=torch.float64)


@pytest.mark.parametrize("branches", BRANCHES)
def test_aif_is_equations_1_to_3(states, branches):
    aif, x = shaken(AIF(6, reduction_ratio=2, branches=branches)).train(), states[0]
    expected = weight_by_loops(aif, x)
    # a sentence without words and NaN in padding do not change the statistics
    spoilt = torch.cat([torch.where(MASK[..., None], x, float("nan")), x[:1]])
    mask = torch.cat([MASK, torch.zeros(1, 5, dtype=torch.bool)])
    torch.testing.assert_close(aif.weight(spoilt, mask)[mask], expected)
    found = aif(spoilt, mask)
    torch.testing.assert_close(found[mask], x[MASK] * expected)
    assert not found[~mask].any()


@pytest.mark.parametrize("branches", BRANCHES)
@pytest.mark.parametrize("weighting", ["sigmoid", "literal"])
@pytest.mark.parametrize("lower", [0, -1])
def test_dlfa_is_equation_4(states, weighting, branches, lower):
    options = {"weighting": weighting, "branches": branches, "reduction_ratio": 3}
    dlfa = shaken(pe.DLFA(6, lower, **options)).train()
    mean = (states[lower] + states[-1]) / 2
    weights = weight_by_loops(dlfa.aif, mean)
    if weighting == "literal":  # AIF(W) itself, not the sigmoid in it
        weights = mean[MASK] * weights
    layers = states[lower][MASK], states[-1][MASK]
    expected = oracles.dlfa(*(part.tolist() for part in (*layers, weights)))
    found = dlfa(states, MASK)
    torch.testing.assert_close(found[MASK], torch.tensor(expected, dtype=torch.float64))
    assert not found[~MASK].any()


@pytest.mark.parametrize("rows", [0, 1])
def test_a_batch_without_variance_uses_running_statistics(rows):
    norm = shaken(MaskedBatchNorm(6))
    norm.running_var.uniform_(1, 2)
    before = copy.deepcopy(norm.state_dict())
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    valid = torch.arange(6).view(2, 3) < rows
    expected, found = norm.eval()(x, valid), norm.train()(x, valid)
    torch.testing.assert_close(found, expected)
    assert torch.autograd.grad(found.sum(), x)[0].isfinite().all()
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())


def test_the_norm_is_torchs_over_valid_positions():
    ours, theirs = shaken(MaskedBatchNorm(6)).train(), nn.BatchNorm1d(6).double().train()
    theirs.load_state_dict({**ours.state_dict(), "num_batches_tracked": torch.tensor(0)})
    for training in (True, True, True, False):  # the last pass uses the running statistics
        x = torch.randn(3, 5, 6, dtype=torch.float64)
        found, expected = ours.train(training)(x, MASK)[MASK], theirs.train(training)(x[MASK])
        torch.testing.assert_close(found, expected)


def test_scalar_mix_is_a_weighted_mean(states):
    mix = shaken(pe.ScalarMix(4))
    weights = oracles.softmax(mix.scores.tolist())
    expected = mix.gamma.item() * sum(w * x for w, x in zip(weights, states, strict=True))
    torch.testing.assert_close(mix(states, MASK)[MASK], expected[MASK])
    assert mix.weights.sum().item() == pytest.approx(1.0)


def test_average_and_last(states):
    torch.testing.assert_close(pe.LayerAverage()(states), torch.stack(states).mean(0))
    torch.testing.assert_close(pe.LayerAverage([1, -1])(states), (states[1] + states[3]) / 2)
    assert torch.equal(pe.LastLayer()(states), states[3])
    # their sum is infinite in float16
    large = [torch.full((1, 1, 1), 6e4, dtype=torch.float16)] * 2
    assert torch.equal(pe.LayerAverage()(large), large[0])


def test_a_single_layer_passes_its_own_gate(states):
    assert torch.equal(SingleLayer(1)(states), states[1])
    gate = shaken(AIF(6, reduction_ratio=2)).eval()
    gated = SingleLayer(-1, gate=gate)
    torch.testing.assert_close(gated(states, MASK), gate(states[3], MASK))


def test_kaiming_initialisation():
    torch.manual_seed(0)
    aif = AIF(64, reduction_ratio=2)
    for branch in (aif.first, aif.second):
        for part in (branch.down, branch.up):
            assert part.weight.std().item() == pytest.approx((2 / part.in_features) ** 0.5, rel=0.1)
            assert not part.bias.any()


@own_words
@pytest.mark.parametrize(
    ("message", "call"),
    [
        (r"^lower_layer must be one of the 4 hidden .*, got 4$", lambda x: pe.DLFA(8, 4)(x)),
        (r"^hidden_states must be the hidden states of all", lambda x: pe.LastLayer()([])),
        (r"^layers must name at least one layer, got \[\]$", lambda x: pe.LayerAverage([])),
        (r"^hidden_states must hold 5 layers, got 4$", lambda x: pe.ScalarMix(5)(x)),
        (r"^hidden_states\[1\] must have shape", lambda x: pe.LastLayer()([x[0], x[1][1:]])),
        (r"^hidden_size must be a multiple of reduction_ratio 4, got 6$", lambda x: pe.DLFA(6, 1)),
        (r"^weighting must be one of 'sigmoid', ", lambda x: pe.DLFA(8, 1, weighting="hard")),
    ],
)
def test_bad_input(message, call, states):
    refused(ValueError, message, call, states)
