"""The sample that comes with the package: a few hundred code-switched sentences, for examples and
tests.
"""

from pathlib import Path
from typing import Literal

from polyembed._checks import check_choice
from polyembed.data.conll import read_conll
from polyembed.data.lines import TaggedSentence

_TAG_COLUMNS = {"upos": 1, "entities": 2}  # the columns: word, UPOS, entity, language


def load_sample(
    pair: Literal["es-en", "hi-en"] = "es-en",
    split: Literal["train", "dev", "test"] = "train",
    *,
    tag: Literal["upos", "entities"] = "upos",
) -> list[TaggedSentence]:
    """Load one split of the bundled sample.

    The sample was written for this package. It can show that a model learns, but is too small to
    compare models.

    Args:
        pair: The two languages: ``"es-en"`` or ``"hi-en"`` (Hindi in Latin script).
        split: ``"train"``, ``"dev"`` or ``"test"``.
        tag: ``"upos"`` for universal parts of speech, ``"entities"`` for named entities in BIO.

    Returns:
        The sentences, each word with its language.

    Raises:
        ValueError: If the pair, the split or the tag is unknown.
        FileNotFoundError: If the package was installed without the sample.

    Example:
        >>> sentences = load_sample("es-en", "test", tag="entities")
        >>> sorted({tag[0] for sentence in sentences for tag in sentence.tags})
        ['B', 'I', 'O']
    """
    check_choice("pair", pair, ("es-en", "hi-en"))
    check_choice("split", split, ("train", "dev", "test"))
    check_choice("tag", tag, _TAG_COLUMNS)
    path = Path(__file__).parent / "sample" / pair / f"{split}.conll"
    return read_conll(path, tag_column=_TAG_COLUMNS[tag], language_column=3, separator="\t")
