"""Any encoder of transformers as a word encoder."""

import inspect
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyembed._checks import check_choice, check_dim, check_mask, check_positive, class_name, must, require
from polyembed._pretrained import repr_call
from polyembed.encoders._adapters import describe, inject, without_wrapper
from polyembed.encoders.fusion import LastLayer, LayerFusion
from polyembed.encoders.pooling import WORD_POOLINGS, WordPooling, pool_words
from polyembed.encoders.windows import plan_windows
from polyembed.encoders.word_encoder import WordEncoder, count_words
from polyembed.text.pairs import PairedPieces, align_pairs, check_pairs
from polyembed.text.pieces import OVERFLOW, Pieces, SpecialPieces, align_words, piece_limit, special_pieces

FREEZE = ("none", "embeddings", "all")
TOKENIZER_FILE = "tokenizer-"
TOKENIZER_NAMES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
    *("vocab.json", "vocab.txt", "merges.txt", "bpe.codes", "dict.txt", "emoji.json", "tokenizer.model"),
    *("spiece.model", "sentencepiece.bpe.model", "sentencepiece.model", "spm.model", "spm_char.model"),
)
"""The names of the files that a tokenizer of transformers writes; a saved folder holds no others."""


class PretrainedWordEncoder(WordEncoder):
    """A vector for each word in its sentence from an encoder of transformers: ``pool(fuse(H_0, ..., H_n))``.

    The tokenizer cuts each word into pieces, the model reads the sentence, `fusion` makes one layer of all, and
    `pooling` one vector of each word's pieces. Sentences beyond the model's limit are read in windows that overlap by
    half (see `polyembed.encoders.windows`) under ``overflow="window"``.

    Args:
        model: An encoder of transformers, with or without a head (which is left out): BERT, XLM-R, XLM, DistilBERT,
            ModernBERT and their kin; also inside a `PeftModel`, or with adapters added: then the adapters train, and
            LoRA is saved along.
        tokenizer: The model's, fast or slow; needed for `encode` and for windows.
        fusion: How layers become one: `LastLayer`, `ScalarMix`, `LayerAverage`, `DLFA`.
        pooling: How a word's pieces become one vector.
        freeze: ``"none"``; ``"embeddings"``: the embedding layer does not train (Winata 2021, section 3.2.3, for large
            models); ``"all"``: the model runs without a graph and in evaluation mode, only `fusion` trains (the heads
            of 2503.07990).
        overflow: What `encode` does with sentences beyond the limit; see `polyembed.text.align_words`.

    Attributes:
        max_length: The most pieces that the model reads at once, special ones included; None where there is no limit.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, embedding_dim)``.

    Raises:
        ValueError: An unknown choice, a fusion for another number or size of layers, a sentence beyond the limit.
        TypeError: A model that is not of transformers, or no tokenizer where one is needed.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
        >>> encoder = PretrainedWordEncoder(BertModel(BertConfig(vocab_size=11, **sizes))).eval()
        >>> ids, index = torch.tensor([[2, 5, 6, 7, 3]]), torch.tensor([[-1, 0, 0, 1, -1]])
        >>> encoder(Pieces(ids, ids > 0, index)).shape
        torch.Size([1, 2, 8])

    Deviations: Winata 2021 does not say which piece stands for a word; the first does here unless told otherwise.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset(TOKENIZER_FILE + name for name in TOKENIZER_NAMES)

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any = None,
        *,
        fusion: LayerFusion | None = None,
        pooling: WordPooling = "first",
        freeze: Literal["none", "embeddings", "all"] = "none",
        overflow: Literal["error", "truncate", "window"] = "window",
    ) -> None:
        super().__init__()
        check_choice("pooling", pooling, WORD_POOLINGS)
        check_choice("freeze", freeze, FREEZE)
        check_choice("overflow", overflow, OVERFLOW)
        if not hasattr(model, "config") or not hasattr(model, "base_model"):
            raise TypeError(must("model", "be an encoder of transformers", class_name(model)))
        model, self.adapters = without_wrapper(model)
        self.model: nn.Module = model.base_model  # type: ignore[assignment]
        if getattr(model.config, "is_encoder_decoder", False):
            got = f"{class_name(self.model)}, which decodes too (its get_encoder() may serve)"
            raise TypeError(must("model", "be an encoder of transformers", got))
        self.tokenizer = tokenizer
        self.fusion = LastLayer() if fusion is None else fusion
        self.pooling, self.freeze, self.overflow = pooling, freeze, overflow
        self.special = SpecialPieces((), ()) if tokenizer is None else special_pieces(tokenizer)
        self.max_length = _most_pieces(self.model, tokenizer)
        if freeze != "none":
            for parameter in self.model.parameters() if freeze == "all" else _embedding_layer(self.model):
                parameter.requires_grad_(False)
        self.train(self.training)

    @classmethod
    def scratch(
        cls,
        tokenizer: Any,
        *,
        num_layers: int,
        hidden_size: int = 768,
        num_heads: int = 12,
        max_length: int = 512,
        **options: Any,
    ) -> Self:
        """Build an untrained BERT over a tokenizer's pieces: the Scratch models (Winata 2021, section 3.2.6).

        Args:
            tokenizer: Gives the vocabulary.
            num_layers: The paper has 2, 4 and 6.
            hidden_size: The size of a vector.
            num_heads: Attention heads of a layer.
            max_length: The most pieces.
            **options: Of the encoder.

        Returns:
            An encoder with random weights.

        Raises:
            ValueError: A size that is not positive, or is no multiple of the number of heads.
        """
        from transformers import BertConfig, BertModel

        check_positive(num_layers=num_layers, hidden_size=hidden_size, num_heads=num_heads, max_length=max_length)
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden_size,
            num_hidden_layers=num_layers,
            num_attention_heads=num_heads,
            intermediate_size=4 * hidden_size,
            max_position_embeddings=max_length,
            pad_token_id=tokenizer.pad_token_id,
        )
        return cls(BertModel(config), tokenizer, **options)

    @property
    def embedding_dim(self) -> int:
        """Give the size of a word's vector."""
        config: Any = self.model.config
        return int(config.hidden_size)

    def pieces(self, sentences: Sequence[Sequence[str]]) -> Pieces:
        """Cut sentences of words into the model's pieces.

        Args:
            sentences: Lists of words.

        Returns:
            Pieces on the CPU.

        Raises:
            ValueError: A sentence beyond the limit, under ``overflow="error"``.
            TypeError: No tokenizer.
        """
        if self.tokenizer is None:
            raise TypeError(must("tokenizer", "be given to cut words into pieces", None))
        return align_words(sentences, self.tokenizer, max_length=self.max_length, overflow=self.overflow)

    def forward(
        self, pieces: Pieces, num_words: int | None = None, *, table: Float[Tensor, "row hidden"] | None = None
    ) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their sentences.

        Args:
            pieces: Sentences cut into pieces; on the CPU the order of their words is checked.
            num_words: How many words a row has at most; if None, as the pieces say (which makes a GPU's host wait).
            table: Vectors to read in the place of the model's own: then ``piece_ids`` count its rows.

        Returns:
            ``(batch, num_words, embedding_dim)``; zeros for a word without pieces.
        """
        fused = self.piece_vectors(pieces, table=table)
        num_words = count_words(pieces) if num_words is None else num_words
        return pool_words(fused, pieces.word_index, num_words, pooling=self.pooling)

    def encode_pairs(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> PairedPieces:
        """Join pairs of sentences, as the model reads them: ``[CLS] first [SEP] second [SEP]`` for BERT.

        There are no windows over pairs: of one beyond the limit the longer sentence is cut, then both, unless
        ``overflow="error"``.

        Args:
            pairs: Two lists of words each.

        Returns:
            Rows of pieces on the CPU, and their token types if tokenizer and model have them.

        Raises:
            ValueError: A pair beyond the limit, under ``overflow="error"``, or no two sentences.
            TypeError: No tokenizer, or one that takes no pairs.
        """
        pairs = check_pairs(pairs)
        if self.tokenizer is None:
            raise TypeError(must("tokenizer", "be given to cut words into pieces", None))
        overflow: Literal["error", "truncate"] = "error" if self.overflow == "error" else "truncate"
        joined = align_pairs(pairs, self.tokenizer, max_length=self.max_length, overflow=overflow)
        return joined if _knows_token_types(self.model) else joined._replace(token_types=None)

    def piece_vectors(
        self,
        pieces: Pieces,
        token_types: Int[Tensor, "batch piece"] | None = None,
        *,
        table: Float[Tensor, "row hidden"] | None = None,
    ) -> Float[Tensor, "batch piece embedding_dim"]:
        """Run the model and make one layer of all: a vector for each piece, special ones included.

        Args:
            pieces: Sentences or pairs cut into pieces; on the CPU the order of their words is checked.
            token_types: Of pairs (`encode_pairs`); the model's own choice if None.
            table: As in `forward`.

        Returns:
            ``(batch, piece, embedding_dim)``; anything where `piece_mask` is off.
        """
        check_dim("piece_ids", pieces.piece_ids, 2, "batch, piece")
        check_mask(pieces.piece_mask, pieces.piece_ids.shape, name="piece_mask")
        if pieces.word_index.device.type == "cpu" and not torch.compiler.is_compiling():
            pieces.check()
        fused: Tensor = self.fusion(self.hidden_states(pieces, token_types, table=table), pieces.piece_mask)
        return fused

    def hidden_states(
        self,
        pieces: Pieces,
        token_types: Int[Tensor, "batch piece"] | None = None,
        *,
        table: Float[Tensor, "row hidden"] | None = None,
    ) -> list[Float[Tensor, "batch piece hidden"]]:
        """Run the model; in windows where rows are longer than it reads at once.

        Args:
            pieces: Sentences cut into pieces.
            token_types: Of pairs, which are not read in windows; the model's own choice if None.
            table: As in `forward`.

        Returns:
            The embeddings and each layer's output, as transformers has them; the last layer's alone where the fusion
            is `LastLayer`.
        """
        ids, mask = pieces.piece_ids, pieces.piece_mask
        limit = self.max_length
        if limit is None or ids.shape[1] <= limit:
            return self._run(ids, mask, token_types, table)
        require(token_types is None, "piece_ids", f"have at most {limit} pieces for pairs", ids.shape[1])
        require(self.overflow == "window", "piece_ids", f"have at most {limit} pieces", ids.shape[1])
        if self.tokenizer is None:
            raise TypeError(must("tokenizer", "be given to read in windows", None))
        batch = len(ids)
        plan = plan_windows(mask, limit, before=len(self.special.before), after=len(self.special.after))
        windows = ids.gather(1, plan.take.flatten(1)).view_as(plan.take)
        states = self._run(windows.flatten(0, 1), plan.mask.flatten(0, 1), table=table)
        give = plan.give[..., None].expand(-1, -1, states[0].shape[-1])
        return [layer.reshape(batch, -1, layer.shape[-1]).gather(1, give) for layer in states]

    def train(self, mode: bool = True) -> Self:
        """Switch to training; a model that is frozen whole stays in evaluation mode."""
        super().train(mode)
        if self.freeze == "all":
            self.model.eval()
        return self

    def _run(
        self, ids: Tensor, mask: Tensor, token_types: Tensor | None = None, table: Tensor | None = None
    ) -> list[Tensor]:
        everything = not isinstance(self.fusion, LastLayer)
        if ids.numel() == 0:
            empty = self._dtype_of().new_zeros(*ids.shape, self.embedding_dim)
            count = getattr(self.model.config, "num_hidden_layers", 1) + 1 if everything else 1
            return [empty] * count
        # A row of nothing but padding would attend to nothing: it reads its first place, and nobody reads it.
        first = torch.arange(mask.shape[1], device=mask.device) == 0
        attended = mask | (first & ~mask.any(1, keepdim=True))
        types = {} if token_types is None else {"token_type_ids": token_types}
        inputs = {"input_ids": ids} if table is None else {"inputs_embeds": F.embedding(ids, table)}
        learns = self.freeze != "all" or (table is not None and table.requires_grad)
        with torch.set_grad_enabled(torch.is_grad_enabled() and learns):
            found = self.model(**inputs, attention_mask=attended.long(), output_hidden_states=everything, **types)
        return list(found.hidden_states) if everything else [found.last_hidden_state]

    def _dtype_of(self) -> Tensor:
        return next(iter(self.model.parameters()))

    def get_config(self) -> dict[str, Any]:
        """Return what rebuilds the encoder: the model's own configuration among it."""
        config: Any = self.model.config
        adapter = describe(self.model, self.adapters)
        return {
            **({} if adapter is None else {"adapter": adapter}),
            "model": _plain(config.to_dict()),
            "architecture": _architecture(self.model),
            "pooler": getattr(self.model, "pooler", None) is not None,
            "fusion": self.fusion,
            "pooling": self.pooling,
            "freeze": self.freeze,
            "overflow": self.overflow,
        }

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the tokenizer's files."""
        names: dict[str, str] = {}
        if self.tokenizer is None:
            return names
        if not hasattr(self.tokenizer, "save_pretrained"):
            raise TypeError(must("tokenizer", "be of transformers to be saved", class_name(self.tokenizer)))
        number = sum(1 for _ in folder.glob(f"{TOKENIZER_FILE}*-tokenizer_config.json"))
        with tempfile.TemporaryDirectory() as draft:
            self.tokenizer.save_pretrained(draft)
            for path in sorted(Path(draft).iterdir()):
                if path.name not in TOKENIZER_NAMES:
                    rule = "write files of the usual names alone to be saved"
                    raise TypeError(must("tokenizer", rule, path.name))
                name = f"{TOKENIZER_FILE}{number}-{path.name}"
                shutil.copyfile(path, folder / name)
                names[f"{TOKENIZER_FILE}{path.name}"] = name
        return names

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the encoder with weights still to be loaded, and open its tokenizer."""
        from transformers import AutoConfig, AutoModel

        files = {key: config.pop(key) for key in list(config) if key.startswith(TOKENIZER_FILE)}
        given, pooler = _plain(dict(config.pop("model"))), config.pop("pooler")
        architecture, adapter = config.pop("architecture", None), config.pop("adapter", None)
        # On the CPU, since buffers that are in no state dict are filled here; their random numbers are nobody's.
        with torch.device("cpu"), torch.random.fork_rng(devices=[]):
            _require_alone(given)
            settings = AutoConfig.for_model(given.pop("model_type"), **given)
            _require_alone(settings.to_dict())
            build = AutoModel.from_config if architecture is None else _model_class(architecture)
            model = build(settings)
            if not pooler and hasattr(model, "pooler"):
                model.pooler = None
            if adapter is not None:
                inject(model, adapter)
        return cls(model, _open_tokenizer(files) if files else None, **config)

    def __repr__(self) -> str:
        options = {name: getattr(self, name) for name in ("fusion", "pooling", "freeze", "overflow")}
        tokenizer = None if self.tokenizer is None else class_name(self.tokenizer)
        return repr_call(self, model=_Name(class_name(self.model)), tokenizer=_Name(str(tokenizer)), **options)


def _most_pieces(model: nn.Module, tokenizer: Any) -> int | None:
    """Find how many pieces a model reads at once, special ones included; None where there is no limit."""
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is not None:
        for module in model.modules():  # RoBERTa's kin count positions from behind the padding's
            table = getattr(module, "position_embeddings", None)
            if isinstance(table, nn.Embedding) and table.padding_idx is not None:
                positions -= table.padding_idx + 1
    limits = [limit for limit in (positions, piece_limit(tokenizer)) if limit]
    return min(limits) if limits else None


def _embedding_layer(model: nn.Module) -> Iterator[nn.Parameter]:
    """List the parameters before the first layer: tables and their norm, however a model names them."""
    table = {id(parameter) for parameter in model.get_input_embeddings().parameters()}  # type: ignore[operator]
    for name, parameter in model.named_parameters():
        if "embedding" in name or name.startswith("layer_norm_emb.") or id(parameter) in table:  # the norm of XLM's
            yield parameter


def _knows_token_types(model: nn.Module) -> bool:
    """Tell whether a model tells the sentences of a pair apart by a type; RoBERTa's kin have a single one."""
    takes = "token_type_ids" in inspect.signature(model.forward).parameters
    return takes and getattr(model.config, "type_vocab_size", 2) > 1


def _architecture(model: nn.Module) -> str | None:
    """Name the model's class where it is not the one that its configuration stands for (T5's encoder alone)."""
    import transformers

    config: Any = model.config
    usual: Any = transformers.MODEL_MAPPING.get(type(config), None)
    if type(model) is usual:
        return None
    name = class_name(model)
    if getattr(transformers, name, None) is not type(model):
        raise TypeError(must("model", "be a public class of transformers to be saved", name))
    return name


def _model_class(name: str) -> Any:
    """Find a model of transformers by its name, and nothing else."""
    import transformers

    found = getattr(transformers, name, None)
    good = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    require(good, "architecture", "name a model of transformers", repr(name))
    return found


def _require_alone(settings: dict[str, Any]) -> None:
    """Refuse a configuration that names a backbone: transformers would fetch it, or open a local path."""
    kind = settings.get("model_type")
    require("backbone" not in str(settings), "model", "be described without a backbone", kind)


def _plain(settings: Any) -> Any:
    """Leave out what makes transformers fetch code and run it: classes of a repository, kernels by name."""
    if isinstance(settings, list):
        return [_plain(value) for value in settings]
    if not isinstance(settings, dict):
        return settings
    code = [
        key for key in settings if key == "auto_map" or str(key).removesuffix("_internal").endswith("_implementation")
    ]
    return {key: _plain(value) for key, value in settings.items() if key not in code}


class _Name(str):
    """Text that prints without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _open_tokenizer(files: dict[str, Path]) -> Any:
    from transformers import AutoTokenizer

    with _folder_of(files) as folder:
        try:
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(must("the tokenizer's files", "be whole", f"{type(error).__name__}: {error}")) from error


@contextmanager
def _folder_of(files: dict[str, Path]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, path in files.items():
            shutil.copyfile(path, os.path.join(folder, name.removeprefix(TOKENIZER_FILE)))
        yield folder
