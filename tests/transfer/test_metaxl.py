import copy
import math
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from checks import refused
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from toys import SquareOnce, compiles

from polyembed import (
    RepresentationTransformationNetwork,
    metaxl_gradients,
    metaxl_step,
)

HIDDEN, CLASSES, LAYERS = 12, 3, 3
METHODS = ("forward_over_reverse", "reverse_over_reverse")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_key_value, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.norm, self.dropout = nn.LayerNorm(HIDDEN), nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.query_key_value(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        return self.norm(x + self.dropout(self.out(F.gelu(mixed))))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        h = self.embedding(ids)
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1))

    def place(self, number: int) -> nn.Module:
        """Return the module of the n-th layer, or the embedding for 0."""
        return self.blocks[number - 1] if number else self.embedding


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def make_batch(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(11, (rows, 7), generator=generator)
    return ids, torch.randint(CLASSES, (rows,), generator=generator)


class Setting:
    """A model, one or several transforms, and their optimisers."""

    def __init__(
        self,
        dtype: torch.dtype = torch.float64,
        transform: Any = None,
        *,
        model: Any = Classifier,
    ) -> None:
        torch.manual_seed(5)
        self.model = model().to(dtype)
        made = (
            transform() if transform else RepresentationTransformationNetwork(HIDDEN, bottleneck=5)
        )
        self.networks = nn.ModuleList(made if isinstance(made, list) else [made]).to(dtype)
        self.transform = made
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.5)
        self.meta_optimizer = torch.optim.SGD(self.networks.parameters(), 1.0)
        self.before = copy.deepcopy(self.state())

    def state(self) -> dict[str, Tensor]:
        state = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        return state | {f"t{name}": p.detach() for name, p in self.networks.named_parameters()}

    def step(
        self,
        place: Any = 2,
        source: Any = None,
        target: Any = None,
        *,
        target_weight: float = 1.0,
        **options: Any,
    ) -> Any:
        torch.manual_seed(9)
        place = place if isinstance(place, tuple) else (place,)
        if target_weight:
            options = {"target_support": [make_batch(7, 4)], **options}
        layers = [self.model.place(x) if isinstance(x, int) else x for x in place]
        return metaxl_step(
            self.model,
            self.transform,
            layers,
            source or [make_batch(5, 1)],
            [make_batch(3, 2)] if target is None else target,
            loss=loss,
            optimizer=self.optimizer,
            meta_optimizer=self.meta_optimizer,
            target_weight=target_weight,
            **options,
        )

    def moved(self) -> dict[str, Tensor]:
        return {name: value - self.before[name] for name, value in self.state().items()}


def assert_moves_alike(one: Setting, other: Setting, tolerance: float) -> None:
    """Check that both have moved, and that each parameter's moves agree relative to their size."""
    mine, theirs = one.moved(), other.moved()
    assert mine.keys() == theirs.keys()
    assert float(theirs["t0.up.weight"].norm()) > 1e-6
    for name, move in theirs.items():
        assert float((mine[name] - move).norm()) <= tolerance * max(float(move.norm()), 1e-9), name


