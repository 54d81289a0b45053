"""Opening a saved folder, possibly a stranger's: digests are compared, and no code is run."""

import json
import operator
import os
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyembed._checks import class_name, must, require
from polyembed.saving.config import VectorFiles, find_class
from polyembed.saving.writing import (
    CONFIG_NAME,
    FORMAT_VERSION,
    detachable_names,
    digest_of,
    named_tensors,
    self_saved_names,
)

CONVERSION = (
    "Open it with the version of polyembed that saved it, or build the module in code, call "
    "safetensors.torch.load_model(module, folder + '/model.safetensors'), and save it again"
)


def load_module(folder: Path) -> nn.Module:
    """Build the module of a saved folder, in evaluation mode; its tensors are mapped from the file.

    Modules are built on the meta device and get the tensors of the file, so that the tensors of a
    configuration take no more memory than its weights.
    """
    config = _read_config(folder)
    reader = _Reader(folder, config["digests"])
    weights = _read_weights(reader.file(config.get("weights")))
    try:
        with torch.device("meta"):
            module = reader.decode({key: config.get(key) for key in ("class", "config", "files")})
        require(isinstance(module, nn.Module), "class", "be a module", class_name(module))
        _fill(module, weights, config)
    except (OSError, ImportError):
        raise
    except Exception as error:  # a constructor may raise any kind: its arguments are a stranger's
        where, rule = str(folder / CONFIG_NAME), "describe a module that this version can build"
        raise ValueError(must(where, rule, f"{class_name(error)}: {error}")) from error
    opened: nn.Module = module.eval()
    return opened


def find_folder(
    name: str | os.PathLike[str], revision: str | None, cache_dir: str | Path | None, local: bool
) -> Path:
    """Return a saved folder, or the snapshot of a repository on the hub."""
    folder = Path(name)
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(
            snapshot_download(
                str(name), revision=revision, cache_dir=cache_dir, local_files_only=local
            )
        )
    except (OSError, HFValidationError) as error:  # the hub's other errors are OSErrors
        pinned = "" if revision is None else f" at revision {revision!r}"
        got = f"{str(name)!r}{pinned} ({class_name(error)}: {str(error).splitlines()[0][:200]})"
        rule = "be a folder or a repository on the hub"
        raise FileNotFoundError(must("name_or_folder", rule, got)) from error


class _Reader:
    """Builds the objects that a configuration describes."""

    def __init__(self, folder: Path, digests: dict[str, str]) -> None:
        self.folder = folder
        self.digests = digests
        self.checked: set[str] = set()
        self.built: list[Any] = []

    def decode(self, node: Any) -> Any:
        """Build the object that a part of the configuration describes."""
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "same_as" in node:
            return self.built[node["same_as"]]
        if "class" not in node:
            return {key: self.decode(item) for key, item in node.items()}
        place = len(self.built)
        self.built.append(None)  # numbered before its parts, as in the writer
        config, files = self.decode(node.get("config") or {}), node.get("files") or {}
        found = find_class(node["class"])
        strange = sorted((set(files) - found.file_arguments) | (set(config) & found.file_arguments))
        require(not strange, "files", f"be for {sorted(found.file_arguments)} alone", strange)
        whole = not issubclass(found, VectorFiles) or set(files) == found.file_arguments
        require(whole, "files", f"hold all files of a {found.__name__}", sorted(files))
        config |= {argument: self.file(name) for argument, name in files.items()}
        self.built[place] = built = found.from_config(config)
        return built

    def file(self, name: Any) -> Path:
        """Return the path of a file or subfolder of the configuration after checking its digest."""
        inside = [key for key in self.digests if key.partition("/")[0] == name]
        plain = inside and re.fullmatch(r"[\w+-][\w.+-]*", name, re.ASCII)
        where = f"{self.folder / CONFIG_NAME}: a file"
        require(bool(plain), where, "have a plain name and a digest", repr(name)[:300])
        path: Path = self.folder / name
        if name not in self.checked:
            found = {f"{name}/{file}" for file in os.listdir(path)} if path.is_dir() else {name}
            extra = sorted(found - set(inside))
            require(not extra, str(path), f"hold the files of {CONFIG_NAME} alone", extra)
            for key in inside:
                self._check(key)
            self.checked.add(name)
        return path

    def _check(self, name: str) -> None:
        """Require a regular file of the folder, or of a hub's cache, with the saved content."""
        path, home = self.folder / name, self.folder.resolve()
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: fetch or copy the folder again")
        homes = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
        inside = any(path.resolve().is_relative_to(place) for place in homes)
        require(inside, str(path), "be a file of the folder itself", f"a link to {path.resolve()}")
        if (found := digest_of(path)) != self.digests[name]:
            raise ValueError(
                f"{path} is damaged or was changed: {CONFIG_NAME} has the SHA-256 "
                f"{self.digests[name]!r}, the file {found!r}. Fetch or copy the folder again"
            )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_NAME
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: save_pretrained did not write this folder")
    try:
        config = json.loads(path.read_text("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise ValueError(must(str(path), "be JSON", error)) from error
    known = isinstance(config, dict) and "class" in config
    got = "something else (a model of transformers is for PretrainedWordEncoder)"
    require(known, str(path), "be written by save_pretrained", got)
    version = config.get("format_version")
    newer = isinstance(version, int) and version > FORMAT_VERSION
    advice = "A newer polyembed reads it" if newer else CONVERSION
    right = version == FORMAT_VERSION
    require(right, str(path), f"have format_version {FORMAT_VERSION}", f"{version!r}. {advice}")
    digests = config.get("digests")
    listed = isinstance(digests, dict)
    require(listed, str(path), "list the digests of all files", repr(digests)[:300])
    return config  # type: ignore[no-any-return]


def _read_weights(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    try:
        weights: dict[str, Tensor] = load_file(path)
    except Exception as error:  # safetensors raises many kinds
        raise ValueError(must(str(path), "be an intact safetensors file", error)) from error
    return weights


def _fill(module: nn.Module, weights: dict[str, Tensor], config: dict[str, Any]) -> None:
    """Load all saved tensors into the module; names, shapes and kinds must fit."""
    built = dict(named_tensors(module))
    for name, tensor in weights.items():
        require(name in built, "the weights", "be those of the module", name)
        own = built[name]
        alike = own.dtype == tensor.dtype or (
            own.is_floating_point() and tensor.is_floating_point()
        )
        require(alike, "the weights", f"hold {name!r} as {own.dtype}", tensor.dtype)
    missing = set(module.load_state_dict(weights, strict=False, assign=True).missing_keys)
    missing |= {name for name, x in module.named_buffers() if x.is_meta}  # no file has these
    missing -= detachable_names(module) | self_saved_names(module) | set(config["tied"])
    require(not missing, "the weights", "hold all tensors of the module", f"none for {missing}")
    for name, first in config["tied"].items():
        parent, attribute = name.rpartition(".")[::2]
        owner, shared = module.get_submodule(parent), operator.attrgetter(first)(module)
        if not getattr(owner, attribute).requires_grad:
            shared.requires_grad_(False)  # frozen by one of its modules
        setattr(owner, attribute, shared)
