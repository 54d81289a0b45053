"""Loading a saved folder, possibly a stranger's: it runs no code, and its sizes are checked against its weights."""

import json
import operator
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as registry

from polyembed._checks import check_file, class_name, must, require
from polyembed.saving.config import VectorFiles, find_class
from polyembed.saving.folder import CONFIG_NAME, SAVED, WEIGHTS_NAME, own_file, read_folder, verify
from polyembed.saving.writing import (
    DTYPES,
    FORMAT_VERSION,
    MOST_DEPTH,
    MOST_DIGITS,
    detachable_names,
    tensors,
)

MOST_BYTES = 2**24  # of a configuration
MOST_VALUES = 2**20  # in it; a value takes up to 300 bytes
MOST_OBJECTS = 10_000
MOST_PLACES = 20_000  # of objects and modules, a shared one counted in each
MOST_OPENED = 16  # of objects over one file: each has a copy of its content
LIFT = "bounded=False lifts this limit, for a folder that you trust"
CONVERSION = (
    "Build the module in code, then safetensors.torch.load_model(module, folder + '/model.safetensors') and "
    "module.save_pretrained"
)
_COUNT: ContextVar[Callable[[str, Any], None] | None] = ContextVar(
    "_COUNT", default=None
)  # of the load in this thread


def load_module(folder: Path, *, bounded: bool = True) -> nn.Module:
    """Build the module of a saved folder, in evaluation mode; its tensors are mapped from the file.

    Unless `bounded`, its configuration may be of any size, and ask for more than the saved tensors
    can fill.
    """

    def read() -> nn.Module:
        config = _read_config(folder, bounded=bounded)
        verify(folder, config["checksums"])
        weights = _read_weights(own_file(folder, WEIGHTS_NAME, name="folder"))
        with (
            torch.device("meta"),
            _bounded(weights) if bounded else nullcontext(),
        ):  # no memory, no random numbers: tensors come from the file
            tree = {key: config.get(key) for key in ("class", "config", "files")}
            module = ConfigReader(folder, config["checksums"], bounded=bounded).read(tree)
        require(
            isinstance(module, nn.Module),
            str(folder / CONFIG_NAME),
            "describe a module",
            class_name(module),
        )
        _fill(module, weights, config, folder)
        filled: nn.Module = module.eval()
        return filled

    return read_folder(folder, read)


def find_folder(
    name: str | os.PathLike[str],
    revision: str | None,
    cache_dir: str | Path | None,
    local_only: bool,
) -> Path:
    """Return a saved folder, or the snapshot of a repository on the hub."""
    require(
        os.fspath(name) != "", "name_or_folder", "name a folder or a repository on the hub", "''"
    )
    folder = Path(name)
    if folder.is_dir():
        if not os.path.lexists(folder / SAVED / CONFIG_NAME):
            check_file(
                folder / CONFIG_NAME,
                name="folder",
                where="It was not written by save_pretrained, or only in part.",
            )
        return folder
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                str(name), revision=revision, cache_dir=cache_dir, local_files_only=local_only
            )
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        pinned = "" if revision is None else f" at revision {revision!r}"
        offline = local_only or constants.HF_HUB_OFFLINE
        why = (
            f"offline, and not in the cache {cache_dir or constants.HF_HUB_CACHE}"
            if offline
            else class_name(error)
        )
        got = f"{str(name)!r}{pinned} ({why})"
        raise FileNotFoundError(
            must("name_or_folder", "be a folder or a repository on the hub", got)
        ) from error


