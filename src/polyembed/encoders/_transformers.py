"""Models and tokenizers of transformers as data: their configurations, names and files. No code of a folder is run."""

import inspect
import os
import shutil
import struct
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from polyembed._checks import check_file, class_name, import_optional, must, require
from polyembed._views import copied_tree
from polyembed.encoders._adapters import describe, inject

GB = 10**9
WEIGHTS = ("model.safetensors", "model-*.safetensors", "pytorch_model.bin", "pytorch_model-*.bin")
"""The names of files with weights; transformers reads the first of these that exist."""

MOST_QUANTISED = 32
"""The most that the weights of a GGUF file take in memory, as 32-bit numbers, in sizes of the file."""

NO_NUMBERS = {
    *(
        "_name_or_path",
        "transformers_version",
        "architectures",
        "dtype",
        "quantization_config",
    ),  # of the file
    *("id2label", "label2id", "problem_type", "use_cache", "return_dict"),
    *("output_hidden_states", "output_attentions"),
}
"""Settings that do not change a model's vectors in evaluation mode; nor do those of dropout."""

FAULTS = (
    ValueError,
    KeyError,
    EOFError,
    OSError,
    RuntimeError,
    struct.error,
    SafetensorError,
    UnpicklingError,
)
"""What transformers raises for damaged files."""

TOKENIZER_FILE = "tokenizer-"
TOKENIZER_NAMES = (
    *(
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
    ),
    *(
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "bpe.codes",
        "dict.txt",
        "emoji.json",
        "tokenizer.model",
    ),
    *(
        "spiece.model",
        "sentencepiece.bpe.model",
        "sentencepiece.model",
        "spm.model",
        "spm_char.model",
    ),
)
"""The names of the files that a tokenizer of transformers writes; a saved folder holds no others."""


