"""Where a computation first meets certain parameters: its autograd graph is cut there, and what crosses is found again.

A scalar loss depends on leaves ``phi``. The nodes of its graph that depend on ``phi`` are *above*; the values that
they take from the other nodes *cross* the cut. What is below has a gradient of its own, from that of the crossing
values, and a tangent of its own, of the crossing values. To read that tangent in a second run of the same program, the
first run numbers the calls of torch functions that give floating point values; a value that no call gives (from
inside a function of several operations, say) cannot be found again, so its node is counted as above.

What the first run takes for a constant (by ``detach`` or inside ``no_grad``) is one in the second run too.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node
from torch.overrides import TorchFunctionMode

from polyembed._checks import must
from polyembed.functional._dual import dual_linear

Edge: TypeAlias = tuple[Node, int]
Place: TypeAlias = tuple[int, int]  # of a tensor: the number of the call, and of the result

FUSED_ATTENTION = re.compile(r"ScaledDotProduct\w*Attention")
DEAD_END = re.compile(r"Error$")  # what a function that is differentiable once leaves in its gradient's graph


class Tape(TorchFunctionMode):
    """Numbers the calls that give floating point values, and remembers each result's edge.

    Args:
        hold: Whether to keep the values of constants: of results without a gradient, from something that has one.
        keep: Whether to keep the results of linear maps to fewer features: cheap to hold, dear to find again.
    """

    def __init__(self, *, hold: bool = False, keep: bool = False) -> None:
        super().__init__()
        self.hold = hold
        self.keep = keep
        self.kept: dict[int, tuple[Tensor, int]] = {}  # the number of the call -> its result, and its version
        self.calls: list[Any] = []
        self.places: dict[Edge, Place] = {}
        self.constants: dict[int, Any] = {}  # the number of the call -> its result, where it is kept

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call, and write down."""
        result = func(*args, **(kwargs or {}))
        found = _floats(result)
        if (found or isinstance(result, float)) and _visible():
            for j, tensor in enumerate(found):
                if tensor.grad_fn is not None:
                    self.places.setdefault((tensor.grad_fn, tensor.output_nr), (len(self.calls), j))
            if not any(tensor.requires_grad for tensor in found) and _learns((args, kwargs)):
                self.constants[len(self.calls)] = _changed(result, _copy) if self.hold else None
            if self.keep and func is F.linear and args and result.dim() and args[0].shape[-1] > result.shape[-1]:
                self.kept[len(self.calls)] = result.detach(), result._version
            self.calls.append(func)
        return result

    def forget(self, last: int) -> None:
        """Drop what is for calls after the last one that will be read again, and all edges."""
        self.places = {}
        self.kept = {number: found for number, found in self.kept.items() if number <= last}
        self.constants = {number: found for number, found in self.constants.items() if number <= last}

    def output(self, number: int) -> Tensor | None:
        """Give the kept result of a call, if nobody has changed it since."""
        result, version = self.kept.get(number, (None, 0))
        return result if result is not None and result._version == version else None


