"""Opening and saving models, tokenizers and adapters by transformers and peft. No code is run."""

import inspect
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from copy import copy, deepcopy
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from polyembed._checks import class_name, import_optional, must, require, require_type
from polyembed._views import copied_tree
from polyembed.text.pieces import align_words

ENCODER, TOKENIZER, ADAPTER = "encoder", "tokenizer", "adapter"
WEIGHTS = "adapter_model.safetensors"
MODEL_FILES = r"(config|generation_config)\.json|model[\w.-]*\.safetensors(\.index\.json)?"
"""The files of a saved model; others are refused: an adapter's file would name a model to fetch."""

STRANGE_SETTINGS = re.compile(r'"(\w*backbone\w*|\w*_implementation\w*)": (?!null|false)')
"""Settings by which transformers fetches another model, or kernels that are code."""

PROBES = ("Aa", "É", "ß", "ﬁ", "a-b", "İ", "ا", "あ", "1,5")
"""Words that tokenizers cut differently: case, accents, ligatures, punctuation, other scripts."""

BACKEND = "tokenizer.json"
OPENING = Lock()  # transformers sets torch's default dtype while it opens a model
RECIPE = "merge_and_unload() of the peft model gives an encoder without adapters"


def open_model(where: str | os.PathLike[str], tokenizer: Any) -> tuple[nn.Module, Any]:
    """Load a model by its name or folder, and its tokenizer unless one is given."""
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils.hub import cached_file

    place = os.fspath(where)
    config = Path(place, "config.json")
    if config.is_file() and b'"polyembed_version"' in config.read_bytes():
        raise ValueError(
            must(
                "model",
                "be a folder of transformers (from_pretrained opens a folder of polyembed)",
                place,
            )
        )
    opened = tokenizer is None
    try:
        if opened:
            tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
            with suppress(OSError):  # the file need not exist
                set_backend(tokenizer, cached_file(place, BACKEND))
        with OPENING:
            model, report = AutoModel.from_pretrained(
                place, trust_remote_code=False, output_loading_info=True
            )
    except ImportError:
        raise
    except Exception as error:  # transformers raises many kinds for a damaged file
        if not (place and Path(place).is_dir()):
            raise FileNotFoundError(
                must("model", "be a folder or a model's name on the hub", f"{place!r}: {error}")
            ) from error
        rule = "be a whole folder of a kind that transformers reads"
        got = f"{place} ({class_name(error)}: {error})"
        raise ValueError(must("model", rule, got)) from error
    if "decoder_input_ids" not in inspect.signature(model.forward).parameters:  # refused later
        _require_weights(report["missing_keys"], place)
    # without files, transformers makes a tokenizer to which every word is unknown
    only_special = opened and set(tokenizer.get_vocab().values()) <= set(tokenizer.all_special_ids)
    require(
        not only_special,
        "tokenizer",
        "have pieces of words (give the model's as an argument)",
        f"special pieces alone from {place}",
    )
    return model, tokenizer


