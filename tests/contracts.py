"""The laws that every module obeys. Each law is a function of a `Case` and raises if it is broken.

`cases.py` holds a case for every public module; `broken.py` holds modules that break one law each.
"""

import copy
import pickle
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from toys import NEW_WORDS, RUNTIME_TYPES, WORDS

from polyembed import Lexicon

Batch = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A module, a batch for it, and the properties of both that the laws need.

    Attributes:
        name: The module's class, followed by a dot and the special feature of this case, if any.
        build: Builds a small module.
        make: Builds the arguments from the numbers of rows and of words. Rows are on axis 0,
            numbers are float64, and a mask has the name `mask`.
        call: Computes one tensor from the module and the arguments.
        padded: The names of the arguments with padding on axis 1. The padding is where the mask is
            off or, without a mask, where an id is 0.
        wordwise: Whether axis 1 of the result is the axis of words.
        reduced: Whether the result is one number for all rows.
        trains: Whether the module has gradients.
        wide: Whether the result is float32 for narrower inputs.
        permute: Reorders the sources of the module (in place) and of the arguments. The result must
            not change.
        grow: Builds the module for a lexicon.
        wrong: Changes that spoil the arguments, each with the type and text of the error.
        exceptions: The laws that do not hold, each with the reason.
    """

    name: str
    build: Callable[[], nn.Module]
    make: Callable[[int, int], Batch]
    call: Callable[[nn.Module, Batch], Tensor] = lambda module, batch: module(**batch)
    padded: tuple[str, ...] = ()
    wordwise: bool = False
    reduced: bool = False
    trains: bool = True
    wide: bool = False
    permute: Callable[[nn.Module, Batch, Sequence[int]], Batch] | None = None
    grow: Callable[[Lexicon], nn.Module] | None = None
    wrong: tuple[tuple[Callable[[Batch], Batch], type[Exception], str], ...] = ()
    exceptions: Mapping[str, str] = field(default_factory=dict)

    def module(self, dtype: torch.dtype = torch.float64, *, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        return self.build().to(dtype).eval()

    def batch(self, rows: int = 13, width: int = 4, *, dtype: torch.dtype = torch.float64) -> Batch:
        torch.manual_seed(1)
        return each(self.make(rows, width), lambda x: x.to(dtype) if x.is_floating_point() else x)


Law = Callable[[Case], None]
LAWS: dict[str, Law] = {}
APPLIES: dict[str, Callable[[Case], bool]] = {}


def law(applies: Callable[[Case], bool] = lambda case: True) -> Callable[[Law], Law]:
    """Register a law and the condition for the cases to which it applies."""

    def register(check):
        LAWS[check.__name__] = check
        APPLIES[check.__name__] = applies
        return check

    return register


class Operations(TorchDispatchMode):
    """Counts the operations that reach a kernel."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@law()
def inputs_stay_untouched(case: Case) -> None:
    module, batch = case.module().train(), case.batch()
    before = copy.deepcopy(batch)
    case.call(module, batch)
    for old, new in zip(_tensors(before), _tensors(batch), strict=True):
        assert torch.equal(old, new), "an input was written to"


@law()
def every_parameter_gets_a_gradient(case: Case) -> None:
    module = case.module()
    gradients = result_and_gradients(case, module, case.batch())[1]
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and case.trains:
            assert gradients[name] is not None, f"{name} has no gradient"
            assert gradients[name].isfinite().all(), f"{name} has a gradient of {gradients[name]}"
            assert gradients[name].abs().max() > 1e-12, f"{name} has a gradient of zero everywhere"


@law(lambda case: "mask" in case.make(1, 1))
def padding_content_is_irrelevant(case: Case) -> None:
    module, batch = case.module(), case.batch()
    expected, expected_gradients = result_and_gradients(case, module, batch)
    spoilt = {**batch, **{name: _spoil(batch[name], batch["mask"]) for name in case.padded}}
    value, gradients = result_and_gradients(case, module, spoilt)
    _assert_same(value, expected)
    for name, gradient in expected_gradients.items():
        _assert_same(gradients[name], gradient, f"the gradient of {name}")


@law(lambda case: bool(case.padded))
def more_padding_changes_nothing(case: Case) -> None:
    module, batch = case.module(), case.batch()
    padded = {
        name: _lengthen(value, name) if name in {*case.padded, "mask"} else value
        for name, value in batch.items()
    }
    expected, expected_gradients = result_and_gradients(case, module, batch)
    value, gradients = result_and_gradients(case, module, padded, width=4)
    _assert_same(value, expected)
    for name in dict(module.named_parameters()):
        _assert_same(gradients[name], expected_gradients[name], f"the gradient of {name}")


