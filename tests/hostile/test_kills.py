"""A save is whole or not there: a process is killed at each of its file operations, and readers watch."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import polyembed as pe
from polyembed.vectors import FastTextVectors

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes by fork"),
    pytest.mark.filterwarnings(
        "ignore:.*fork:DeprecationWarning"
    ),  # beside threads, from Python 3.12 on
]

FILES = ("open", "os.", "shutil.", "tempfile.")
KILLED = 9
Save = Callable[[Path], None]


@pytest.fixture(scope="module")
def saves(tmp_path_factory: pytest.TempPathFactory) -> dict[float, Save]:
    """Return two saves, by the number that fills their weights: other files, other vectors, a card or none."""
    folder = tmp_path_factory.mktemp("vectors")
    lexicon = pe.Lexicon(["me", "gusta"])
    made: dict[float, Save] = {}
    for number, names in ((1.0, ["es"]), (2.0, ["hi", "en"])):
        sources = [
            FastTextVectors.train(
                [["me", "gusta"]] * 9, folder / f"{name}.bin", dim=3, min_count=1, bucket=10
            )
            for name in names
        ]
        embedder = pe.MetaEmbedding.concat(
            [pe.SourceEmbedding(source, lexicon, freeze=False) for source in sources]
        )
        with torch.no_grad():
            for parameter in embedder.parameters():
                parameter.fill_(number)
        card = "# One" if number == 1.0 else None
        made[number] = lambda path, embedder=embedder, card=card: embedder.save_pretrained(
            path, card=card
        )  # type: ignore[misc]
    return made


def number_of(folder: Path) -> float:
    """Load a folder, and return the number that fills all of its weights; they must agree with its files."""
    embedder = pe.MetaEmbedding.from_pretrained(folder)
    (number,) = {
        value for parameter in embedder.parameters() for value in parameter.unique().tolist()
    }
    assert len(embedder.embedders) == number
    names = {file.name for part in embedder.embedders for file in part.source.files().values()}
    assert names == (
        {"vectors-0-es.bin"} if number == 1.0 else {"vectors-0-hi.bin", "vectors-1-en.bin"}
    )
    return float(number)


def killed_at(operation: int, work: Callable[[], object]) -> bool:
    """Do some work in a process that is killed before its n-th file operation; return whether it came so far."""
    child = os.fork()
    if not child:
        left = [operation]

        def count(event: str, arguments: tuple) -> None:
            if event.startswith(FILES):
                left[0] -= 1
                if left[0] < 0:
                    os._exit(KILLED)

        try:
            sys.addaudithook(count)
            work()
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED), "the save failed by itself"
    return code == KILLED


def leftovers(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith(".")}


@pytest.mark.parametrize(("old", "new"), [(1.0, 2.0), (2.0, 1.0)])
def test_killed_over_an_existing_folder(
    old: float, new: float, saves: dict[float, Save], tmp_path: Path
) -> None:
    found, operation, folder, whole = [], 0, tmp_path / "saved", tmp_path / "whole"
    saves[old](folder)
    shutil.copytree(folder, whole)
    (folder / "notes.txt").write_text("mine")
    while killed_at(operation, lambda: saves[new](folder)):
        found.append(number_of(folder))
        saves[old](folder)  # finishes or removes what was left
        assert not leftovers(folder)
        files = {
            path.name: path.read_bytes() for path in folder.iterdir() if path.name != "notes.txt"
        }
        assert files == {path.name: path.read_bytes() for path in whole.iterdir()}
        operation += 1
    assert number_of(folder) == new
    assert set(found) == {old, new}, "killed before and after the exchange"
    assert found == sorted(found, reverse=old > new), (
        "there is one moment from which the new save counts"
    )
    assert (folder / "notes.txt").read_text() == "mine"


def test_killed_in_a_new_folder(saves: dict[float, Save], tmp_path: Path) -> None:
    operation, seen = 0, set()
    while killed_at(operation, lambda: saves[1.0](tmp_path / "saved")):
        try:
            seen.add(number_of(tmp_path / "saved"))
        except FileNotFoundError:
            seen.add(0.0)
        shutil.rmtree(tmp_path / "saved", ignore_errors=True)
        operation += 1
    assert seen == {0.0, 1.0}


def test_killed_while_finishing_another_save(saves: dict[float, Save], tmp_path: Path) -> None:
    """A second save finishes an interrupted exchange first; killed there, the folder still has the new save."""
    folder, operation = tmp_path / "saved", 0
    saves[1.0](folder)
    while (
        killed_at(operation, lambda: saves[2.0](folder))
        and not (folder / ".polyembed-saved").is_dir()
    ):
        operation += 1
    assert leftovers(folder) == {".polyembed-saved"}
    shutil.copytree(folder, tmp_path / "interrupted")
    operation = 0
    while killed_at(operation, lambda: saves[1.0](folder)):
        assert number_of(folder) in (1.0, 2.0)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "interrupted", folder)
        operation += 1
    assert number_of(folder) == 1.0
    assert not leftovers(folder)


def test_a_reader_sees_the_old_or_the_new(saves: dict[float, Save], tmp_path: Path) -> None:
    """Another process saves one after the other, as fast as it can, while this one reads."""
    folder = tmp_path / "saved"
    saves[1.0](folder)
    child = os.fork()
    if not child:
        try:
            for i in range(100):
                saves[2.0 - i % 2](folder)
        finally:
            os._exit(0)
    found = []
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        found.append(number_of(folder))
    assert set(found) == {1.0, 2.0}


def test_two_savers_take_turns(saves: dict[float, Save], tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    children = []
    for number in (1.0, 2.0):
        children.append(os.fork())
        if not children[-1]:
            try:
                for _ in range(20):
                    saves[number](folder)
                os._exit(0)
            finally:
                os._exit(1)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert number_of(folder) in (1.0, 2.0)
    assert not leftovers(folder)


def test_a_failed_save_leaves_nothing(
    saves: dict[float, Save], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors import SafetensorError

    def fail(*_: object, **__: object) -> None:
        raise SafetensorError("No space left on device")

    folder = tmp_path / "saved"
    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", fail)
        with pytest.raises(
            OSError, match=r"model.safetensors could not be written: No space left on device"
        ):
            saves[1.0](folder)
    assert not folder.exists()
    saves[1.0](folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", fail)
        with pytest.raises(OSError, match=r"model.safetensors could not be written"):
            saves[2.0](folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_no_save_writes_through_a_link(saves: dict[float, Save], tmp_path: Path) -> None:
    folder, outside = tmp_path / "saved", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "model.safetensors").write_text("theirs")
    (outside / "keep").write_text("theirs")
    for name in (".polyembed-draft", ".polyembed-saved"):
        (folder / name).symlink_to(outside)
    (folder / "model.safetensors").symlink_to(outside / "model.safetensors")
    (folder / "config.json").write_text('{"checksums": {"../outside/keep": "0", "notes": "0"}}')
    (folder / "notes").write_text("mine")
    saves[1.0](folder)
    assert number_of(folder) == 1.0
    assert {path.name: path.read_text() for path in outside.iterdir()} == {
        "model.safetensors": "theirs",
        "keep": "theirs",
    }
    assert (folder / "notes").read_text() == "mine"
