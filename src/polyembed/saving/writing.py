"""Writing a module: its configuration as JSON, its tensors as safetensors."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyembed._checks import class_name, must, require
from polyembed._version import __version__
from polyembed.saving.config import Configurable, Detachable, VectorFiles
from polyembed.saving.folder import (
    CARD_NAME,
    CONFIG_NAME,
    WEIGHTS_NAME,
    checksum,
    save_folder,
    usual_mode,
)

FORMAT_VERSION = 2
MOST_DIGITS = 18  # of an integer in a configuration
MOST_DEPTH = 100  # of objects, lists and dicts inside one another
FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
DTYPES = FLOATS | {torch.bool, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}


def save_module(
    module: nn.Module, folder: Path, *, save_sources: bool, copy_vectors: bool, card: str | None
) -> None:
    """Write a module into a folder; arguments as for `PretrainedModule.save_pretrained`."""

    def write(draft: Path) -> set[Path]:
        writer = ConfigWriter(draft, copy_vectors=copy_vectors)
        tree = writer.encode(module, "model")
        left_out = [] if save_sources else sorted(detachable_names(module))
        tied = tied_names(module)
        skipped = {*left_out, *tied}
        _write_weights(
            {name: x for name, x in module.state_dict().items() if name not in skipped}, draft
        )
        if card is not None:
            (draft / CARD_NAME).write_text(card, "utf-8", "surrogatepass")
        config = {
            "format_version": FORMAT_VERSION,
            "polyembed_version": __version__,
            "checksums": {path.name: checksum(path) for path in sorted(draft.iterdir())},
            "left_out": left_out,
            "tied": tied,
            **tree,
        }
        text = json.dumps(config, indent=1, ensure_ascii=False)
        (draft / CONFIG_NAME).write_text(text + "\n", "utf-8", "surrogatepass")
        return writer.in_use

    save_folder(folder, write)


def _write_weights(state: dict[str, Tensor], folder: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    for name, tensor in state.items():
        require(
            tensor.dtype in DTYPES,
            name,
            "be a boolean, an integer, or a float of 16 bits or more",
            tensor.dtype,
        )
        require(
            not tensor.is_meta,
            name,
            "have values (attach its source, or save_sources=False)",
            "none",
        )
    with usual_mode(folder / WEIGHTS_NAME) as path:
        try:
            save_file(
                {name: tensor.contiguous() for name, tensor in state.items()},
                path,
                metadata={"format": "pt"},
            )
        except SafetensorError as error:
            raise OSError(f"{path} could not be written: {error}") from error


class ConfigWriter:
    """Turns a configurable into JSON and files; an object met twice is written once."""

    def __init__(self, folder: Path, *, copy_vectors: bool) -> None:
        self.folder = folder
        self.copy_vectors = copy_vectors
        self.seen: dict[int, tuple[int, object]] = {}
        self.in_use: set[Path] = set()
        """Files that the saved objects read: they must not be removed."""

    def encode(self, value: Any, name: str, depth: int = 0) -> Any:
        """Return a value as JSON, no deeper than loading allows; `name` is for messages."""
        require(depth <= MOST_DEPTH, "module", f"be saved in at most {MOST_DEPTH} levels", "more")
        if isinstance(value, int):
            digits = len(str(value))
            require(
                digits <= MOST_DIGITS, name, f"be saved in at most {MOST_DIGITS} digits", digits
            )
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list | tuple) and not isinstance(value, Detachable):
            return [self.encode(item, f"{name}[{i}]", depth + 1) for i, item in enumerate(value)]
        if isinstance(value, dict):
            return {
                str(key): self.encode(item, f"{name}.{key}", depth + 1)
                for key, item in value.items()
            }
        if id(value) in self.seen:
            return {"same_as": self.seen[id(value)][0]}
        if isinstance(value, Detachable):
            if isinstance(value.value, VectorFiles):
                self.in_use |= {path.resolve() for path in value.value.files().values()}
            wanted = self.copy_vectors and isinstance(value.value, Configurable)
            return self.encode(value.value, name, depth) if wanted else None
        if not isinstance(value, Configurable):
            raise TypeError(
                must(
                    name,
                    "be something that can be rebuilt from its configuration",
                    class_name(value),
                )
            )
        self.seen[id(value)] = (
            len(self.seen),
            value,
        )  # the object too, so that its id is not used again
        return {
            "class": class_name(value),
            "config": self.encode(value.get_config(), name, depth + 1),
            "files": value.write_files(self.folder),
        }


def detachable_names(module: nn.Module) -> set[str]:
    """Return the names of the frozen source tables, which may be left out of a saved folder."""
    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    return frozen & {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        for name in getattr(part, "detachable_parameters", ())
    }


def tied_names(module: nn.Module) -> dict[str, str]:
    """Map the second and later names of a shared parameter or buffer to its first name."""
    first: dict[int, str] = {}
    return {
        name: first[id(tensor)]
        for name, tensor in tensors(module)
        if first.setdefault(id(tensor), name) != name
    }


def tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return all parameters and buffers, a shared one under each of its names."""
    return [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
