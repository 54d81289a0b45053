"""Benchmarks that `make bench` does not run, at small size.

The benchmarks must finish, and their comparisons must agree.
"""

import contextlib
import importlib
import io
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_models import tiny_model, word_piece_tokenizer

import polyembed as pe
from polyembed import ScalarMix
from polyembed.data import TaggedSentence

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture
def load(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module


@pytest.fixture
def run(load, monkeypatch):
    """Return a function that runs a benchmark by a command line and returns its output."""

    def run(name, command):
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *shlex.split(command)])
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as printed:
            warnings.simplefilter("ignore")
            load(name).main()
        return printed.getvalue()

    return run


@pytest.fixture
def encoder(tmp_path) -> Path:
    tiny_model("bert").save_pretrained(tmp_path / "encoder")
    word_piece_tokenizer().save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


def test_efficiency(run, tmp_path):
    sizes = "--lengths 8 16 --runs 1 --predict 20 --scores HME=100:0.5"
    printed = run("efficiency", f"--models HME 'HME, baked' {sizes} --out {tmp_path}")
    for name in ("HME", "HME, baked"):  # one row in each table
        assert len(re.findall(rf"^\| {name} +\|", printed, re.MULTILINE)) >= 5
    assert "| 10 % " in printed
    assert {path.stem for path in tmp_path.glob("*.png")} == {"speed", "memory", "score"}


def test_a_ratio_far_from_the_recorded_one_is_named(load):
    run_all = load("run_all")
    found = run_all.Found({"a": 2.0, "b": 4.1, "c": 1.0, "quick": 99.0}, {"a", "b", "c"}, 1.0, True)
    off = run_all.compare(found, {"a": 1.0, "b": 2.0, "quick": 1.0, "elsewhere": 5.0})
    assert off == ["b: 4.1, recorded 2"]
    assert run_all.compare(found, {"a": 4.0, "b": 8.2, "c": 2.0}) == []
    assert run_all.compare(found, {"a": 4.1, "b": 4.0, "c": 1.0}) == ["a: 2, recorded 4.1"]


@pytest.mark.parametrize("task", ["pos", "ner"])
def test_zero_shot(load, run, data_folder, encoder, tmp_path, monkeypatch, task: str):
    """Finished runs are read and not repeated, so the printed seconds stay the same."""
    monkeypatch.setitem(load("zero_shot").SIZES, task, (12, 4, 4))
    options = (
        f"--task {task} --encoder {encoder} --sources es --seeds 1 --cache {tmp_path / 'runs'}"
    )
    printed = run("zero_shot", options)
    for system in ("rule", "encoder, frozen", "encoder, fine-tuned"):
        assert f"\n| {system} " in f"\n{printed}"
    kept = {path.name for path in (tmp_path / "runs").glob("*.json")}
    assert kept == {f"encoder.frozen.{task}.es.0.json", f"encoder.{task}.es.0.json"}
    monkeypatch.setattr(pe, "fit", None)
    assert run("zero_shot", options) == printed


def test_protocols(load, run, data_folder, tmp_path, monkeypatch):
    tasks = load("tagging_quality").TASKS
    for name in ("es", "nl"):  # word vectors are trained on all training sentences
        parts = tuple(part[:200] for part in tasks[name].load())
        monkeypatch.setitem(tasks, name, replace(tasks[name], load=lambda parts=parts: parts))
    sizes = "--sentences 20 --dev 5 --test 15 --epochs 1 --seeds 1 --lines 100 --dim 5"
    printed = run("protocols", f"--protocol zero_shot {sizes} --cache {tmp_path}")
    assert "### Zero-shot, es to nl" in printed
    assert "### Zero-shot, nl to es" in printed
    for system in ("source language", "two spaces", "MUSE", "one space"):
        assert printed.count(f"| {system} ") >= 2
    assert "p, sign" in printed


def test_char2subword(run, data_folder, encoder, tmp_path):
    sizes = "--epochs 2 --seeds 1 --sentences 20 --dev 5 --test 10 --tagging-epochs 1"
    options = f"--encoder {encoder} --cache {tmp_path}/cache {sizes}"
    printed = run("char2subword", options)
    for name in ("trained", "held out", "table", "characters, pieces", "characters, words"):
        assert f"| {name} " in printed
    assert "fitted before" in run("char2subword", f"{options} --systems 'characters, words'")


def test_serving():
    command = [sys.executable, ROOT / "benchmarks" / "serving.py", "--sentences", "8"]
    done = subprocess.run([*command, "--runs", "1"], capture_output=True, text=True, check=True)
    ways = r"^\| (?:\d threads?|1 thread, 2 of torch|2 processes) +\| [\d,]+ +\|"
    assert len(re.findall(ways, done.stdout, re.MULTILINE)) == 5


def test_metaxl_step_over_a_pretrained_encoder(load, encoder):
    calls = load("metaxl_step").make_calls((2, 4), 3, "cpu", 0.0, str(encoder))
    assert {"joint training", "authors", "forward_over_reverse"} <= set(calls)
    for call in calls.values():
        call()


@pytest.fixture
def quality(load, monkeypatch):
    """Return the benchmark of taggers with a task of three sentences."""
    module = load("tagging_quality")
    sentence = TaggedSentence(("me", "gusta", "la", "cancion"), ("PRON", "VERB", "DET", "NOUN"))
    toy = module.Task(lambda: ([sentence] * 3,) * 3, (), "accuracy")
    monkeypatch.setitem(module.TASKS, "toy", toy)
    return module


@pytest.mark.parametrize(
    ("system", "num_layers"), [("spelling-frozen", 1), ("spelling-mixed", 4), ("tuned", 4)]
)
def test_tagging_quality_beside_a_pretrained_model(
    system: str, num_layers: int, quality, encoder, tmp_path
):
    setup = quality.Setup(tmp_path, 4, str(encoder), 2)
    if system != "tuned":
        quality.cache_layers(system, ["toy"], setup)
        store = quality.FeatureStore(setup.frozen(system) / "features-toy")
        assert len(store.layers) == num_layers
    tagger = quality.build(system, "toy", setup, seed=0)
    mixes = [part for part in tagger.modules() if isinstance(part, ScalarMix)]
    assert [len(mix.weights) for mix in mixes] == ([4] if num_layers == 4 else [])
    result = quality.run("toy", system, 0, None, setup)
    assert result["size"] == len(result["predicted"]) == 3
    # the second run is read, not trained
    assert result == quality.run("toy", system, 0, None, setup)


def test_a_stopped_run_of_tagging_quality_goes_on(quality, tmp_path, monkeypatch):
    fit, epochs = pe.fit, []
    setup = quality.Setup(tmp_path, 4, None, 2)

    def stop_after(last):
        def note(epoch):
            epochs.append(epoch.number)
            if epoch.number == last:
                raise KeyboardInterrupt

        monkeypatch.setattr(pe, "fit", lambda *a, **options: fit(*a, **options, on_epoch=note))
        return quality.run("toy", "spelling", 0, None, setup)

    with pytest.raises(KeyboardInterrupt):
        stop_after(2)
    result = stop_after(0)
    assert epochs == list(range(1, result["epochs"] + 1))
    assert not list(tmp_path.rglob("*.state"))


def test_few_labels(run, data_folder, tmp_path):
    printed = run("few_labels", f"--part entities sets --tasks am --seeds 1 --cache {tmp_path}")
    assert printed.count("\n| am") == 7  # six kinds of sets
    with pytest.raises(SystemExit, match="am must have 300"):
        run("few_labels", "--part selection --tasks am")