@law(lambda case: not case.reduced)
def a_row_stands_alone(case: Case) -> None:
    module, batch = case.module(), case.batch()
    together = case.call(module, batch)
    for row in range(len(together)):
        alone = case.call(module, each(batch, lambda x: x[row : row + 1]))  # noqa: B023
        _assert_same(alone, together[row : row + 1])


@law(lambda case: case.permute is not None)
def the_order_of_sources_is_irrelevant(case: Case) -> None:
    module, batch = case.module(), case.batch()
    expected = case.call(module, batch)
    _assert_same(case.call(module, case.permute(module, batch, (2, 0, 1))), expected)


@law()
def the_state_dict_is_everything(case: Case) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        module, other = case.module(dtype, seed=0), case.module(dtype, seed=7)
        other.load_state_dict(module.state_dict())
        _assert_equal_modules(case, other, module, dtype)


@law(lambda case: hasattr(case.build(), "save_pretrained"))
def saving_and_loading_is_exact(case: Case) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        module = case.module(dtype)
        with tempfile.TemporaryDirectory() as folder:
            module.save_pretrained(Path(folder) / "saved")
            loaded = type(module).from_pretrained(Path(folder) / "saved")
        _assert_equal_modules(case, loaded, module, dtype)
        assert repr(loaded) == repr(module)
        flags = {name: parameter.requires_grad for name, parameter in module.named_parameters()}
        assert {
            name: parameter.requires_grad for name, parameter in loaded.named_parameters()
        } == flags


@law()
def copies_are_equal_and_apart(case: Case) -> None:
    module = case.module()
    places = {parameter.data_ptr() for parameter in module.parameters()}
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        _assert_equal_modules(case, twin, module, torch.float64)
        assert not places & {parameter.data_ptr() for parameter in twin.parameters()}, (
            "memory is shared"
        )


@law()
def moving_leaves_nothing_behind(case: Case) -> None:
    module = case.module().to("meta")
    for name, tensor in module.state_dict().items():
        assert tensor.is_meta, f"{name} did not move"
    for name, part in module.named_modules():
        for attribute, value in vars(part).items():
            if attribute not in ("_parameters", "_buffers", "_modules"):
                assert not _stays_behind(value), (
                    f"{name}.{attribute} is a plain tensor, which does not move"
                )


@law(lambda case: not RUNTIME_TYPES)
def compiles_as_one_graph(case: Case, backend: str = "aot_eager") -> None:
    torch.compiler.reset()
    module = case.module()
    compiled = torch.compile(
        lambda batch: case.call(module, batch), fullgraph=True, backend=backend, dynamic=True
    )
    for rows, width in ((13, 4), (7, 6)):
        batch = case.batch(rows, width)
        expected, expected_gradients = result_and_gradients(case, module, batch)
        value, gradients = result_and_gradients(
            case, module, batch, call=lambda _, batch: compiled(batch)
        )
        _assert_same(value, expected)
        for name, gradient in expected_gradients.items():
            _assert_same(gradients[name], gradient, f"the gradient of {name}")


@law(lambda case: not RUNTIME_TYPES)
def as_many_operations_for_any_batch(case: Case) -> None:
    """A batch of any size needs the same number of kernels, forwards and backwards.

    The law excludes loops over rows or words in Python.
    """

    def count(rows, width):
        batch = case.batch(rows, width)
        with Operations() as operations:
            result_and_gradients(case, module, batch)
        return operations.count

    module = case.module()
    count(3, 4)  # the first call does one-time work
    few, rows, words = count(3, 4), count(11, 4), count(3, 11)
    assert rows == few, f"{few} operations for 3 rows, {rows} for 11"
    assert words == few, f"{few} operations for 4 words, {words} for 11"


@law(lambda case: case.trains)
def has_the_right_gradient(case: Case) -> None:
    function, arguments = _as_function(case)
    assert gradcheck(function, arguments, fast_mode=True) if arguments else True


@law(lambda case: case.trains)
def has_the_right_second_derivative(case: Case) -> None:
    function, arguments = _as_function(case)
    with sdpa_kernel(SDPBackend.MATH):  # the fused kernels have no double backward
        assert gradgradcheck(function, arguments, fast_mode=True) if arguments else True


@law()
def low_precision_is_close(case: Case) -> None:
    expected = case.call(case.module(torch.float32), case.batch(dtype=torch.float32))
    low = case.call(case.module(torch.bfloat16), case.batch(dtype=torch.bfloat16))
    assert low.dtype == (torch.float32 if case.wide else torch.bfloat16), (
        f"bfloat16 became {low.dtype}"
    )
    with torch.autocast("cpu", torch.bfloat16):
        mixed = case.call(case.module(torch.float32), case.batch(dtype=torch.float32))
    for value in (low, mixed):
        torch.testing.assert_close(value.float(), expected, rtol=0.05, atol=0.05)


