"""Benchmarks at small size that `make bench` does not run: that they run, and that what they compare agrees."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import tiny_model, word_piece_tokenizer

from polyembed import ScalarMix
from polyembed.data import TaggedSentence

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


def run(name: str, *arguments: object) -> str:
    command = [sys.executable, ROOT / "benchmarks" / name, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_efficiency(tmp_path: Path) -> None:
    sizes = [
        "--lengths",
        8,
        16,
        "--runs",
        1,
        "--predict",
        20,
        "--out",
        tmp_path,
        "--scores",
        "HME=100:0.5",
    ]
    printed = run("efficiency.py", "--models", "HME", "HME, baked", *sizes)
    for name in ("HME", "HME, baked"):
        assert (
            len(re.findall(rf"^\| {name} +\|", printed, re.MULTILINE)) >= 5
        )  # a row in each table
    assert "| 10 % " in printed
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "speed.png",
        "memory.png",
        "score.png",
    }


def test_run_all_compares_with_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    threads = {
        size: run_all.run("threads.py", size, "cpu").ratios["threads"] for size in ("small", "full")
    }
    assert threads == {"small": 1, "full": 2}


def test_protocols(data_folder: Path, tmp_path: Path) -> None:
    sizes = [
        "--sentences",
        20,
        "--dev",
        5,
        "--test",
        15,
        "--epochs",
        1,
        "--seeds",
        1,
        "--lines",
        100,
        "--dim",
        5,
    ]
    printed = run("protocols.py", "--protocol", "zero_shot", *sizes, "--cache", tmp_path)
    assert "### Zero-shot, es to nl" in printed
    assert "### Zero-shot, nl to es" in printed
    for system in ("source language", "two spaces", "MUSE", "one space"):
        assert printed.count(f"| {system} ") >= 2
    assert "p, bootstrap" in printed


def test_char2subword(data_folder: Path, tmp_path: Path) -> None:
    tiny_model("bert", vocab_size=17).save_pretrained(tmp_path / "encoder")
    word_piece_tokenizer().save_pretrained(tmp_path / "encoder")
    sizes = [
        "--epochs",
        2,
        "--seeds",
        1,
        "--sentences",
        20,
        "--dev",
        5,
        "--test",
        10,
        "--tagging-epochs",
        1,
    ]
    arguments = ["--encoder", tmp_path / "encoder", "--cache", tmp_path / "cache", *sizes]
    printed = run("char2subword.py", *arguments)
    for name in ("trained", "held out", "table", "characters, pieces", "characters, words"):
        assert f"| {name} " in printed
    assert "fitted before" in run("char2subword.py", *arguments, "--systems", "characters, words")


def test_serving() -> None:
    printed = run("serving.py", "--sentences", 8, "--runs", 1)
    assert (
        len(
            re.findall(
                r"^\| (?:\d threads?|1 thread, 2 of torch|2 processes) +\| [\d,]+ +\|",
                printed,
                re.MULTILINE,
            )
        )
        == 5
    )


def test_metaxl_step_over_a_pretrained_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    metaxl_step = importlib.import_module("metaxl_step")
    tiny_model("bert").save_pretrained(tmp_path)
    word_piece_tokenizer().save_pretrained(tmp_path)
    calls = metaxl_step.make_calls((2, 4), 3, "cpu", 0.0, str(tmp_path))
    assert {"joint training", "authors", "forward_over_reverse"} <= set(calls)
    for call in calls.values():
        call()


@pytest.mark.parametrize(
    ("system", "num_layers"), [("spelling-frozen", 1), ("spelling-mixed", 4), ("tuned", 4)]
)
def test_tagging_quality_beside_a_pretrained_model(
    system: str, num_layers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    quality = importlib.import_module("tagging_quality")
    tiny_model("bert").save_pretrained(tmp_path / "tiny")
    word_piece_tokenizer().save_pretrained(tmp_path / "tiny")
    sentences = [
        TaggedSentence(("me", "gusta", "la", "cancion"), ("PRON", "VERB", "DET", "NOUN"))
    ] * 3
    toy = quality.Task(lambda: (sentences, sentences, sentences), (), "accuracy")
    monkeypatch.setitem(quality.TASKS, "toy", toy)
    setup = quality.Setup(tmp_path, 4, str(tmp_path / "tiny"), 2)
    if system != "tuned":
        quality.cache_layers(system, ["toy"], setup)
        store = quality.FeatureStore(setup.frozen(system) / "features-toy")
        assert len(store.layers) == num_layers
    tagger = quality.build(system, "toy", setup, seed=0)
    mixes = [part for part in tagger.modules() if isinstance(part, ScalarMix)]
    assert [len(mix.weights) for mix in mixes] == ([4] if num_layers == 4 else [])
    result = quality.run("toy", system, 0, None, setup)
    assert result["size"] == 3
    assert len(result["predicted"]) == 3
    assert result == quality.run("toy", system, 0, None, setup)  # the second is read, not trained
