"""Folders that a stranger may offer: each entry damages a good one. Loading must refuse it, and name the file."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hostile.mutations import change, reseal
from safetensors.torch import load_file, save_file

Damage = Callable[[Path], object]
FOLDERS: dict[str, Damage] = {}
WEIGHT = "decoder.linear.weight"


def damage(function: Damage) -> Damage:
    FOLDERS[function.__name__] = function
    return function


def configuration(name: str, edit: Callable[[dict[str, Any]], object]) -> None:
    """Add a folder whose configuration is edited."""
    FOLDERS[name] = lambda folder: change(folder, edit)


def weights(name: str, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Add a folder whose tensors are edited, with right checksums."""

    def act(folder: Path) -> None:
        tensors = {
            key: tensor.clone() for key, tensor in load_file(folder / "model.safetensors").items()
        }
        edit(tensors)
        save_file(tensors, folder / "model.safetensors")
        reseal(folder)

    FOLDERS[name] = act


def contents(name: str, file: str, edit: Callable[[bytes], bytes], *, sealed: bool = True) -> None:
    """Add a folder with another file instead of one, with a right or a wrong checksum."""

    def act(folder: Path) -> None:
        (folder / file).write_bytes(edit((folder / file).read_bytes()))
        if sealed and file != "config.json":
            reseal(folder)

    FOLDERS[name] = act


def words(name: str, edit: Callable[[dict[str, Any]], object]) -> None:
    """Add a folder whose lexicon is edited, with a right checksum."""

    def act(data: bytes) -> bytes:
        lexicon = json.loads(data)
        edit(lexicon)
        return json.dumps(lexicon).encode()

    contents(name, "lexicon.json", act)


def lexicon_of(config: dict[str, Any]) -> dict[str, Any]:
    return config["config"]["embedder"]["config"]["lexicon"]


def characters_of(config: dict[str, Any]) -> dict[str, Any]:
    return config["config"]["embedder"]["config"]["encoder"]["config"]


def nested(levels: int, inside: Any = 0) -> Any:
    for _ in range(levels):
        inside = [inside]
    return inside


def doubled(tree: dict[str, Any], levels: int) -> dict[str, Any]:
    """Nest a concatenation of one embedder with itself: 2^levels places in a short file."""
    parts = tree["config"]
    combiner, dim = parts["combiner"], parts["combiner"]["config"]["in_dims"][0]
    inner = parts["embedders"][0]
    for level in reversed(range(levels)):
        sizes = {**combiner["config"], "in_dims": [dim * 2 ** (levels - level - 1)] * 2}
        config = {
            **parts,
            "embedders": [inner, {"same_as": level + 1}],
            "combiner": {**combiner, "config": sizes},
        }
        inner = {**tree, "config": config}
    return inner


