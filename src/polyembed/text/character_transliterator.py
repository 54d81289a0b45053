"""A small sequence-to-sequence model that spells words in another script, letter by letter."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyembed._checks import check_ids, check_positive, check_probability, require
from polyembed._views import evaluation_view
from polyembed.saving import PretrainedModule
from polyembed.text.spelling import spelling_table
from polyembed.text.transliterate import LATIN_RUN, convert_words, squeeze

PAD, END = 0, 1
MAX_LENGTH = 128  # of letters or symbols, end mark included


class Candidate(NamedTuple):
    """A spelling that a transliterator considered.

    Attributes:
        word: The word in the other script.
        score: ``log p(word | source)`` in nats.
    """

    word: str
    score: float


class CharacterTransliterator(PretrainedModule):
    """Spell a word in another script with a small Transformer over characters (transformers' mBART,
    untrained).

    ``p(y | x) = prod_t p(y_t | y_1 ... y_{t-1}, x)``, decoded by beam search.
    `train_transliterator` trains one from pairs of spellings, in either direction (Latin to
    Devanagari or Devanagari to Latin).

    Words are read in lower case and NFC; a letter that is repeated more than twice counts twice,
    and letters that training did not have are ignored. Runs of letters inside a word are replaced:
    of Latin letters where the model reads Latin, otherwise of the model's letters. `Transliterator`
    says what is kept.

    Args:
        letters: The letters that are read.
        symbols: The characters that are written.
        hidden_size: The size of a letter's vector; a multiple of `num_heads`.
        num_layers: The layers of the encoder; the decoder has one fewer, at least one.
        num_heads: The attention heads of a layer.
        dropout: The dropout probability.
        num_beams: How many spellings the beam search keeps.

    Shape:
        ids ``(word, letter)`` and targets ``(word, symbol)`` from `encode` and `encode_targets`, 0
        = padding, to log-probabilities of each target symbol ``(word, symbol)``; padding gives 0.

    Raises:
        ValueError: Sizes that are not positive or do not divide, repeated letters or symbols.
        TypeError: Ids that are not integers.

    Example:
        >>> model = CharacterTransliterator("akm", "कमा", hidden_size=8, num_layers=1, num_heads=2)
        >>> model(model.encode(["kaam", "ka"]), model.encode_targets(["काम", "का"])).shape
        torch.Size([2, 4])

    Deviations: Winata 2021 (section 3.1) used a transliterator that it does not name.
    """

    def __init__(
        self,
        letters: str,
        symbols: str,
        *,
        hidden_size: int = 128,
        num_layers: int = 3,
        num_heads: int = 4,
        dropout: float = 0.1,
        num_beams: int = 4,
    ) -> None:
        from transformers import MBartConfig, MBartForConditionalGeneration

        check_positive(
            hidden_size=hidden_size, num_layers=num_layers, num_heads=num_heads, num_beams=num_beams
        )
        require(num_beams > 1, "num_beams", "be at least 2", num_beams)
        check_probability(dropout=dropout)
        require(
            hidden_size % num_heads == 0,
            "hidden_size",
            f"be a multiple of num_heads, {num_heads}",
            hidden_size,
        )
        for name, characters in {"letters": letters, "symbols": symbols}.items():
            different = 0 < len(characters) == len(set(characters))
            require(different, name, "be different characters, at least one", repr(characters))
        super().__init__()
        self.letters, self.symbols = letters, symbols
        self.hidden_size, self.num_layers, self.num_heads = hidden_size, num_layers, num_heads
        self.dropout, self.num_beams = dropout, num_beams
        self._letter_ids = {letter: i for i, letter in enumerate(letters, END + 1)}
        self._symbol_ids = {symbol: i for i, symbol in enumerate(symbols, END + 1 + len(letters))}
        self.network = MBartForConditionalGeneration(
            MBartConfig(
                vocab_size=END + 1 + len(letters) + len(symbols),
                d_model=hidden_size,
                encoder_layers=num_layers,
                decoder_layers=max(num_layers - 1, 1),
                encoder_attention_heads=num_heads,
                decoder_attention_heads=num_heads,
                encoder_ffn_dim=3 * hidden_size,
                decoder_ffn_dim=3 * hidden_size,
                activation_function="relu",
                max_position_embeddings=MAX_LENGTH,
                scale_embedding=True,
                init_std=hidden_size**-0.5,
                dropout=dropout,
                pad_token_id=PAD,
                bos_token_id=END,
                eos_token_id=END,
                forced_eos_token_id=END,
                decoder_start_token_id=END,
            )
        )

    @classmethod
    def for_pairs(cls, pairs: Iterable[tuple[str, str]], **options: Any) -> Self:
        """Build an untrained model with the letters and symbols of training pairs.

        Args:
            pairs: Spellings in the two scripts.
            **options: As in the class.

        Returns:
            The model.
        """
        sources, targets = map("".join, zip(*pairs, strict=True))
        return cls(
            "".join(sorted(set(_normal(sources)))), "".join(sorted(set(_nfc(targets)))), **options
        )

    def forward(
        self, ids: Int[Tensor, "word letter"], targets: Int[Tensor, "word symbol"]
    ) -> Float[Tensor, "word symbol"]:
        """Compute the log-probability of each symbol given the source word and the symbols before
        it.

        Args:
            ids: Letter ids, padded with 0 (`encode`).
            targets: Symbol ids, padded with 0 (`encode_targets`).

        Returns:
            Log-probabilities in nats; a row's sum is ``log p(target | source)``.
        """
        check_ids("targets", targets)
        log_probs = self.logits(ids, targets).log_softmax(-1)
        return log_probs.gather(-1, targets[..., None].long())[..., 0].where(targets.ne(PAD), 0.0)

    def logits(
        self, ids: Int[Tensor, "word letter"], targets: Int[Tensor, "word symbol"]
    ) -> Float[Tensor, "word symbol id"]:
        """Compute the scores of every symbol at each place, for losses other than the log-probability."""
        check_ids("ids", ids)
        output = self.network(
            input_ids=ids.long(),
            attention_mask=ids.ne(PAD),
            decoder_input_ids=_shift(targets.long()),
            use_cache=False,
        )
        scores: Tensor = output.logits
        return scores

    def encode(self, words: Sequence[str]) -> Int[Tensor, "word letter"]:
        """Return the letter ids of words and an end mark, padded with 0."""
        return _table("words", [self._spell(word) for word in words])

    def encode_targets(self, words: Sequence[str]) -> Int[Tensor, "word symbol"]:
        """Return the symbol ids of words and an end mark, padded with 0.

        Args:
            words: Words in the target script.

        Returns:
            ``(word, symbol)``.

        Raises:
            ValueError: A character that is not among the model's symbols.
        """
        for word in words:
            strange = sorted(set(_nfc(word)) - set(self.symbols))
            require(not strange, f"the target {word!r}", "have the model's symbols only", strange)
        return _table(
            "words", [[self._symbol_ids[symbol] for symbol in _nfc(word)] for word in words]
        )

    @torch.no_grad()
    def candidates(self, words: Sequence[str], *, batch_size: int = 256) -> list[list[Candidate]]:
        """List likely spellings of each word; each word counts as one run of letters.

        Args:
            words: Words in the source script.
            batch_size: How many words, of similar length, are decoded at once.

        Returns:
            `num_beams` spellings a word, the best first.
        """
        check_positive(batch_size=batch_size)
        network: Any = evaluation_view(self.network)
        order = sorted(range(len(words)), key=lambda i: len(words[i]))
        found: list[list[Candidate]] = [[] for _ in words]
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            ids = self.encode([words[i] for i in batch]).long().to(network.device)
            output = network.generate(
                input_ids=ids,
                attention_mask=ids.ne(PAD),
                num_beams=self.num_beams,
                num_return_sequences=self.num_beams,
                length_penalty=0.0,  # scores are log-probabilities
                max_new_tokens=min(2 * ids.shape[1] + 8, MAX_LENGTH - 1),
                suppress_tokens=[PAD, *self._letter_ids.values()],
                return_dict_in_generate=True,
                output_scores=True,
            )
            rows = zip(output.sequences.tolist(), output.sequences_scores.tolist(), strict=True)
            for place, (row, score) in enumerate(rows):
                found[batch[place // self.num_beams]].append(Candidate(self._write(row), score))
        return found

    def transliterate(self, words: Sequence[str]) -> list[str]:
        """Return each word in the other script; a word without a known letter is kept."""
        latin = LATIN_RUN.search(self.letters) is not None
        pattern = LATIN_RUN if latin else re.compile(f"[{re.escape(self.letters)}]+")
        return convert_words(words, self._convert, pattern)

    def _convert(self, runs: list[str]) -> list[str]:
        known = [run for run in runs if 0 < len(self._spell(run)) < MAX_LENGTH]
        best = {
            run: found[0].word for run, found in zip(known, self.candidates(known), strict=True)
        }
        return [best.get(run) or run for run in runs]

    def _spell(self, word: str) -> list[int]:
        return [
            self._letter_ids[letter]
            for letter in squeeze(_normal(word), 2)
            if letter in self._letter_ids
        ]

    def _write(self, row: list[int]) -> str:
        first = END + 1 + len(self.letters)
        return "".join(self.symbols[i - first] for i in row if i >= first)


def _table(name: str, spellings: list[list[int]]) -> Int[Tensor, "word unit"]:
    longest = max(map(len, spellings), default=0)
    require(longest < MAX_LENGTH, name, f"have fewer than {MAX_LENGTH} characters", longest)
    return spelling_table([[*spelling, END] for spelling in spellings])


def _shift(targets: Int[Tensor, "word symbol"]) -> Int[Tensor, "word symbol"]:
    """Return the decoder's inputs: each symbol one place later, after the end mark, which is the start mark too."""
    return torch.nn.functional.pad(targets, (1, 0), value=END)[:, :-1]


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _normal(text: str) -> str:
    return _nfc(text).lower()
