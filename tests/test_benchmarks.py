"""Benchmarks at small size: that they run, and that what they compare agrees; their figures are in docs/results.md."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, ROOT / "benchmarks" / name, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_alignment() -> None:
    printed = run("alignment.py", "--words", 2000, "--runs", 1)
    assert "| nearest_csls " in printed
    assert "| three bare products " in printed


def test_laser() -> None:
    printed = run("laser.py", "--sentences", 20, "--batch-size", 7, "--runs", 1, "--hidden-size", 4)
    assert "| bare nn.LSTM, padded " in printed
    assert "word vectors (LaserTop) over a bare LSTM: " in printed


def test_protocols(data_folder: Path, tmp_path: Path) -> None:
    sizes = ["--sentences", 40, "--dev", 10, "--test", 30, "--epochs", 1, "--seeds", 1, "--lines", 200, "--dim", 10]
    printed = run("protocols.py", "--protocol", "zero_shot", *sizes, "--cache", tmp_path)
    assert "### Zero-shot, es to nl" in printed
    assert "### Zero-shot, nl to es" in printed
    for system in ("source language", "two spaces", "MUSE", "one space"):
        assert printed.count(f"| {system} ") >= 2
    assert "p, bootstrap" in printed
