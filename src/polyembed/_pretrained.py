"""Saving and loading: a folder with `config.json`, `model.safetensors` and the files that JSON cannot hold.

A configuration is the constructor call. `get_config` gives its arguments, nested objects included;
`from_config` makes the call again. Nothing is pickled and nothing from a folder is ever run: a class is found
by its name among those that the program has imported.
"""

import inspect
import json
import operator
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from polyembed._checks import check_file, class_name, must, require
from polyembed._version import __version__
from polyembed.hub import model_card

FORMAT_VERSION = 1
CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
CARD_NAME = "README.md"


class Configurable:
    """An object that a saved folder can hold: its constructor call is data, from which it is built again.

    A constructor's argument is kept as an attribute or property of the same name; a class for which that does not
    serve defines `get_config` and `from_config`.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset()
    """The arguments of `from_config` that are files of the saved folder. A folder can name no others, and these
    only as its own files: never as a path in its configuration."""

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments: JSON values, other configurables, or lists and dicts of them."""
        parameters = list(inspect.signature(type(self).__init__).parameters.values())[1:]
        config = {}
        for parameter in parameters:
            named = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if not (named and hasattr(self, parameter.name)):
                rule = f"keep its argument {parameter.name} as an attribute, or define get_config"
                raise TypeError(must(class_name(self), rule, "neither"))
            config[parameter.name] = getattr(self, parameter.name)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build an object from what `get_config` gave; files arrive as paths under their argument's name."""
        return cls(**config)

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write what JSON cannot hold into `folder`; return argument -> file name for `from_config`."""
        return {}

    def __repr__(self) -> str:
        return repr_call(self, **self.get_config())


class PretrainedModule(Configurable, nn.Module):
    """A module that can be saved as a folder, opened again, and shared on a hub."""

    __repr__ = nn.Module.__repr__  # torch's tree, with the plain arguments by `extra_repr`

    def extra_repr(self) -> str:
        """Return the constructor's arguments that are plain values, as ``name=value``."""
        try:
            config = self.get_config()
        except TypeError:  # not to be saved, but still to be printed
            return ""
        plain = {name: value for name, value in config.items() if _is_plain(value)}
        return ", ".join(f"{name}={value!r}" for name, value in plain.items())

    def save_pretrained(
        self,
        folder: str | os.PathLike[str],
        *,
        save_sources: bool = True,
        copy_vectors: bool | None = None,
        card: str | None = None,
    ) -> None:
        """Write the module into `folder`; an existing folder's files are replaced only when all are written.

        Args:
            folder: Where to; made if missing.
            save_sources: Whether the frozen rows of pretrained vectors go along. Without them the folder is
                small, and `SourceEmbedding.attach` must fill the tables after loading.
            copy_vectors: Whether the files of the sources' vectors go along, so that words never seen have their
                vectors in the loaded module too. Public fastText models are of several GB: without them the
                folder holds the lexicon's rows only, and `SourceEmbedding.attach` gives the rest back. As
                `save_sources` if None.
            card: The text of its ``README.md`` (`polyembed.hub.model_card` writes one); none is written if None.

        Raises:
            TypeError: A part of the module cannot be rebuilt from data, or a card that is no text.
        """
        from safetensors.torch import save_file

        if not (card is None or isinstance(card, str)):
            raise TypeError(must("card", "be text (what model_card gives)", class_name(card)))

        folder = Path(folder)
        require(not folder.is_file(), "folder", "be no file", folder)
        copy_vectors = save_sources if copy_vectors is None else copy_vectors
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as draft:
            writer = _Writer(Path(draft), copy_vectors=copy_vectors)
            tree = writer.encode(self, "model")
            left_out = [] if save_sources else sorted(_detachable_names(self))
            tied = tied_names(self)
            skip = {*left_out, *tied}
            state = {name: value.contiguous() for name, value in self.state_dict().items() if name not in skip}
            with usual_mode(Path(draft) / WEIGHTS_NAME) as path:
                save_file(state, path, metadata={"format": "pt"})
            config = {
                "format_version": FORMAT_VERSION,
                "polyembed_version": __version__,
                "left_out": left_out,
                "tied": tied,
                **tree,
            }
            (Path(draft) / CONFIG_NAME).write_text(
                json.dumps(config, indent=1, ensure_ascii=False) + "\n", "utf-8", "surrogatepass"
            )
            if card is not None:
                (Path(draft) / CARD_NAME).write_text(card, "utf-8", "surrogatepass")
            _move_into(Path(draft), folder, keep=writer.in_use)

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | os.PathLike[str],
        *,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
    ) -> Self:
        """Open what `save_pretrained` wrote, from a folder or from the hub, in evaluation mode.

        Args:
            name_or_folder: A folder, or a repository on the hub.
            revision: A hub revision (branch, tag or commit).
            cache_dir: Where hub files are kept; huggingface_hub's default if None.
            local_files_only: Never ask the network; so it is too where ``HF_HUB_OFFLINE=1`` is set.

        Returns:
            The module, with the dtypes it was saved in.

        Raises:
            FileNotFoundError: Neither a folder nor a repository of this name, or none in the cache while offline; or
                a file that is missing.
            ValueError: A damaged file, a newer format, or a folder that holds another class or was not written here.
        """
        folder = _resolve(name_or_folder, revision, cache_dir, local_files_only)
        config = _read_config(folder)
        with torch.device("meta"):  # no memory, no random numbers: every tensor comes from the file
            module = _Reader(folder).read({key: config.get(key) for key in ("class", "config", "files")})
        if not isinstance(module, cls):
            raise ValueError(must(str(folder), f"hold a {cls.__name__}", f"a {class_name(module)}"))
        _load_weights(module, folder / WEIGHTS_NAME, config)
        return module.eval()

    def push_to_hub(
        self,
        repo_id: str,
        *,
        revision: str | None = None,
        private: bool | None = None,
        commit_message: str = "Upload with polyembed",
        save_sources: bool = True,
        copy_vectors: bool | None = None,
        card: str | None = None,
    ) -> str:
        """Save into a temporary folder and upload it.

        Args:
            repo_id: ``owner/name``; made if missing.
            revision: The branch to commit to.
            private: Whether a new repository is private.
            commit_message: The commit's message.
            save_sources: As in `save_pretrained`.
            copy_vectors: As in `save_pretrained`.
            card: The text of the ``README.md`` (`polyembed.hub.model_card` writes one). If None, the repository's own
                stays; where there is none, it gets a card of what the module itself knows.

        Returns:
            The address of the commit.
        """
        from huggingface_hub import HfApi

        api = HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        if card is None and not api.file_exists(repo_id, CARD_NAME, revision=revision):
            card = model_card(self, repo_id=repo_id)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder, save_sources=save_sources, copy_vectors=copy_vectors, card=card)
            return str(
                api.upload_folder(repo_id=repo_id, folder_path=folder, revision=revision, commit_message=commit_message)
            )


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


