"""SentiMix: sentiment of a tweet, language of a word."""

from collections import Counter
from pathlib import Path

import pytest

from polyembed.data import read_sentimix


def write(folder: Path, text: str) -> Path:
    path = folder / "dev.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_tweets(tmp_path: Path) -> None:
    first, second = read_sentimix(
        write(tmp_path, "meta\t1\tneutral\n@\tO\nmeta\tEng\n\nmeta\t2\tpositive\n\xa0\tO\n")
    )
    assert first.words == ("@", "meta")
    assert first.tags == first.languages == ("O", "Eng")
    assert dict(first.metadata) == {"sent_id": "1", "sentiment": "neutral"}
    assert (first.label, second.label) == ("neutral", "positive")
    assert second.words == ("\xa0",)


def test_malformed_lines_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"dev\.txt:1 must be a line 'meta<TAB>id<TAB>sentiment', got 'a\\tEng'"
    ):
        read_sentimix(write(tmp_path, "a\tEng\n"))
    with pytest.raises(
        ValueError, match=r"dev\.txt:2 must have 2 columns \(word, language\), none empty, got 'a'"
    ):
        read_sentimix(write(tmp_path, "meta\t1\tneutral\na\n"))
    with pytest.raises(
        ValueError, match=r"dev\.txt:1 must be followed by the tweet's words, got a blank line"
    ):
        read_sentimix(write(tmp_path, "meta\t1\tneutral\n\na\tEng\n"))


def test_real_file(data_folder: Path) -> None:
    read = read_sentimix(data_folder / "code_switched/hinglish_sentimix/dev_3k_split_conll.txt")
    assert (len(read), sum(map(len, read))) == (3000, 78_678)
    sentiments = Counter(sentence.label for sentence in read)
    assert sentiments == {"neutral": 1128, "positive": 982, "negative": 890}
    assert {tag for sentence in read for tag in sentence.tags} == {"Hin", "Eng", "O", "EMT"}
