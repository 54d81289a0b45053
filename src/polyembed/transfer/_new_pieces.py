"""New pieces that a tokenizer's model learns from text, for each kind of model, as edits of its JSON."""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from polyembed._checks import must, require
from polyembed.text.surfaces import NO_TEXT, SPACE
from polyembed.transfer._merges import learn_merges

Origin = tuple[int, ...]


class Learned(NamedTuple):
    """New pieces in the order of their ids, and the model that has them.

    Attributes:
        pieces: The new pieces, each with the ids of the known old pieces that it replaces.
        model: The JSON of the tokenizer's model.
    """

    pieces: dict[str, Origin]
    model: dict[str, Any]


# The arguments: the JSON of the tokenizer's model with a piece for each id; all pieces and their
# ids; those that are added or special; the words of the text and their counts; the number of pieces
# to learn.
Learn = Callable[[dict[str, Any], Mapping[str, int], Set[str], Counter[str], int], Learned]


def learn_word_piece(
    model: dict[str, Any], ids: Mapping[str, int], added: Set[str], words: Counter[str], size: int
) -> Learned:
    """Learn byte pairs from characters and add those that are new; a word is cut greedily, the longest piece first."""
    mark = model["continuing_subword_prefix"]
    limit = model["max_input_chars_per_word"]
    cut = [
        (
            [character if place == 0 else mark + character for place, character in enumerate(word)],
            count,
        )
        for word, count in sorted(words.items())
        if len(word) <= limit
    ]
    found = dict.fromkeys(_by_frequency(cut))
    _check_room(size, len(found))
    for _, _, piece in learn_merges(cut, lambda left, right: left + right.removeprefix(mark)):
        if len(found) >= size:
            break
        found[piece] = None
    found |= dict.fromkeys(sorted(_followers([*(ids.keys() - added), *found], mark)))
    vocabulary: dict[str, int] = model["vocab"]
    fresh = {piece: _longest_first(piece, mark, vocabulary) for piece in found if piece not in ids}
    return Learned(fresh, {**model, "vocab": vocabulary | _numbered(fresh, ids)})


def learn_unigram(
    model: dict[str, Any], ids: Mapping[str, int], added: Set[str], words: Counter[str], size: int
) -> Learned:
    """Train a unigram model and add its new pieces with their log-probabilities; the old ones keep theirs."""
    characters = {character for word in words for character in word}
    _check_room(size, len(characters))
    least = min(
        score for _, score in model["vocab"]
    )  # below it, unknown characters would cost more than before
    trained = sorted(_train_unigram(words, size).items(), key=lambda item: (-item[1], item[0]))
    fresh_scores = {
        piece: max(score, least)
        for piece, score in trained
        if piece not in ids and SPACE not in piece[1:] and not NO_TEXT.fullmatch(piece)
    }
    cut = _cutter(model, model["unk_id"])
    fresh = {piece: cut(piece) for piece in fresh_scores}
    vocabulary = [*model["vocab"], *([piece, score] for piece, score in fresh_scores.items())]
    return Learned(fresh, {**model, "vocab": vocabulary})


def learn_byte_pairs(
    model: dict[str, Any], ids: Mapping[str, int], added: Set[str], words: Counter[str], size: int
) -> Learned:
    """Go on merging from the pieces that the model cuts today; new merges come after all old ones."""
    mark, end = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""

    def forms(word: str) -> Iterator[str]:
        for place, character in enumerate(word):
            yield (mark if place else "") + character + (end if place == len(word) - 1 else "")

    symbols = [(list(forms(word)), count) for word, count in sorted(words.items())]
    missing = [form for form in _by_frequency(symbols) if form not in ids][:size]
    cut = _cutter(model, model["vocab"].get(model.get("unk_token")))
    fresh = {form: cut(form.removeprefix(mark).removesuffix(end)) for form in missing}
    core = _open({**model, "vocab": model["vocab"] | _numbered(fresh, ids)})
    symbols = [
        ([token.value for token in core.model.tokenize(word)], count)
        for word, count in sorted(words.items())
    ]
    apart = {piece for piece in ids if NO_TEXT.fullmatch(piece)} | added | {model.get("unk_token")}

    def join(left: str, right: str) -> str | None:
        piece = left + right.removeprefix(mark)
        return None if piece in ids or left in apart or right in apart else piece

    merges = list(model["merges"])
    as_pairs = not merges or not isinstance(merges[0], str)
    steps = learn_merges(symbols, join)
    while len(fresh) < size and (merge := next(steps, None)) is not None:
        left, right, piece = merge
        parts = (fresh.get(part, (ids[part],) if part in ids else ()) for part in (left, right))
        fresh.setdefault(piece, tuple(origin for part in parts for origin in part))
        merges.append([left, right] if as_pairs else f"{left} {right}")
    return Learned(
        fresh, {**model, "vocab": model["vocab"] | _numbered(fresh, ids), "merges": merges}
    )


