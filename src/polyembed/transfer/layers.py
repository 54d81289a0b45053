"""The modules of a transformers encoder by layer number, as `hidden_states` counts."""

from typing import Any

from torch import nn

from polyembed._checks import class_name, require

# XLM and ELECTRA have the third, too, for words; GPT-2 adds positions before it drops
EMBEDDINGS = ("layer_norm_emb", "embeddings_project", "embeddings", "embed_tokens", "drop")
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

    Example:
        >>> from transformers import BertConfig, BertForTokenClassification
        >>> sizes = dict(hidden_size=12, num_hidden_layers=3, num_attention_heads=2,
        ...     intermediate_size=17)
        >>> model = BertForTokenClassification(BertConfig(vocab_size=31, **sizes))
        >>> encoder_layer(model, 3) is model.bert.encoder.layer[2]
        True
    """
    encoders: dict[int, Any] = {}
    for module in model.modules():
        base = getattr(module, "base_model", None)
        inner = getattr(base, "base_model", None) is base  # not so of what peft wraps around it
        if inner and hasattr(getattr(base, "config", None), "num_hidden_layers"):
            encoders[id(base)] = base
    rule = "hold one transformers encoder (else give the layer's module)"
    require(len(encoders) == 1, "model", rule, f"{len(encoders)} in {class_name(model)}")
    [encoder] = encoders.values()
    count = encoder.config.num_hidden_layers
    require(0 <= number <= count, "layer", f"be between 0 (embeddings) and {count}", number)
    if number == 0:
        parts: dict[str, nn.Module] = dict(encoder.named_children())
        found = [parts[name] for name in EMBEDDINGS if name in parts]
        rule = "have its embeddings in one module (else give the module)"
        require(bool(found), "model", rule, class_name(encoder))
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
    # DeBERTa's norm is of its positions
    last = number == count and not hasattr(holder, "rel_embeddings")
    parts = dict(holder.named_children()) if last else {}
    return next((parts[name] for name in LAST_NORMS if name in parts), layers[number - 1])
