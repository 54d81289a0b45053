"""An exported tagger's folder: files that are missing or damaged."""

import hashlib
import json
import sys
from pathlib import Path

import pytest

from polyembed.tagging import OnnxTagger
from polyembed.tagging.onnx_tagger import digest_of

GOOD = {
    "format_version": 2,
    "tags": ["A", "B"],
    "words": [],
    "normalization": None,
    "lowercase_fallback": False,
    "checksums": {},
}


def write(folder: Path, settings: object, *, sealed: bool = False) -> None:
    """Write settings over files that are no model; sealed, with the right checksums."""
    for name in ("tagger.onnx", "tagger.onnx.data"):
        (folder / name).touch()
    if sealed:
        empty = hashlib.sha256().hexdigest()
        sums = {"tagger.json": digest_of(settings), "tagger.onnx": empty, "tagger.onnx.data": empty}
        settings = {**settings, "checksums": sums}
    (folder / "tagger.json").write_text(
        settings if isinstance(settings, str) else json.dumps(settings)
    )


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
    (tmp_path / "tagger.onnx").touch()
    with pytest.raises(
        FileNotFoundError, match=r"^folder must hold tagger.onnx.data, got nothing at "
    ):
        OnnxTagger(tmp_path)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", r"hold the settings of an exported tagger, got JSONDecodeError: "),
        ("[]", r"hold the settings of an exported tagger, got TypeError: "),
        ("{}", r"hold the settings of an exported tagger, got KeyError: 'format_version'$"),
        ("[" * 100_000, r"hold the settings of an exported tagger, got RecursionError: "),
        (
            '{"format_version": 2, "tags": []}',
            r"got no checksums, lowercase_fallback, normalization, words$",
        ),
        ('{"format_version": 1}', r"have the format_version 2, got 1\. Export the tagger again"),
        ('{"format_version": 3}', r"have the format_version 2, got 3\. Export the tagger again"),
        ('{"format_version": "2"}', r"have the format_version 2, got '2'"),
        ({**GOOD, "tags": None}, r"hold the settings .*, got tags None$"),
        ({**GOOD, "tags": "AB"}, r"got tags AB$"),
        ({**GOOD, "tags": [1, 2]}, r"got tags \[1, 2\]$"),
        ({**GOOD, "tags": ["A", "A"]}, r"got tags \['A', 'A'\]$"),
        ({**GOOD, "tags": []}, r"got tags \[\]$"),
        ({**GOOD, "words": None}, r"got words None$"),
        ({**GOOD, "words": [["a"]]}, r"got words \[\['a'\]\]$"),
        ({**GOOD, "normalization": "NFX"}, r"got normalization NFX$"),
        ({**GOOD, "lowercase_fallback": "no"}, r"got lowercase_fallback no$"),
        ({**GOOD, "checksums": []}, r"got checksums \[\]$"),
        (
            GOOD,
            r"have the SHA-256 None of tagger\.json, got [0-9a-f]{64}\. It is damaged or of another export",
        ),
    ],
)
def test_settings_that_cannot_be_read(tmp_path, content: object, rule: str) -> None:
    write(tmp_path, content)
    with pytest.raises(ValueError, match=rf"tagger\.json must .*{rule}"):
        OnnxTagger(tmp_path)


def test_a_package_that_is_missing(tmp_path, monkeypatch) -> None:
    write(tmp_path, GOOD, sealed=True)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    message = r"^OnnxTagger must find the package 'onnxruntime', got .* pip install \"polyembed\[onnx\]\"$"
    with pytest.raises(ImportError, match=message):
        OnnxTagger(tmp_path)
