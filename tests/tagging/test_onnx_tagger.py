"""An exported tagger's folder: files that are missing, or of another format."""

import json
import sys

import pytest

from polyembed.tagging import OnnxTagger

GOOD = {
    "format_version": 3,
    "tags": ["A", "B"],
    "words": [],
    "normalization": None,
    "lowercase_fallback": False,
}


def test_a_folder_that_lacks_a_file(tmp_path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"^folder must hold tagger.json, got nothing at .*tagger\.json$"
    ):
        OnnxTagger(tmp_path)
    (tmp_path / "tagger.json").write_text("{}")
    with pytest.raises(
        FileNotFoundError, match=r"^folder must hold tagger.onnx, got nothing at .*tagger\.onnx$"
    ):
        OnnxTagger(tmp_path)


def test_another_format_and_a_package_that_is_missing(tmp_path, monkeypatch) -> None:
    (tmp_path / "tagger.onnx").touch()
    (tmp_path / "tagger.json").write_text(json.dumps({**GOOD, "format_version": 2}))
    message = r"^tagger\.json must be of format 3, got 2\. Export the tagger again$"
    with pytest.raises(ValueError, match=message):
        OnnxTagger(tmp_path)
    (tmp_path / "tagger.json").write_text(json.dumps(GOOD))
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    message = r"^OnnxTagger must find onnxruntime, got .* pip install \"polyembed\[onnx\]\"$"
    with pytest.raises(ImportError, match=message):
        OnnxTagger(tmp_path)
