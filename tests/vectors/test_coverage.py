"""How much of a text a source knows, counted by hand."""

from collections import Counter

import pytest
from toys import ToyVectors

import polyembed as pe
from polyembed.data import load_sample
from polyembed.vectors import TextVectors, coverage


def test_by_language_against_a_loop(tmp_path) -> None:
    sample = load_sample("es-en", "dev")
    words = [sentence.words for sentence in sample]
    tags = [sentence.languages for sentence in sample]
    path = tmp_path / "some.vec"
    path.write_text(
        "".join(
            f"{word} 1.0 2.0\n" for word in sorted({word for row in words[::3] for word in row})
        )
    )
    source = TextVectors(path)
    table = coverage(source, words, tags)
    pairs = Counter(
        (tag, word)
        for row, names in zip(words, tags, strict=True)
        for word, tag in zip(row, names, strict=True)
    )
    for name, types, known, share, tokens, known_tokens, token_share in table.rows:
        mine = {pair: count for pair, count in pairs.items() if name in ("all", pair[0])}
        assert types == len({word for _, word in mine})
        assert known == len({word for _, word in mine if word in source})
        assert tokens == sum(mine.values())
        assert known_tokens == sum(count for (_, word), count in mine.items() if word in source)
        assert (share, token_share) == (100 * known / types, 100 * known_tokens / tokens)
    names = [row[0] for row in table.rows]
    assert names[0] == "all"
    assert set(names[1:]) == {tag for tag, _ in pairs}
    counts = [row[4] for row in table.rows]
    assert counts == sorted(counts, reverse=True)


def test_a_lexicon_and_a_tag_called_all() -> None:
    table = coverage(pe.Lexicon(["me"]), [["me", "gusta"], []], [["all", "es"], []])
    assert [row[:3] for row in table.rows] == [("all", 2, 1), ("all", 1, 1), ("es", 1, 0)]
    assert [row[0] for row in coverage({"me"}, iter([["me", "me"]])).rows] == ["all"]


@pytest.mark.parametrize(
    ("source", "sentences", "languages", "error", "message"),
    [
        (
            ToyVectors(3),
            [["me"]],
            None,
            TypeError,
            r"^source must have words \(word in source\), got ToyVectors$",
        ),
        ({"me"}, ["me"], None, TypeError, r"^sentences\[0\] must be a list of strings, got 'me'$"),
        (
            {"me"},
            [["me"]],
            ["es"],
            TypeError,
            r"^languages\[0\] must be a list of strings, got 'es'$",
        ),
        (
            {"me"},
            [["me"]],
            [None],
            TypeError,
            r"^languages\[0\] must be a list of strings, got None$",
        ),
        (
            {"me"},
            [["me"]],
            [[None]],
            TypeError,
            r"^languages\[0\]\[0\] must be a string, got None$",
        ),
        ({"me"}, [None], None, TypeError, r"^sentences\[0\] must be a list of strings, got None$"),
        (
            {"me"},
            [["me"]],
            [],
            ValueError,
            r"^languages must have a list .*, got one of the two ends at 0$",
        ),
        ({"me"}, [[]], None, ValueError, r"^sentences must hold at least one word, got none$"),
        (
            {"me"},
            [["me"], ["y"]],
            [["es"]],
            ValueError,
            r"^languages must have a list of tags for each sentence, got ",
        ),
        (
            {"me"},
            [["me"]],
            [["es", "en"]],
            ValueError,
            r"^languages\[0\] must be as many as the words, 1, got 2$",
        ),
    ],
)
def test_what_cannot_be_counted(source, sentences, languages, error, message: str) -> None:
    with pytest.raises(error, match=message):
        coverage(source, sentences, languages)
