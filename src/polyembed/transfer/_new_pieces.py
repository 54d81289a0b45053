"""What a tokenizer's model learns from new text, by the kind of the model: as edits of its JSON."""

import copy
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple, Protocol

from polyembed._checks import must, require
from polyembed.text.piece_surfaces import NO_TEXT, SPACE
from polyembed.transfer._merges import learn_merges

Origin = tuple[int, ...]


class Learned(NamedTuple):
    """New pieces in the order of their ids, and the model that has them.

    Attributes:
        pieces: The new pieces, each with the ids of the old pieces that it replaces; unknown ones left out.
        model: The JSON of the tokenizer's model.
    """

    pieces: dict[str, Origin]
    model: dict[str, Any]


class Learn(Protocol):
    """One kind of model."""

    def __call__(
        self, model: dict[str, Any], ids: Mapping[str, int], added: Set[str], words: Counter[str], size: int
    ) -> Learned:
        """Learn from words.

        Args:
            model: The JSON of the model, with a piece for each id.
            ids: All pieces, added ones included, and their ids.
            added: Those of them that are added to the model or special: words are not made of them.
            words: What the pre-tokenizer makes of the text, and how often.
            size: How many pieces to learn.

        Returns:
            What is new.
        """


def learn_word_piece(
    model: dict[str, Any], ids: Mapping[str, int], added: Set[str], words: Counter[str], size: int
) -> Learned:
    """Learn byte pairs from characters and add those that are new; a word is cut greedily, the longest piece first."""
    mark = model["continuing_subword_prefix"]
    limit = model["max_input_chars_per_word"]
    cut = [
        ([character if place == 0 else mark + character for place, character in enumerate(word)], count)
        for word, count in sorted(words.items())
        if len(word) <= limit
    ]
    found = dict.fromkeys(_by_frequency(cut))
    _check_room(size, len(found))
    for merge in learn_merges(cut, lambda left, right: left + right.removeprefix(mark)):
        if len(found) >= size:
            break
        found[merge.piece] = None
    found |= dict.fromkeys(sorted(_followers([*(ids.keys() - added), *found], mark)))
    vocabulary: dict[str, int] = model["vocab"]
    fresh = {piece: _longest_first(piece, mark, vocabulary) for piece in found if piece not in ids}
    first = _first_free(ids)
    changed = {**vocabulary, **{piece: first + i for i, piece in enumerate(fresh)}}
    return Learned(fresh, {**model, "vocab": changed})


def learn_unigram(
    model: dict[str, Any], ids: Mapping[str, int], added: Set[str], words: Counter[str], size: int
) -> Learned:
    """Train a unigram model and add its new pieces with their log-probabilities; the old ones keep theirs."""
    from tokenizers import Tokenizer

    characters = {character for word in words for character in word}
    _check_room(size, len(characters))
    least = min(score for _, score in model["vocab"])  # below it, unknown characters would cost more than before
    trained = sorted(_train_unigram(words, size).items(), key=lambda item: (-item[1], item[0]))
    fresh_scores = {
        piece: max(score, least)
        for piece, score in trained
        if piece not in ids and SPACE not in piece[1:] and not NO_TEXT.fullmatch(piece)
    }
    core = Tokenizer.from_str(json.dumps(_bare(model)))
    unknown = model["unk_id"]
    fresh = {
        piece: tuple(token.id for token in core.model.tokenize(piece) if token.id != unknown) for piece in fresh_scores
    }
    vocabulary = [*model["vocab"], *([piece, score] for piece, score in fresh_scores.items())]
    return Learned(fresh, {**model, "vocab": vocabulary})