def describe_model(model: nn.Module, adapters: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `build_model` needs to build a model again without its weights.

    Args:
        model: Of transformers.
        adapters: Configurations of its adapters by name.

    Returns:
        Its configuration, class and adapter as JSON values.

    Raises:
        TypeError: A class that transformers does not export, or adapters that cannot be described.
    """
    config: Any = model.config
    adapter = describe(model, adapters)
    settings = _plain(config.to_dict())
    if settings.get("quantization_config", {}).get("quant_method") == "gguf":
        del settings["quantization_config"]  # of the file; in memory the weights are plain numbers
    return {
        **({} if adapter is None else {"adapter": adapter}),
        "model": settings,
        "architecture": _architecture(model),
        "pooler": getattr(model, "pooler", None) is not None,
    }


def settings_of(model: nn.Module) -> dict[str, Any]:
    """Return the settings of a model that may change its vectors in evaluation mode, but for the usual ones."""
    config: Any = model.config
    settings = _plain(config.to_diff_dict())
    return {
        name: value
        for name, value in settings.items()
        if name not in NO_NUMBERS and "drop" not in name
    }


def build_model(described: dict[str, Any]) -> nn.Module:
    """Build a model whose weights are still to be loaded; removes what `describe_model` returned from `described`."""
    from transformers import AutoConfig, AutoModel

    given, pooler = _plain(dict(described.pop("model"))), described.pop("pooler")
    architecture, adapter = described.pop("architecture", None), described.pop("adapter", None)
    # on the CPU, because buffers outside the state dict are filled here; the weights' random values
    # are not used
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        _require_alone(given)
        settings = AutoConfig.for_model(given.pop("model_type"), **given)
        _require_alone(settings.to_dict())
        build: Any = AutoModel.from_config if architecture is None else _model_class(architecture)
        model: nn.Module = build(settings)
        if not pooler and hasattr(model, "pooler"):
            del model.pooler
            model.pooler = None  # type: ignore[assignment]  # an attribute, as in a model built without
        if adapter is not None:
            inject(model, adapter)
    return model


def open_model(where: str | os.PathLike[str], tokenizer: Any) -> tuple[nn.Module, Any]:
    """Load a model by name, folder or GGUF file, and its tokenizer unless one is given."""
    from transformers import AutoModel, AutoTokenizer

    place = name_or_folder = os.fspath(where)
    options, opened = dict[str, Any](), tokenizer is None
    if place.lower().endswith(".gguf"):
        require(
            place.endswith(".gguf"), "model", "have a name in .gguf", place
        )  # transformers knows no capitals
        path = check_file(place, name="model")
        place, options = str(path.parent), {"gguf_file": path.name}
        import_optional("gguf", feature="models in GGUF files")
    else:
        _check_place(place, is_path=not isinstance(where, str))
    _warn_of_size(name_or_folder)
    try:
        if opened:
            tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, **options)
        model, report = AutoModel.from_pretrained(
            place, trust_remote_code=False, output_loading_info=True, **options
        )
    except FAULTS as error:
        if not Path(place).exists():
            raise
        rule = (
            f"be a whole {'GGUF file' if options else 'folder'} of a kind that transformers reads"
        )
        raise ValueError(
            must("model", rule, f"{name_or_folder} ({class_name(error)}: {error})")
        ) from error
    # transformers fills missing weights with random numbers; the pooler is not used
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    decodes = (
        "decoder_input_ids" in inspect.signature(model.forward).parameters
    )  # is refused for that
    rule, got = (
        f"have all weights in {name_or_folder}",
        f"none for {len(missing)}, such as {missing[:3]}",
    )
    require(decodes or not missing, "model", rule, got)
    # without files, transformers makes a tokenizer to which every word is unknown
    only_special = opened and set(tokenizer.get_vocab().values()) <= set(tokenizer.all_special_ids)
    rule, got = (
        "have pieces of words (give the model's as an argument)",
        f"special pieces alone from {name_or_folder}",
    )
    require(not only_special, "tokenizer", rule, got)
    return model, tokenizer


def _check_place(place: str, *, is_path: bool) -> None:
    """Require a folder of transformers, or what may be a name on the hub."""
    path = Path(place)
    if not (place and path.exists()):
        if is_path or not _is_name(place):
            rule = "be a folder, a GGUF file or the name of a model on the hub"
            raise FileNotFoundError(must("model", rule, f"{place!r}, which does not exist"))
        return
    config = path / "config.json"
    whole = config.is_file() or (path / "adapter_config.json").is_file()
    require(
        whole,
        "model",
        "be a folder with config.json or adapter_config.json, or a GGUF file",
        repr(place),
    )
    ours = config.is_file() and b'"polyembed_version"' in config.read_bytes()
    require(
        not ours,
        "model",
        "be a folder of transformers (from_pretrained opens a folder of polyembed)",
        place,
    )


def _is_name(place: str) -> bool:
    """Return whether a string may be the name of a model on the hub."""
    import huggingface_hub.utils

    hub: Any = huggingface_hub.utils
    try:
        hub.validate_repo_id(place)
    except hub.HFValidationError:
        return False
    return True


def _warn_of_size(name_or_folder: str) -> None:
    """Warn of weights that are larger than the machine's memory."""
    place = Path(name_or_folder)
    if not place.exists() or not hasattr(os, "sysconf"):
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if place.is_file():
        size = place.stat().st_size
        if size * MOST_QUANTISED > memory:  # to count the weights takes seconds
            size = _unpacked_size(place)
    else:
        kinds = [sorted(place.glob(kind)) for kind in WEIGHTS]
        size = sum(path.stat().st_size for path in next(filter(None, kinds), []))
    if size > memory:
        what = f"{name_or_folder} has {size / GB:.1f} GB of weights, and this machine {memory / GB:.1f} GB of memory"
        warnings.warn(what, stacklevel=4)


def _unpacked_size(path: Path) -> int:
    """Return the bytes of a GGUF file's weights as 32-bit numbers; 0 for a file that cannot be read."""
    from gguf import GGUFReader

    try:
        return 4 * sum(int(tensor.n_elements) for tensor in GGUFReader(path).tensors)
    except (ValueError, KeyError, IndexError, struct.error):  # transformers names the fault
        return 0


def without_output_hooks(model: nn.Module) -> nn.Module:
    """Return a copy of a model, sharing its tensors, without the hooks by which transformers collects hidden states."""

    def remove(copy: nn.Module) -> None:
        vars(copy).pop("_output_capturing_hooks_installed", None)
        for key, hook in list(copy._forward_hooks.items()):
            if getattr(hook, "__module__", None) == "transformers.utils.output_capturing":
                del copy._forward_hooks[key]

    return copied_tree(model, remove)


def write_tokenizer(tokenizer: Any, folder: Path) -> dict[str, str]:
    """Write a tokenizer's files into a saved folder, and return argument -> file name; an empty mapping for None."""
    if tokenizer is None:
        return {}
    if not hasattr(tokenizer, "save_pretrained"):
        raise TypeError(must("tokenizer", "be of transformers to be saved", class_name(tokenizer)))
    names: dict[str, str] = {}
    number = sum(1 for _ in folder.glob(f"{TOKENIZER_FILE}*-tokenizer_config.json"))
    with tempfile.TemporaryDirectory() as draft:
        tokenizer.save_pretrained(draft)
        for path in sorted(Path(draft).iterdir()):
            if path.name not in TOKENIZER_NAMES:
                rule = "write files of the usual names alone to be saved"
                raise TypeError(must("tokenizer", rule, path.name))
            names[TOKENIZER_FILE + path.name] = f"{TOKENIZER_FILE}{number}-{path.name}"
            shutil.copyfile(path, folder / names[TOKENIZER_FILE + path.name])
    return names


def read_tokenizer(config: dict[str, Any]) -> Any:
    """Load the tokenizer whose files `config` names; removes them from `config`; None without files."""
    from transformers import AutoTokenizer

    files = {key: config.pop(key) for key in list(config) if key.startswith(TOKENIZER_FILE)}
    if not files:
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name, path in files.items():
            shutil.copyfile(path, Path(folder) / name.removeprefix(TOKENIZER_FILE))
        try:
            return AutoTokenizer.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True
            )
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(
                must("the tokenizer's files", "be whole", f"{class_name(error)}: {error}")
            ) from error


