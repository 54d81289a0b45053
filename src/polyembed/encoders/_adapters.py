"""LoRA of `peft` inside an encoder: described as data, and built again from it."""

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from polyembed._checks import class_name, import_optional, must, require

KEPT = (
    "r",
    "lora_alpha",
    "lora_dropout",
    "fan_in_fan_out",
    "bias",
    "use_rslora",
    "use_dora",
    "lora_bias",
)
"""The parts of a LoRA configuration that are saved; none of them names a module to import."""

IGNORED = {
    *(
        "task_type",
        "peft_type",
        "auto_mapping",
        "peft_version",
        "base_model_name_or_path",
        "revision",
    ),
    *("inference_mode", "runtime_config", "megatron_core", "ensure_weight_tying"),
    # the layers are saved by name, with their ranks
    *(
        "target_modules",
        "rank_pattern",
        "alpha_pattern",
        "exclude_modules",
        "layers_to_transform",
        "layers_pattern",
    ),
    "modules_to_save",  # searched in the encoder: a head's are left out with the head
    *(
        "init_lora_weights",
        "loftq_config",
        "eva_config",
        "corda_config",
        "lora_ga_config",
    ),  # initial weights
}
RECIPE = "merge_and_unload() of the peft model gives an encoder without adapters; save_pretrained of it the adapters"


def without_wrapper(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the model of transformers inside a `PeftModel`, with the adapters in its layers, and
    their configurations.

    Args:
        model: A `PeftModel`, or a model of transformers, to which adapters may have been added.

    Returns:
        The model of transformers, and adapters by name.

    Raises:
        TypeError: Prompts and prefixes, which are outside the model's layers.
    """
    adapters = dict(getattr(model, "peft_config", None) or {})
    if not hasattr(model, "get_base_model"):
        return model, adapters
    for name, config in adapters.items():
        if getattr(config, "is_prompt_learning", False):
            got = f"{class_name(config)} in {name!r}"
            raise TypeError(must("model", "have adapters inside its layers, as LoRA", got))
    return model.get_base_model(), adapters


def describe(model: nn.Module, adapters: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the adapter of an encoder as JSON values for `inject`; None without one.

    Args:
        model: The encoder.
        adapters: From `without_wrapper`.

    Returns:
        Its name, layers and options.

    Raises:
        TypeError: Adapters that cannot be rebuilt from JSON values.
    """
    if not adapters:
        return None
    if len(adapters) > 1:
        raise TypeError(must("the adapters", f"be one to be saved ({RECIPE})", sorted(adapters)))
    name, config = next(iter(adapters.items()))
    if class_name(config) != "LoraConfig":
        raise TypeError(must("the adapter", f"be LoRA to be saved ({RECIPE})", class_name(config)))
    values, usual = config.to_dict(), type(config)().to_dict()
    other = sorted(
        key for key in values if key not in {*KEPT, *IGNORED} and values[key] != usual.get(key)
    )
    places: dict[str, dict[str, Any]] = {}
    for place, module in model.named_modules():
        if hasattr(module, "modules_to_save"):
            other.append(f"modules_to_save ({place})")
        if name in getattr(module, "lora_A", ()) or name in getattr(module, "lora_embedding_A", ()):
            part: Any = module
            places[place] = {"r": part.r[name], "lora_alpha": part.lora_alpha[name]}
        if getattr(module, "merged", False) is True:
            raise TypeError(
                must(
                    "the adapter", "not be merged into the weights to be saved (unmerge it)", place
                )
            )
    if other:
        raise TypeError(
            must("the adapter", f"be plain LoRA to be saved ({RECIPE})", f"one with {other}")
        )
    return {"name": name, "layers": places, **{key: values[key] for key in KEPT}}


def inject(model: nn.Module, described: Mapping[str, Any]) -> None:
    """Add an adapter to the layers of an encoder, and freeze the rest.

    Args:
        model: The encoder.
        described: The result of `describe`, read from a file.

    Raises:
        ImportError: No `peft`.
        ValueError: Other keys than `describe` returns.
    """
    rule = "have what save_pretrained writes"
    require(set(described) == {"name", "layers", *KEPT}, "adapter", rule, sorted(described))
    peft = import_optional("peft", feature="an encoder with LoRA")
    layers = described["layers"]
    ranks = {f"^{re.escape(place)}": layer["r"] for place, layer in layers.items()}
    alphas = {f"^{re.escape(place)}": layer["lora_alpha"] for place, layer in layers.items()}
    options = {key: described[key] for key in KEPT}
    config = peft.LoraConfig(
        target_modules=list(layers), rank_pattern=ranks, alpha_pattern=alphas, **options
    )
    peft.inject_adapter_in_model(config, model, adapter_name=described["name"])