def learn_byte_pairs(
    model: dict[str, Any], ids: Mapping[str, int], added: Set[str], words: Counter[str], size: int
) -> Learned:
    """Go on merging from the pieces that the model cuts today; new merges come after all old ones."""
    from tokenizers import Tokenizer

    mark, end = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""

    def forms(word: str) -> Iterator[str]:
        for place, character in enumerate(word):
            yield (mark if place else "") + character + (end if place == len(word) - 1 else "")

    symbols = [(list(forms(word)), count) for word, count in sorted(words.items())]
    missing = [form for form in _by_frequency(symbols) if form not in ids][:size]
    old = Tokenizer.from_str(json.dumps(_bare(model)))
    unknown = model["vocab"].get(model.get("unk_token"))
    fresh: dict[str, Origin] = {
        form: tuple(token.id for token in old.model.tokenize(_plain(form, mark, end)) if token.id != unknown)
        for form in missing
    }
    first = _first_free(ids)
    vocabulary = {**model["vocab"], **{form: first + i for i, form in enumerate(fresh)}}
    core = Tokenizer.from_str(json.dumps(_bare({**model, "vocab": vocabulary})))
    cut = [([token.value for token in core.model.tokenize(word)], count) for word, count in sorted(words.items())]
    apart = {piece for piece in ids if NO_TEXT.fullmatch(piece)} | added | {model.get("unk_token")}

    def join(left: str, right: str) -> str | None:
        piece = left + right.removeprefix(mark)
        return None if piece in ids or left in apart or right in apart else piece

    merges = list(model["merges"])
    as_pairs = not merges or not isinstance(merges[0], str)
    steps = learn_merges(cut, join)
    while len(fresh) < size and (merge := next(steps, None)) is not None:
        parts = (fresh.get(part, (ids[part],) if part in ids else ()) for part in (merge.left, merge.right))
        fresh.setdefault(merge.piece, tuple(origin for part in parts for origin in part))
        merges.append([merge.left, merge.right] if as_pairs else f"{merge.left} {merge.right}")
    vocabulary |= {piece: first + i for i, piece in enumerate(fresh)}
    return Learned(fresh, {**model, "vocab": vocabulary, "merges": merges})


KINDS: dict[str, Learn] = {"WordPiece": learn_word_piece, "Unigram": learn_unigram, "BPE": learn_byte_pairs}


def _first_free(ids: Mapping[str, int]) -> int:
    return max(ids.values(), default=-1) + 1


def _check_room(size: int, needed: int) -> None:
    require(size >= needed, "size", f"leave room for the {needed} characters of the texts", size)


def _by_frequency(words: list[tuple[list[str], int]]) -> list[str]:
    counts: Counter[str] = Counter()
    for symbols, count in words:
        for symbol in symbols:
            counts[symbol] += count
    return sorted(counts, key=lambda symbol: (-counts[symbol], symbol))


def _followers(pieces: Iterable[str], mark: str) -> set[str]:
    """Give the single characters that may have to follow a longer piece, so that no word becomes unknown by it."""
    found: set[str] = set()
    for piece in pieces:
        if not NO_TEXT.fullmatch(piece):
            found |= set(piece.removeprefix(mark)) if piece.startswith(mark) else set(piece[1:])
    return {mark + character for character in found}


def _longest_first(piece: str, mark: str, vocabulary: Mapping[str, int]) -> Origin:
    """Cut a piece as WordPiece cuts words; nothing where that fails."""
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


def _plain(form: str, mark: str, end: str) -> str:
    return form.removeprefix(mark).removesuffix(end)


def _bare(model: dict[str, Any]) -> dict[str, Any]:
    """Make a tokenizer of the model alone."""
    parts = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {"version": "1.0", **dict.fromkeys(parts), "added_tokens": [], "model": copy.deepcopy(model)}


def _train_unigram(words: Counter[str], size: int) -> dict[str, float]:
    """Train by SentencePiece, which gives the same pieces each time."""
    import sentencepiece

    serialized = io.BytesIO()
    lines = (f"{word}\t{count}" for word, count in sorted(words.items()) if not set(word) & {"\t", "\n", "\r", "\0"})
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
