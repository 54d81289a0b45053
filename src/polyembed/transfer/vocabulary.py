"""New languages in the vocabulary of a tokenizer and in the tables of its model."""

import copy
import inspect
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from polyembed._checks import check_positive, check_words, require
from polyembed.text.pieces import cut_words
from polyembed.text.surfaces import SPACE, word_text


class ExtendedVocabulary(NamedTuple):
    """A tokenizer with new pieces, as `extend_vocabulary` returns it.

    Attributes:
        tokenizer: A copy of the tokenizer with the new pieces.
        pieces: The new pieces, in the order of their ids, which follow the old ones.
        origins: For each new piece, the ids of the old pieces whose rows it averages; empty if it
            averages all pieces except special and added ones.
    """

    tokenizer: Any
    pieces: tuple[str, ...]
    origins: tuple[tuple[int, ...], ...]


def extend_vocabulary(
    tokenizer: Any,
    model: nn.Module,
    texts: Iterable[str],
    size: int,
    *,
    min_count: int = 2,
    pad_to_multiple_of: int | None = None,
) -> ExtendedVocabulary:
    r"""Add the words of a new language to a tokenizer and its model (Xia 2021, appendix C).

    .. math:: E_{\text{new}} = \frac{1}{n} \sum_i E_{o_i}

    where o_1 to o_n are the pieces that the old tokenizer cuts the new piece into, without the
    unknown one; a piece without a known part gets the mean of the rows of all pieces except special
    and added ones, if there are others. Output rows and biases are set in the same way. New pieces
    are the characters of `texts` that were unknown, then the most frequent words that were cut into
    several pieces, each as a whole word. They are added by the tokenizer's own ``add_tokens``, so a
    text without them is cut as before, and the model's outputs for it stay the same, the logits of
    old pieces included.

    Args:
        tokenizer: A tokenizer of transformers. It is not changed.
        model: The tokenizer's model, with or without a head. The model's tables are resized in
            place, as transformers does: build the optimiser afterwards.
        texts: Text of the new language, any number of strings.
        size: The largest number of new pieces.
        min_count: The least number of occurrences of a new word.
        pad_to_multiple_of: The number of which the number of the tables' rows becomes a multiple; 1
            if None.

    Returns:
        The tokenizer with the new pieces, the pieces, and their origins.

    Raises:
        TypeError: If a text is not a string.
        ValueError: If the model's table has fewer rows than the tokenizer has pieces, or the texts
            hold no new piece.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> letters = ["[UNK]", *"aglstu", *(f"##{c}" for c in "aglstu")]
        >>> vocabulary = {piece: i for i, piece in enumerate(letters)}
        >>> core = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        >>> core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        >>> old = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]")
        >>> sizes = {"hidden_size": 4, "num_attention_heads": 1, "intermediate_size": 4}
        >>> model = BertModel(BertConfig(vocab_size=13, num_hidden_layers=1, **sizes))
        >>> new = extend_vocabulary(old, model, ["gusta la gusta", "las gustas"], 16)
        >>> old.tokenize("gusta"), new.tokenizer.tokenize("gusta")
        (['g', '##u', '##s', '##t', '##a'], ['gusta'])
        >>> len(new.tokenizer) == model.get_input_embeddings().num_embeddings
        True

    Deviations: the appendix trains a sub-word model on the new language and combines the
    vocabularies. Here new pieces are whole words, which can be added to a tokenizer of any kind
    without a change of its rules; new parts of words are cut as before. The initial values of new
    rows are this library's choice.
    """
    check_positive(size=size, min_count=min_count)
    count, rows = len(tokenizer), len(_table(model))
    require(rows >= count, "model", f"have a row for each of the tokenizer's {count} pieces", rows)
    found = _new_pieces(tokenizer, check_words(texts, name="texts"), size, min_count)
    require(bool(found), "texts", "hold a word that is not one piece", "none")
    extended = _with_pieces(tokenizer, found)
    ids = extended.convert_tokens_to_ids(list(found))
    apart = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    ordinary = [i for i in range(count) if i not in apart] or [*range(count)]
    origins = dict(zip(ids, found.values(), strict=True))
    _grow(model, origins, ordinary, rows, pad_to_multiple_of or 1)
    return ExtendedVocabulary(extended, tuple(found), tuple(found.values()))


def _new_pieces(
    tokenizer: Any, texts: Sequence[str], size: int, min_count: int
) -> dict[str, tuple[int, ...]]:
    """Return unknown characters, then frequent words of several pieces, with their old pieces."""
    normalized = (word_text(text, tokenizer) for text in texts)
    # runs of letters, marks and digits, which ``single_word`` sees as words too
    letters = (
        "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in text)
        for text in normalized
    )
    words = Counter(word for text in letters for word in text.split())
    frequent = [word for word, count in words.items() if count >= min_count]
    frequent.sort(key=lambda word: (-words[word], word))
    characters = sorted({character for word in words for character in word})
    cut = cut_words([characters, frequent], tokenizer)
    unknown = tokenizer.unk_token_id
    fresh = [character for character in characters if unknown in cut[character]]
    fresh += [word for word in frequent if len(cut[word]) > 1 or unknown in cut[word]]
    known = tokenizer.get_vocab()
    pieces = [piece for piece in dict.fromkeys(fresh) if piece not in known][:size]
    return {piece: tuple(i for i in cut[piece] if i != unknown) for piece in pieces}


def _with_pieces(tokenizer: Any, pieces: Iterable[str]) -> Any:
    """Return a copy with more pieces: words match whole, with their space; characters anywhere."""
    from tokenizers import AddedToken

    extended = copy.deepcopy(tokenizer)
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    # a normaliser that writes marks for spaces does so at the start of the text after a word too
    marks = normalizer is not None and SPACE in normalizer.normalize_str("a a")
    for piece in pieces:
        single = len(piece) > 1
        spaces = {"single_word": single, "lstrip": single, "rstrip": single and marks}
        extended.add_tokens(AddedToken(piece, normalized=not marks, **spaces))
    return extended


def _table(model: Any) -> Tensor:
    weight: Tensor = model.get_input_embeddings().weight
    return weight


@torch.no_grad()
def _grow(
    model: Any, origins: dict[int, tuple[int, ...]], ordinary: list[int], rows: int, multiple: int
) -> None:
    """Resize the model's tables; a new row is the mean of its origins, or of `ordinary` ids."""
    device = model.device
    rows = -(-max(rows, max(origins) + 1) // multiple) * multiple
    # MobileBERT's method takes the number of rows alone
    takes = inspect.signature(model.resize_token_embeddings).parameters
    plain = {"mean_resizing": False} if "mean_resizing" in takes else {}
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        model.resize_token_embeddings(rows, **plain)
    for part in model.modules():  # the head of XLM and FlauBERT counts its rows
        if hasattr(part, "n_words"):
            part.n_words = rows
    output = model.get_output_embeddings()
    # a set, so that tied tables are changed once
    tables: set[Any] = {_table(model), *(getattr(output, x, None) for x in ("weight", "bias"))}
    for table in tables - {None}:
        means = {
            origin: table[list(origin) or ordinary].float().mean(0)
            for origin in {*origins.values()}
        }
        for i, origin in origins.items():
            table[i] = means[origin]