class Replay(TorchFunctionMode):
    """Reads what stood at certain places of a tape while the same program runs again, then stops it.

    Args:
        tape: What the first run wrote.
        places: Where to read.
        read: What to take from a tensor there.
        dual: Whether the numbers are dual, and what is known of linear maps is taken.
    """

    class Done(BaseException):
        """All places were read; not an `Exception`, so that no program takes it for an error of its own."""

    def __init__(
        self,
        tape: Tape,
        places: Iterable[Place],
        read: Callable[[Tensor], Any],
        dual: bool = False,
    ) -> None:
        super().__init__()
        self.dual = dual
        self.tape = tape
        self.missing = set(places)
        self.read = read
        self.found: dict[Place, Any] = {}
        self.count = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call, and read where asked to."""
        if self.dual and func is F.linear and _visible():
            result = dual_linear(self.tape.output(self.count), *args, **(kwargs or {}))
        else:
            result = func(*args, **(kwargs or {}))
        found = _floats(result)
        if (found or isinstance(result, float)) and _visible():
            expected = self.tape.calls[self.count] if self.count < len(self.tape.calls) else None
            if func != expected:
                raise RuntimeError(
                    must("source_loss", "do the same operations whenever it is called", f"{func} where {expected} was")
                )
            if self.count in self.tape.constants:
                result = (
                    _changed(self.tape.constants[self.count], _copy) if self.tape.hold else _changed(result, _still)
                )
            for j, tensor in enumerate(_floats(result)):
                place = self.count, j
                if place in self.missing:
                    self.missing.discard(place)
                    self.found[place] = self.read(tensor)
            self.count += 1
            if not self.missing:
                raise Replay.Done
        return result

    def run(self, program: Callable[[], object]) -> dict[Place, Any]:
        """Run the program until all is read."""
        try:
            with self:
                program()
        except Replay.Done:
            return self.found
        rule = "do the same operations whenever it is called"
        raise RuntimeError(must("source_loss", rule, f"{self.count} calls where {len(self.tape.calls)} were"))


class Cut(NamedTuple):
    """A graph in two parts.

    Attributes:
        crossing: The values that cross.
        places: Where each of them was computed.
        above: Leaves that the upper part takes itself, by identity.
        below: Leaves that each of the crossing values depends on.
        leaves: All leaves of the graph.
        fused: The name of an attention kernel in the upper part that has no second derivative, if there is one.
    """

    crossing: list[GradientEdge]
    places: list[Place]
    above: set[int]
    below: list[set[int]]
    leaves: set[int]
    fused: str | None


def cut(loss: Tensor, phi: Iterable[Tensor], places: dict[Edge, Place]) -> Cut:
    """Cut the graph of a loss where it first meets `phi`; crossing values are among `places`, none above another."""
    order = _bottom_up(loss.grad_fn)
    metas = {id(tensor) for tensor in phi}
    above: set[Node] = set()
    for node in order:
        if any(id(leaf_of(child)) in metas or child in above for child, _ in _children(node)):
            above.add(node)
    while True:
        crossing = {
            edge: None  # a dict keeps the order
            for node in order
            if node in above
            for edge in _children(node)
            if edge[0] not in above and leaf_of(edge[0]) is None
        }
        rims = {node for node, _ in crossing}
        reaches: set[Node] = set()  # from here a crossing value is met again, further down
        for node in order:
            if any(child in rims or child in reaches for child, _ in _children(node)):
                reaches.add(node)
        lower = _reachable(rims)
        grown = {node for node, nr in crossing if (node, nr) not in places} | (reaches & lower)
        if not grown:
            break
        above |= grown
    tied = {id(leaf_of(child)) for node in above for child, _ in _children(node)} - {id(None)}
    below = [{id(leaf_of(node)) for node in _reachable([rim])} - {id(None)} for rim, _ in crossing]
    twice = tied & set().union(*below)
    everything = {id(leaf_of(node)) for node in order} - {id(None)}
    upper = set(above)  # a leaf of both parts takes along what lies between it and the cut
    for node in order:
        if node in lower and any(id(leaf_of(child)) in twice or child in upper for child, _ in _children(node)):
            upper.add(node)
    fused = next((node.name() for node in upper if FUSED_ATTENTION.search(node.name())), None)
    edges = [GradientEdge(node, nr) for node, nr in crossing]
    return Cut(edges, [places[edge] for edge in crossing], tied, below, everything, fused)


def leaves(loss: Tensor) -> set[int]:
    """Name the leaves that a loss depends on, by identity."""
    return {id(leaf_of(node)) for node in _bottom_up(loss.grad_fn)} - {id(None)}


def nodes_named(pattern: re.Pattern[str], *tensors: Tensor) -> list[Node]:
    """Find the nodes of the tensors' graph whose name matches."""
    return [node for node in _bottom_up(*(tensor.grad_fn for tensor in tensors)) if pattern.search(node.name())]


def leaf_of(node: Node) -> Tensor | None:
    """Give the leaf that a node collects the gradient of, if that is what it does."""
    return node.variable if node.name() == "torch::autograd::AccumulateGrad" else None  # type: ignore[attr-defined]


def _children(node: Node) -> list[Edge]:
    return [(child, nr) for child, nr in node.next_functions if child is not None]


def _bottom_up(*roots: Node | None) -> list[Node]:
    """List the nodes of a graph, each after all that it takes from."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in roots if root is not None]
    while stack:
        node, finished = stack.pop()
        if finished:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child, _ in _children(node) if child not in seen)
    return order


def _reachable(roots: Iterable[Node]) -> set[Node]:
    seen = set(roots)
    stack = list(seen)
    while stack:
        for child, _ in _children(stack.pop()):
            if child not in seen:
                seen.add(child)
                stack.append(child)
    return seen


def _visible() -> bool:
    """Tell a program's own calls from those inside an `autograd.Function`, which has more of them for dual numbers."""
    return forward_ad._is_fwd_grad_enabled()


def _learns(value: Any) -> bool:
    """Tell whether a gradient flows into any of a call's arguments."""
    if isinstance(value, Tensor):
        return value.requires_grad
    if isinstance(value, dict):
        return any(map(_learns, value.values()))
    return isinstance(value, tuple | list) and any(map(_learns, value))


def _changed(result: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Give a result with its floating point tensors changed."""
    if isinstance(result, Tensor):
        return change(result) if result.is_floating_point() else result
    if isinstance(result, tuple | list):
        return type(result)([_changed(item, change) for item in result])
    return result


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()  # either run may go on in place


def _still(tensor: Tensor) -> Tensor:
    """Take a tangent away."""
    primal, tangent = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]
    return tensor if tangent is None else primal


def _floats(result: Any) -> list[Tensor]:
    """List the floating point tensors of a result, in order."""
    if isinstance(result, Tensor):
        return [result] if result.is_floating_point() else []
    if isinstance(result, tuple | list):
        return [tensor for item in result for tensor in _floats(item)]
    return []
