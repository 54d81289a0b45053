"""The network that transforms a source language's representations, the hooks that apply it after
a layer, and the layers of a transformers encoder by number.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from polyembed._checks import (
    check_choice,
    check_last_dim,
    check_positive,
    class_name,
    must,
    require,
    require_type,
)
from polyembed.saving import PretrainedModule

Transform: TypeAlias = Callable[[Tensor], Tensor]


class RepresentationTransformationNetwork(PretrainedModule):
    """Transform hidden states, position by position (Xia 2021, equation 1).

    ``g(h) = w2^T ReLU(w1^T h + b1) + b2``, with ``w1`` and ``b1`` in `down`, ``w2`` and ``b2`` in
    `up`; with a residual, ``h + g(h)``. With a gate, ``g(h)`` is multiplied by ``sigmoid(w(h))``,
    one number for each position, before the residual is added. The network is used in training
    only: `transformed_output` applies it after a layer, for a source batch.

    Args:
        hidden_size: The size of a hidden state, ``d``.
        bottleneck: The size of the hidden layer, ``r``; the paper uses 384 and 192 for 768.
        residual: Whether to add the input.
        detach_input: Whether the gradient stops before ``g``. The residual still passes the
            gradient on.
        gate: The kind of ``w``. ``"none"``: the network has no gate. ``"tied"``: one more output of
            `up`. ``"separate"``: another network, with a hidden layer of size `bottleneck`.
        xavier: Whether `down` and `up` start with weights by Xavier's normal distribution and
            biases of zero; if not, they start as in ``nn.Linear``.

    Shape:
        Input and output: ``(*batch, hidden_size)``.

    Raises:
        ValueError: If a size is not positive, the gate is unknown, or the input has another size.

    Example:
        >>> rtn = RepresentationTransformationNetwork(12, bottleneck=5)
        >>> rtn(torch.randn(2, 7, 12)).shape
        torch.Size([2, 7, 12])

    Deviations: equation 1 has neither residual, detached input nor gate. The authors' code has the
    first two, a gate as an option, and Xavier's weights. Here the residual is on and the others are
    off unless asked for. Their separate gate is one network for all layers and languages.
    """

    def __init__(
        self,
        hidden_size: int,
        bottleneck: int,
        *,
        residual: bool = True,
        detach_input: bool = False,
        gate: str = "none",
        xavier: bool = False,
    ) -> None:
        check_positive(hidden_size=hidden_size, bottleneck=bottleneck)
        check_choice("gate", gate, ("none", "tied", "separate"))
        super().__init__()
        self.hidden_size = hidden_size
        self.bottleneck = bottleneck
        self.residual = residual
        self.detach_input = detach_input
        self.gate, self.xavier = gate, xavier
        self.down = nn.Linear(hidden_size, bottleneck)
        self.up = nn.Linear(bottleneck, hidden_size + (gate == "tied"))
        if gate == "separate":
            self.gate_network = nn.Sequential(
                nn.Linear(hidden_size, bottleneck), nn.ReLU(), nn.Linear(bottleneck, 1)
            )
        if xavier:
            for layer in (self.down, self.up):
                nn.init.xavier_normal_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, h: Float[Tensor, "*batch hidden"]) -> Float[Tensor, "*batch hidden"]:
        """Transform hidden states."""
        check_last_dim("h", h, self.hidden_size, self.down.weight)
        start = h.detach() if self.detach_input else h
        found: Tensor = self.up(self.down(start).relu())
        if self.gate == "tied":
            found = found[..., -1:].sigmoid() * found[..., :-1]
        elif self.gate == "separate":
            found = self.gate_network(start).sigmoid() * found
        return h + found if self.residual else found


@contextmanager
def transformed_output(
    layer: nn.Module | Sequence[nn.Module],
    transform: Transform | nn.ModuleDict | Sequence[Transform | nn.ModuleDict],
    detach_input: bool = False,
    *,
    weight: float | Tensor | Sequence[float | Tensor] | None = None,
    language: str | None = None,
) -> Iterator[None]:
    """Replace a layer's output ``h`` by ``g(h)`` inside the context (Xia 2021, section 2.2).

    The layer is any module that returns a tensor, or a tuple or list whose first item is the hidden
    states: the embeddings or a layer of an encoder, for example. A forward hook is added, and
    removed at the end of the context. Contexts nest: the inner one transforms the output of the
    outer one. ``torch.func.functional_call`` of the model runs the hook too. To give the transform
    other parameters than its own, write it as ``lambda h: functional_call(rtn, phi, (h,))``.

    Args:
        layer: One layer, or several.
        transform: A callable for hidden states: one for all layers, or one for each. If it is an
            ``nn.ModuleDict``, the network of `language` is used.
        detach_input: Whether the gradient stops at the layer's output: then no layer below learns
            from this pass. (For a gradient through the residual only, see
            `RepresentationTransformationNetwork`.)
        weight: The share of the transform, one number for all layers or one for each:
            ``h + weight * (g(h) - h)``.
        language: The source language, for an ``nn.ModuleDict``.

    Yields:
        Nothing.

    Raises:
        ValueError: If the numbers of layers, transforms and weights differ, or a language has no
            network.
        TypeError: If the output of a layer has no hidden states.
        RuntimeError: If a layer did not run inside the context. A model that ``torch.compile`` has
            compiled before skips hooks that are added later.

    Example:
        >>> encoder = nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3))
        >>> rtn = RepresentationTransformationNetwork(12, bottleneck=5)
        >>> with transformed_output(encoder[1], rtn):
        ...     source = encoder(torch.randn(2, 12))
        >>> target = encoder(torch.randn(2, 12))

    Deviations: the paper trains one network for each layer and one source language at a time.
    """
    cut = Tensor.detach if detach_input else None
    with hooks(layer, transform, weight=weight, language=language, cut=cut) as calls:
        yield
    check_called(calls)


@contextmanager
def hooks(
    layer: Any,
    transform: Any,
    *,
    weight: Any = None,
    language: str | None = None,
    cut: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[list[int]]:
    """Add and remove the hooks of `transformed_output`; the list counts the calls of each hook.

    `cut` is called on the hidden states before the transform.
    """
    layers = listed(layer)
    transforms, weights = (
        many * len(layers) if len(many) == 1 else many for many in map(listed, (transform, weight))
    )
    rule = f"be one for all or one for each of {len(layers)} layers"
    for name, found in (("transform", transforms), ("weight", weights)):
        require(len(found) == len(layers), name, rule, len(found))
    calls = [0] * len(layers)

    def hook(number: int, function: Transform, share: float | Tensor | None) -> Callable[..., Any]:
        def transformed(module: nn.Module, inputs: Any, output: Any) -> Any:
            states = output[0] if isinstance(output, tuple | list) and output else output
            rule = "return a tensor, or a tuple whose first item is one"
            require_type(isinstance(states, Tensor), "layer", rule, output)
            calls[number] += 1
            start = states if cut is None else cut(states)
            new = function(start)
            new = new if share is None else start + share * (new - start)
            if states is output:
                return new
            make = getattr(output, "_make", type(output))  # a named tuple's class takes no list
            return make((new, *output[1:]))

        return transformed

    with ExitStack() as stack:
        for number, (module, function) in enumerate(zip(layers, transforms, strict=True)):
            if isinstance(function, nn.ModuleDict):
                rule = f"be one of {', '.join(map(repr, function))}"
                require(str(language) in function, "language", rule, repr(language))
                function = function[str(language)]
            handle = module.register_forward_hook(hook(number, function, weights[number]))
            stack.callback(handle.remove)
            # transformers adds its recording hooks in a model's first run; they must run last
            for key, other in list(module._forward_hooks.items()):
                if getattr(other, "__module__", "") == RECORDERS:
                    module._forward_hooks.move_to_end(key)
        yield calls


def check_called(calls: Sequence[int]) -> None:
    """Require that every hook ran."""
    if 0 in calls:
        name = f"layer {calls.index(0)}" if len(calls) > 1 else "layer"
        rule = "run inside transformed_output (a model that is compiled already skips its hook)"
        raise RuntimeError(must(name, rule, "no call"))


def listed(value: Any) -> list[Any]:
    """Return the items of a list, tuple or ``nn.ModuleList``; any other value as the one item."""
    return list(value) if isinstance(value, list | tuple | nn.ModuleList) else [value]


# XLM and ELECTRA also have the fourth, for words; GPT-2 adds positions before its dropout
EMBEDDINGS = (
    "layernorm_embedding",
    "layer_norm_emb",
    "embeddings_project",
    "embeddings",
    "embed_tokens",
    "drop",
)
LAYERS = ("layer", "layers", "layer_norm2", "h")
LAST_NORMS = (
    "final_norm",
    "LayerNorm",
    "norm",
    "ln_f",
    "layer_norm",
    "final_layer_norm",
    "final_layernorm",
    "ln",
    "emb_layer_norm_after",
)
RECORDERS = "transformers.utils.output_capturing"


def encoder_layer(model: nn.Module, number: int) -> nn.Module:
    """Return the module whose output is ``hidden_states[number]`` of a transformers encoder.

    In an encoder of twelve layers, 0 is the embeddings and 12 is the last layer. Where a separate
    norm follows the last layer (ModernBERT, mBART, causal models), the number of the last layer
    means that norm. The layers of XLM are not modules: the result is the norm that ends the layer.
    Dropout of XLM's embeddings, and the zeros for padding, then come after the module.

    Args:
        model: A transformers model, or any module that has one inside.
        number: The number of the layer, from 0 to the number of layers.

    Returns:
        A module for `transformed_output` or `metaxl_step`.

    Raises:
        ValueError: If the number is out of range; if the model does not contain exactly one
            encoder; if the encoder's layers are not separate modules (ALBERT's are one module that
            runs many times); or if the number is 0 and no module returns the sum of pieces and
            positions (Marian, Pegasus, XGLM). Pass the module instead of the number then.

    Example:
        >>> from transformers import BertConfig, BertForTokenClassification
        >>> sizes = dict(hidden_size=12, num_hidden_layers=3, num_attention_heads=2,
        ...     intermediate_size=17)
        >>> model = BertForTokenClassification(BertConfig(vocab_size=31, **sizes))
        >>> encoder_layer(model, 3) is model.bert.encoder.layer[2]
        True
    """
    encoders: set[Any] = set()
    for module in model.modules():
        base = getattr(module, "base_model", None)
        inner = getattr(base, "base_model", None) is base  # false for the wrapper of peft
        if inner and hasattr(getattr(base, "config", None), "num_hidden_layers"):
            encoders.add(base)
    rule = "hold one transformers encoder (else give the layer's module)"
    require(len(encoders) == 1, "model", rule, f"{len(encoders)} in {class_name(model)}")
    [encoder] = encoders
    count = encoder.config.num_hidden_layers
    require(0 <= number <= count, "layer", f"be between 0 (embeddings) and {count}", number)
    if number == 0:
        parts: dict[str, nn.Module] = dict(encoder.named_children())
        found = [parts[name] for name in EMBEDDINGS if name in parts]
        rule = "have its embeddings in one module (else give the module)"
        whole = "embed_positions" not in parts or "layernorm_embedding" in parts
        require(bool(found) and whole, "model", rule, class_name(encoder))
        return found[0]
    lists = [
        (name, module)
        for name, module in encoder.named_modules()
        if isinstance(module, nn.ModuleList)
        and len(module) == count
        and name.rpartition(".")[2] in LAYERS
    ]
    rule = f"have {count} layers in one nn.ModuleList (else give the module)"
    require(len(lists) == 1, "model", rule, class_name(encoder))
    name, layers = lists[0]
    holder = encoder.get_submodule(name.rpartition(".")[0])
    # DeBERTa's norm is for its positions alone
    last = number == count and not hasattr(holder, "rel_embeddings")
    parts = dict(holder.named_children()) if last else {}
    return next((parts[name] for name in LAST_NORMS if name in parts), layers[number - 1])