def oracle(
    setting: Setting, place: int, target_weight: float
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Compute equations 3 and 4 by a second derivative, without dropout.

    The inner loss includes the target's loss.
    """
    setting.model.eval()
    network = setting.transform
    state, meta = (
        {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}
        for module in (setting.model, network)
    )

    def forward(p, ids, q):
        def transform(layer, inputs, h):
            return h if q is None else functional_call(network, q, (h,))

        handle = setting.model.place(place).register_forward_hook(transform)
        scores = functional_call(setting.model, p, (ids,))
        handle.remove()
        return scores

    (ids, labels), (target_ids, target_labels) = make_batch(5, 1), make_batch(3, 2)
    inner_ids, inner_labels = make_batch(7, 4)
    inner = F.cross_entropy(forward(state, ids, meta), labels)
    inner = inner + target_weight * F.cross_entropy(forward(state, inner_ids, None), inner_labels)
    grads = torch.autograd.grad(inner, list(state.values()), create_graph=True)
    alpha = setting.optimizer.param_groups[0]["lr"]
    ahead = {name: p - alpha * g for (name, p), g in zip(state.items(), grads, strict=True)}
    outer = F.cross_entropy(forward(ahead, target_ids, None), target_labels)
    metas = torch.autograd.grad(outer, list(meta.values()))
    moves = {f"model.{name}": -alpha * g.detach() for name, g in zip(state, grads, strict=True)}
    moves |= {f"t0.{name}": -g for name, g in zip(meta, metas, strict=True)}
    return moves, inner.detach(), outer.detach()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("place", "target_weight"), [(0, 1.0), (2, 1.0), (3, 1.0), (2, 0.3), (2, 0.0)]
)
def test_the_oracle(method, place, target_weight):
    """The inner loss has the target's loss by default. Without it, it is algorithm 1 as printed."""
    setting = Setting()
    with sdpa_kernel(SDPBackend.MATH):
        expected, inner, outer = oracle(setting, place, target_weight)
    found = setting.step(place, method=method, target_weight=target_weight)
    for name, move in setting.moved().items():
        close = float((move - expected[name]).norm() / expected[name].norm().clamp(min=1e-9))
        assert close < 1e-9, name
    assert found.source_loss == pytest.approx(float(inner))
    assert found.target_loss == pytest.approx(float(outer))
    model = torch.stack(
        [move.norm() for name, move in expected.items() if name.startswith("model")]
    ).norm()
    assert found.source_norm == pytest.approx(float(model) / 0.5, rel=1e-5)
    assert 0 < abs(found.cosine) < 1
    assert all(
        p.grad is None for p in [*setting.model.parameters(), *setting.transform.parameters()]
    )


def test_accumulation_is_exact():
    whole, parts = Setting(), Setting()
    whole.model.eval(), parts.model.eval()
    source, target = make_batch(6, 1), make_batch(4, 2)

    def split(batch, count):
        return list(zip(batch[0].chunk(count), batch[1].chunk(count), strict=True))

    one = whole.step(source=[source], target=[target], target_support=[source], target_weight=0.7)
    other = parts.step(
        source=split(source, 3),
        target=split(target, 2),
        target_support=split(source, 2),
        target_weight=0.7,
    )
    assert_moves_alike(parts, whole, 1e-9)
    assert other == pytest.approx(one)


def languages() -> nn.ModuleDict:
    return nn.ModuleDict(
        {name: RepresentationTransformationNetwork(HIDDEN, 5) for name in ("en", "es", "fr")}
    )


def test_one_network_for_each_language():
    setting = Setting(transform=languages)
    setting.step(source=[make_batch(5, 1), make_batch(5, 3)], languages=["es", "fr"])
    assert {n.split(".")[1] for n, x in setting.moved().items() if "t0." in n and x.any()} == {
        "es",
        "fr",
    }
    refused(ValueError, "languages must name", setting.step, languages=["es", "fr"])


def test_several_layers():
    def two():
        return [RepresentationTransformationNetwork(HIDDEN, 5) for _ in range(2)]

    setting, reference = Setting(transform=two), Setting(transform=two)
    setting.step((0, 3))
    reference.step((0, 3), method="reverse_over_reverse")
    assert_moves_alike(setting, reference, 1e-9)
    assert float(setting.moved()["t1.up.weight"].norm()) > 1e-6


def test_clipping():
    setting, plain = Setting(), Setting()
    seen = plain.step()
    again = setting.step(max_grad_norm=seen.source_norm / 4, meta_max_grad_norm=seen.meta_norm / 8)
    assert again == seen
    for name, move in plain.moved().items():
        torch.testing.assert_close(
            setting.moved()[name], move / (8 if name.startswith("t0") else 4)
        )


@pytest.mark.parametrize("method", METHODS)
def test_a_module_under_two_names_goes_on_learning(method):
    setting, plain = Setting(), Setting()
    setting.model.again = setting.model.blocks[1]
    weight = setting.model.again.out.weight
    for _ in range(2):
        setting.step(method=method)
        plain.step(method=method)
    assert setting.model.again.out.weight is weight
    assert setting.model.blocks[1].out.weight is weight
    torch.testing.assert_close(weight, plain.model.blocks[1].out.weight)


def test_rates():
    """The default is each parameter's rate in the optimiser. Other parameters are constants."""
    one, other = Setting(), Setting()
    head, blocks = one.model.head.parameters(), one.model.blocks.parameters()
    one.optimizer = torch.optim.SGD([{"params": head, "lr": 0.1}, {"params": blocks}], 0.5)
    other.model.embedding.weight.requires_grad_(False)
    names = [name for name, _ in other.model.named_parameters()]
    one.step()
    other.step(inner_lr={name: 0.1 if name.startswith("head") else 0.5 for name in names})
    mine, theirs = one.moved(), other.moved()
    assert not mine["model.embedding.weight"].any()
    for name in mine:
        if name.startswith("t0"):
            torch.testing.assert_close(mine[name], theirs[name])


def test_autocast_is_close():
    low, high = Setting(torch.float32), Setting(torch.float32)
    low.model.eval(), high.model.eval()
    low.step(amp_dtype=torch.bfloat16)
    high.step()
    assert_moves_alike(low, high, 0.15)


def spoil(setting: Setting) -> None:
    with torch.no_grad():
        setting.model.head.bias[0] = math.nan


class Counted(nn.Module):
    """A classifier with batch statistics below and above its block, and a counter of its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.low, self.high = (
            nn.Embedding(11, HIDDEN),
            nn.BatchNorm1d(7),
            nn.BatchNorm1d(HIDDEN),
        )
        self.block, self.head = Block(), nn.Linear(HIDDEN, CLASSES)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, ids: Tensor) -> Tensor:
        self.passes = self.passes + 1  # replaces the buffer by a new tensor
        return self.head(self.high(self.block(self.low(self.embedding(ids))).mean(1)))


@pytest.mark.parametrize("method", METHODS)
def test_each_batch_counts_once(method):
    """Batch statistics change as in three training passes, even if passes are repeated."""
    setting = Setting(model=Counted)
    plain = copy.deepcopy(setting.model)
    torch.manual_seed(9)
    hook = plain.block.register_forward_hook(lambda _, inputs, output: setting.transform(output))
    source = loss(plain, make_batch(5, 1))
    hook.remove()
    grads = torch.autograd.grad(source + loss(plain, make_batch(7, 4)), list(plain.parameters()))
    with torch.no_grad():
        for parameter, grad in zip(plain.parameters(), grads, strict=True):
            parameter -= 0.5 * grad
    loss(plain, make_batch(3, 2))
    setting.step(setting.model.block, method=method)
    expected = dict(plain.named_buffers())
    for name, buffer in setting.model.named_buffers():
        torch.testing.assert_close(buffer, expected[name])


class Turned(Counted):
    """A classifier with a layer in spectral normalisation.

    Each pass updates the buffers of the power iteration, and so changes the next pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.low = self.high = nn.Identity()
        nn.utils.parametrizations.spectral_norm(self.block.out)


def test_a_pass_that_moves_its_buffers_is_run_again_from_where_it_was():
    found, expected = Setting(model=Turned), Setting(model=Turned)
    found.step(found.model.block)
    expected.step(expected.model.block, method="reverse_over_reverse")
    assert_moves_alike(found, expected, 1e-9)


def deaf() -> nn.Module:
    """Return a transform without an effect."""
    network = RepresentationTransformationNetwork(HIDDEN, 5)
    network.forward = lambda h: h
    return network


def replaced(**parts: Any) -> Callable[[Setting], None]:
    return lambda setting: vars(setting).update(parts)


ELSEWHERE = torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"target_weight": -1.0}, ValueError, "target_weight must be 0 or more, got -1.0"),
        ({"target_support": None}, ValueError, r"target_support must be batches for .* 1.0, got NoneType"),
        ({"amp_dtype": torch.float16}, ValueError, "amp_dtype must be torch.bfloat16 .*, got .*float16"),
        ({"source": {"ids": 1}}, TypeError, "source must be a list of batches, got dict"),
        ({"meta_max_grad_norm": 0.0}, ValueError, "meta_max_grad_norm must be positive, or None, got 0.0"),
        ({"target": []}, ValueError, "target must hold at least one batch, got none"),
        ({"place": nn.Identity()}, RuntimeError, "layer must run inside transformed_output .*"),
        ({"change": replaced(optimizer=ELSEWHERE)}, ValueError, "optimizer must hold parameters of model, got none"),
        ({"change": lambda s: s.__init__(transform=deaf)}, ValueError, "rtn must have an effect on source_loss, got none"),
        ({"change": spoil}, ValueError, "source_loss must be finite, got nan"),
        pytest.param(
            {"change": lambda s: s.model.blocks[0].compile(backend="aot_eager")}, ValueError,
            r"model must not be compiled \(it would skip the hooks\), got Block", marks=compiles,
        ),
    ],
)  # fmt: skip
def test_bad_input(options, error, message):
    setting, options = Setting(), {"change": replaced(), **options}
    options.pop("change")(setting)
    before = copy.deepcopy(setting.state())
    refused(error, f"^{message}$", setting.step, **options)
    assert all(torch.equal(value[1:], before[name][1:]) for name, value in setting.state().items())
    assert not any(module._forward_hooks for module in setting.model.modules())


