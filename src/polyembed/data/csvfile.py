"""Comma-separated tokens: one word per row, with its sentence and its tag."""

import csv
import io
import os
from itertools import groupby

from polyembed._checks import must, require
from polyembed.data.lines import TaggedSentence, join_rows, read_text


def read_csv(
    path: str | os.PathLike[str],
    *,
    sentence_column: str = "Sent",
    word_column: str = "Word",
    tag_column: str = "Tag",
    outside_tag: str | None = "Other",
    delimiter: str = ",",
    encoding: str = "utf-8",
) -> list[TaggedSentence]:
    r"""Read one word per row, with its sentence and its tag, under a row of column names.

    A sentence ends where its name in `sentence_column` changes; blank rows are left out. Fields are
    quoted as in CSV, so that words may hold commas. Blanks around a word are removed, unless the
    word consists of blanks.

    The defaults fit the Hindi-English tweets of Singh et al. (2018): 3,085 tweets, 68,506 words.

    Args:
        path: The file.
        sentence_column: The column with the name of the sentence, which becomes the metadata
            ``sent_id``.
        word_column: The column of the word.
        tag_column: The column of the tag.
        outside_tag: The tag that means "no entity", read as ``O`` so that tags are BIO; None: keep
            all tags.
        delimiter: The separator of columns.
        encoding: The encoding of the file.

    Returns:
        The sentences, in the order of the file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a column does not exist; if a row has another number of columns than the
            first, or an empty word or tag; if quotes do not close; or if the file is not in this
            encoding.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "tweets.csv"
        >>> _ = path.write_text('Sent,Word,Tag\ns0,"tha,",Other\ns0,Iran,B-Loc\n""\ns1,hai,Other\n')
        >>> [(sentence.words, sentence.tags) for sentence in read_csv(path)]
        [(('tha,', 'Iran'), ('O', 'B-Loc')), (('hai',), ('O',))]
    """
    text = io.StringIO(read_text(path, encoding=encoding), newline="")
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    rows = []
    sentence = ""
    try:
        header = next(reader, [])
        wanted = (sentence_column, word_column, tag_column)
        rule = f"name the columns {', '.join(map(repr, wanted))}"
        require(set(wanted) <= set(header), f"{path}:1", rule, header)
        for row in reader:
            if not any(map(str.strip, row)):
                continue
            place = f"{path}:{reader.line_num}"
            rule = f"have {len(header)} columns as the first line"
            require(len(row) == len(header), place, rule, row)
            name, word, tag = (row[header.index(column)] for column in wanted)
            word, tag = word.strip() or word, tag.strip()
            require(bool(word and tag), place, "have no empty word or tag", row)
            rule = "hold one line (a quotation mark may have opened a field)"
            require(set("\r\n").isdisjoint("".join(row)), place, rule, row)
            sentence = name if name.strip() else sentence
            require(sentence != "", place, "name its sentence", row)
            rows.append((sentence, word, "O" if tag == outside_tag else tag))
    except csv.Error as error:
        raise ValueError(must(f"{path}:{reader.line_num}", "be a row of CSV", error)) from error
    return [
        join_rows((token[1:] for token in tokens), metadata={"sent_id": name})
        for name, tokens in groupby(rows, key=lambda token: token[0])
    ]