def repr_call(obj: Any, **arguments: Any) -> str:
    """Print a constructor call back."""
    return f"{class_name(obj)}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


class _Writer:
    """Turns a configurable into JSON and files; an object met twice is written once."""

    def __init__(self, folder: Path, *, copy_vectors: bool) -> None:
        self.folder = folder
        self.copy_vectors = copy_vectors
        self.seen: dict[int, tuple[int, object]] = {}
        self.in_use: set[Path] = set()  # by the objects that are saved: files that must not go

    def encode(self, value: Any, name: str) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list | tuple) and not isinstance(value, Detachable):
            return [self.encode(item, f"{name}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, dict):
            return {str(key): self.encode(item, f"{name}.{key}") for key, item in value.items()}
        if id(value) in self.seen:
            return {"same_as": self.seen[id(value)][0]}
        if isinstance(value, nn.Embedding):
            return {"class": "torch.nn.Embedding", "config": _embedding_config(value)}
        if isinstance(value, Detachable):
            if isinstance(value.value, VectorFiles):
                self.in_use |= {path.resolve() for path in value.value.files().values()}
            wanted = self.copy_vectors and isinstance(value.value, Configurable)
            return self.encode(value.value, name) if wanted else None
        if not isinstance(value, Configurable):
            raise TypeError(must(name, "be something that can be rebuilt from its configuration", class_name(value)))
        self.seen[id(value)] = (len(self.seen), value)  # the object too, so that its id stays its own
        return {
            "class": class_name(value),
            "config": self.encode(value.get_config(), name),
            "files": value.write_files(self.folder),
        }


class _Reader:
    """Builds what `_Writer` described."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.built: list[Any] = []

    def read(self, tree: dict[str, Any]) -> Any:
        """Build the whole tree; whatever a damaged configuration does to a constructor names the file."""
        try:
            return self.decode(tree)
        except (TypeError, KeyError, AttributeError, IndexError, RuntimeError) as error:  # of sizes, torch's own
            rule = "describe a module that this version can build"
            got = f"{class_name(error)}: {error}"
            raise ValueError(must(str(self.folder / CONFIG_NAME), rule, got)) from error

    def decode(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.decode(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "same_as" in node:
            known = node["same_as"]
            require(known in range(len(self.built)), "same_as", f"count below {len(self.built)}", known)
            return self.built[known]
        if "class" not in node:
            return {key: self.decode(item) for key, item in node.items()}
        if node["class"] == "torch.nn.Embedding":
            return nn.Embedding(**node["config"])
        place = len(self.built)
        self.built.append(None)  # numbered on the way down, as the writer numbers
        config = self.decode(node.get("config") or {})
        found = _find_class(node["class"])
        named = sorted(set(config) & found.file_arguments)
        require(not named, "config", "name no file: those are listed in files", named)
        files = node.get("files") or {}
        strange = sorted(set(files) - found.file_arguments)
        require(not strange, "files", f"be among {sorted(found.file_arguments)} of {found.__name__}", strange)
        missing = sorted(found.file_arguments - set(files)) if issubclass(found, VectorFiles) else []
        require(not missing, "files", f"hold all files of {found.__name__}", f"none for {missing}")
        for argument, file in files.items():
            config[argument] = own_file(self.folder, file, name=argument)
        self.built[place] = found.from_config(config)
        return self.built[place]


class Detachable(NamedTuple):
    """A part of a configuration that a saved folder can do without: it becomes None unless asked for."""

    value: object


class VectorFiles(Configurable):
    """A source of vectors that reads files; a saved folder must hold all its `file_arguments`.

    Saving, pickling, copying and printing go by the constructor call: no vector is held twice, and every worker
    process opens the files itself.
    """

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments, files included."""
        return Configurable.get_config(self)

    def files(self) -> Mapping[str, Path]:
        """Return constructor argument -> file on disk."""
        arguments = self.arguments()
        return {name: arguments[name] for name in sorted(self.file_arguments)}

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments that are not files."""
        return {name: value for name, value in self.arguments().items() if name not in self.file_arguments}

    def write_files(self, folder: Path) -> dict[str, str]:
        """Copy the vector files into `folder` under names that do not clash."""
        names = {}
        for argument in sorted(self.file_arguments):
            path = self.files()[argument]
            number = sum(1 for _ in folder.glob("vectors-*"))
            names[argument] = f"vectors-{number}-{re.sub(r'^vectors-[0-9]+-', '', path.name)}"  # saved again: same name
            shutil.copyfile(path, folder / names[argument])
        return names

    def __repr__(self) -> str:
        return repr_call(self, **{k: str(v) if isinstance(v, Path) else v for k, v in self.arguments().items()})

    def __reduce__(self) -> tuple[Any, ...]:
        return _call, (type(self), self.arguments())


def _call(cls: type[VectorFiles], arguments: dict[str, Any]) -> VectorFiles:
    return cls(**arguments)


def own_file(folder: Path, file: object, *, name: str) -> Path:
    """Return the path of a regular file that is in `folder` itself; `name` is for the message.

    A link is followed into the folder, or into the blobs of a hub's cache, where snapshots are links; nowhere else.
    A device or a named pipe is not a regular file: reading it could block for ever.
    """
    require(isinstance(file, str) and Path(file).name == file, f"files.{name}", "be a plain file name", repr(file))
    path = check_file(folder / str(file), name=name)
    target, home = path.resolve(), folder.resolve()
    homes = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    require(target.is_file(), str(path), "be a regular file", "a device or a pipe")
    require(target.parent in homes, str(path), "be a file of the folder itself", f"a link to {target}")
    return path


@contextmanager
def usual_mode(path: Path) -> Iterator[Path]:
    """Give a file the mode of others that are made here: safetensors makes its own for the owner alone."""
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)
    yield path
    path.chmod(mode)


def _find_class(name: str) -> type[Configurable]:
    def descendants(cls: type[Configurable]) -> Iterator[type[Configurable]]:
        for child in cls.__subclasses__():
            yield child
            yield from descendants(child)

    found = {cls for cls in descendants(Configurable) if cls.__name__ == name}
    require(len(found) > 0, "class", "be one that this program has imported", repr(name))
    require(len(found) == 1, "class", "name one class of this program", f"{len(found)} called {name!r}")
    return found.pop()


def _embedding_config(embedding: nn.Embedding) -> dict[str, Any]:
    return {
        "num_embeddings": embedding.num_embeddings,
        "embedding_dim": embedding.embedding_dim,
        "padding_idx": embedding.padding_idx,
    }


def _detachable_names(module: nn.Module) -> set[str]:
    """Name the frozen source tables, which may be left out of a saved folder."""
    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    return frozen & {
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        for name in getattr(part, "detachable_parameters", ())
    }


def tied_names(module: nn.Module) -> dict[str, str]:
    """Map every state entry but the first of a parameter or buffer that stands in several places to the first."""
    first: dict[int, str] = {}
    return {name: first[id(tensor)] for name, tensor in _tensors(module) if first.setdefault(id(tensor), name) != name}


def _tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """List parameters and buffers, in each place where they stand."""
    return [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]


def _are_names(values: object, known: set[str]) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) and value in known for value in values)


def _tie(module: nn.Module, tied: dict[str, str]) -> None:
    for name, first in tied.items():
        parent, attribute = name.rpartition(".")[::2]
        setattr(module.get_submodule(parent), attribute, operator.attrgetter(first)(module))


def _move_into(draft: Path, folder: Path, *, keep: set[Path]) -> None:
    """Put finished files in place, the configuration last; then files that only an earlier save needed go."""
    folder.mkdir(exist_ok=True)
    stale = _files_of(folder)
    files = sorted(draft.iterdir(), key=lambda path: path.name == CONFIG_NAME)
    for path in files:
        os.replace(path, folder / path.name)
    for name in stale - {path.name for path in files}:
        if (folder / name).resolve() not in keep:
            (folder / name).unlink(missing_ok=True)


def _files_of(folder: Path) -> set[str]:
    """Name the files that a folder's configuration lists, beside the weights; none if it cannot be read."""

    def names(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            files = node.get("files")
            yield from (files.values() if isinstance(files, dict) else ())
        for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from names(item)

    try:
        config = json.loads((folder / CONFIG_NAME).read_text("utf-8", "surrogatepass"))
    except (OSError, ValueError, RecursionError):
        return set()
    return {name for name in names(config) if isinstance(name, str) and Path(name).name == name}


def _resolve(
    name: str | os.PathLike[str], revision: str | None, cache_dir: str | Path | None, local_only: bool
) -> Path:
    folder = Path(name)
    if folder.is_dir():
        check_file(folder / CONFIG_NAME, name="folder", where="It was not written by save_pretrained, or only in part.")
        return folder
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(name), revision=revision, cache_dir=cache_dir, local_files_only=local_only))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        pinned = "" if revision is None else f" at revision {revision!r}"
        offline = local_only or constants.HF_HUB_OFFLINE
        why = f"offline, and not in the cache {cache_dir or constants.HF_HUB_CACHE}" if offline else class_name(error)
        got = f"{str(name)!r}{pinned} ({why})"
        raise FileNotFoundError(must("name_or_folder", "be a folder or a repository on the hub", got)) from error


def _read_config(folder: Path) -> dict[str, Any]:
    path = own_file(folder, CONFIG_NAME, name="folder")
    try:
        config: dict[str, Any] = json.loads(path.read_text("utf-8", "surrogatepass"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(must(str(path), "be JSON", error)) from error
    kind = config.get("model_type") if isinstance(config, dict) else None
    found = "none" if kind is None else f"a model of transformers ({kind!r}; PretrainedWordEncoder takes it)"
    require(isinstance(config, dict) and "class" in config, str(path), "name a class, as save_pretrained does", found)
    version = config.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise ValueError(
            must(
                str(path),
                f"have a format_version of at most {FORMAT_VERSION}",
                f"{version!r}; a newer polyembed reads it",
            )
        )
    return config


def _load_weights(module: nn.Module, path: Path, config: dict[str, Any]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    own_file(path.parent, path.name, name="folder")
    try:
        state: dict[str, Tensor] = load_file(path)
    except (SafetensorError, ValueError) as error:
        raise ValueError(must(str(path), "be an intact safetensors file", error)) from error
    tied, left_out = config.get("tied", {}), config.get("left_out", [])
    where = str(path.with_name(CONFIG_NAME))
    require(_are_names(left_out, _detachable_names(module)), where, "leave out source tables only", left_out)
    named = {name for name, _ in _tensors(module)}
    good = isinstance(tied, dict) and _are_names([*tied, *tied.values()], named)
    require(good, where, "tie tensors of the module", tied)
    absent = {*left_out, *tied}
    try:
        result = module.load_state_dict(state, strict=False, assign=True)
        _tie(module, tied)
    except (RuntimeError, AttributeError) as error:
        raise ValueError(must(str(path), "fit the module that config.json describes", error)) from error
    missing = sorted(set(result.missing_keys) - absent)
    if missing or result.unexpected_keys:
        wrong = f"missing {missing}, unexpected {result.unexpected_keys}"
        raise ValueError(must(str(path), "hold the module's tensors", wrong))