PROGRAM = """
import sys
import torch
import torch.distributed as dist
sys.path[:0] = {paths!r}
from test_metaxl import METHODS, Setting, make_batch, loss
from polyembed import metaxl_step

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{{folder}}/store", rank=rank, world_size=2)

def part(batch):
    return tuple(x.chunk(2)[rank] for x in batch)

for method in METHODS:
    setting = Setting()
    setting.model.eval()
    source, target = [part(make_batch(6, 1))], [part(make_batch(4, 2))]
    inner = [part(make_batch(4, 5))]
    step = setting.step(source=source, target=target, target_support=inner, method=method, target_weight=0.3)
    torch.save((setting.state(), tuple(step)), f"{{folder}}/{{method}}-{{rank}}.pt")

lame = Setting()
if rank == 0:
    lame.model.head.bias.data[0] = float("nan")
try:
    lame.step()
except (ValueError, RuntimeError) as error:
    print(type(error).__name__, error)
wrapped = torch.nn.parallel.DistributedDataParallel(lame.model)
try:
    metaxl_step(wrapped, lame.transform, lame.model.place(2), [make_batch(6, 1)], [make_batch(4, 2)], loss=loss,
                optimizer=lame.optimizer, meta_optimizer=lame.meta_optimizer, target_weight=0.0)
except TypeError as error:
    print(error)
dist.barrier()
dist.destroy_process_group()
"""