def without_wrapper(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the model of transformers inside a `PeftModel`, and its adapters' configurations."""
    adapters = dict(getattr(model, "peft_config", {}))
    if not hasattr(model, "get_base_model"):
        return model, adapters
    for config in adapters.values():
        inside = not config.is_prompt_learning
        require_type(inside, "model", "have adapters inside its layers, as LoRA", config)
    return model.get_base_model(), adapters


def write_model(model: Any, adapters: Mapping[str, Any], folder: Path) -> None:
    """Write a model and its adapter into the subfolders `ENCODER` and `ADAPTER`.

    Args:
        model: A model of transformers.
        adapters: The configurations of its adapters by name.
        folder: An empty folder.

    Raises:
        TypeError: If transformers does not export the model's class; if the model has several
            adapters; or if its adapter is merged, was removed, needs more than its own weights
            (AdaLoRA), or changes other parts than layers that can be found again.
        ValueError: If the model has other weights than its configuration describes.
    """
    import transformers

    require_type(
        getattr(transformers, class_name(model), None) is type(model),
        "model",
        "be a public class of transformers to be saved",
        model,
    )
    state = {
        key.replace(".base_layer.", "."): value
        for key, value in model.state_dict().items()
        if not adapters.keys() & set(key.split("."))
    }
    with torch.device("meta"):
        built = type(model)(model.config).state_dict()
    strange = sorted(
        key
        for key in set(state) ^ set(built)
        if not key.startswith("pooler.") or ".original_module." in key
    )
    how = getattr(model.config, "quantization_config", None)
    if adapters:
        _write_adapter(model, adapters, strange, folder / ADAPTER)
    elif how is None:  # else the weights have parts of their own
        rule = "have the weights of its configuration to be saved, without adapters added later"
        require(not strange, "model", rule, strange[:3])
    plain: Any = copied_tree(model, lambda part: vars(part).pop("_hf_peft_config_loaded", None))
    plain.config = deepcopy(model.config)  # transformers writes to it
    if getattr(how, "quant_method", None) == "gguf":  # only the file is: memory has plain numbers
        del plain.hf_quantizer, plain.config.quantization_config
    plain.save_pretrained(folder / ENCODER, state_dict=state)


def read_model(folder: Path, adapter: Path | None, name: str) -> nn.Module:
    """Open the subfolders that `write_model` wrote; they may come from a stranger."""
    import transformers

    strange = sorted(x for x in os.listdir(folder) if not re.fullmatch(MODEL_FILES, x))
    require(not strange, str(folder), "hold the files of a model alone", strange)
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    found = STRANGE_SETTINGS.search(json.dumps(settings))
    require(not found, "the encoder", "be described without code", found and found[0])
    architecture = (settings.get("architectures") or [""])[0]
    cls = getattr(transformers, str(architecture), None)
    known = isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)
    require(known, "architectures", "name a model of transformers", repr(architecture))
    # on the CPU, and without drawing the random numbers of a pooler that was not saved
    with OPENING, torch.device("cpu"), torch.random.fork_rng(devices=[]):
        model, report = cls.from_pretrained(  # type: ignore[union-attr]
            folder, use_safetensors=True, local_files_only=True, output_loading_info=True
        )
        _require_weights(report["missing_keys"], folder)
        if any(key.startswith("pooler.") for key in report["missing_keys"]):
            del model.pooler
            model.pooler = None  # an attribute, as in a model that was built without a pooler
        if adapter is not None:
            peft = import_optional("peft", feature="an encoder with an adapter")
            strange = sorted(set(os.listdir(adapter)) - {"adapter_config.json", WEIGHTS})
            require(not strange, str(adapter), "hold an adapter alone", strange)
            config = peft.PeftConfig.from_pretrained(str(adapter))
            imports = getattr(config, "megatron_config", None)
            require(imports is None, "the adapter", "import no package by name", imports)
            config.init_lora_weights = True  # PiSSA would change the model's own weights again
            peft.inject_adapter_in_model(config, model, adapter_name=name)
            weights = load_file(adapter / WEIGHTS)
            if torch.float32 in {x.dtype for x in weights.values()}:  # also of a model in bfloat16
                for key, value in model.named_parameters():
                    if name in key.split("."):
                        value.data = value.data.float()
            report = peft.set_peft_model_state_dict(model, weights, adapter_name=name)
            lacking = [key for key in report.missing_keys if name in key.split(".")]
            wrong = lacking + list(report.unexpected_keys)
            require(not wrong, "the adapter", "have the weights of its layers", wrong[:3])
    return model  # type: ignore[no-any-return]


def read_tokenizer(folder: Path | None, probed: Any) -> Any:
    """Load the tokenizer of a subfolder; it must cut `PROBES` as the saved one did."""
    from transformers import AutoTokenizer

    if folder is None:
        return None
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    named = [k for k, x in settings.items() if "file" in k and x and re.search(r"[/\\]", str(x))]
    require(not named, str(path), "name no file elsewhere", named)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
        set_backend(tokenizer, folder / BACKEND)
    except Exception as error:
        got = f"{class_name(error)}: {error}"
        raise ValueError(must("the tokenizer's files", "be whole", got)) from error
    require(
        probe(tokenizer) == probed,
        "the tokenizer",
        "cut words as the one that was saved (this version of transformers opens another)",
        probe(tokenizer),
    )
    return tokenizer