class ConfigReader:
    """Builds the objects that a `ConfigWriter` described."""

    def __init__(
        self, folder: Path, files: Collection[str] | None = None, *, bounded: bool = True
    ) -> None:
        self.folder = folder
        self.bounded = bounded
        self.files = files  # those with a checksum
        self.opened: Counter[Path] = Counter()
        self.built: list[Any] = []
        self.sizes: list[int] = []  # of each object, in places
        self.places = 0
        self.modules: dict[nn.Module, int] = {}

    def read(self, tree: dict[str, Any]) -> Any:
        """Build the whole tree; an error of a constructor names the configuration's file."""
        try:
            return self.decode(tree)
        except (OSError, ImportError):
            raise
        except Exception as error:  # of any kind: the arguments are a stranger's
            if isinstance(error, ValueError) and str(self.folder) in str(error):
                raise  # about another file, which it names
            rule = "describe a module that this version can build"
            got = f"{class_name(error)}: {error}"
            raise ValueError(must(str(self.folder / CONFIG_NAME), rule, got)) from error

    def decode(self, node: Any, depth: int = 0) -> Any:
        """Build a part of the tree."""
        require(depth <= MOST_DEPTH, "config", f"be at most {MOST_DEPTH} levels deep", "more")
        if isinstance(node, list):
            return [self.decode(item, depth + 1) for item in node]
        if not isinstance(node, dict):
            return node
        if "same_as" in node:
            known = node["same_as"]
            require(
                known in range(len(self.built)),
                "same_as",
                "be the number of an object before it",
                known,
            )
            require(
                self.built[known] is not None,
                "same_as",
                "be the number of a finished object",
                known,
            )
            self._add(self.sizes[known])
            return self.built[known]
        if "class" not in node:
            return {key: self.decode(item, depth + 1) for key, item in node.items()}
        place = len(self.built)
        few = not self.bounded or place < MOST_OBJECTS
        require(few, "config", f"have at most {MOST_OBJECTS} objects", f"more ({LIFT})")
        self.built.append(None)  # numbered before its parts, as in the writer
        self.sizes.append(0)
        before = self.places
        self._add(1)
        config = self.decode(node.get("config") or {}, depth + 1)
        found = find_class(node["class"])
        named = sorted(set(config) & found.file_arguments)
        require(not named, "config", "name no file: those are listed in files", named)
        files = node.get("files") or {}
        strange = sorted(set(files) - found.file_arguments)
        require(
            not strange,
            "files",
            f"be among {sorted(found.file_arguments)} of {found.__name__}",
            strange,
        )
        missing = (
            sorted(found.file_arguments - set(files)) if issubclass(found, VectorFiles) else []
        )
        require(not missing, "files", f"hold all files of {found.__name__}", f"none for {missing}")
        for argument, file in files.items():
            listed = self.files is None or file in self.files
            require(
                listed,
                f"files.{argument}",
                "be a plain file name with a checksum",
                repr(file)[:300],
            )
            config[argument] = path = own_file(self.folder, file, name=argument)
            self.opened[path.resolve()] += 1  # a hub's files of equal content are links to one
            few = not self.bounded or self.opened[path.resolve()] <= MOST_OPENED
            require(
                few,
                f"files.{argument}",
                f"be a file of at most {MOST_OPENED} objects",
                f"{file} of more ({LIFT})",
            )
        self.built[place] = built = found.from_config(config)
        if isinstance(built, nn.Module):
            self._add(max(0, before + self._count(built) - self.places))
        self.sizes[place] = self.places - before
        return built

    def _add(self, places: int) -> None:
        """Count places of objects: what looks into all would visit a shared one in each."""
        self.places += places
        few = not self.bounded or self.places <= MOST_PLACES
        require(
            few,
            "config",
            f"have at most {MOST_PLACES} places of objects",
            f"{self.places} ({LIFT})",
        )

    def _count(self, module: nn.Module) -> int:
        """Count the places of a module's parts: nested pairs of one module would double them at each level."""
        if module not in self.modules:
            self.modules[module] = 1 + sum(
                self._count(part) for part in module._modules.values() if part is not None
            )
        return self.modules[module]