def test_two_processes_are_one(tmp_path):
    here = Path(__file__).resolve().parent
    paths = [str(here), str(here.parent), str(here.parents[1] / "src")]
    program = PROGRAM.format(paths=paths)
    commands = [[sys.executable, "-c", program, str(rank), str(tmp_path)] for rank in range(2)]
    processes = [subprocess.Popen(one, stdout=-1, stderr=-1, text=True) for one in commands]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs[0][1] + outputs[1][1]
    for method in METHODS:
        setting = Setting()
        setting.model.eval()
        batches = [make_batch(6, 1)], [make_batch(4, 2)]
        step = setting.step(2, *batches, target_support=[make_batch(4, 5)], target_weight=0.3)
        for rank in range(2):
            state, numbers = torch.load(tmp_path / f"{method}-{rank}.pt")
            assert numbers == pytest.approx(tuple(step), rel=1e-5)
            for name, value in setting.state().items():
                torch.testing.assert_close(state[name], value, rtol=1e-7, atol=1e-12)
    for out, _ in outputs:
        assert "ValueError source_loss must be finite, got nan" in out
        assert "model must not be wrapped (gradients are averaged here" in out


def gradients(
    model: nn.Module, layer: Any, source: Any, target: Any, method: str, **options: Any
) -> dict[str, Tensor]:
    """Return all gradients that `metaxl_gradients` adds to ``.grad``."""
    torch.manual_seed(3)
    network = RepresentationTransformationNetwork(HIDDEN, bottleneck=5)
    network.to(next(model.parameters()).dtype)
    model = copy.deepcopy(model)
    torch.manual_seed(9)
    layer = model.get_submodule(layer) if isinstance(layer, str) else layer
    batches = {"source": [source], "target": [target], "target_support": [target]}
    metaxl_gradients(model, network, layer, **batches, inner_lr=0.5, method=method, **options)
    parts = nn.ModuleDict({"model": model, "rtn": network})
    return {name: p.grad for name, p in parts.named_parameters() if p.grad is not None}


