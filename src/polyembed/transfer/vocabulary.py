"""New languages in the vocabulary of a tokenizer and in the tables of its model."""

import copy
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from polyembed._checks import check_positive, class_name, must, require
from polyembed.text.surfaces import SPACE
from polyembed.transfer._new_pieces import KINDS, Origin

WORD = re.compile(f"{SPACE}?[^{SPACE}]+|{SPACE}")


class ExtendedVocabulary(NamedTuple):
    """A tokenizer with new pieces, as `extend_vocabulary` returns it.

    Attributes:
        tokenizer: A new tokenizer, of the same class and settings.
        pieces: The new pieces, in the order of their ids, which follow the old ones.
        origins: For each new piece, the ids of the old pieces whose rows it averages; empty for all
            pieces.
    """

    tokenizer: Any
    pieces: tuple[str, ...]
    origins: tuple[Origin, ...]


def extend_vocabulary(
    tokenizer: Any,
    model: nn.Module,
    texts: Iterable[str],
    size: int,
    *,
    pad_to_multiple_of: int | None = None,
) -> ExtendedVocabulary:
    r"""Train a sub-word model on `texts` and merge it into a tokenizer and its model (Xia 2021,
    appendix C).

    .. math:: E_{\text{new}} = \frac{1}{n} \sum_i E_{o_i}

    where o_1 to o_n are the pieces that the old tokenizer cuts the new piece into. A piece that the
    old tokenizer does not know (a new script without byte pieces) gets the mean of the rows of all
    pieces. Output rows and biases are set in the same way.

    The sub-word model is of the tokenizer's kind and sees text as the tokenizer normalises and
    splits it:

    - WordPiece: byte pairs learned from characters. Single characters are added, beyond `size` if
      necessary, so that no known word becomes unknown.
    - Unigram: trained by SentencePiece. New pieces have the log-probabilities of that training, old
      ones keep theirs.
    - BPE, byte-level or not: training starts from the pieces that the tokenizer cuts today, and all
      new merges come after the old ones, since a merge that starts from characters would never be
      reached. Unknown characters come first.

    Old pieces keep their ids and their rows. A text that the new tokenizer cuts without new pieces
    is cut as before, and the model's outputs for it stay the same, the logits of old pieces
    included. Other text of the old languages may get new pieces: count how often.

    Args:
        tokenizer: A fast one of transformers, with a WordPiece, Unigram or BPE model. It is not
            changed.
        model: Its model, with or without a head. Its tables are resized in place, as transformers
            does: build the optimiser afterwards.
        texts: Text of the new language, any number of strings.
        size: The number of pieces of the trained model, of which only new ones are added. For BPE,
            where training starts from the old pieces, the number of new ones. Fewer where no pair
            occurs twice.
        pad_to_multiple_of: Round the number of the tables' rows up.

    Returns:
        The tokenizer with the new pieces, the pieces, and their origins.

    Raises:
        TypeError: A slow tokenizer, a model that is not of transformers, texts that are not
            strings.
        ValueError: Another kind of tokenizer, a table with fewer rows than the tokenizer has
            pieces, no text, or a `size` that leaves no room for the texts' characters (WordPiece,
            Unigram).

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
        >>> letters = {c: i for i, c in enumerate(["[UNK]", *"aglstu", *(f"##{c}" for c in "aglstu")])}
        >>> core = Tokenizer(models.WordPiece(letters, unk_token="[UNK]"))
        >>> core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        >>> old = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]")
        >>> sizes = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}
        >>> model = BertModel(BertConfig(vocab_size=13, **sizes))
        >>> new = extend_vocabulary(old, model, ["gusta la gusta", "las gustas"], 16)
        >>> old.tokenize("gusta"), new.tokenizer.tokenize("gusta")
        (['g', '##u', '##s', '##t', '##a'], ['gusta'])
        >>> len(new.tokenizer) == model.get_input_embeddings().num_embeddings
        True

    Deviations: the appendix says in one sentence that the vocabularies are combined; how new rows
    start, the scores of new Unigram pieces, and all of BPE are this library's.
    """
    check_positive(
        size=size, pad_to_multiple_of=1 if pad_to_multiple_of is None else pad_to_multiple_of
    )
    if not getattr(tokenizer, "is_fast", False):
        raise TypeError(must("tokenizer", "be a fast one of transformers", class_name(tokenizer)))
    if not hasattr(model, "resize_token_embeddings"):
        raise TypeError(must("model", "be of transformers", class_name(model)))
    ids: dict[str, int] = tokenizer.get_vocab()
    count = max(ids.values()) + 1
    rows = _table(model).shape[0]
    require(rows >= count, "model", f"have a row for each of the tokenizer's {count} pieces", rows)
    core = tokenizer.backend_tokenizer
    plan: dict[str, Any] = json.loads(core.to_str())
    kind = plan["model"]["type"]
    require(kind in KINDS, "tokenizer", f"have a model of the kinds {', '.join(KINDS)}", kind)
    words = _count_words(core, texts, split=kind != "WordPiece")
    require(len(words) > 0, "texts", "hold a word", "none")
    plan["model"] = _with_all_ids(plan["model"], ids, count)
    apart = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    learned = KINDS[kind](
        plan["model"], ids, {piece for piece, i in ids.items() if i in apart}, words, size
    )
    plan["model"] = learned.model
    extended = _rebuilt(tokenizer, plan)
    ordinary = tuple(sorted(set(ids.values()) - apart)) or tuple(range(count))
    origins = [origin or ordinary for origin in learned.pieces.values()]
    _grow(model, count, origins, max(rows, count + len(origins)), pad_to_multiple_of)
    return ExtendedVocabulary(extended, tuple(learned.pieces), tuple(learned.pieces.values()))


