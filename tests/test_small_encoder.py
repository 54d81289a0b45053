"""The example that pretrains a small encoder: its files, and the languages that it omits."""

import json
import lzma
import math
import re
from pathlib import Path

import pytest
import small_encoder as example
from tiny_masked_lm import TEXTS, build_texts
from transformers import PreTrainedTokenizerFast, XLMRobertaForMaskedLM

from polyembed.training import perplexity

pytest.importorskip("accelerate", reason="adapt_masked_lm needs polyembed[train]")


def write_languages(folder: Path) -> None:
    """Write compressed files of English and Amharic, and a plain file of Spanish."""
    for language, count, seed in (("en", 120, 1), ("es", 400, 2), ("am", 60, 3)):
        lines = build_texts(count, seed)
        if language == "am":
            ethiopic = {code: code + 0x1200 - 97 for code in range(97, 123)}
            lines = [line.translate(ethiopic) for line in lines]
        text = "\n".join(f"{line} {language}{i}" for i, line in enumerate(lines))
        (folder / f"{language}.txt").write_text(text, "utf-8")
        if language != "es":
            path = (folder / f"{language}.txt").rename(folder / f"{language}.txt.xz")
            path.write_bytes(lzma.compress(text.encode()))


def test_small_encoder(tmp_path, monkeypatch, capsys):
    def encoder(**changes):
        places = {"text": tmp_path, "cache": tmp_path / "encoder", "device": "cpu"}
        return example.small_encoder("tiny", progress=False, **places, **options, **changes)

    recipe = {**example.RECIPES["tiny"], "tokenizer": {"vocab_size": 420, "lines": 300}}
    monkeypatch.setitem(example.RECIPES, "tiny", recipe)
    write_languages(tmp_path)
    options = {"languages": ["en", "es", "am"], "leave_out": ["am"], "max_steps": 30}
    folder = encoder()
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
    assert perplexity(model, tokenizer, TEXTS, max_length=64) < len(tokenizer)

    monkeypatch.setattr(example, "adapt_masked_lm", None)  # the second call does not train
    assert encoder() == folder
    command = f"example.py --size tiny --text {tmp_path} --cache {folder} --max-steps 30"
    monkeypatch.setattr("sys.argv", f"{command} --languages en es am --leave-out am".split())
    example.main()
    printed = capsys.readouterr().out
    assert re.findall(r"^\| (\w+) +\| (\d+) ", printed, re.MULTILINE) == [
        ("en", "108"),
        ("es", "360"),
    ]
    assert f"\n{report['parameters']:,} parameters, 30 steps, " in printed
    with pytest.raises(ValueError, match=r"^cache must hold an encoder of these settings, got "):
        encoder(seed=1)