def assert_gradients(
    found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float
) -> None:
    assert found.keys() == expected.keys()
    for part in ("model", "rtn"):  # gradients of single parameters differ widely in size
        one, other = (
            torch.cat([g.flatten() for n, g in x.items() if n.startswith(part)])
            for x in (found, expected)
        )
        assert other.norm() > 1e-7
        assert (one - other).norm() <= tolerance * other.norm(), part


def test_gradients_accumulate_like_backward():
    """Two calls add twice the gradient, and run the hooks of parameters.

    A step equals one call and a step of both optimisers.
    """
    setting = Setting()
    setting.model.eval()
    batches = [make_batch(5, 1)], [make_batch(3, 2)]
    arguments = setting.model, setting.transform, setting.model.place(2), *batches
    options = {"inner_lr": 0.5, "target_support": [make_batch(7, 4)], "loss": loss}
    seen: list[int] = []
    setting.model.head.weight.register_post_accumulate_grad_hook(lambda p: seen.append(1))
    metaxl_gradients(*arguments, **options)
    parts = nn.ModuleDict({"model": setting.model, "t0": setting.transform})
    first = {name: p.grad.clone() for name, p in parts.named_parameters()}
    metaxl_gradients(*arguments, **options)
    assert len(seen) == 2
    for name, p in parts.named_parameters():
        torch.testing.assert_close(p.grad, 2 * first[name])
    setting.step()
    for name, move in setting.moved().items():
        rate = 0.5 if name.startswith("model") else 1.0
        torch.testing.assert_close(move, -rate * first[name], rtol=1e-9, atol=1e-12)


class Square(torch.autograd.Function):
    """A square. The subclass `Forward` also has forward derivatives."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x + 0.0

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2.0 * ctx.saved_tensors[0] * grad


class Forward(Square):
    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return 2.0 * ctx.saved_tensors[0] * tangent


class Kinds(nn.Module):
    """A small classifier. `kind` selects a feature of its lower part or of the path to its head."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.table, self.kind = nn.Embedding(11, HIDDEN, sparse=kind == "sparse"), kind
        self.below, self.layer, self.head = (
            nn.Linear(HIDDEN, HIDDEN),
            nn.Identity(),
            nn.Linear(HIDDEN, CLASSES),
        )

    def scale(self, h: Tensor) -> Any:
        if self.kind == "no_grad":
            with torch.no_grad():
                return (2 * h).norm(dim=-1, keepdim=True)
        if self.kind == "detach":
            return h.detach().norm(dim=-1, keepdim=True)
        functions = {"forward": Forward, "backward": Square}
        return 1.0 + functions[self.kind].apply(h).tanh() if self.kind in functions else 1.0

    def forward(self, ids: Tensor) -> Tensor:
        low = self.table(ids)
        h = self.below(low).tanh()
        if self.kind == "grad mode":
            h = h + (
                low.max(1, keepdim=True).values if low.requires_grad else low.amax(1, keepdim=True)
            )
        h = self.layer(h / self.scale(h))
        if self.kind == "skip":
            h = h.tanh() + self.below(low.sin())
        if self.kind == "twice":
            h = self.layer(self.below(h))
        return self.head((SquareOnce.apply(h) + h if self.kind == "once" else h).tanh().mean(1))


