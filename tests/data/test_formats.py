"""One door to the readers."""

from pathlib import Path

import pytest
from checks import refused

from polyembed import data
from polyembed.data import read_tagged


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("conll", "hola O\n", {}),
        ("conllu", "1\thola\thola\tO\t_\t_\t0\troot\t_\t_\n", {"tag": "upos"}),
        ("wikiann", "es:hola\tO\n", {}),
        ("lince", "hola\tlang2\tO\n", {"task": "ner_spaeng"}),
        ("sentimix", "meta\t1\tneutral\nhola\tO\n", {}),
        ("inline", "hola_O\n", {"separator": "_"}),
        ("csv", "Sent,Word,Tag\n1,hola,Other\n", {}),
    ],
)
def test_every_format(tmp_path: Path, name: str, text: str, options: dict[str, str]) -> None:
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    read = read_tagged(path, name, **options)
    assert read == getattr(data, f"read_{name}")(path, **options)
    assert (read[0].words, read[0].tags) == (("hola",), ("O",))


def test_unknown_format(tmp_path: Path) -> None:
    refused(
        ValueError,
        r"format must be one of 'conll', 'conllu', .*, got 'xml'",
        read_tagged,
        tmp_path,
        "xml",
    )
    refused(TypeError, "task", read_tagged, tmp_path, "conll", task="ner_spaeng")