KINDS: dict[str, Learn] = {
    "WordPiece": learn_word_piece,
    "Unigram": learn_unigram,
    "BPE": learn_byte_pairs,
}


def _numbered(pieces: Iterable[str], ids: Mapping[str, int]) -> dict[str, int]:
    """Return new ids for pieces, after all old ids."""
    return {piece: i for i, piece in enumerate(pieces, max(ids.values(), default=-1) + 1)}


def _check_room(size: int, needed: int) -> None:
    require(size >= needed, "size", f"leave room for the {needed} characters of the texts", size)


def _by_frequency(words: list[tuple[list[str], int]]) -> list[str]:
    counts: Counter[str] = Counter()
    for symbols, count in words:
        for symbol in symbols:
            counts[symbol] += count
    return sorted(counts, key=lambda symbol: (-counts[symbol], symbol))


def _followers(pieces: Iterable[str], mark: str) -> set[str]:
    """Return the characters that may have to follow a piece, so that no word becomes unknown because of it."""
    found: set[str] = set()
    for piece in pieces:
        if not NO_TEXT.fullmatch(piece):
            found |= set(piece.removeprefix(mark)) if piece.startswith(mark) else set(piece[1:])
    return {mark + character for character in found}


def _longest_first(piece: str, mark: str, vocabulary: Mapping[str, int]) -> Origin:
    """Cut a piece as WordPiece cuts words; return no ids where that fails."""
    text, start = piece.removeprefix(mark), 0
    continues = text != piece
    found: list[int] = []
    while start < len(text):
        for stop in range(len(text), start, -1):
            known = vocabulary.get((mark if continues or start else "") + text[start:stop])
            if known is not None:
                break
        else:
            return ()
        found.append(known)
        start = stop
    return tuple(found)


def _open(model: dict[str, Any]) -> Any:
    """Open a tokenizer of the model alone."""
    from tokenizers import Tokenizer

    parts = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return Tokenizer.from_str(
        json.dumps({"version": "1.0", **dict.fromkeys(parts), "added_tokens": [], "model": model})
    )


def _cutter(model: dict[str, Any], unknown: int | None) -> Callable[[str], Origin]:
    """Return a function that cuts text into the ids of a model's pieces, without the unknown piece."""
    core = _open(model)
    return lambda text: tuple(
        token.id for token in core.model.tokenize(text) if token.id != unknown
    )


def _train_unigram(words: Counter[str], size: int) -> dict[str, float]:
    """Train by SentencePiece, which gives the same pieces each time."""
    import sentencepiece

    serialized = io.BytesIO()
    lines = (
        f"{word}\t{count}"
        for word, count in sorted(words.items())
        if not set(word) & {"\t", "\n", "\r", "\0"}
    )
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            input_format="tsv",
            model_writer=serialized,
            model_type="unigram",
            vocab_size=size + 1,  # the unknown piece
            hard_vocab_limit=False,
            character_coverage=1.0,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            num_threads=1,
            minloglevel=3,
        )
    except RuntimeError as error:
        raise ValueError(must("texts", f"be enough to train {size} pieces on", error)) from error
    trained = sentencepiece.SentencePieceProcessor(model_proto=serialized.getvalue())
    return {trained.id_to_piece(i): trained.get_score(i) for i in range(1, len(trained))}
