"""Benchmarks at small size that `make bench` does not run: that they run, and that what they compare agrees."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import tiny_model, word_piece_tokenizer

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, ROOT / "benchmarks" / name, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_efficiency(tmp_path: Path) -> None:
    sizes = ["--lengths", 8, 16, "--runs", 1, "--predict", 20, "--out", tmp_path, "--scores", "HME=100:0.5"]
    printed = run("efficiency.py", "--models", "HME", "HME, baked", *sizes)
    for name in ("HME", "HME, baked"):
        assert len(re.findall(rf"^\| {name} +\|", printed, re.MULTILINE)) >= 5  # a row in each table
    assert "| 10 % " in printed
    assert {path.name for path in tmp_path.glob("*.png")} == {"speed.png", "memory.png", "score.png"}


def test_run_all_compares_with_what_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    run_all = importlib.import_module("run_all")
    found = run_all.Found({"a": 2.0, "b": 4.1, "c": 1.0, "quick": 99.0}, {"a", "b", "c"}, 1.0, True)
    off = run_all.compare(found, {"a": 1.0, "b": 2.0, "quick": 1.0, "elsewhere": 5.0})
    assert off == ["b: 4.1, recorded 2"]
    assert run_all.compare(found, {"a": 4.0, "b": 8.2, "c": 2.0}) == []
    assert run_all.compare(found, {"a": 4.1, "b": 4.0, "c": 1.0}) == ["a: 2, recorded 4.1"]
    path = tmp_path / "report.json"
    printed = run("run_all.py", "--size", "small", "--only", "alignment.py", "--json", path)
    report = json.loads(path.read_text("utf-8"))
    ((name, value),) = report["ratios"].items()
    assert f"{name}: " in printed
    assert 0.5 < value < 10
    assert report["machine"]["cores"] > 0
    assert set(report["versions"]) == {"python", "torch", "transformers", "numpy"}


def test_run_all_keeps_small_to_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    run_all = importlib.import_module("run_all")
    script = "from _ratios import note; import torch; note('threads', torch.get_num_threads())"
    (tmp_path / "threads.py").write_text(script, "utf-8")
    monkeypatch.setattr(run_all, "HERE", tmp_path)
    monkeypatch.setitem(run_all.SCRIPTS, "threads.py", {"small": [], "full": []})
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "benchmarks"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    threads = {size: run_all.run("threads.py", size, "cpu").ratios["threads"] for size in ("small", "full")}
    assert threads == {"small": 1, "full": 2}


def test_protocols(data_folder: Path, tmp_path: Path) -> None:
    sizes = ["--sentences", 20, "--dev", 5, "--test", 15, "--epochs", 1, "--seeds", 1, "--lines", 100, "--dim", 5]
    printed = run("protocols.py", "--protocol", "zero_shot", *sizes, "--cache", tmp_path)
    assert "### Zero-shot, es to nl" in printed
    assert "### Zero-shot, nl to es" in printed
    for system in ("source language", "two spaces", "MUSE", "one space"):
        assert printed.count(f"| {system} ") >= 2
    assert "p, bootstrap" in printed


def test_char2subword(data_folder: Path, tmp_path: Path) -> None:
    tiny_model("bert", vocab_size=17).save_pretrained(tmp_path / "encoder")
    word_piece_tokenizer().save_pretrained(tmp_path / "encoder")
    sizes = ["--epochs", 2, "--seeds", 1, "--sentences", 20, "--dev", 5, "--test", 10, "--tagging-epochs", 1]
    arguments = ["--encoder", tmp_path / "encoder", "--cache", tmp_path / "cache", *sizes]
    printed = run("char2subword.py", *arguments)
    for name in ("trained", "held out", "table", "characters, pieces", "characters, words"):
        assert f"| {name} " in printed
    assert "fitted before" in run("char2subword.py", *arguments, "--systems", "characters, words")


def test_serving() -> None:
    printed = run("serving.py", "--sentences", 8, "--runs", 1)
    assert (
        len(re.findall(r"^\| (?:\d threads?|1 thread, 2 of torch|2 processes) +\| [\d,]+ +\|", printed, re.MULTILINE))
        == 5
    )