@pytest.mark.parametrize(
    "kind", ["no_grad", "detach", "forward", "grad mode", "skip", "twice", "sparse"]
)
def test_what_a_lower_part_may_do(kind):
    """The lower part may have constants, autograd functions, and values that bypass the layer.

    It may also depend on the gradient mode, and the layer may run twice.
    """
    torch.manual_seed(0)
    arguments = Kinds(kind).double(), "layer", make_batch(5, 1), make_batch(3, 2)
    expected = gradients(*arguments, "reverse_over_reverse", loss=loss)
    assert_gradients(gradients(*arguments, "forward_over_reverse", loss=loss), expected, 1e-9)


def test_functions_without_the_derivatives():
    """Differences replace forward derivatives below the layer.

    Missing second derivatives above the layer raise an error.
    """
    torch.manual_seed(0)
    arguments = Kinds("backward").double(), "layer", make_batch(5, 1), make_batch(3, 2)
    expected = gradients(*arguments, "reverse_over_reverse", loss=loss)
    assert_gradients(gradients(*arguments, "forward_over_reverse", loss=loss), expected, 1e-6)
    rule = r"^source_loss must have second derivatives .*, got a function that is marked once_differentiable$"
    refused(
        ValueError, rule, gradients, Kinds("once").double(), *arguments[1:], METHODS[0], loss=loss
    )
    rule = r"^params must hold float32 or float64 for finite differences, got torch.bf"
    refused(
        ValueError,
        rule,
        gradients,
        Kinds("backward").bfloat16(),
        *arguments[1:],
        METHODS[0],
        loss=loss,
    )


def test_no_graph_is_kept_below():
    """Tensors that the lower part saved for its backward pass are freed before the target pass."""
    saved: weakref.WeakSet[Any] = weakref.WeakSet()
    source = make_batch(5, 1)

    class Held:
        def __init__(self, tensor):
            # an output with a reference to its own node would be a cycle
            self.tensor = tensor.detach()
            saved.add(self)

    def watched(model, batch):
        if batch is not source:
            alive.append(len(saved))
            return loss(model, batch)
        with torch.autograd.graph.saved_tensors_hooks(Held, lambda held: held.tensor):
            return loss(model, batch)

    counts = []
    for method in METHODS:
        alive: list[int] = []
        model, target = Classifier().eval(), [make_batch(3, 2)]
        network = RepresentationTransformationNetwork(HIDDEN, 5)
        options = {"inner_lr": 0.5, "target_support": target, "loss": watched, "method": method}
        metaxl_gradients(model, network, model.place(3), [source], target, **options)
        counts.append(alive[-1])
    assert counts[0] < counts[1] / 3


SIZES = {"vocab_size": 31, "num_labels": 3}
SMALL = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 17,
}
SPECIAL = dict.fromkeys(["pad_token_id", "bos_token_id", "eos_token_id"], 0)
MODELS = {
    "XLMRoberta": SMALL,
    "DebertaV2": SMALL,
    "ModernBert": SMALL | SPECIAL,
    "Llama": SMALL | SPECIAL,
}


@pytest.mark.parametrize(
    ("name", "place", "training", "checkpointed"),
    [
        ("XLMRoberta", 0, True, False),
        ("XLMRoberta", 0, True, True),
        ("DebertaV2", 2, True, False),
        ("ModernBert", 2, True, False),
        ("Llama", 3, False, False),
    ],
)
def test_models_of_transformers(name, place, training, checkpointed):
    """Compare the call of the documentation with reverse over reverse.

    It uses the default loss, attention and dropout, and no context manager.
    """
    import transformers

    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, f"{name}Config")(**SIZES, **MODELS[name])
        model = (
            getattr(transformers, f"{name}ForTokenClassification")(config).double().train(training)
        )
    batches = [
        {"input_ids": torch.randint(5, 31, (4, 7)), "labels": torch.randint(3, (4, 7))}
        for _ in range(2)
    ]
    expected = gradients(model, place, *batches, "reverse_over_reverse")
    if checkpointed:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # the name changes in transformers 6
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False}
            )
    tolerance = 1e-6 if name == "Llama" else 1e-9  # its norms always compute in float32
    assert_gradients(gradients(model, place, *batches, "forward_over_reverse"), expected, tolerance)