def _read_config(folder: Path, *, bounded: bool) -> dict[str, Any]:
    path = own_file(folder, CONFIG_NAME, name="folder")
    size = path.stat().st_size
    require(
        not bounded or size <= MOST_BYTES,
        str(path),
        f"have at most {MOST_BYTES} bytes",
        f"{size} ({LIFT})",
    )
    data = path.read_bytes()
    values = sum(map(data.count, b",[{"))  # one of these is before each value
    require(
        not bounded or values <= MOST_VALUES,
        str(path),
        f"have at most {MOST_VALUES} values",
        f"{values} ({LIFT})",
    )
    try:
        config: dict[str, Any] = json.loads(
            data.decode("utf-8", "surrogatepass"), parse_int=_parse_int
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(must(str(path), "be JSON", error)) from error
    kind = config.get("model_type") if isinstance(config, dict) else None
    found = (
        "none"
        if kind is None
        else f"a model of transformers ({kind!r}; PretrainedWordEncoder takes it)"
    )
    require(
        isinstance(config, dict) and "class" in config,
        str(path),
        "name a class, as save_pretrained does",
        found,
    )
    version = config.get("format_version")
    newer = type(version) is int and version > FORMAT_VERSION
    advice = "A newer polyembed reads it" if newer else CONVERSION
    right = type(version) is int and version == FORMAT_VERSION
    require(right, str(path), f"have format_version {FORMAT_VERSION}", f"{version!r}. {advice}")
    sums = config.get("checksums")
    good = isinstance(sums, dict) and WEIGHTS_NAME in sums
    require(good, str(path), "list the checksums of all files", repr(sums)[:300])
    return config


def _parse_int(digits: str) -> int:
    require(
        len(digits) <= MOST_DIGITS,
        "an integer",
        f"have at most {MOST_DIGITS} digits",
        f"{len(digits)}",
    )
    return int(digits)


def _read_weights(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights: dict[str, Tensor] = load_file(path)
    except (SafetensorError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise ValueError(must(str(path), "be an intact safetensors file", error)) from error
    for name, tensor in weights.items():
        rule = f"hold booleans, integers, or floats of 16 bits or more, {name!r} among them"
        require(tensor.dtype in DTYPES, str(path), rule, tensor.dtype)
    return weights


@contextmanager
def _bounded(weights: dict[str, Tensor]) -> Iterator[None]:
    """Refuse to build what the saved tensors cannot fill, before it takes memory or time.

    Parameters on a real device are made by encoders of transformers, whose buffers are computed
    when they are built.
    """
    sizes = [tensor.numel() for tensor in weights.values()]
    most_parts, largest, most_elements = (
        1_000 + 10 * len(sizes),
        max(sizes, default=0),
        16 * sum(sizes),
    )
    parts = elements = 0

    def count(name: str, part: Any) -> None:
        nonlocal parts, elements
        parts += 1
        rule = f"have parts that {len(sizes)} saved tensors can fill"
        require(
            parts <= most_parts,
            "config",
            rule,
            f"more than {most_parts} modules and tensors ({LIFT})",
        )
        if isinstance(part, nn.Parameter) and not part.is_meta:
            elements += part.numel()
            fits = part.numel() <= largest and elements <= most_elements
            got = f"{name} of shape {tuple(part.shape)} ({LIFT})"
            require(
                fits,
                "config",
                f"have tensors that {WEIGHTS_NAME} can fill ({largest} numbers at most)",
                got,
            )

    before = _COUNT.set(count)
    try:
        yield
    finally:
        _COUNT.reset(before)


def _count_part(module: nn.Module, name: str, part: Any) -> None:
    count = _COUNT.get()
    if count is not None and part is not None:
        count(name, part)


for register in (
    registry.register_module_parameter_registration_hook,
    registry.register_module_buffer_registration_hook,
    registry.register_module_module_registration_hook,
):
    register(
        _count_part
    )  # for good: torch's table of hooks must not change while another thread builds a module


def _fill(
    module: nn.Module, weights: dict[str, Tensor], config: dict[str, Any], folder: Path
) -> None:
    """Load all saved tensors into the module; names, shapes and kinds must fit."""
    tied, left_out = config.get("tied"), config.get("left_out")
    where, path = str(folder / CONFIG_NAME), str(folder / WEIGHTS_NAME)
    built = dict(tensors(module))
    if not (isinstance(left_out, list) and all(isinstance(name, str) for name in left_out)):
        raise ValueError(must(where, "leave out source tables only", left_out))
    require(
        set(left_out) <= detachable_names(module), where, "leave out source tables only", left_out
    )
    if not isinstance(tied, dict):
        raise ValueError(must(where, "tie tensors of the module", tied))
    for name, first in tied.items():
        good = isinstance(first, str) and first not in tied and name in built and first in built
        require(good, where, "tie tensors of the module", {name: first})
        alike = built[name].shape == built[first].shape and _same_kind(built[name], built[first])
        require(alike, where, "tie tensors of one shape and kind", {name: first})
    for name, tensor in weights.items():
        kind = name not in built or _same_kind(tensor, built[name])
        require(
            kind,
            path,
            f"hold {name!r} as {built[name].dtype if name in built else ''}",
            tensor.dtype,
        )
    try:
        result = module.load_state_dict(weights, strict=False, assign=True)
        for name, first in tied.items():
            parent, attribute = name.rpartition(".")[::2]
            setattr(module.get_submodule(parent), attribute, operator.attrgetter(first)(module))
    except (RuntimeError, AttributeError) as error:
        raise ValueError(must(path, "fit the module that config.json describes", error)) from error
    missing = sorted(set(result.missing_keys) - {*left_out, *tied})
    wrong = f"missing {missing}, unexpected {result.unexpected_keys}"
    require(not (missing or result.unexpected_keys), path, "hold the module's tensors", wrong)
    for name, part in module.named_modules():
        check = getattr(part, "_check_loaded", None)
        if check is not None:
            check(f"{path}: {name}{'.' * (name != '')}")


def _same_kind(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype or (one.is_floating_point() and other.is_floating_point())