@law()
def sizes_zero_and_one_are_sizes(case: Case) -> None:
    module = case.module()
    for rows, width in ((0, 4), (13, 0), (0, 0), (1, 1)):
        value, gradients = result_and_gradients(case, module, case.batch(rows, width))
        assert case.reduced or value.shape[0] == rows
        assert not case.wordwise or value.shape[1] == width
        assert value.isfinite().all(), f"{rows} rows of {width} words give {value}"
        for name, gradient in gradients.items():
            assert gradient is None or gradient.isfinite().all(), (
                f"{rows} rows of {width} give {name} {gradient}"
            )


@law(lambda case: not RUNTIME_TYPES)
def stays_on_its_device_without_waiting(case: Case) -> None:
    """Run forward and backward on fake tensors of another device.

    The host cannot read the values of fake tensors.
    """
    module, batch = case.module(torch.float32).train(), case.batch(dtype=torch.float32)
    with FakeTensorMode(allow_non_fake_inputs=False):

        def fake(x):
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=OTHER_DEVICE)

        for part in module.modules():
            for name, x in part._parameters.items():
                if x is not None:
                    part._parameters[name] = nn.Parameter(fake(x), requires_grad=x.requires_grad)
            part._buffers.update({k: x if x is None else fake(x) for k, x in part._buffers.items()})
        moved = each(batch, lambda x: fake(x).requires_grad_(x.is_floating_point()))
        value = case.call(module, moved)
        assert value.device == OTHER_DEVICE, f"the result is on {value.device}"
        if value.requires_grad:
            value.sum().backward()


def _other_device() -> torch.device:
    """Return a device other than the CPU for fake tensors: a GPU, or else a registered device.

    A device is not registered beside a GPU, because torch allows one other device per process and
    its backward pass would no longer know the GPU.
    """
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    from torch.utils import backend_registration

    class Backend(backend_registration._DummyBackendModule):
        def get_amp_supported_dtype(self):
            return [torch.bfloat16]

        def get_rng_state(self, device=None):
            return torch.zeros(0)

        def set_rng_state(self, state, device=None):
            pass

    backend_registration._setup_privateuseone_for_python_backend("elsewhere", Backend())
    return torch.device("elsewhere", 0)


OTHER_DEVICE = _other_device()  # before the first backward pass counts the devices


@law(lambda case: "mask" in case.make(1, 1) and not RUNTIME_TYPES)
def a_mask_is_bool(case: Case) -> None:
    module, batch = case.module(), case.batch()
    for dtype in (torch.int64, torch.float32):
        _assert_raises(
            case,
            module,
            {**batch, "mask": batch["mask"].to(dtype)},
            TypeError,
            r"^mask must be bool",
        )
    rule = r"^mask must have shape \(13, 4\), got \(13, 3\)$"
    _assert_raises(case, module, {**batch, "mask": batch["mask"][:, 1:]}, ValueError, rule)


@law(lambda case: bool(case.wrong) and not RUNTIME_TYPES)
def wrong_inputs_are_refused(case: Case) -> None:
    module = case.module()
    for spoil, error, text in case.wrong:
        _assert_raises(case, module, spoil(case.batch()), error, text)


@law(lambda case: case.grow is not None)
def later_words_are_as_from_the_start(case: Case) -> None:
    lexicon = Lexicon(WORDS)
    everything = lexicon.extended(NEW_WORDS)
    torch.manual_seed(0)
    expected = (
        case.grow(Lexicon(everything, characters=lexicon.spelling.characters)).double().eval()
    )
    torch.manual_seed(0)
    module = case.grow(lexicon).double().eval()
    parameters, state = dict(module.named_parameters()), copy.deepcopy(module.state_dict())
    at_once = module.with_lexicon(everything)
    in_steps = module.with_lexicon(lexicon.extended(NEW_WORDS[:2])).with_lexicon(everything)
    ids = torch.arange(len(everything))
    for extended in (at_once, in_steps, in_steps.with_words(NEW_WORDS)):
        assert extended.num_embeddings == len(everything)
        _assert_same(extended(ids), expected(ids))
        shared = [
            part
            for part in extended.parameters()
            if any(part is known for known in parameters.values())
        ]
        assert len(shared) == len(parameters), "an extended embedder does not share every parameter"
    assert module.num_embeddings == len(lexicon), "extending changed the embedder itself"
    assert module.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    with tempfile.TemporaryDirectory() as folder:
        in_steps.save_pretrained(folder)
        loaded = type(module).from_pretrained(folder)
    assert loaded.lexicon == everything
    _assert_same(loaded(ids), in_steps(ids))


