"""The modules of a transformers encoder by layer number, as `hidden_states` counts."""

from typing import Any

from torch import nn

from polyembed._checks import class_name, must, require

EMBEDDINGS = (
    *(
        "layer_norm_emb",
        "embeddings_project",
        "embeddings",
    ),  # XLM and ELECTRA have the last, too, for words
    *("embed_tokens", "drop"),  # of causal models; GPT-2 adds positions before it drops
)
LAYERS = ("layer", "layers", "layer_norm2", "h")
LAST_NORMS = ("final_norm", "LayerNorm", "norm", "ln_f")


def encoder_layer(model: nn.Module, number: int) -> nn.Module:
    """Return the module whose output is ``hidden_states[number]`` of a transformers encoder.

    0 is the embeddings, 12 of twelve is the last layer. Where a separate norm follows the last
    layer (ModernBERT, causal models), the number of the last layer means that norm. The layers of
    XLM are not modules: the result is the norm that ends the layer. Dropout of XLM's embeddings,
    and the zeros for padding, then come after the module.

    Args:
        model: A transformers model, or any module that has one inside.
        number: From 0 to the number of layers.

    Returns:
        A module for `transformed_output` or `metaxl_step`.

    Raises:
        ValueError: If the number is out of range, there is not exactly one encoder inside, or the
            encoder's layers are not separate modules (ALBERT's are one module that runs many
            times). Pass the module instead of the number then.
        TypeError: If the number is not an int.

    Example:
        >>> from transformers import BertConfig, BertForTokenClassification
        >>> sizes = dict(hidden_size=12, num_hidden_layers=3, num_attention_heads=2,
        ...     intermediate_size=17)
        >>> model = BertForTokenClassification(BertConfig(vocab_size=31, **sizes))
        >>> encoder_layer(model, 3) is model.bert.encoder.layer[2]
        True
    """
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(must("layer", "be an int or a module", class_name(number)))
    encoder, count = _encoder(model)
    require(0 <= number <= count, "layer", f"be between 0 (embeddings) and {count}", number)
    if number == 0:
        names = [name for name in EMBEDDINGS if isinstance(getattr(encoder, name, None), nn.Module)]
        require(
            bool(names),
            "model",
            "have its embeddings in one module (else give the module)",
            class_name(encoder),
        )
        return encoder.get_submodule(names[0])
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
    if number == count:
        holder = encoder.get_submodule(name.rpartition(".")[0])
        for norm in (
            LAST_NORMS if not hasattr(holder, "rel_embeddings") else ()
        ):  # DeBERTa's is of its positions
            if isinstance(getattr(holder, norm, None), nn.Module):
                return holder.get_submodule(norm)
    return layers[number - 1]


def _encoder(model: nn.Module) -> tuple[nn.Module, int]:
    """Return the one transformers encoder inside, and the number of its layers."""
    found: list[Any] = []
    for module in model.modules():
        base = getattr(module, "base_model", None)
        inner = getattr(base, "base_model", None) is base  # not so of what peft wraps around it
        if (
            isinstance(base, nn.Module)
            and inner
            and hasattr(getattr(base, "config", None), "num_hidden_layers")
        ):
            found += [base] if all(base is not other for other in found) else []
    rule = "hold one transformers encoder (else give the layer's module)"
    require(len(found) == 1, "model", rule, f"{len(found)} in {class_name(model)}")
    return found[0], found[0].config.num_hidden_layers