def _architecture(model: nn.Module) -> str | None:
    """Return the name of the model's class if it is not its configuration's usual one (T5's encoder alone)."""
    import transformers

    config: Any = model.config
    usual: Any = transformers.MODEL_MAPPING.get(type(config), None)
    if type(model) is usual:
        return None
    name = class_name(model)
    if getattr(transformers, name, None) is not type(model):
        raise TypeError(must("model", "be a public class of transformers to be saved", name))
    return name


def _model_class(name: str) -> Any:
    """Return the model class of transformers of this name; refuse everything else."""
    import transformers

    found = getattr(transformers, name, None)
    good = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    require(good, "architecture", "name a model of transformers", repr(name))
    return found


def _require_alone(settings: dict[str, Any]) -> None:
    """Refuse a configuration that names a backbone: transformers would fetch it, or open a local path."""
    kind = settings.get("model_type")
    require("backbone" not in str(settings), "model", "be described without a backbone", kind)


def _plain(settings: Any) -> Any:
    """Leave out the keys that make transformers download and run code: classes of a repository, kernels by name."""
    if isinstance(settings, list):
        return [_plain(value) for value in settings]
    if not isinstance(settings, dict):
        return settings
    code = [
        key
        for key in settings
        if key == "auto_map" or str(key).removesuffix("_internal").endswith("_implementation")
    ]
    return {key: _plain(value) for key, value in settings.items() if key not in code}
