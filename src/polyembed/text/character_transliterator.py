"""A small convolutional model that spells words in another script, letter by letter."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_ids, check_positive, check_probability, class_name, must, require
from polyembed._pretrained import PretrainedModule, repr_call
from polyembed.text.ctc import ctc_beam_search
from polyembed.text.spelling import spelling_table
from polyembed.text.transliterate import LATIN_RUN, convert_words, squeeze
from polyembed.text.word_prior import WordPrior


class Candidate(NamedTuple):
    """A spelling that a transliterator considered.

    Attributes:
        word: The word in the other script.
        score: In nats, higher is better: the model's log-probability, and the prior's by its weight.
    """

    word: str
    score: float


class CharacterTransliterator(PretrainedModule):
    """Spell a word in another script, letter by letter (connectionist temporal classification, Graves 2006).

    Every letter has `slots` frames; each frame gives a symbol of the other script or nothing (the blank):
    ``p(y | x) = sum over paths that collapse to y of prod_t p_t(path_t | x)``. Frames see their letter's surroundings
    through residual convolutions, ``x_{l+1} = x_l + gelu(conv_l(norm_l(x_l)))``, so one letter's reading depends on
    its neighbours, and are independent of each other. What they do not know, which spellings are words, a `WordPrior`
    adds: candidates of a beam search are ranked by ``log p(y | x) + prior_weight * log p(y)``.

    `train_transliterator` trains one from pairs of spellings. Words are read in lower case; a letter that stands more
    than twice in a row counts twice, and letters that training did not have are passed over. Runs of Latin letters
    inside a word are replaced; see `Transliterator` for what stays as it is.

    Args:
        letters: The letters that are read.
        symbols: The characters that are written.
        hidden_size: The size of a letter's vector.
        num_layers: How many convolutions.
        kernel_size: Their width in letters; odd.
        slots: How many symbols a letter may become: a word of n letters has at most ``slots * n`` symbols.
        dropout: The probability of dropping a component of a letter's vector, and of a layer's.
        beam_size: How many spellings the search keeps.
        prior: How likely words are without their Roman spelling; none if None.
        prior_weight: How much the prior counts; it has no effect without one.

    Shape:
        ids ``(*batch, letter)``, 0 = padding after the word, to log-probabilities ``(*batch, letter, slot, symbol)``
        where symbol 0 is the blank; padding gives zeros.

    Raises:
        ValueError: Sizes that are not positive, an even kernel, repeated letters or symbols.
        TypeError: Ids that are no integers, or a prior that is no `WordPrior`.

    Example:
        >>> model = CharacterTransliterator("akm", "कमा", hidden_size=8, num_layers=1)
        >>> model(model.encode(["kaam", "ka"])).shape
        torch.Size([2, 4, 2, 4])

    Deviations: no paper's model. Winata 2021 (section 3.1) used a transliterator that it does not name.
    """

    def __init__(
        self,
        letters: str,
        symbols: str,
        *,
        hidden_size: int = 96,
        num_layers: int = 4,
        kernel_size: int = 5,
        slots: int = 2,
        dropout: float = 0.1,
        beam_size: int = 16,
        prior: WordPrior | None = None,
        prior_weight: float = 0.5,
    ) -> None:
        sizes = {"hidden_size": hidden_size, "num_layers": num_layers, "kernel_size": kernel_size}
        check_positive(**sizes, slots=slots, beam_size=beam_size)
        check_probability(dropout=dropout)
        require(kernel_size % 2 == 1, "kernel_size", "be odd", kernel_size)
        require(prior_weight >= 0, "prior_weight", "not be negative", prior_weight)
        for name, characters in {"letters": letters, "symbols": symbols}.items():
            different = 0 < len(characters) == len(set(characters))
            require(different, name, "be different characters, at least one", repr(characters))
        if prior is not None and not isinstance(prior, WordPrior):
            raise TypeError(must("prior", "be a WordPrior or None", class_name(prior)))
        super().__init__()
        self.letters = letters
        self.symbols = symbols
        self.slots = slots
        self.beam_size = beam_size
        self.prior = prior
        self.prior_weight = prior_weight
        self._ids = {letter: i for i, letter in enumerate(letters, start=1)}
        self.embedding = nn.Embedding(len(letters) + 1, hidden_size, padding_idx=0)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden_size) for _ in range(num_layers))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(hidden_size, hidden_size, kernel_size, padding=kernel_size // 2) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(hidden_size)
        self.linear = nn.Linear(hidden_size, slots * (len(symbols) + 1))
        self.dropout = nn.Dropout(dropout)

    @classmethod
    def for_pairs(cls, pairs: Iterable[tuple[str, str]], **sizes: Any) -> Self:
        """Build an untrained model with the letters and symbols of training pairs.

        Args:
            pairs: Spellings in the two scripts.
            **sizes: As in the class.

        Returns:
            The model.
        """
        pairs = list(pairs)
        letters = sorted({letter for source, _ in pairs for letter in source.lower()})
        symbols = sorted({symbol for _, target in pairs for symbol in unicodedata.normalize("NFC", target)})
        return cls("".join(letters), "".join(symbols), **sizes)

    def forward(self, ids: Int[Tensor, "*batch letter"]) -> Float[Tensor, "*batch letter slot symbol"]:
        """Compute what each frame gives.

        Args:
            ids: Letter ids, padded with 0 (`encode`).

        Returns:
            Log-probabilities in nats.
        """
        check_ids("ids", ids)
        batch, length = ids.shape[:-1], ids.shape[-1]
        ids = ids.reshape(-1, length) if length else ids.new_zeros(batch.numel(), 1)
        mask = ids.ne(0)[..., None]
        x = self.dropout(self.embedding(ids)).where(mask, 0.0)
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            window = norm(x).where(mask, 0.0).transpose(1, 2)
            x = x + self.dropout(F.gelu(convolution(window).transpose(1, 2)))
        frames = self.linear(self.norm(x)).unflatten(-1, (self.slots, len(self.symbols) + 1)).log_softmax(-1)
        y: Tensor = frames.where(mask[..., None], 0.0)[:, :length]
        return y.reshape(*batch, *y.shape[1:])

    def encode(self, words: Sequence[str]) -> Int[Tensor, "word letter"]:
        """Turn words into letter ids, padded with 0.

        Args:
            words: Words in the source script.

        Returns:
            ``(word, letter)``; as wide as the longest word.
        """
        return spelling_table([self._spell(word) for word in words])

    def candidates(self, words: Sequence[str], *, batch_size: int = 512) -> list[list[Candidate]]:
        """List likely spellings of each word, in evaluation mode; the words are taken as one run of letters each.

        Args:
            words: Words in the source script.
            batch_size: How many words are read at once, those of like length together.

        Returns:
            At most ``beam_size`` for each word, the best first.
        """
        check_positive(batch_size=batch_size)
        order = sorted(range(len(words)), key=lambda i: len(words[i]))
        found: list[list[Candidate]] = [[] for _ in words]
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            for i, rows in zip(batch, self._frames([words[i] for i in batch]), strict=True):
                paths = ctc_beam_search(rows, beam_size=self.beam_size)
                spelled = [("".join(self.symbols[label - 1] for label in labels), score) for labels, score in paths]
                ranked = [Candidate(word, score + self._prior(word)) for word, score in spelled]
                found[i] = sorted(ranked, key=lambda candidate: -candidate.score)
        return found

    def transliterate(self, words: Sequence[str]) -> list[str]:
        """Give each word in the other script.

        Args:
            words: The words.

        Returns:
            As many words; one that the model makes nothing of stays as it is.
        """
        return convert_words(words, self._convert, LATIN_RUN)

    def _convert(self, runs: list[str]) -> list[str]:
        return [best[0].word or run for run, best in zip(runs, self.candidates(runs), strict=True)]

    def _prior(self, word: str) -> float:
        if self.prior is None or self.prior_weight == 0:
            return 0.0
        return self.prior_weight * self.prior.log_prob(word)

    def _spell(self, word: str) -> list[int]:
        return [self._ids[letter] for letter in squeeze(word.lower(), 2) if letter in self._ids]

    @torch.no_grad()
    def _frames(self, words: Sequence[str]) -> list[list[list[float]]]:
        """Compute each word's rows of log-probabilities."""
        training = self.training
        self.eval()
        try:
            ids = self.encode(words)
            rows = self(ids.to(self.linear.weight.device)).flatten(1, 2).tolist()
        finally:
            self.train(training)
        lengths = (ids.ne(0).sum(-1) * self.slots).tolist()
        return [row[:length] for row, length in zip(rows, lengths, strict=True)]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        first = self.convolutions[0]
        return {
            "letters": self.letters,
            "symbols": self.symbols,
            "hidden_size": self.embedding.embedding_dim,
            "num_layers": len(self.convolutions),
            "kernel_size": first.kernel_size[0],  # type: ignore[index]
            "slots": self.slots,
            "dropout": self.dropout.p,
            "beam_size": self.beam_size,
            "prior": self.prior,
            "prior_weight": self.prior_weight,
        }

    def __repr__(self) -> str:
        return repr_call(self, **self.get_config())
