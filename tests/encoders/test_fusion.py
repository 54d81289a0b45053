"""Layer fusion against loops over equations 1-4, float64, all branches and both readings."""

import oracles
import pytest
import torch
from checks import refused
from torch import Tensor, nn
from toys import own_words

import polyembed as pe
from polyembed.encoders import SingleLayer
from polyembed.encoders.fusion import MaskedBatchNorm

# figure 4: without a branch, the other one stands there twice
BRANCHES = {
    "both": ("global", "local"),
    "global": ("global", "global"),
    "local": ("local", "local"),
}

MASK = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [1, 0, 0, 0, 0]], dtype=torch.bool)


@pytest.fixture
def states() -> list[Tensor]:
    return list(torch.randn(4, 3, 5, 6, dtype=torch.float64).unbind())


def shaken(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():  # norms and biases that are not their neutral selves
        nn.init.normal_(parameter)
    return module.double()


def branch_of(module: nn.Module) -> dict[str, list]:
    parts = {
        "down": module.down,
        "up": module.up,
        "down_norm": module.down_norm,
        "up_norm": module.up_norm,
    }
    weights = {name: part.weight.tolist() for name, part in parts.items()}
    return {**weights, **{f"{name}_bias": part.bias.tolist() for name, part in parts.items()}}


def weight_by_loops(aif: pe.encoders.AIF, x: Tensor, mask: Tensor) -> list[list]:
    sentences = [row[valid].tolist() for row, valid in zip(x, mask, strict=True)]
    return oracles.aif_weight(
        sentences, BRANCHES[aif.branches], [branch_of(aif.first), branch_of(aif.second)]
    )


def times(x: Tensor, mask: Tensor, weights: list[list]) -> list[list]:
    """Multiply the valid vectors of each sentence."""
    return [
        (row[valid] * torch.tensor(weight, dtype=torch.float64)).tolist()
        for row, valid, weight in zip(x, mask, weights, strict=True)
    ]


def assert_valid_equal(found: Tensor, mask: Tensor, expected: list[list]) -> None:
    for row, valid, rows in zip(found, mask, expected, strict=True):
        torch.testing.assert_close(
            row[valid], torch.tensor(rows, dtype=torch.float64), rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("branches", BRANCHES)
def test_aif_is_equations_1_to_3(states: list[Tensor], branches: str) -> None:
    aif, x = shaken(pe.encoders.AIF(6, reduction_ratio=2, branches=branches)).train(), states[0]
    spoilt = torch.where(MASK[..., None], x, float("nan"))
    expected = weight_by_loops(aif, x, MASK)
    assert_valid_equal(aif.weight(spoilt, MASK), MASK, expected)
    found = aif(spoilt, MASK)
    scaled = times(x, MASK, expected)
    assert_valid_equal(found, MASK, scaled)
    assert not found[~MASK].any()


@pytest.mark.parametrize("branches", BRANCHES)
@pytest.mark.parametrize("weighting", ["sigmoid", "literal"])
@pytest.mark.parametrize("lower", [0, -1])
def test_dlfa_is_equation_4(
    states: list[Tensor], weighting: str, branches: str, lower: int
) -> None:
    dlfa = shaken(
        pe.DLFA(6, lower, weighting=weighting, reduction_ratio=3, branches=branches)
    ).train()
    mean = (states[lower] + states[-1]) / 2
    weights = weight_by_loops(dlfa.aif, mean, MASK)
    if weighting == "literal":  # AIF(W), not its sigmoid
        weights = times(mean, MASK, weights)
    expected = [
        oracles.dlfa(a[valid].tolist(), b[valid].tolist(), w)
        for a, b, valid, w in zip(states[lower], states[-1], MASK, weights, strict=True)
    ]
    found = dlfa(states, MASK)
    assert_valid_equal(found, MASK, expected)
    assert not found[~MASK].any()


def test_gradients_in_training(states: list[Tensor]) -> None:
    dlfa = shaken(pe.DLFA(6, 1, reduction_ratio=2)).train()

    def call(lower: Tensor, last: Tensor) -> Tensor:
        return dlfa([lower, lower, last], MASK)

    inputs = tuple(x.clone().requires_grad_() for x in (states[1], states[-1]))
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)


def test_the_norm_is_torchs_over_valid_positions() -> None:
    ours, theirs = shaken(MaskedBatchNorm(6)).train(), nn.BatchNorm1d(6).double().train()
    theirs.load_state_dict({**ours.state_dict(), "num_batches_tracked": torch.tensor(0)})
    for _ in range(4):
        x = torch.randn(3, 5, 6, dtype=torch.float64)
        torch.testing.assert_close(ours(x, MASK)[MASK], theirs(x[MASK]))
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name))
    x = torch.randn(3, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(x, MASK)[MASK], theirs.eval()(x[MASK]))


@pytest.mark.parametrize("rows", [0, 1])
def test_a_batch_without_variance_uses_running_statistics(rows: int) -> None:
    norm = shaken(MaskedBatchNorm(6))
    norm.running_mean.normal_()
    norm.running_var.uniform_(1, 2)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    x, valid = torch.randn(2, 3, 6, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.bool)
    valid.view(-1)[:rows] = True
    expected = norm.eval()(x, valid)
    x.requires_grad_()
    found = norm.train()(x, valid)
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert gradient.isfinite().all()
    for name, value in norm.state_dict().items():
        assert torch.equal(value, before[name])


