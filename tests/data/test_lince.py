"""LinCE: ten tasks read, predictions written."""

from functools import partial
from pathlib import Path

import pytest
from checks import refused

from polyembed.data import (
    LINCE_TASKS,
    MISSING_TAG,
    TaggedSentence,
    read_lince,
    write_lince_predictions,
)


def write(folder: Path, text: str) -> Path:
    path = folder / "file.conll"
    path.write_text(text, encoding="utf-8")
    return path


def test_tagging_task(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "# sent_enum = 12\n#x\tother\tO\nAna\tne\tB-PER\n\n# sent_enum = 13\n#\tother\tO\n",
    )
    first, second = read_lince(path, task="ner_spaeng")
    assert (first.words, first.tags, first.languages) == (
        ("#x", "Ana"),
        ("O", "B-PER"),
        ("other", "ne"),
    )
    assert dict(first.metadata) == {"sent_id": "12"}
    assert second.words == ("#",)


def test_tagging_task_without_labels(tmp_path: Path) -> None:
    (sentence,) = read_lince(write(tmp_path, "Ana\tne\n#x\tother\n"), task="ner_spaeng")
    assert (sentence.tags, sentence.languages) == ((MISSING_TAG, MISSING_TAG), ("ne", "other"))
    (sentence,) = read_lince(write(tmp_path, "مصر\n"), task="ner_msaea")
    assert (sentence.words, sentence.tags, sentence.languages) == (("مصر",), (MISSING_TAG,), None)


def test_language_identification(tmp_path: Path) -> None:
    (sentence,) = read_lince(write(tmp_path, "# sent_enum = 1\nyo\tlang2\n"), task="lid_spaeng")
    assert sentence.tags == sentence.languages == ("lang2",)
    (sentence,) = read_lince(write(tmp_path, "# sent_enum\nyo\n"), task="lid_spaeng")
    assert (sentence.words, sentence.tags, sentence.languages) == (
        ("# sent_enum", "yo"),
        (MISSING_TAG,) * 2,
        None,
    )


def test_sentiment(tmp_path: Path) -> None:
    (sentence,) = read_lince(
        write(tmp_path, "# sent_enum = 1\tpositive\nlol\tlang1\n"), task="sa_spaeng"
    )
    assert dict(sentence.metadata) == {"sent_id": "1", "sentiment": "positive"}
    assert sentence.label == "positive"
    assert sentence.tags == sentence.languages == ("lang1",)
    (sentence,) = read_lince(
        write(tmp_path, "#gspartylatino\tmixed\nlol\tlang1\n"), task="sa_spaeng"
    )
    assert dict(sentence.metadata) == {}


def test_malformed_lines_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"file\.conll:2 must have 2 or 3 columns for ner_spaeng, got 'a'"
    ):
        read_lince(write(tmp_path, "# sent_enum = 1\na\n"), task="ner_spaeng")
    with pytest.raises(
        ValueError, match=r"file\.conll:1 must have 2 columns for sa_spaeng, got 'a'"
    ):
        read_lince(write(tmp_path, "a\n"), task="sa_spaeng")
    with pytest.raises(
        ValueError,
        match=r"file\.conll:3 must have 3 columns \(word, language, tag\), none empty, got",
    ):
        read_lince(write(tmp_path, "a\tne\tO\n\nb\tne\n"), task="ner_spaeng")
    with pytest.raises(
        ValueError, match=r"file\.conll:1 must have 2 columns \(word, language\), none empty, got"
    ):
        read_lince(write(tmp_path, "\tne\n"), task="lid_spaeng")
    with pytest.raises(
        ValueError, match=r"file\.conll:2 must have an entity's tag for ner_spaeng, got 'NOUN'"
    ):
        read_lince(write(tmp_path, "# sent_enum = 1\na\tlang1\tNOUN\n"), task="ner_spaeng")
    with pytest.raises(
        ValueError, match=r"file\.conll:2 must have a part of speech for pos_hineng, got 'B-PER'"
    ):
        read_lince(write(tmp_path, "a\ten\tX\nb\ten\tB-PER\n"), task="pos_hineng")
    with pytest.raises(ValueError, match=r"^task must be one of 'lid_hineng', .*, got 'ner'$"):
        read_lince(write(tmp_path, "a\n"), task="ner")


@pytest.mark.parametrize("task", LINCE_TASKS)
def test_real_files(data_folder: Path, task: str) -> None:
    folder = data_folder / "format_samples/lince" / task
    for split in ("train", "dev"):
        read = read_lince(folder / f"{split}.conll", task=task)
        assert [sentence.metadata["sent_id"] for sentence in read] == ["1", "2"]
        assert all(MISSING_TAG not in sentence.tags for sentence in read)
        assert all(("sentiment" in sentence.metadata) == (task == "sa_spaeng") for sentence in read)
    read = read_lince(folder / "test.conll", task=task)
    assert len(read) == (3 if task in ("lid_spaeng", "ner_msaea") else 2)
    for sentence in read:
        assert not sentence.metadata
        assert sentence.tags == (
            sentence.languages if task == "sa_spaeng" else (MISSING_TAG,) * len(sentence)
        )
        assert (sentence.languages is None) == (task == "ner_msaea" or task.startswith("lid"))


def test_a_sentiment_is_of_another_task(tmp_path: Path) -> None:
    path = tmp_path / "train.conll"
    path.write_text(
        "# sent_enum = 1\nme\tlang2\n\n# sent_enum = 2\tpositive\nme\tlang2\n", encoding="utf-8"
    )
    assert read_lince(path, task="sa_spaeng")[1].label == "positive"
    rule = r"train\.conll:4 must have no sentiment for lid_spaeng, got 'positive'"
    refused(ValueError, rule, partial(read_lince, task="lid_spaeng"), path)


def test_predictions(tmp_path: Path) -> None:
    path = tmp_path / "ner_spaeng.txt"
    path.write_text("old", encoding="utf-8")
    write_lince_predictions(
        path, [["O", "B-PER"], ("O",), TaggedSentence(("a", "b"), ("B-LOC", "I-LOC"))]
    )
    assert path.read_bytes() == b"O\nB-PER\n\nO\n\nB-LOC\nI-LOC\n"
    assert list(tmp_path.iterdir()) == [path]


def test_predictions_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "ner_spaeng.txt"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(
        TypeError, match=r"predictions\[0\] must be the labels of a sentence, got str"
    ):
        write_lince_predictions(path, ["positive"])
    with pytest.raises(
        ValueError, match=r"predictions\[1\] must have a label for each word, got none"
    ):
        write_lince_predictions(path, [["O"], []])
    for label in ("", "B PER", "O\n"):
        with pytest.raises(
            ValueError, match=r"predictions\[0\] must hold labels without white space, got"
        ):
            write_lince_predictions(path, [[label]])
    assert path.read_text(encoding="utf-8") == "old"


def test_a_broken_off_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ner_spaeng.txt"
    path.write_text("old", encoding="utf-8")

    def full_disk(self: Path, target: Path) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full_disk)
    refused(OSError, "no space left", write_lince_predictions, path, [["O"]])
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_head_line_after_a_lost_blank_line_is_named(tmp_path: Path) -> None:
    path = write(
        tmp_path, "# sent_enum = 1\tpositive\nlol\tlang1\n# sent_enum = 2\tneutral\nyo\tlang2\n"
    )
    with pytest.raises(ValueError, match=r"file.conll:3 must come after a blank line"):
        read_lince(path, task="sa_spaeng")
