"""LinCE: reading of its ten tasks, and writing of predictions."""

from pathlib import Path

import pytest
from checks import refused

from polyembed.data import MISSING_TAG, TaggedSentence, read_lince, write_lince_predictions
from polyembed.data.lince import LINCE_TASKS

NONE = (MISSING_TAG, MISSING_TAG)


@pytest.mark.parametrize(
    ("task", "text", "words", "tags", "languages", "metadata"),
    [
        (
            "ner_spaeng",
            "# sent_enum = 12\n#x\tother\tO\nAna\tne\tB-PER\n",
            ("#x", "Ana"),
            ("O", "B-PER"),
            ("other", "ne"),
            {"sent_id": "12"},
        ),
        ("ner_spaeng", "Ana\tne\n#x\tother\n", ("Ana", "#x"), NONE, ("ne", "other"), {}),
        ("ner_msaea", "مصر\n", ("مصر",), NONE[:1], None, {}),
        ("lid_spaeng", "yo\tlang2\n", ("yo",), ("lang2",), ("lang2",), {}),
        ("lid_spaeng", "# sent_enum\nyo\n", ("# sent_enum", "yo"), NONE, None, {}),
        (
            "sa_spaeng",
            "# sent_enum = 1\tpositive\nlol\tlang1\n",
            ("lol",),
            ("lang1",),
            ("lang1",),
            {"sent_id": "1", "sentiment": "positive"},
        ),
        ("sa_spaeng", "#gsparty\tmixed\n", ("#gsparty",), ("mixed",), ("mixed",), {}),
    ],
)
def test_tasks(file, task, text, words, tags, languages, metadata):
    expected = TaggedSentence(words, tags, languages, metadata, metadata.get("sentiment"))
    assert read_lince(file(text), task=task) == [expected]


@pytest.mark.parametrize("task", LINCE_TASKS)
def test_real_files(data_folder: Path, task: str):
    folder = data_folder / "format_samples/lince" / task
    for split in ("train", "dev"):
        read = read_lince(folder / f"{split}.conll", task=task)
        assert [sentence.metadata["sent_id"] for sentence in read] == ["1", "2"]
        assert all(MISSING_TAG not in sentence.tags for sentence in read)
        assert all((sentence.label is not None) == (task == "sa_spaeng") for sentence in read)
    read = read_lince(folder / "test.conll", task=task)
    assert len(read) == (3 if task in ("lid_spaeng", "ner_msaea") else 2)
    for sentence in read:
        missing = (MISSING_TAG,) * len(sentence)
        assert sentence.tags == (sentence.languages if task == "sa_spaeng" else missing)
        assert (sentence.languages is None) == (task == "ner_msaea" or task.startswith("lid"))


def test_predictions(tmp_path: Path):
    path = tmp_path / "ner_spaeng.txt"
    tagged = TaggedSentence(("a", "b"), ("B-LOC", "I-LOC"))
    write_lince_predictions(path, [["O", "B-PER"], iter("O"), tagged])
    assert path.read_bytes() == b"O\nB-PER\n\nO\n\nB-LOC\nI-LOC\n"
    path.unlink()
    rule = r"predictions\[0\] must be the labels of a sentence, got str"
    refused(TypeError, rule, write_lince_predictions, path, ["positive"])
    rule = r"predictions\[0\] must hold labels without white space, got"
    refused(ValueError, rule, write_lince_predictions, path, [["B PER"]])
    assert not path.exists()
