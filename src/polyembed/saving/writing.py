"""Writing a module as a folder: files whose names hold their digest, then the configuration."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from polyembed._checks import require, require_type
from polyembed._version import __version__
from polyembed.saving.config import Configurable, find_class, is_plain, name_of

CONFIG_NAME = "config.json"
CARD_NAME = "README.md"
DRAFT = ".draft"
FORMAT_VERSION = 3


def save_module(
    module: nn.Module, folder: Path, *, save_sources: bool, copy_vectors: bool, card: str | None
) -> None:
    """Write a module into a folder, with the arguments of `PretrainedModule.save_pretrained`.

    ``config.json`` is the commit point: the other files are written first; then the configuration
    is replaced in one step; then files that only the earlier configuration named are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    old = folder / CONFIG_NAME
    own = not old.exists() or b"polyembed" in old.read_bytes()
    require(own, "folder", f"have no {CONFIG_NAME} of another library", old)
    draft = folder / DRAFT
    shutil.rmtree(draft, ignore_errors=True)  # left by a save that was killed
    draft.mkdir()
    try:
        writer = _Writer(module, draft, copy_vectors=copy_vectors)
        tree = writer.encode(module, "model")
        tied = tied_names(module)
        skipped = {*tied, *self_saved_names(module)}
        skipped |= set() if save_sources else detachable_names(module)
        state = {uncompiled(k): x for k, x in module.state_dict().items() if k not in skipped}
        config = {
            "format_version": FORMAT_VERSION,
            "polyembed_version": __version__,
            "weights": writer.add(_write_weights(state, draft)),
            "digests": writer.digests,
            "tied": {uncompiled(name): uncompiled(first) for name, first in tied.items()},
            **tree,
        }
        text = json.dumps(config, indent=1, ensure_ascii=False) + "\n"
        (draft / CONFIG_NAME).write_text(text, "utf-8", "surrogatepass")
        if card is not None:
            (draft / CARD_NAME).write_text(card, "utf-8")
            (draft / CARD_NAME).replace(folder / CARD_NAME)
        writer.commit(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


class _Writer:
    """Turns a configurable into JSON and files; an object that is met twice is written once."""

    def __init__(self, module: nn.Module, draft: Path, *, copy_vectors: bool) -> None:
        self.modules = set(module.modules())
        self.draft = draft
        self.copy_vectors = copy_vectors
        self.seen: dict[int, tuple[int, object]] = {}
        self.digests: dict[str, str] = {}
        self.parts: dict[str, Path] = {}

    def encode(self, value: Any, name: str) -> Any:
        """Return a value as JSON; error messages call the value `name`."""
        value = getattr(value, "_orig_mod", value)  # of torch.compile
        if isinstance(value, np.generic | np.ndarray):
            value = value.tolist()
        if isinstance(value, int | float | str | None):
            return value
        if isinstance(value, list | tuple):
            return [self.encode(item, f"{name}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, dict):
            return {str(key): self.encode(item, f"{name}.{key}") for key, item in value.items()}
        if id(value) in self.seen:
            return {"same_as": self.seen[id(value)][0]}
        rule = "be something that can be rebuilt from its configuration"
        require_type(isinstance(value, Configurable), name, rule, value)
        inside = not isinstance(value, nn.Module) or value in self.modules
        require_type(inside, name, "be a submodule, whose weights are saved", value)
        number = len(self.seen)
        self.seen[id(value)] = (number, value)  # the object too, so that its id is not used again
        find_class(name_of(type(value)))  # loading must find the class
        config = value.get_config()
        for argument in value.optional_arguments:
            if not (self.copy_vectors and is_plain(config[argument], deep=True)):
                config[argument] = None
        node = {"class": name_of(type(value)), "config": self.encode(config, name)}
        own = self.draft / f"files-{number}"
        own.mkdir()
        files = {key: self.add(own / file) for key, file in value.write_files(own).items()}
        return {**node, "files": files} if files else node

    def add(self, path: Path) -> str:
        """Return the name that a new file or subfolder gets in the saved folder."""
        if path.is_dir():
            inside = {part.name: digest_of(part) for part in sorted(path.iterdir())}
            digest = hashlib.sha256(json.dumps(inside).encode()).hexdigest()
        else:
            inside, digest = {}, digest_of(path)
        stem = re.sub("-[0-9a-f]{16}$", "", path.stem)  # without an earlier save's digest
        name = re.sub(r"[^\w.+-]", "_", f"{stem}-{digest[:16]}{path.suffix}", flags=re.ASCII)
        name = name.lstrip(".")  # loading refuses hidden files
        self.parts[name] = path
        self.digests |= {f"{name}/{k}": v for k, v in inside.items()} or {name: digest}
        return name

    def commit(self, folder: Path) -> None:
        """Move all files into the folder, the configuration last, and remove stale ones."""
        mode = (self.draft / CONFIG_NAME).stat().st_mode  # safetensors lets only the owner read
        for file in filter(Path.is_file, self.draft.rglob("*")):
            file.chmod(mode)
        stale = saved_names(folder) - set(self.parts)
        for key in self.digests:
            name, _, inner = key.partition("/")
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            (self.parts[name] / inner).replace(folder / key)
        (self.draft / CONFIG_NAME).replace(folder / CONFIG_NAME)
        for name in stale:
            if (folder / name).is_dir() and not (folder / name).is_symlink():
                shutil.rmtree(folder / name)
            else:
                (folder / name).unlink(missing_ok=True)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def saved_names(folder: Path) -> set[str]:
    """Return the files and subfolders that a folder's configuration names, if there is one."""
    try:
        digests = json.loads((folder / CONFIG_NAME).read_text("utf-8", "surrogatepass"))["digests"]
        names = {name.partition("/")[0] for name in digests}
    except Exception:
        return set()
    return {name for name in names if re.fullmatch(r"[\w.+-]*-[0-9a-f]{16}(\.[\w+-]*)?", name)}


def uncompiled(name: str) -> str:
    """Return a tensor's name without the part that ``torch.compile`` adds."""
    return name.replace("_orig_mod.", "")


def detachable_names(module: nn.Module) -> set[str]:
    """Return the names of the frozen source tables, which may be left out of a saved folder."""
    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    return frozen & {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        for name in getattr(part, "detachable_parameters", ())
    }


def self_saved_names(module: nn.Module) -> set[str]:
    """Return the names of the tensors that their module writes by itself."""
    return {
        ".".join(filter(None, (prefix, child, name)))
        for prefix, part in module.named_modules(remove_duplicate=False)
        for child in getattr(part, "self_saved_modules", ())
        for name in part.get_submodule(child).state_dict()
    }


def tied_names(module: nn.Module) -> dict[str, str]:
    """Map the second and later names of a shared parameter or buffer to its first name."""
    first: dict[Tensor, str] = {}
    return {
        name: first[tensor]
        for name, tensor in named_tensors(module)
        if first.setdefault(tensor, name) != name
    }


def named_tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return all parameters and buffers, a shared one under each of its names."""
    return [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]


def _write_weights(state: dict[str, Tensor], folder: Path) -> Path:
    from safetensors.torch import save_file

    alone, places = {}, set[int]()
    for name, tensor in state.items():
        rule = "have values (attach its source, or save_sources=False)"
        require(not tensor.is_meta, name, rule, "none")
        x = tensor.contiguous()
        place = x.untyped_storage().data_ptr()
        alone[name] = x.clone() if place in places else x  # safetensors refuses shared memory
        places.add(place)
    path = folder / "model.safetensors"
    save_file(alone, path, metadata={"format": "pt"})
    return path
