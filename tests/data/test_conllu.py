"""CoNLL-U, on a small file and on the Turkish-German treebank."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from polyembed.data import MISSING_TAG, read_conllu


def row(index: str, form: str, *, upos: str = "NOUN", feats: str = "_", misc: str = "_") -> str:
    return "\t".join([index, form, form.lower(), upos, "_", feats, "0", "root", "_", misc])


@pytest.fixture
def tokens(file: Callable[[str], Path]) -> Path:
    lines = [
        "# sent_id = s-1",
        "# text = sözlü # .",
        "# a note",
        row("1-2", "sözlü", upos="_", misc="CSID=TR|SpaceAfter=No"),
        row("1", "söz", feats="Case=Nom|Number=Sing", misc="CSID=DE"),
        row("2", "lü", upos="ADP"),
        row("2.1", "null"),
        row("3", "#", upos="SYM", misc="Lang=de"),
    ]
    return file("\n".join(lines))


def test_syntactic_words(tokens: Path):
    (sentence,) = read_conllu(tokens)
    assert (sentence.words, sentence.languages) == (("söz", "lü", "#"), None)
    assert dict(sentence.metadata) == {"sent_id": "s-1", "text": "sözlü # ."}


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("upos", ("NOUN", "ADP", "SYM")),
        ("lemma", ("söz", "lü", "#")),
        ("feats", ("Case=Nom|Number=Sing", "_", "_")),
        ("feats:Number", ("Sing", MISSING_TAG, MISSING_TAG)),
        ("misc", ("CSID=DE", "_", "Lang=de")),
        ("misc:CSID", ("DE", "TR", MISSING_TAG)),  # the second word has the key of its token
        ("misc:Lang", (MISSING_TAG, MISSING_TAG, "de")),
    ],
)
def test_columns_and_keys(tokens: Path, name: str, tags: tuple[str, ...]):
    (sentence,) = read_conllu(tokens, tag=name, language=name)
    assert sentence.tags == sentence.languages == tags


@pytest.mark.parametrize(
    ("split", "sentences", "words"), [("train", 578, 10_081), ("test", 805, 14_089)]
)
def test_sagt(data_folder: Path, split: str, sentences: int, words: int):
    path = data_folder / "code_switched/ud_turkish_german_sagt" / f"qtd_sagt-ud-{split}.conllu"
    read = read_conllu(path, tag="misc:Lang", language="misc:CSID")
    assert (len(read), sum(map(len, read))) == (sentences, words)
    assert all({"sent_id", "text"} <= sentence.metadata.keys() for sentence in read)
    languages = Counter(language for sentence in read for language in sentence.languages or ())
    assert set(languages) == {"TR", "DE", "MIXED", "LANG3", "OTHER"}
    # by README.upstream, exactly the tokens with CSID=OTHER have no Lang
    assert sum(s.tags.count(MISSING_TAG) for s in read) == languages["OTHER"]