def test_low_precision_normalises_in_float32() -> None:
    norm = MaskedBatchNorm(1).to(torch.bfloat16).train()
    x = (3 + torch.randn(5000, 1, 1)).to(torch.bfloat16)
    found = norm(x, torch.ones(5000, 1, dtype=torch.bool))
    assert found.dtype == torch.bfloat16
    assert float(found.detach().float().std()) == pytest.approx(1.0, abs=0.02)


def test_scalar_mix_is_a_weighted_mean(states: list[Tensor]) -> None:
    mix = shaken(pe.ScalarMix(4))
    weights = oracles.softmax(mix.scores.tolist())
    expected = mix.gamma.item() * sum(w * x for w, x in zip(weights, states, strict=True))
    torch.testing.assert_close(mix(states, MASK)[MASK], expected[MASK])
    assert mix.weights.sum().item() == pytest.approx(1.0)


def test_average_and_last(states: list[Tensor]) -> None:
    torch.testing.assert_close(pe.LayerAverage()(states), torch.stack(states).mean(0))
    torch.testing.assert_close(pe.LayerAverage([1, -1])(states), (states[1] + states[3]) / 2)
    assert torch.equal(pe.LastLayer()(states), states[3])


def test_a_single_layer_passes_its_own_gate(states: list[Tensor]) -> None:
    assert torch.equal(SingleLayer(1)(states), states[1])
    gate = shaken(pe.encoders.AIF(6, reduction_ratio=2)).eval()
    gated = SingleLayer(-1, gate=gate)
    torch.testing.assert_close(gated(states, MASK), gate(states[3], MASK))
    counts = [
        sum(x.numel() for x in one.parameters())
        for one in (gated, pe.DLFA(6, 1, reduction_ratio=2))
    ]
    assert counts[0] == counts[1]


def test_kaiming_initialisation() -> None:
    torch.manual_seed(0)
    aif = pe.encoders.AIF(64, reduction_ratio=2)
    for branch in (aif.first, aif.second):
        for part in (branch.down, branch.up):
            assert part.weight.std().item() == pytest.approx((2 / part.in_features) ** 0.5, rel=0.1)
            assert not part.bias.any()


@own_words
def test_bad_input(states: list[Tensor]) -> None:
    def dlfa(*arguments, **options) -> pe.DLFA:
        return pe.DLFA(*arguments, **{"reduction_ratio": 2, **options})

    whole = r" must count layers by whole numbers, got "
    refused(
        ValueError,
        r"^lower_layer must be one of the 4 hidden states .*, got 4$",
        dlfa(6, 4),
        states,
    )
    refused(ValueError, r"^lower_layer must be one of the 1 hidden", dlfa(6, 1), states[:1])
    for none in (None, []):
        refused(
            ValueError, r"^hidden_states must be the hidden states of all layers", dlfa(6, 1), none
        )
    refused(
        ValueError,
        r"^layers must be one of the 4 hidden states .*, got 9$",
        pe.LayerAverage([9]),
        states,
    )
    refused(ValueError, r"^layers must name at least one layer, got \[\]$", pe.LayerAverage, [])
    refused(ValueError, r"^hidden_states must hold 5 layers, got 4$", pe.ScalarMix(5), states)
    refused(
        ValueError,
        r"^hidden_states\[1\] must have shape",
        pe.LastLayer(),
        [states[0], states[1][:, 1:]],
    )
    refused(
        ValueError,
        r"^hidden_size must be a multiple of reduction_ratio 4, got 6$",
        pe.encoders.AIF,
        6,
    )
    refused(
        ValueError,
        r"^branches must be one of 'both', 'global', 'local', got 'none'$",
        pe.encoders.AIF,
        8,
        branches="none",
    )
    refused(
        ValueError,
        r"^weighting must be one of 'sigmoid', 'literal', got 'hard'$",
        dlfa,
        8,
        1,
        weighting="hard",
    )
    refused(ValueError, r"^layer must be one of the 4 hidden states", SingleLayer(4), states)
    refused(TypeError, rf"^layer{whole}'1'$", SingleLayer, "1")
    refused(TypeError, r"^gate must be an AIF, got Linear$", SingleLayer, 1, gate=nn.Linear(6, 6))
    for layer in (1.5, "1", True):
        refused(TypeError, rf"^lower_layer{whole}{layer!r}$", dlfa, 8, layer)
    refused(TypeError, rf"^layers{whole}None$", pe.LayerAverage, [0, None])
    refused(
        TypeError,
        r"^hidden_states\[0\] must be floating point, got",
        pe.ScalarMix(1),
        [torch.ones(1, 2, 3).long()],
    )


@pytest.mark.parametrize("branches", BRANCHES)
def test_a_sentence_without_words_takes_no_part_in_the_statistics(branches: str) -> None:
    aif, alone = (
        shaken(pe.encoders.AIF(6, reduction_ratio=2, branches=branches)).double().train()
        for _ in range(2)
    )
    alone.load_state_dict(aif.state_dict())
    x = torch.randn(4, 3, 6, dtype=torch.float64)
    mask = torch.tensor([[True, True, False], [False] * 3, [True] * 3, [True, False, False]])
    kept = torch.tensor([0, 2, 3])
    torch.testing.assert_close(aif(x, mask)[kept], alone(x[kept], mask[kept]))
    for name, value in aif.state_dict().items():
        torch.testing.assert_close(value, alone.state_dict()[name])