def sized(key: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda config: config["config"]["encoder"]["config"].update({key: value})


# --- the configuration as such
# -----------------------------------------------------------------------------------

for version in (True, -3, 0, 1, 3, 99, "2", 2.0, None, [2]):
    configuration(
        f"format {version!r}", lambda config, version=version: config.update(format_version=version)
    )
configuration("no checksums", lambda config: config.pop("checksums"))
configuration(
    "checksums are a list", lambda config: config.update(checksums=list(config["checksums"]))
)
configuration(
    "no checksum of the weights", lambda config: config["checksums"].pop("model.safetensors")
)
configuration("no checksum of the lexicon", lambda config: config["checksums"].pop("lexicon.json"))
configuration(
    "another checksum", lambda config: config["checksums"].update({"lexicon.json": "0" * 64})
)
configuration(
    "a checksum that is a number", lambda config: config["checksums"].update({"lexicon.json": 7})
)
configuration(
    "a checksum of no file", lambda config: config["checksums"].update({"more.json": "0" * 64})
)
configuration(
    "a checksum outside", lambda config: config["checksums"].update({"../outside.json": "0" * 64})
)
configuration(
    "a checksum of a long name", lambda config: config["checksums"].update({"x" * 5_000: "0" * 64})
)
configuration("no class", lambda config: config.pop("class"))
configuration("a class that is a list", lambda config: config.update({"class": ["SequenceTagger"]}))
configuration(
    "a class of another kind", lambda config: config.update({"class": "Lexicon", "config": {}})
)
configuration("arguments are a list", lambda config: config.update(config=[1, 2]))
configuration("arguments are text", lambda config: config.update(config="tags"))
configuration("an unknown argument", lambda config: config["config"].update(more=1))
configuration("a missing argument", lambda config: config["config"].pop("tags"))
configuration("tags are a number", lambda config: config["config"].update(tags=5))
configuration("files are a list", lambda config: lexicon_of(config).update(files=["lexicon.json"]))
configuration(
    "a file is a list", lambda config: lexicon_of(config)["files"].update(path=["lexicon.json"])
)
configuration(
    "a file without a checksum", lambda config: lexicon_of(config)["files"].update(path="more.json")
)
configuration(
    "a file with a zero byte", lambda config: lexicon_of(config)["files"].update(path="a\0b")
)
configuration("a file named ..", lambda config: lexicon_of(config)["files"].update(path=".."))
contents("two files in one", "config.json", lambda data: data + data)
contents("half a configuration", "config.json", lambda data: data[: len(data) // 2])
contents("an empty configuration", "config.json", lambda data: b"")
contents("not UTF-8", "config.json", lambda data: b"\xff\xfe" + data)
contents("deep brackets", "config.json", lambda data: b"[" * 100_000)
for digits in (20, 5_000):
    contents(
        f"{digits} digits",
        "config.json",
        lambda data, n=digits: data.replace(b'size": 6', b'size": ' + b"9" * n),
    )

# --- objects and sizes
# -------------------------------------------------------------------------------------------

for known in (99, -1, "0", 0, None, 1.5):
    configuration(
        f"same_as {known!r}",
        lambda config, known=known: config["config"].update(embedder={"same_as": known}),
    )
configuration("150 levels", lambda config: config["config"].update(tags=nested(150)))
configuration(
    "many objects", lambda config: config["config"].update(encoder=[{"class": "CharCNN"}] * 20_000)
)
configuration("an embedder that is a number", lambda config: config["config"].update(embedder=5))
for rows in (-1, 10**9, 10**17, 0.5, "9", None):
    configuration(
        f"{rows} characters",
        lambda config, rows=rows: characters_of(config).update(num_characters=rows),
    )
for key, value in (
    ("num_layers", 10**5), ("num_layers", 10**17), ("num_layers", -1), ("hidden_size", 10**17), ("hidden_size", 7),
    ("hidden_size", 0), ("hidden_size", float("nan")), ("hidden_size", 1e300), ("num_heads", 10**9),
    ("feed_forward_size", 10**17), ("feed_forward_size", 11), ("dropout", 7), ("dropout", "much"),
):  # fmt: skip
    configuration(f"{key} {value}", sized(key, value))

# --- tensors
# -----------------------------------------------------------------------------------------------------

for left_out in (None, "embedder", [WEIGHT], [[WEIGHT]], {WEIGHT: 1}):
    configuration(
        f"left out {left_out!r}", lambda config, left_out=left_out: config.update(left_out=left_out)
    )
for tied in (
    None, [], {WEIGHT: "__class__"}, {"forward": WEIGHT}, {WEIGHT: [WEIGHT]}, {WEIGHT: WEIGHT},
    {WEIGHT: "decoder.linear.bias"}, {"a": "b"}, {WEIGHT: "decoder"}, {"decoder.linear.bias": "decoder.crf.start"},
):  # fmt: skip
    configuration(f"tied {tied!r}", lambda config, tied=tied: config.update(tied=tied))
weights("one more tensor", lambda tensors: tensors.update(more=torch.zeros(1)))
weights("a tensor less", lambda tensors: tensors.pop(WEIGHT))
weights("another shape", lambda tensors: tensors.update({WEIGHT: torch.zeros(3, 3)}))
weights("no axes", lambda tensors: tensors.update({WEIGHT: torch.tensor(1.0)}))
weights(
    "integers",
    lambda tensors: tensors.update({WEIGHT: torch.zeros(tensors[WEIGHT].shape, dtype=torch.int64)}),
)
weights(
    "booleans",
    lambda tensors: tensors.update({WEIGHT: torch.zeros(tensors[WEIGHT].shape, dtype=torch.bool)}),
)
weights("complex", lambda tensors: tensors.update({WEIGHT: tensors[WEIGHT].to(torch.complex64)}))
weights("float8", lambda tensors: tensors.update({WEIGHT: tensors[WEIGHT].to(torch.float8_e4m3fn)}))
weights(
    "a character outside the inventory",
    lambda tensors: tensors["embedder.table.weight"].fill_(10**6),
)
weights("a negative character", lambda tensors: tensors["embedder.table.weight"].fill_(-1))
weights("no tensors", lambda tensors: tensors.clear())
contents("half the weights", "model.safetensors", lambda data: data[: len(data) // 2])
contents("empty weights", "model.safetensors", lambda data: b"")
contents("a header longer than the file", "model.safetensors", lambda data: b"\xff" * 8 + data[8:])
contents("a pickle as weights", "model.safetensors", lambda data: b"\x80\x04K\x01.")
contents(
    "weights of another model", "model.safetensors", lambda data: data[:-1] + b"\x01", sealed=False
)
contents(
    "one flipped bit",
    "lexicon.json",
    lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
    sealed=False,
)


@damage
def a_table_without_columns(folder: Path) -> None:
    change(folder, lambda config: config["config"]["embedder"]["config"]["shapes"]["weight"].pop())
    tensors = load_file(folder / "model.safetensors")
    tensors["embedder.table.weight"] = tensors["embedder.table.weight"][:, 0].clone()
    save_file(tensors, folder / "model.safetensors")
    reseal(folder)


# --- the lexicon
# -------------------------------------------------------------------------------------------------

words("no words", lambda lexicon: lexicon.pop("words"))
words("a word less", lambda lexicon: lexicon["words"].pop())
words("words twice", lambda lexicon: lexicon.update(words=lexicon["words"] * 2))
words("words that are numbers", lambda lexicon: lexicon.update(words=[1, 2]))
words("words that are text", lambda lexicon: lexicon.update(words="me gusta"))
words("a strange normal form", lambda lexicon: lexicon.update(normalization="XYZ"))
words("characters that are a number", lambda lexicon: lexicon.update(characters=5))
words("a newer lexicon", lambda lexicon: lexicon.update(format_version=99))
contents("a lexicon that is a list", "lexicon.json", lambda data: b"[]")
contents("no lexicon at all", "lexicon.json", lambda data: b"")

# --- what is not a regular file of the folder
# --------------------------------------------------------------------


def replaced(name: str, make: Callable[[Path, Path], object]) -> None:
    for file in ("config.json", "model.safetensors", "lexicon.json"):

        def act(folder: Path, file: str = file) -> None:
            (folder / file).rename(folder.parent / f"outside-{file}")
            make(folder / file, folder.parent / f"outside-{file}")

        FOLDERS[f"{name} as {file}"] = act


def a_socket(path: Path, _: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


replaced("a link out", lambda path, outside: path.symlink_to(outside))
replaced("a pipe", lambda path, _: os.mkfifo(path))
replaced("a folder", lambda path, _: path.mkdir())
replaced("a link to itself", lambda path, _: path.symlink_to(path.name))
replaced("a device", lambda path, _: path.symlink_to("/dev/zero"))
replaced("nothing", lambda path, _: None)


@damage
def the_exchange_is_a_link_out(folder: Path) -> None:
    outside = folder.parent / "elsewhere"
    outside.mkdir()
    (folder / "lexicon.json").rename(outside / "lexicon.json")
    (folder / ".polyembed-saved").symlink_to(outside)


@damage
def the_exchange_holds_a_pipe(folder: Path) -> None:
    (folder / ".polyembed-saved").mkdir()
    os.mkfifo(folder / ".polyembed-saved" / "model.safetensors")


@damage
def the_exchange_holds_other_weights(folder: Path) -> None:
    (folder / ".polyembed-saved").mkdir()
    save_file({"more": torch.zeros(1)}, folder / ".polyembed-saved" / "model.safetensors")
