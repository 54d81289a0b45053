"""LinCE, the benchmark for code-switched text: its ten tasks, and its format of predictions."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from polyembed._checks import check_choice, require, require_type
from polyembed.data.lines import MISSING_TAG, TaggedSentence, read_blocks

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
"""The columns of each task's labelled files. Test files lack the last column, the label to predict,
except in ``sa_spaeng``."""

_HEAD = re.compile(r"# sent_enum = (?P<sent_id>[0-9]+)(?:\t(?P<sentiment>\S+))?")


def read_lince(
    path: str | os.PathLike[str], *, task: str, encoding: str = "utf-8"
) -> list[TaggedSentence]:
    r"""Read a file of the LinCE benchmark, labelled or not.

    The number in a sentence's ``# sent_enum`` line is its ``sent_id``. Where the language is the
    only label of a word (language identification and sentiment analysis), it is both the tag and
    the language. A test file lacks the column to be predicted; its tags are `MISSING_TAG`. The
    sentiment of a sentence in ``sa_spaeng`` is its `label` and the metadata ``sentiment``; the test
    file has none.

    Args:
        path: The file, such as ``train.conll``.
        task: ``"lid_hineng"``, ``"lid_msaea"``, ``"lid_nepeng"``, ``"lid_spaeng"``,
            ``"ner_hineng"``, ``"ner_msaea"``, ``"ner_spaeng"``, ``"pos_hineng"``, ``"pos_spaeng"``
            or ``"sa_spaeng"``.
        encoding: The encoding of the file.

    Returns:
        The sentences, in the order of the file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the task is unknown; if a line does not have the task's columns, or has
            another number of columns than the lines before; if the file is not in this encoding.

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
    # a test file of sa_spaeng lacks the sentiments of its head lines, and no column
    allowed = {len(names)} if task == "sa_spaeng" else {len(names), len(names) - 1}
    sentences = []
    count = 0
    for block in read_blocks(path, encoding=encoding):
        metadata: dict[str, str] = {}
        if head := _HEAD.fullmatch(block[0].text):  # other lines that begin with # are words
            metadata = {name: value for name, value in head.groupdict().items() if value}
            block.pop(0)
        rows = []
        for line in block:
            if not count:
                count = line.text.count("\t") + 1
                rule = f"have {' or '.join(map(str, sorted(allowed)))} columns for {task}"
                line.require(count in allowed, rule)
            line.require(not _HEAD.fullmatch(line.text), "come after a blank line")
            rows.append(line.columns(names[:count]))
        if rows:
            columns = dict(zip(names, zip(*rows, strict=True), strict=False))
            words, languages = columns["word"], columns.get("language")
            tags = columns.get(names[-1], (MISSING_TAG,) * len(words))
            label = metadata.get("sentiment")
            sentences.append(TaggedSentence(words, tags, languages, metadata, label))
    return sentences


def write_lince_predictions(
    path: str | os.PathLike[str], predictions: Iterable[TaggedSentence | Sequence[str]]
) -> None:
    r"""Write predictions in LinCE's format: one label per line, a blank line between two sentences.

    Args:
        path: The file to write; an existing file is replaced.
        predictions: The labels of each sentence, or tagged sentences, in the order of the test
            file.

    Raises:
        TypeError: If an element is a string.
        ValueError: If a label is empty or contains white space.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "ner_spaeng.txt"
        >>> write_lince_predictions(path, [["O", "B-PER"], ["O"]])
        >>> path.read_text()
        'O\nB-PER\n\nO\n'
    """
    blocks = []
    for index, prediction in enumerate(predictions):
        name = f"predictions[{index}]"
        require_type(
            not isinstance(prediction, str), name, "be the labels of a sentence", prediction
        )
        labels = prediction.tags if isinstance(prediction, TaggedSentence) else list(prediction)
        for label in labels:
            require(label.split() == [label], name, "hold labels without white space", repr(label))
        blocks.append("".join(f"{label}\n" for label in labels))
    Path(path).write_text("\n".join(blocks), encoding="utf-8", newline="\n")