def set_backend(tokenizer: Any, path: Any) -> None:
    """Restore the rules of a fast tokenizer's file, some of which its class may replace."""
    if not (Path(path).is_file() and getattr(tokenizer, "is_fast", False)):
        return
    from tokenizers import Tokenizer

    core = Tokenizer.from_file(str(path))
    for part in ("model", "normalizer", "pre_tokenizer", "post_processor"):
        setattr(tokenizer.backend_tokenizer, part, getattr(core, part))


def probe(tokenizer: Any) -> list[int] | None:
    """Return the ids of the pieces of `PROBES`, special pieces included; None without a tokenizer.

    The tokenizer must be one that can be saved.
    """
    if tokenizer is None:
        return None
    require_type(
        hasattr(tokenizer, "save_pretrained"),
        "tokenizer",
        "be of transformers to be saved",
        tokenizer,
    )
    with torch.device("cpu"):  # a folder's modules are built on the meta device
        return align_words([PROBES], tokenizer, overflow="window").piece_ids[0].tolist()


def without_output_hooks(model: nn.Module) -> nn.Module:
    """Return a copy that shares the tensors, without transformers' hooks for hidden states."""

    def remove(copy: nn.Module) -> None:
        vars(copy).pop("_output_capturing_hooks_installed", None)
        for key, hook in list(copy._forward_hooks.items()):
            if getattr(hook, "__module__", None) == "transformers.utils.output_capturing":
                del copy._forward_hooks[key]

    return copied_tree(model, remove)


def _write_adapter(
    model: Any, adapters: Mapping[str, Any], strange: list[str], folder: Path
) -> None:
    """Write an adapter as peft does; the rest of the model must have no strange weights."""
    import peft

    if len(adapters) > 1:
        raise TypeError(must("the adapters", f"be one to be saved ({RECIPE})", sorted(adapters)))
    [(name, config)] = adapters.items()
    if any(getattr(part, "merged", False) is True for part in model.modules()):
        raise TypeError(must("the adapter", "not be merged into the weights to be saved", name))
    config = copy(config)
    config.modules_to_save = None  # of a head, which is not here; the encoder's count as strange
    holder = copied_tree(model, lambda part: None)
    holder.peft_config = {name: config}
    weights = peft.get_peft_model_state_dict(holder, adapter_name=name, save_embedding_layers=False)
    own = sum(name in key.split(".") for key in model.state_dict())
    if strange or not 0 < own <= len(weights):
        rule = f"change layers alone to be saved, by weights of its own ({RECIPE})"
        raise TypeError(
            must("the adapter", rule, strange[:3] or f"{len(weights)} of {own} weights")
        )
    places = {
        key: part
        for key, part in model.named_modules()
        if hasattr(part, "base_layer") and not hasattr(part, "parameter_name")
    }
    if places:  # a model with a head has other names for them
        config.target_modules = list(places)
        config.feedforward_modules = [
            key for key, part in places.items() if getattr(part, "is_feedforward", False)
        ]
        config.rank_pattern, config.alpha_pattern = (
            {key: getattr(part, size)[name] for key, part in places.items() if hasattr(part, size)}
            for size in ("r", "lora_alpha" if hasattr(config, "lora_alpha") else "alpha")
        )
        config.layers_to_transform = config.layers_pattern = config.exclude_modules = None
    config.save_pretrained(folder)
    save_file({key: x.contiguous() for key, x in weights.items()}, folder / WEIGHTS)


def _require_weights(missing: Any, where: object) -> None:
    """Require all weights but the pooler's; transformers fills others with random numbers."""
    lacking = sorted(name for name in missing if not name.startswith("pooler."))
    require(
        not lacking,
        "model",
        f"have all weights in {where}",
        f"none for {len(lacking)}, such as {lacking[:3]}",
    )