def each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply `change` to every tensor of a batch."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: each(item, change) for key, item in value.items()}
    parts = [each(item, change) for item in value]
    return type(value)(*parts) if hasattr(value, "_fields") else parts


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    each(value, lambda x: (found.append(x), x)[1])
    return found


def result_and_gradients(
    case: Case,
    module: nn.Module,
    batch: Batch,
    *,
    width: int | None = None,
    call: Callable[[nn.Module, Batch], Tensor] | None = None,
) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Return the result, cut to `width` words, and the gradients of a weighted sum of it.

    The gradients are with respect to the parameters and the float inputs.
    """
    batch = each(batch, lambda x: x.detach().clone().requires_grad_(x.is_floating_point()))
    wanted = {name: value for name, value in module.named_parameters() if value.requires_grad}
    wanted |= {f"input {i}": x for i, x in enumerate(_tensors(batch)) if x.requires_grad}
    value = (call or case.call)(module, batch)
    if case.wordwise and width is not None:
        value = value[:, :width]
    nothing = dict.fromkeys(dict(module.named_parameters()))
    if not wanted or not value.requires_grad:
        assert not wanted or not case.trains or value.numel() == 0, (
            "the result is cut off from the parameters"
        )
        return value.detach(), nothing
    count = torch.arange(1, value.numel() + 1, dtype=value.dtype, device=value.device)
    weights = count.cos().reshape(value.shape)
    gradients = torch.autograd.grad(
        (value * weights).sum(), list(wanted.values()), allow_unused=True
    )
    return value.detach(), {**nothing, **dict(zip(wanted, gradients, strict=True))}


def _as_function(case: Case) -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    """Return a function of a case's float inputs and trainable parameters, and their values."""
    module, batch = case.module(), case.batch(2, 3)
    parameters = {
        name: value.detach() for name, value in module.named_parameters() if value.requires_grad
    }
    inputs = [x for x in _tensors(batch) if x.is_floating_point()]

    def function(*arguments):
        given = iter(arguments)
        values = each(batch, lambda x: next(given) if x.is_floating_point() else x)
        holder = _Holder(module, case.call)
        named = {f"module.{name}": value for name, value in zip(parameters, given, strict=True)}
        return torch.func.functional_call(holder, named, (values,))

    arguments = [*inputs, *parameters.values()]
    return function, tuple(x.clone().requires_grad_() for x in arguments)


class _Holder(nn.Module):
    """A wrapper for `functional_call` whose forward method is the call of the case."""

    def __init__(self, module: nn.Module, call: Callable[[nn.Module, Batch], Tensor]) -> None:
        super().__init__()
        self.module = module
        self.call = call

    def forward(self, batch: Batch) -> Tensor:
        return self.call(self.module, batch)


def _spoil(x: Tensor, mask: Tensor) -> Tensor:
    """Fill the padding with values that must not matter: NaN, another word, or a missing tag."""
    if x.is_floating_point():
        return torch.where(mask.view(*mask.shape, *[1] * (x.dim() - mask.dim())), x, float("nan"))
    return torch.where(mask, x, -100 if x.lt(0).any() else 1)


def _lengthen(x: Tensor, name: str) -> Tensor:
    filler = float("nan") if x.is_floating_point() else {"tags": -100}.get(name, 0)
    return torch.cat([x, x.new_full((x.shape[0], 3, *x.shape[2:]), filler)], dim=1)


def _stays_behind(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set):
        return any(map(_stays_behind, value))
    return isinstance(value, Tensor) and not value.is_meta


def _assert_same(value: Tensor | None, expected: Tensor | None, name: str = "the result") -> None:
    if expected is None:
        assert value is None, f"{name} should be none"
        return
    torch.testing.assert_close(
        value, expected, rtol=1e-7, atol=1e-9, msg=lambda text: f"{name} differs: {text}"
    )


def _assert_equal_modules(
    case: Case, module: nn.Module, expected: nn.Module, dtype: torch.dtype
) -> None:
    state, expected_state = module.state_dict(), expected.state_dict()
    assert list(state) == list(expected_state)
    for name, value in expected_state.items():
        assert state[name].dtype == value.dtype, f"{name} is {state[name].dtype}, was {value.dtype}"
        assert torch.equal(state[name], value), f"{name} differs"
    batch = case.batch(dtype=dtype)
    torch.testing.assert_close(
        case.call(module, batch), case.call(expected, batch)
    )  # rounding depends on the alignment of memory


def _assert_raises(
    case: Case, module: nn.Module, batch: Batch, error: type[Exception], text: str
) -> None:
    try:
        case.call(module, batch)
    except error as refusal:
        said = str(refusal)
    else:
        raise AssertionError(f"no {error.__name__} that says {text!r}")
    assert re.search(text, said), f"{said!r} does not match {text!r}"
