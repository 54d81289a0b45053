"""CoNLL-U, on small files and on the Turkish-German treebank."""

from collections import Counter
from pathlib import Path

import pytest
from checks import refused

from polyembed.data import MISSING_TAG, read_conllu


def row(index: str, form: str, *, upos: str = "NOUN", feats: str = "_", misc: str = "_") -> str:
    return "\t".join([index, form, form.lower(), upos, "_", feats, "0", "root", "_", misc])


def write(folder: Path, *lines: str) -> Path:
    path = folder / "file.conllu"
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return write(
        tmp_path,
        "# sent_id = s-1",
        "# text = sözlü # .",
        "# a note",
        row("1-2", "sözlü", upos="_", misc="CSID=TR|SpaceAfter=No"),
        row("1", "söz", feats="Case=Nom|Number=Sing", misc="CSID=DE"),
        row("2", "lü", upos="ADP"),
        row("2.1", "null"),
        row("3", "#", upos="SYM", misc="Lang=de"),
    )


def test_syntactic_words(tokens: Path) -> None:
    (sentence,) = read_conllu(tokens)
    assert sentence.words == ("söz", "lü", "#")
    assert sentence.tags == ("NOUN", "ADP", "SYM")
    assert sentence.languages is None
    assert dict(sentence.metadata) == {"sent_id": "s-1", "text": "sözlü # ."}


def test_columns_and_keys(tokens: Path) -> None:
    def tags(name: str) -> tuple[str, ...]:
        return read_conllu(tokens, tag=name)[0].tags

    assert tags("lemma") == ("söz", "lü", "#")
    assert tags("xpos") == ("_", "_", "_")
    assert tags("deprel") == ("root", "root", "root")
    assert tags("feats") == ("Case=Nom|Number=Sing", "_", "_")
    assert tags("feats:Number") == ("Sing", MISSING_TAG, MISSING_TAG)
    assert tags("misc") == ("CSID=DE", "_", "Lang=de")


def test_misc_of_a_multi_word_token_holds_for_its_words(tokens: Path) -> None:
    (sentence,) = read_conllu(tokens, tag="misc:CSID", language="misc:Lang")
    assert sentence.tags == ("DE", "TR", MISSING_TAG)
    assert sentence.languages == (MISSING_TAG, MISSING_TAG, "de")


def test_misspelt_key(tokens: Path) -> None:
    with pytest.raises(
        ValueError, match=r"tag must name a key that a word of .*conllu has, got 'misc:CISD'"
    ):
        read_conllu(tokens, tag="misc:CISD")
    with pytest.raises(
        ValueError, match=r"language must name a key that a word of .*conllu has, got 'feats:Lang'"
    ):
        read_conllu(tokens, language="feats:Lang")


def test_unknown_columns(tokens: Path) -> None:
    refused(
        ValueError,
        r"tag must be one of 'lemma', 'upos', .*, got 'pos'",
        read_conllu,
        tokens,
        tag="pos",
    )
    with pytest.raises(
        ValueError, match="language must name a key as 'feats:<key>' or 'misc:<key>', got 'upos:X'"
    ):
        read_conllu(tokens, language="upos:X")


def test_malformed_lines_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"file\.conllu:2 must have ten columns, none empty, got '2\\tb'"
    ):
        read_conllu(write(tmp_path, row("1", "a"), "2\tb"))
    refused(
        ValueError,
        r"file\.conllu:1 must have ten columns, none empty",
        read_conllu,
        write(tmp_path, row("1", "")),
    )
    with pytest.raises(
        ValueError, match=r"file\.conllu:2 must be word 2, a range or an empty node, got id '3'"
    ):
        read_conllu(write(tmp_path, row("1", "a"), row("3", "b")))
    with pytest.raises(
        ValueError, match=r"file\.conllu:1 must be word 1, a range or an empty node, got id 'x'"
    ):
        read_conllu(write(tmp_path, row("x", "a")))


@pytest.mark.parametrize(
    ("split", "sentences", "words"),
    [("train", 578, 10_081), ("dev", 801, 13_057), ("test", 805, 14_089)],
)
def test_sagt(data_folder: Path, split: str, sentences: int, words: int) -> None:
    path = data_folder / "code_switched/ud_turkish_german_sagt" / f"qtd_sagt-ud-{split}.conllu"
    read = read_conllu(path, language="misc:CSID")
    assert (len(read), sum(map(len, read))) == (sentences, words)
    assert all({"sent_id", "text"} <= sentence.metadata.keys() for sentence in read)
    languages = Counter(language for sentence in read for language in sentence.languages or ())
    assert set(languages) == {"TR", "DE", "MIXED", "LANG3", "OTHER"}
    # README.upstream: tokens of CSID=OTHER, and only these, have no Lang
    lang = Counter(tag for sentence in read_conllu(path, tag="misc:Lang") for tag in sentence.tags)
    assert lang[MISSING_TAG] == languages["OTHER"]


def test_a_column_that_is_no_name(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"language must be the name of a column, got \['en'\]"):
        read_conllu(tmp_path / "any.conllu", language=["en"])
