"""A network that spells words in another script, its training, and the character error rate.

The examples and the benchmark of transliteration share this module. For polyembed, any function
from words to as many words is a transliterator. A `Speller` can also be saved with a tagger.
"""

import math
import random
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR

from polyembed._checks import check_ids, check_positive, check_probability, must, require
from polyembed._views import evaluation_view
from polyembed.saving import PretrainedModule
from polyembed.text import DictionaryTransliterator
from polyembed.text.normalize import convert_words
from polyembed.text.spelling import spelling_table

RUN = re.compile("[A-Za-z\u00aa\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff]+")
_LOAN_NUKTA = re.compile("(?<=[कखगजफ])\u093c")
_NASAL_LETTER = re.compile("[ङञणनम]\u094d(?=[क-घच-झट-ढत-धप-भश-स])")
PAD, END = 0, 1
MAX_LENGTH = 128  # the largest number of letters or symbols of a word, end mark included


class Candidate(NamedTuple):
    """A spelling that a transliterator considered.

    Attributes:
        word: The word in the other script.
        score: ``log p(word | source)`` in nats.
    """

    word: str
    score: float


class CharacterTransliterator(PretrainedModule):
    """Spell a word in another script with a small Transformer over characters.

    The network is transformers' mBART without pretrained weights. It computes
    ``p(y | x) = prod_t p(y_t | y_1 ... y_{t-1}, x)``, and a beam search finds ``y``.
    `train_transliterator` trains it on pairs of spellings, in either direction (Latin to Devanagari
    or Devanagari to Latin).

    Words are read in lower case and NFC; a letter that is repeated more than twice counts twice,
    and letters that training did not have are ignored. Runs of letters inside a word are replaced:
    runs of Latin letters if the model reads Latin, otherwise runs of the model's letters. Numbers,
    mentions, URLs and emoji are kept.

    Args:
        letters: The letters that are read.
        symbols: The characters that are written.
        hidden_size: The size of a letter's vector; a multiple of `num_heads`.
        num_layers: The layers of the encoder; the decoder has one fewer, at least one.
        num_heads: The attention heads of a layer.
        dropout: The dropout probability.
        num_beams: The number of spellings that the beam search keeps, at least 2.

    Shape:
        ids ``(word, letter)`` from `encode` and targets ``(word, symbol)`` from `encode_targets`,
        both padded with 0, to the log-probability of each target symbol ``(word, symbol)``; 0 at
        padding.

    Raises:
        ValueError: If a size is not positive, `num_beams` is 1, `dropout` is not a probability,
            `hidden_size` is not a multiple of `num_heads`, or letters or symbols are missing or
            repeated.
        TypeError: If ids are not integers.

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
            pairs: Pairs of a word in the source script and the same word in the target script.
            **options: The keyword arguments of the class.

        Returns:
            The model.
        """
        sources, targets = map("".join, zip(*pairs, strict=True))
        return cls(
            "".join(sorted(set(_normal(sources)))), "".join(sorted(set(_nfc(targets)))), **options
        )

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Compute the log-probability of each symbol.

        It is conditional on the source word and on the symbols before it.

        Args:
            ids: The letter ids of `encode`, padded with 0.
            targets: The symbol ids of `encode_targets`, padded with 0.

        Returns:
            Log-probabilities in nats; a row's sum is ``log p(target | source)``.
        """
        check_ids("targets", targets)
        log_probs = self.logits(ids, targets).log_softmax(-1)
        return log_probs.gather(-1, targets[..., None].long())[..., 0].where(targets.ne(PAD), 0.0)

    def logits(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Compute the scores of all symbols at each position.

        Losses other than the log-probability, such as one with label smoothing, need them.
        """
        check_ids("ids", ids)
        output = self.network(
            input_ids=ids.long(),
            attention_mask=ids.ne(PAD),
            decoder_input_ids=_shift(targets.long()),
            use_cache=False,
        )
        scores: Tensor = output.logits
        return scores

    def encode(self, words: Sequence[str]) -> Tensor:
        """Return the letter ids of each word with an end mark, padded with 0."""
        return _table("words", [self._spell(word) for word in words])

    def encode_targets(self, words: Sequence[str]) -> Tensor:
        """Return the symbol ids of each word with an end mark, padded with 0.

        Args:
            words: Words in the target script.

        Returns:
            The ids, ``(word, symbol)``.

        Raises:
            ValueError: If a character is not among the model's symbols.
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
            batch_size: The number of words, of similar length, that are decoded at once.

        Returns:
            `num_beams` spellings per word, the best first.
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
        latin = RUN.search(self.letters) is not None
        pattern = RUN if latin else re.compile(f"[{re.escape(self.letters)}]+")
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
            for letter in re.sub(r"(.)\1{2,}", r"\1\1", _normal(word))
            if letter in self._letter_ids
        ]

    def _write(self, row: list[int]) -> str:
        first = END + 1 + len(self.letters)
        return "".join(self.symbols[i - first] for i in row if i >= first)


def _table(name: str, spellings: list[list[int]]) -> Tensor:
    longest = max(map(len, spellings), default=0)
    require(longest < MAX_LENGTH, name, f"have fewer than {MAX_LENGTH} characters", longest)
    return spelling_table([[*spelling, END] for spelling in spellings])


def _shift(targets: Tensor) -> Tensor:
    """Return the decoder's inputs: each symbol one position later, after the start mark.

    The start mark is the end mark.
    """
    return torch.nn.functional.pad(targets, (1, 0), value=END)[:, :-1]


def _nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _normal(text: str) -> str:
    return _nfc(text).lower()


class Speller(PretrainedModule):
    """Spell words by a dictionary, and words outside it by a `CharacterTransliterator`.

    Args:
        model: The network; it is frozen.
        words: The dictionary.
        keep: Words that are not changed.
    """

    def __init__(
        self, model: CharacterTransliterator, words: Mapping[str, str], keep: Collection[str] = ()
    ) -> None:
        super().__init__()
        self.model = model.requires_grad_(False)
        self.dictionary = DictionaryTransliterator(words, fallback=model.transliterate, keep=keep)

    def forward(self, words: Sequence[str]) -> list[str]:
        """Return each word in the other script."""
        return self.dictionary(words)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the dictionary as pairs."""
        words = sorted(self.dictionary.words.items())
        return {"model": self.model, "words": words, "keep": sorted(self.dictionary.keep)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the speller from the result of `get_config`."""
        return cls(config["model"], dict(config["words"]), config["keep"])


def train_transliterator(
    pairs: Sequence[tuple[str, str]],
    *,
    model: CharacterTransliterator | None = None,
    num_train_epochs: int = 15,
    batch_size: int = 64,
    learning_rate: float = 2e-3,
    seed: int = 0,
    progress: bool | None = None,
) -> CharacterTransliterator:
    """Train on the cross-entropy of the target's symbols, with label smoothing of 0.1.

    The optimiser is AdamW with one cycle of the learning rate, and the norm of the gradient is
    clipped to 1. Order, dropout and a new model's weights are drawn from `seed`, and the global
    random state does not change. On a CPU the same call gives the same model.

    Args:
        pairs: Pairs of a word in the source script and the same word in the target script. A pair
            that is listed twice has twice the weight.
        model: The model to train, in place, on its device. If None, a new one is built by
            `CharacterTransliterator.for_pairs`.
        num_train_epochs: The number of times that each pair is seen.
        batch_size: The number of pairs per step, of similar length.
        learning_rate: The highest learning rate of the cycle.
        seed: The seed of everything random.
        progress: Whether to show a progress bar; if None, only on a terminal.

    Returns:
        The model, in evaluation mode.

    Raises:
        ValueError: If `pairs` or a side of a pair is empty, or the model lacks a symbol.
        TypeError: If a pair is not two strings.

    Example:
        >>> pairs = [("kam", "काम"), ("nam", "नाम"), ("ram", "राम")] * 100
        >>> model = train_transliterator(pairs, num_train_epochs=3, batch_size=10)
        >>> model.transliterate(["Ram!"])
        ['राम!']
    """
    check_positive(num_train_epochs=num_train_epochs, batch_size=batch_size)
    require(learning_rate > 0, "learning_rate", "be positive", learning_rate)
    for index, pair in enumerate(pairs):
        if (
            isinstance(pair, str)
            or len(pair) != 2
            or not all(isinstance(side, str) for side in pair)
        ):
            raise TypeError(must(f"pairs[{index}]", "be two strings", repr(pair)))
        require(all(pair), f"pairs[{index}]", "have a word on each side", repr(pair))
    require(len(pairs) > 0, "pairs", "hold at least one pair", "none")
    device = torch.device("cpu") if model is None else model.network.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        model = CharacterTransliterator.for_pairs(pairs) if model is None else model
        sources = model.encode([source for source, _ in pairs])
        targets = model.encode_targets([target for _, target in pairs])
        lengths = torch.stack([sources.ne(PAD).sum(-1), targets.ne(PAD).sum(-1)], -1)
        optimizer = AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98))
        steps = num_train_epochs * math.ceil(len(pairs) / batch_size)
        scheduler = OneCycleLR(
            optimizer, learning_rate, total_steps=max(steps, 2), pct_start=0.1, cycle_momentum=False
        )
        batches = _batches(lengths.tolist(), num_train_epochs, batch_size, random.Random(seed))
        model.train()
        for batch in _progress(batches, steps, progress):
            letters, symbols = lengths[batch].amax(0).tolist()
            x, y = sources[batch, :letters].to(device), targets[batch, :symbols].long().to(device)
            scores = model.logits(x, y).flatten(0, 1)
            loss = F.cross_entropy(scores, y.flatten(), ignore_index=PAD, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
    return model.eval()


def _batches(
    lengths: Sequence[list[int]], num_train_epochs: int, batch_size: int, draw: random.Random
) -> Iterator[list[int]]:
    """Group pairs of similar length, in a new order in each epoch."""
    for _ in range(num_train_epochs):
        order = list(range(len(lengths)))
        draw.shuffle(order)
        order = [
            i
            for start in range(0, len(order), 32 * batch_size)
            for i in sorted(order[start : start + 32 * batch_size], key=lambda i: lengths[i])
        ]
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        draw.shuffle(batches)
        yield from batches


def _progress(
    batches: Iterator[list[int]], steps: int, progress: bool | None
) -> Iterator[list[int]]:
    from tqdm import tqdm

    disable = None if progress is None else not progress  # None: no bar without a terminal
    yield from tqdm(batches, total=steps, desc="transliterator", leave=False, disable=disable)


def draw_spellings(
    sentences: Iterable[Sequence[str]],
    spellings: Mapping[str, Sequence[Candidate]],
    *,
    seed: int = 0,
) -> Iterator[list[str]]:
    """Write each word in one of its spellings, drawn anew at each position with ``p(y | x)``.

    People romanise a word in many ways (*nahi*, *nahin*, *nhi*). If a text has all spellings of a
    word, each as often as people write it, then vectors trained on the text are similar for all of
    them.

    Args:
        sentences: The sentences, lists of words, which are read once.
        spellings: The spellings of each word with the logarithms of their weights: the result of
            `CharacterTransliterator.candidates`, or attested spellings with ``log(count)``. The
            weights of a word need not add up to one. A word that is not listed is kept.
        seed: The seed of the draws.

    Yields:
        The sentences, of the same lengths, one after the other.

    Raises:
        ValueError: If a word has no spelling, or a score is not a finite number.
        TypeError: If a sentence is a string, or spellings are not `Candidate` pairs.

    Example:
        >>> found = [Candidate("nahi", math.log(0.7)), Candidate("nhi", math.log(0.3))]
        >>> list(draw_spellings([["नहीं", "!"], ["नहीं"], ["नहीं"]], {"नहीं": found}, seed=2))
        [['nhi', '!'], ['nhi'], ['nahi']]
    """
    draw = random.Random(seed)
    weighted = {word: _weigh(word, found) for word, found in spellings.items()}
    for row, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            raise TypeError(
                must(f"sentences[{row}]", "be a list of words", f"the string {sentence!r}")
            )
        yield [draw.choices(*weighted[word])[0] if word in weighted else word for word in sentence]


def _weigh(word: str, found: Sequence[Candidate]) -> tuple[list[str], list[float]]:
    name = f"spellings[{word!r}]"
    if isinstance(found, str) or not all(isinstance(one, tuple) and len(one) == 2 for one in found):
        raise TypeError(must(name, "be a list of Candidates", repr(found)))
    require(len(found) > 0, name, "hold at least one spelling", "none")
    strange = [score for _, score in found if not math.isfinite(score)]
    require(not strange, name, "have finite scores", strange)
    best = max(score for _, score in found)
    return [spelling for spelling, _ in found], [math.exp(score - best) for _, score in found]


def character_error_rate(predicted: Sequence[str], expected: Sequence[Sequence[str]]) -> float:
    """Compute the character error rate ``sum_i d(p_i, e_i) / sum_i len(e_i)``.

    d is the Levenshtein distance in code points. If a word has several right answers, the answer
    with the smallest distance counts, and of several such answers the longest.

    Args:
        predicted: One spelling per word.
        expected: The right spellings of each word, at least one.

    Returns:
        The rate; it is 0 if all spellings are right, and may exceed 1.

    Raises:
        ValueError: If the numbers of words differ or are 0, or a word has no answer.
        TypeError: If a word's answers are a string instead of a list.

    Example:
        >>> character_error_rate(["काम", "है"], [["काम", "कम"], ["हैं"]])
        0.16666666666666666
    """
    require(
        len(predicted) == len(expected),
        "expected",
        f"have {len(predicted)} entries, one a word",
        len(expected),
    )
    require(len(predicted) > 0, "predicted", "hold at least one word", "none")
    errors = length = 0
    for index, (word, answers) in enumerate(zip(predicted, expected, strict=True)):
        if isinstance(answers, str):
            raise TypeError(
                must(f"expected[{index}]", "be a list of answers", f"the string {answers!r}")
            )
        require(any(answers), f"expected[{index}]", "hold at least one answer", list(answers))
        distance, negative = min(
            (edit_distance(word, answer), -len(answer)) for answer in answers if answer
        )
        errors += distance
        length -= negative
    return errors / length


def edit_distance(a: str, b: str) -> int:
    """Count the insertions, deletions and substitutions that turn `a` into `b` (Levenshtein 1966).

    Args:
        a: One string.
        b: The other string.

    Returns:
        The smallest number of edits, in code points.

    Example:
        >>> edit_distance("kaam", "kam")
        1
    """
    above = list(range(len(b) + 1))
    for row, x in enumerate(a, start=1):
        line = [row]
        for column, y in enumerate(b, start=1):
            line.append(min(above[column] + 1, line[-1] + 1, above[column - 1] + (x != y)))
        above = line
    return above[-1]


def fold_devanagari(word: str) -> str:
    """Normalise spellings that Hindi uses side by side.

    A comparison of normalised words does not count these differences. The dot of loan sounds is
    removed (ज़ becomes ज; ड़ and ढ़ are separate letters and keep it), chandrabindu becomes
    anusvara (हाँ becomes हां), and so does a nasal letter before a stop or a sibilant
    (हिन्दी becomes हिंदी).

    Args:
        word: A word.

    Returns:
        The normalised word, in NFC.

    Example:
        >>> fold_devanagari("ज़िन्दगी"), fold_devanagari("लड़का")
        ('जिंदगी', 'लड़का')
    """
    word = unicodedata.normalize("NFC", word).replace("\u0901", "\u0902")
    return _NASAL_LETTER.sub("\u0902", _LOAN_NUKTA.sub("", word))
