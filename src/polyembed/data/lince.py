"""LinCE, the benchmark for code-switched text: its ten tasks, and the file of predictions it takes."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from polyembed._checks import check_choice, class_name, must, require
from polyembed.data.lines import Line, malformed, read_blocks
from polyembed.data.sentence import MISSING_TAG, TaggedSentence

LINCE_TASKS = {
    "lid_hineng": ("word", "language"),
    "lid_msaea": ("word", "language"),
    "lid_nepeng": ("word", "language"),
    "lid_spaeng": ("word", "language"),
    "ner_hineng": ("word", "language", "tag"),
    "ner_msaea": ("word", "tag"),
    "ner_spaeng": ("word", "language", "tag"),
    "pos_hineng": ("word", "language", "tag"),
    "pos_spaeng": ("word", "language", "tag"),
    "sa_spaeng": ("word", "language"),
}
"""The columns of each task's labelled files. Test files lack the last one, which is to be predicted."""

_HEAD = re.compile(r"# sent_enum = ([0-9]+)(?:\t(\S+))?")


def read_lince(path: str | os.PathLike[str], *, task: str, encoding: str = "utf-8") -> list[TaggedSentence]:
    r"""Read a file of the LinCE benchmark, labelled or not.

    The number in a sentence's ``# sent_enum`` line is its ``sent_id``. Where the language is the only label
    of a word (language identification and sentiment analysis), `tags` and `languages` both hold it. In a test
    file the column to be predicted is missing; the tags are then all `MISSING_TAG`. The sentiment of
    ``sa_spaeng`` belongs to the sentence: it is the `label` and the metadata ``sentiment``, absent in the test file.

    Args:
        path: The file, ``train.conll`` say.
        task: One of LinCE's ten, ``"ner_spaeng"`` say (`LINCE_TASKS`).
        encoding: How the file is encoded.

    Returns:
        The sentences, in the order of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If there is no such task; if a line has not the task's columns, or another number of them
            than the lines before; if the file is not in this encoding.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.conll"
        >>> _ = path.write_text("# sent_enum = 1\nLouis\tne\tB-ORG\n#hashtag\tother\tO\n\n")
        >>> sentence, = read_lince(path, task="ner_spaeng")
        >>> sentence.words, sentence.tags, sentence.languages, dict(sentence.metadata)
        (('Louis', '#hashtag'), ('B-ORG', 'O'), ('ne', 'other'), {'sent_id': '1'})
    """
    check_choice("task", task, LINCE_TASKS)
    names = LINCE_TASKS[task]
    sentences: list[TaggedSentence] = []
    count: int | None = None
    for block in read_blocks(path, encoding=encoding):
        metadata, lines = _split_head(block)
        if not lines:
            continue
        if count is None:
            count = lines[0].text.count("\t") + 1
            # a sentence's sentiment is on its head line, so that task's columns are all there in every file
            allowed = {len(names)} if task == "sa_spaeng" else {len(names), len(names) - 1}
            if count not in allowed:
                wanted = " or ".join(map(str, sorted(allowed)))
                raise malformed(path, lines[0].number, f"have {wanted} columns for {task}", repr(lines[0].text))
        rows = []
        for line in lines:
            row = line.text.split("\t")
            if len(row) != count or not all(row):
                rule = f"have {count} columns ({', '.join(names[:count])}), none empty"
                raise malformed(path, line.number, rule, repr(line.text))
            rows.append(row)
        columns = dict(zip(names, zip(*rows, strict=True), strict=False))
        words, languages = columns["word"], columns.get("language")
        if "tag" not in names and languages is not None:
            tags = languages
        else:
            tags = columns.get("tag", (MISSING_TAG,) * len(words))
        sentences.append(TaggedSentence(words, tags, languages, metadata, label=metadata.get("sentiment")))
    return sentences


def write_lince_predictions(
    path: str | os.PathLike[str], predictions: Iterable[TaggedSentence | Sequence[str]]
) -> None:
    r"""Write predictions as LinCE takes them: one label a line, a blank line between two sentences.

    The sentences stand in the order of the test file. The file appears whole or not at all: it is written
    beside its place and moved there.

    Args:
        path: Where to write; a file that is there is replaced.
        predictions: The labels of each sentence, or tagged sentences.

    Raises:
        TypeError: If an element is a string.
        ValueError: If a sentence has no label (its place would be lost), or a label is empty or holds white
            space.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "ner_spaeng.txt"
        >>> write_lince_predictions(path, [["O", "B-PER"], ["O"]])
        >>> path.read_text()
        'O\nB-PER\n\nO\n'
    """
    blocks = []
    for index, prediction in enumerate(predictions):
        if isinstance(prediction, str):
            raise TypeError(must(f"predictions[{index}]", "be the labels of a sentence", class_name(prediction)))
        labels = prediction.tags if isinstance(prediction, TaggedSentence) else prediction
        require(len(labels) > 0, f"predictions[{index}]", "have a label for each word", "none")
        for label in labels:
            whole = bool(label) and not any(character.isspace() for character in label)
            require(whole, f"predictions[{index}]", "hold labels without white space", repr(label))
        blocks.append("".join(f"{label}\n" for label in labels))
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_text("\n".join(blocks), encoding="utf-8", newline="\n")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _split_head(block: list[Line]) -> tuple[dict[str, str], list[Line]]:
    """Take the ``# sent_enum`` line off; other lines that begin with ``#`` are words."""
    head = _HEAD.fullmatch(block[0].text)
    if head is None:
        return {}, block
    metadata = {"sent_id": head[1]}
    if head[2] is not None:
        metadata["sentiment"] = head[2]
    return metadata, block[1:]
