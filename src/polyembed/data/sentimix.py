"""SentiMix (SemEval-2020 Task 9): tweets with their sentiment, and the language of each word."""

import os

from polyembed.data.lines import TaggedSentence, read_blocks


def read_sentimix(path: str | os.PathLike[str], *, encoding: str = "utf-8") -> list[TaggedSentence]:
    r"""Read SentiMix: a line ``meta<TAB>id<TAB>sentiment``, then a word and its language per line.

    The language is the only label of a word, so it is both the tag and the language. The sentiment
    is the `label`, None where a test file has none; ``sent_id`` and ``sentiment`` are metadata.
    Only the first line of a tweet is a ``meta`` line: "meta" may also be a word.

    Args:
        path: The file.
        encoding: The encoding of the file.

    Returns:
        The tweets, in the order of the file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a tweet has no ``meta`` line or no words; if a line has another number of
            columns; or if the file is not in this encoding.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "dev.txt"
        >>> _ = path.write_text("meta\t7\tpositive\nbadhai\tHin\n\n")
        >>> sentence, = read_sentimix(path)
        >>> sentence.words, sentence.tags, sentence.label
        (('badhai',), ('Hin',), 'positive')
    """
    sentences = []
    for head, *lines in read_blocks(path, encoding=encoding):
        meta, *values = head.text.split("\t")
        sound = meta == "meta" and 0 < len(values) < 3 and all(values)
        head.require(sound, "be a line 'meta<TAB>id<TAB>sentiment'")
        head.require(len(lines) > 0, "be followed by the tweet's words", "a blank line")
        words, languages = zip(*[line.columns(("word", "language")) for line in lines], strict=True)
        metadata = dict(zip(("sent_id", "sentiment"), values))  # noqa: B905
        label = metadata.get("sentiment")
        sentences.append(TaggedSentence(words, languages, languages, metadata, label=label))
    return sentences
