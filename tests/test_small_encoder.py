"""The example that pretrains a small encoder: what it leaves, that it goes on, what it leaves out."""

import importlib
import json
import lzma
import math
from pathlib import Path
from types import ModuleType

import pytest
from tiny_masked_lm import TEXTS, build_texts
from transformers import PreTrainedTokenizerFast, XLMRobertaForMaskedLM

from polyembed.training import perplexity

pytest.importorskip("accelerate", reason="adapt_masked_lm needs polyembed[train]")


def write_languages(folder: Path) -> Path:
    for language, count, seed in (("en", 120, 1), ("es", 400, 2), ("am", 60, 3)):
        lines = build_texts(count, seed)
        if language == "am":
            lines = [
                line.translate({ord(letter): ord(letter) + 0x1200 - 97 for letter in line})
                for line in lines
            ]
        text = "\n".join(f"{line} {language}{i}" for i, line in enumerate(lines))
        if language == "es":
            (folder / "es.txt").write_text(text, "utf-8")
        else:
            (folder / f"{language}.txt.xz").write_bytes(lzma.compress(text.encode()))
    return folder


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, with a recipe for few lines."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples")
    module = importlib.import_module("small_encoder")
    recipe = {**module.RECIPES["tiny"], "tokenizer": {"vocab_size": 420, "lines": 300}}
    monkeypatch.setitem(module.RECIPES, "tiny", recipe)
    return module


def test_small_encoder(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "languages": ["en", "es", "am"],
        "leave_out": ["am"],
        "text": write_languages(tmp_path),
        "max_steps": 30,
        "device": "cpu",
        "progress": False,
    }
    folder = example.small_encoder("tiny", cache=tmp_path / "one", **options)
    report = json.loads((folder / "report.json").read_text())
    assert list(report["languages"]) == ["en", "es"]
    english, spanish = report["languages"].values()
    assert (english["lines"], spanish["lines"]) == (108, 360)
    ratio = math.sqrt(108) / (math.sqrt(108) + math.sqrt(360))
    assert english["share"] == pytest.approx(ratio, abs=0.01)
    assert all(row["after"] < 0.7 * row["before"] for row in (english, spanish))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    assert len(tokenizer) <= 420
    ids = tokenizer("gato ሀለ你")["input_ids"]
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids) == "<s> gato ሀለ你</s>"
    model = XLMRobertaForMaskedLM.from_pretrained(folder)
    assert model.config.num_hidden_layers == 2
    parts = {"one": TEXTS[:9], "other": TEXTS[9:]}
    for part in parts.values():
        assert perplexity(model, tokenizer, part, max_length=64) < len(tokenizer)

    monkeypatch.setattr(example, "adapt_masked_lm", None)  # the second call trains nothing
    assert example.small_encoder("tiny", cache=tmp_path / "one", **options) == folder
    with pytest.raises(ValueError, match=r"^cache must hold an encoder of these settings, got "):
        example.small_encoder("tiny", cache=tmp_path / "one", **options, seed=1)


def test_small_encoder_goes_on_after_a_kill(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "languages": ["en"],
        "text": write_languages(tmp_path),
        "max_steps": 3,
        "device": "cpu",
    }

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(example, "adapt_masked_lm", interrupted)
        with pytest.raises(KeyboardInterrupt):
            example.small_encoder("tiny", cache=tmp_path / "one", **options)
    pieces = (tmp_path / "one" / "training" / "tokenizer" / "tokenizer.json").read_text("utf-8")
    folder = example.small_encoder("tiny", cache=tmp_path / "one", **options)
    first, last = (
        json.loads(text)["model"]
        for text in (pieces, (folder / "tokenizer.json").read_text("utf-8"))
    )
    assert first == last
    assert not (folder / "training").exists()


def test_small_encoder_leaves_chinese_wikipedia_out(example: ModuleType, data_folder: Path) -> None:
    folder = data_folder / "text" / "mono"
    assert len(example.read_lines(folder, "zh", None, "no-wikipedia")) == 19082
    assert len(example.read_lines(folder, "zh", None, "all")) == 63845
