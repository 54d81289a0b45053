"""An exported tagger's folder: files that are missing or damaged."""

import sys

import pytest

from polyembed.tagging import OnnxTagger


def test_a_folder_that_lacks_a_file(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match=r"^folder must hold tagger.json, got nothing at .*tagger\.json$"):
        OnnxTagger(tmp_path)
    (tmp_path / "tagger.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"^folder must hold tagger.onnx, got nothing at .*tagger\.onnx$"):
        OnnxTagger(tmp_path)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", r"hold the settings of an exported tagger, got JSONDecodeError: "),
        ("[]", r"hold the settings of an exported tagger, got TypeError: "),
        ("{}", r"hold the settings of an exported tagger, got KeyError: 'format_version'$"),
        ('{"format_version": 1, "tags": []}', r"got no lowercase_fallback, normalization, words$"),
        ('{"format_version": 2}', r"have a format_version of at most 1, got 2$"),
        ('{"format_version": "1"}', r"have a format_version of at most 1, got '1'$"),
    ],
)
def test_settings_that_cannot_be_read(tmp_path, content: str, rule: str) -> None:
    (tmp_path / "tagger.onnx").touch()
    (tmp_path / "tagger.json").write_text(content)
    with pytest.raises(ValueError, match=rf"tagger\.json must .*{rule}"):
        OnnxTagger(tmp_path)


def test_a_package_that_is_missing(tmp_path, monkeypatch) -> None:
    (tmp_path / "tagger.onnx").touch()
    settings = '{"format_version": 1, "tags": [], "words": [], "normalization": null, "lowercase_fallback": false}'
    (tmp_path / "tagger.json").write_text(settings)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    message = r"^OnnxTagger must find the package 'onnxruntime', got .* pip install \"polyembed\[onnx\]\"$"
    with pytest.raises(ImportError, match=message):
        OnnxTagger(tmp_path)