def _count_words(core: Any, texts: Iterable[str], *, split: bool) -> Counter[str]:
    """Count the words that the tokenizer's model would see; with `split`, no word crosses a mark of a space."""
    if isinstance(texts, str):
        raise TypeError(must("texts", "be several strings", f"the string {texts[:20]!r}"))
    words: Counter[str] = Counter()
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(must(f"texts[{number}]", "be a string", class_name(text)))
        text = text.encode("utf-8", "ignore").decode()  # lone surrogates
        text = text if core.normalizer is None else core.normalizer.normalize_str(text)
        parts = [text]
        if core.pre_tokenizer is not None:
            parts = [part for part, _ in core.pre_tokenizer.pre_tokenize_str(text)]
        words.update(
            word
            for part in parts
            for word in (WORD.findall(part) if split else [part])
            if word.strip(SPACE)
        )
    return words


def _with_all_ids(model: dict[str, Any], ids: dict[str, int], count: int) -> dict[str, Any]:
    """Set added pieces of the model at their ids, which would otherwise move behind the new pieces."""
    pieces = {i: piece for piece, i in ids.items()}
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        return {**model, "vocab": {**vocabulary, **ids}}
    least = min((score for _, score in vocabulary), default=0.0)
    behind = range(len(vocabulary), count)
    require(
        all(i in pieces for i in behind),
        "tokenizer",
        "have a piece for each id",
        f"{len(pieces)} for {count}",
    )
    return {**model, "vocab": [*vocabulary, *([pieces[i], least] for i in behind)]}


def _rebuilt(tokenizer: Any, plan: dict[str, Any]) -> Any:
    from tokenizers import Tokenizer

    extended = copy.deepcopy(tokenizer)
    core = Tokenizer.from_str(json.dumps(plan))
    core.encode_special_tokens = tokenizer.backend_tokenizer.encode_special_tokens
    extended._tokenizer = core
    return extended


def _table(model: Any) -> Tensor:
    weight: Tensor = model.get_input_embeddings().weight
    return weight


@torch.no_grad()
def _grow(
    model: Any, count: int, origins: Sequence[Origin], rows: int, pad_to_multiple_of: int | None
) -> None:
    """Resize the model's tables and fill the rows from `count` on with the means of their origins."""
    device = _table(model).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        model.resize_token_embeddings(
            rows, pad_to_multiple_of=pad_to_multiple_of, mean_resizing=False
        )
    output = model.get_output_embeddings()
    tables = [_table(model)]
    if output is not None:
        tables += [
            part for part in (output.weight, getattr(output, "bias", None)) if part is not None
        ]
    for table in {id(table): table for table in tables}.values():  # tied ones once
        means = {
            origin: table[list(origin)].float().mean(0).to(table.dtype)
            for origin in dict.fromkeys(origins)
        }
        for i, origin in enumerate(origins):
            table[count + i] = means[origin]
