"""The network that transforms a source language's representations, and what puts it after a layer of any model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from numbers import Real
from typing import Any, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from polyembed._checks import check_last_dim, check_positive, class_name, must, require
from polyembed._pretrained import PretrainedModule, repr_call

Transform: TypeAlias = Callable[[Tensor], Tensor]


class RepresentationTransformationNetwork(PretrainedModule):
    """Transform hidden states, position by position (Xia 2021, equation 1).

    ``g(h) = w2^T ReLU(w1^T h + b1) + b2``, with ``w1`` and ``b1`` in `down`, ``w2`` and ``b2`` in `up`; with a
    residual, ``h + g(h)``. It serves in training alone: `transformed_output` puts it after a layer for a source batch.

    Args:
        hidden_size: The size of a hidden state, ``d``.
        bottleneck: The size in between, ``r``; the paper takes 384 and 192 of 768.
        residual: Whether to add the input.
        detach_input: Whether the gradient stops before ``g``; through a residual it goes on.

    Shape:
        ``(*batch, hidden_size)`` to the same.

    Raises:
        ValueError: Sizes that are not positive, or an input of another size.

    Example:
        >>> rtn = RepresentationTransformationNetwork(12, bottleneck=5)
        >>> rtn(torch.randn(2, 7, 12)).shape
        torch.Size([2, 7, 12])

    Deviations: equation 1 has neither residual nor detached input; the authors' code has both. Here the residual is on
    and the detached input off unless asked for.
    """

    def __init__(self, hidden_size: int, bottleneck: int, *, residual: bool = True, detach_input: bool = False) -> None:
        check_positive(hidden_size=hidden_size, bottleneck=bottleneck)
        super().__init__()
        self.residual = residual
        self.detach_input = detach_input
        self.down = nn.Linear(hidden_size, bottleneck)
        self.up = nn.Linear(bottleneck, hidden_size)

    def forward(self, h: Float[Tensor, "*batch hidden"]) -> Float[Tensor, "*batch hidden"]:
        """Transform hidden states.

        Args:
            h: Hidden states.

        Returns:
            As many.
        """
        check_last_dim("h", h, self.down.in_features)
        found: Tensor = self.up(self.down(h.detach() if self.detach_input else h).relu())
        return h + found if self.residual else found

    def __repr__(self) -> str:
        return repr_call(self, **self.get_config())

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "hidden_size": self.down.in_features,
            "bottleneck": self.down.out_features,
            "residual": self.residual,
            "detach_input": self.detach_input,
        }


@contextmanager
def transformed_output(
    layer: nn.Module | Sequence[nn.Module],
    transform: Transform | nn.ModuleDict | Sequence[Transform | nn.ModuleDict],
    detach_input: bool = False,
    *,
    weight: float | Tensor | Sequence[float | Tensor] | None = None,
    language: str | None = None,
) -> Iterator[None]:
    """Replace a layer's output ``h`` by ``g(h)`` as long as the context lasts (Xia 2021, section 2.2).

    The layer is any module that returns a tensor, or a tuple or list whose first item is the hidden states: the
    embeddings or a layer of an encoder, say. Nothing is subclassed: a forward hook is added, and removed at the end
    whatever happens. Contexts nest; the inner one then transforms what the outer one gives. A
    ``torch.func.functional_call`` of the model runs the hook too; so that the transform takes other parameters than its
    own, write it as ``lambda h: functional_call(rtn, phi, (h,))``.

    Args:
        layer: One layer, or several.
        transform: What is called on the hidden states: one for all layers, or one for each. Of an ``nn.ModuleDict`` the
            network of `language` is taken.
        detach_input: Whether the gradient stops at the layer's output: then nothing below learns from this pass. (For a
            gradient that goes on through the residual alone, see `RepresentationTransformationNetwork`.)
        weight: How much of the transform, one number for all layers or one for each: ``h + weight * (g(h) - h)``.
        language: The source language, for an ``nn.ModuleDict``.

    Yields:
        Nothing.

    Raises:
        ValueError: Layers, transforms and weights that are not as many; a language without a network.
        TypeError: A layer that is no module, a transform that cannot be called, a weight that is no number, or an
            output without hidden states.
        RuntimeError: A layer that did not run inside the context. A model that ``torch.compile`` has compiled before
            skips hooks that are added later.

    Example:
        >>> encoder = nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3))
        >>> rtn = RepresentationTransformationNetwork(12, bottleneck=5)
        >>> with transformed_output(encoder[1], rtn):
        ...     source = encoder(torch.randn(2, 12))
        >>> target = encoder(torch.randn(2, 12))

    Deviations: the paper trains one network for each layer and one source language at a time.
    """
    with hooks(layer, transform, detach_input, weight=weight, language=language) as calls:
        yield
    check_called(calls)


@contextmanager
def hooks(
    layer: nn.Module | Sequence[nn.Module],
    transform: Transform | nn.ModuleDict | Sequence[Transform | nn.ModuleDict],
    detach_input: bool = False,
    *,
    weight: float | Tensor | Sequence[float | Tensor] | None = None,
    language: str | None = None,
) -> Iterator[list[int]]:
    """Add and remove the hooks of `transformed_output`; the list counts each one's calls."""
    layers = listed(layer)
    transforms = listed(transform)
    weights = listed(weight)
    transforms = transforms * len(layers) if len(transforms) == 1 else transforms
    weights = weights * len(layers) if len(weights) == 1 else weights
    require(bool(layers), "layer", "name at least one layer", "none")
    for share in weights:
        if share is not None and not isinstance(share, Real | Tensor):
            raise TypeError(must("weight", "be a number, or one for each layer", class_name(share)))
    for name, found in (("transform", transforms), ("weight", weights)):
        require(len(found) == len(layers), name, f"be one for all or one for each of {len(layers)} layers", len(found))
    calls = [0] * len(layers)
    with ExitStack() as stack:
        for number, (module, function, share) in enumerate(zip(layers, transforms, weights, strict=True)):
            if not isinstance(module, nn.Module):
                raise TypeError(must("layer", "be a module, or several", class_name(module)))
            chosen = network(function, language)

            def hook(
                _: nn.Module,
                inputs: Any,
                output: Any,
                number: int = number,
                chosen: Transform = chosen,
                share: float | Tensor | None = share,
            ) -> Any:
                calls[number] += 1
                states = output[0] if isinstance(output, tuple | list) and len(output) else output
                if not isinstance(states, Tensor):
                    rule = "return a tensor, or a tuple whose first item is one"
                    raise TypeError(must("layer", rule, class_name(output)))
                start = states.detach() if detach_input else states
                new = chosen(start)
                new = new if share is None else start + share * (new - start)
                if states is output:
                    return new
                changed = (new, *output[1:])
                return output._make(changed) if hasattr(output, "_make") else type(output)(changed)

            stack.callback(module.register_forward_hook(hook).remove)
        yield calls


def check_called(calls: Sequence[int]) -> None:
    """Require that every hook ran."""
    for number, count in enumerate(calls):
        if count == 0:
            rule = "run inside transformed_output (a model that is compiled already skips its hook)"
            raise RuntimeError(must(f"layer {number}" if len(calls) > 1 else "layer", rule, "no call"))


def network(transform: Any, language: str | None) -> Transform:
    """Choose a source language's network, where there is one for each."""
    if isinstance(transform, nn.ModuleDict):
        require(
            language is not None and language in transform,
            "language",
            f"be one of {', '.join(map(repr, transform))}",
            repr(language),
        )
        chosen: Transform = transform[str(language)]
        return chosen
    if not callable(transform):
        raise TypeError(must("transform", "be callable, an nn.ModuleDict, or a list of such", class_name(transform)))
    found: Transform = transform
    return found


def listed(value: Any) -> list[Any]:
    """Make a list of one thing or of several."""
    return list(value) if isinstance(value, list | tuple | nn.ModuleList) else [value]
