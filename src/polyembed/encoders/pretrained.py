"""Any encoder of transformers as a contextual embedder."""

import inspect
import os
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import check_choice, class_name, must, require, require_type
from polyembed._views import evaluation_view
from polyembed.encoders._transformers import (
    ADAPTER,
    ENCODER,
    TOKENIZER,
    open_model,
    probe,
    read_model,
    read_tokenizer,
    without_output_hooks,
    without_wrapper,
    write_model,
)
from polyembed.encoders.contextual import ContextualEmbedder, check_pieces
from polyembed.encoders.fusion import LastLayer, LayerFusion, check_fusion
from polyembed.encoders.pooling import WORD_POOLINGS, WordPooling, pool_words
from polyembed.functional.masking import valid_first
from polyembed.text.pairs import PairedPieces, align_pairs
from polyembed.text.pieces import (
    OVERFLOW,
    Pieces,
    align_words,
    piece_limit,
    room_for_pieces,
    special_pieces,
)

WINDOWS_AT_ONCE = 8  # bounds the memory inside the model for one very long sentence


class PretrainedWordEncoder(ContextualEmbedder):
    """A vector for each word in its sentence from an encoder of transformers:
    ``pool(fuse(H_0, ..., H_n))``.

    The tokenizer cuts each word into pieces, the model encodes the sentence, `fusion` reduces all
    layers to one, and `pooling` each word's pieces to one vector. Sentences beyond the model's
    limit are read in windows that overlap by half under ``overflow="window"``: a piece's vector is
    taken from the window in which it is farthest from an edge. Each sentence's windows depend on
    that sentence alone. In a few models (MobileBERT, ConvBERT, FNet, Nystromformer, YOSO, Funnel,
    CANINE) padding changes the vectors of words although it is masked. A test run when the encoder
    is built detects this, and such a model runs one sentence at a time. Many models of transformers
    look at the mask for padding, which makes a GPU's host wait.

    Args:
        model: An encoder of transformers, with or without a head (which is not used): BERT, XLM-R,
            XLM, DistilBERT, DeBERTa, ModernBERT and similar ones; the encoder of T5 or BART
            (``get_encoder()``, which cannot be saved); or a causal language model: GPT-2, Llama,
            Gemma, Qwen. The model may be inside a `PeftModel`, or have adapters added: then the
            adapters train, and one adapter, such as LoRA, is saved too. `model` may also be a
            folder or a name on the hub, from which model and tokenizer are loaded.
        tokenizer: The model's tokenizer, fast or slow; needed for `encode` and for windows.
        fusion: How layers become one: `LastLayer`, `ScalarMix`, `LayerAverage`, `DLFA`.
        pooling: How a word's pieces become one vector; by default the first piece, for a causal
            language model the last, since only it has seen the whole word.
        freeze: The frozen part: ``"none"``; ``"embeddings"``: the embedding layer (Winata 2021,
            section 3.2.3, for large models); ``"all"``: the model, which runs without a graph and
            in evaluation mode, while `fusion` trains (the frozen encoder under the heads of arXiv
            2503.07990).
        overflow: How `encode` treats sentences beyond the limit; see `polyembed.text.align_words`.
        max_length: The most pieces read at once, special ones included. The model's own limit
            applies if `max_length` is None or larger. The attribute is None for a model without a
            limit.

    Attributes:
        is_causal: Whether a piece sees only the pieces before it; found by running the model on a
            few pieces when the encoder is built.

    Shape:
        `Pieces` ``(batch, piece)`` to ``(batch, word, embedding_dim)``.

    Raises:
        ValueError: If a choice is unknown, a sentence is beyond the limit, the tokenizer gives
            pieces that the model lacks, or a folder is damaged or lacks weights or the tokenizer's
            files.
        TypeError: If the model is not a text encoder of transformers, or the tokenizer is missing
            where one is needed.
        FileNotFoundError: If the folder or the model on the hub does not exist.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
        ...     "intermediate_size": 8}
        >>> encoder = PretrainedWordEncoder(BertModel(BertConfig(vocab_size=11, **sizes))).eval()
        >>> ids, index = torch.tensor([[2, 5, 6, 7, 3]]), torch.tensor([[-1, 0, 0, 1, -1]])
        >>> encoder(Pieces(ids, ids > 0, index)).shape
        torch.Size([1, 2, 8])

    Deviations: Winata 2021 does not say which piece represents a word; here it is the first by
    default. XLM's language embeddings (``langs``) are not added; XLM-MLM large, of 100 languages,
    has none.
    """

    # files alone, so that a saved configuration cannot name a model
    file_arguments: ClassVar[frozenset[str]] = frozenset({"model", ENCODER, TOKENIZER, ADAPTER})
    self_saved_modules = ("model",)

    def __init__(
        self,
        model: nn.Module | str | os.PathLike[str],
        tokenizer: Any = None,
        *,
        fusion: LayerFusion | None = None,
        pooling: WordPooling | None = None,
        freeze: Literal["none", "embeddings", "all"] = "none",
        overflow: Literal["error", "truncate", "window"] = "window",
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("freeze", freeze, ("none", "embeddings", "all"))
        check_choice("overflow", overflow, OVERFLOW)
        found: Any = model
        if isinstance(model, str | os.PathLike):
            found, tokenizer = open_model(model, tokenizer)
        require_type(hasattr(found, "base_model"), "model", "be an encoder of transformers", model)
        found, self.adapters = without_wrapper(found)
        self.model: Any = found.base_model
        known, got = inspect.signature(self.model.forward).parameters, class_name(self.model)
        if "input_ids" not in known or not hasattr(self.model.config, "hidden_size"):
            rule = "be an encoder of text, with a hidden_size (of pictures and text: its text part)"
            raise TypeError(must("model", rule, f"{got}, which reads {', '.join(known)}"))
        if "decoder_input_ids" in known:
            got += ", which decodes too (give its get_encoder(), or T5EncoderModel for T5)"
            raise TypeError(must("model", "be an encoder of transformers", got))
        # otherwise a causal model keeps keys and values of all layers
        self._options = {"return_dict": True} | (
            {"use_cache": False} if "use_cache" in known else {}
        )
        self.is_causal, self._padding_counts = _behaviour(self.model, self._options)
        if pooling is None:
            pooling = "last" if self.is_causal else "first"
        check_choice("pooling", pooling, WORD_POOLINGS)
        self.tokenizer = tokenizer
        self.fusion = check_fusion(fusion)
        self.pooling, self.freeze, self.overflow = pooling, freeze, overflow
        self.special = ((), ()) if tokenizer is None else special_pieces(tokenizer)
        if max_length is not None:
            room_for_pieces(tokenizer, max_length, sum(map(len, self.special)))
        limits = max_length, most_positions(self.model), piece_limit(tokenizer)
        # XLNet has -1 for no limit
        self.max_length = min((x for x in limits if x is not None and x > 0), default=None)
        if freeze != "none":
            whole = freeze == "all"
            for parameter in self.model.parameters() if whole else _embedding_layer(self.model):
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
        """Build an untrained BERT over a tokenizer's pieces: the Scratch models (Winata 2021,
        section 3.2.1).

        Args:
            tokenizer: The tokenizer, which gives the vocabulary.
            num_layers: The number of layers: 4 and 6 in the paper's text, 2 and 4 in its table 4.
            hidden_size: The size of a vector.
            num_heads: The number of attention heads of a layer.
            max_length: The most pieces read at once, special ones included.
            **options: The constructor's other arguments.

        Returns:
            An encoder with random weights.

        Raises:
            ValueError: If `hidden_size` is not a multiple of `num_heads`.
        """
        from transformers import BertConfig, BertModel

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
        """The size of a word's vector."""
        return int(self.model.config.hidden_size)

    @property
    def num_hidden_states(self) -> int:
        """The number of hidden states: the embeddings and each layer's output."""
        return int(getattr(self.model.config, "num_hidden_layers", 0)) + 1

    def pieces(self, sentences: Sequence[Sequence[str]]) -> Pieces:
        """Cut sentences of words into the model's pieces."""
        limit, overflow = self.max_length, self.overflow
        found = align_words(sentences, self.tokenizer, max_length=limit, overflow=overflow)
        return self._known(found)

    def forward(
        self, pieces: Pieces, *, table: Float[Tensor, "row hidden"] | None = None
    ) -> Float[Tensor, "batch word embedding_dim"]:
        """Encode words in their sentences.

        Args:
            pieces: Sentences cut into pieces; on the CPU the order of their words is checked. A row
                may have padding anywhere.
            table: Vectors to read in place of the model's own; ``piece_ids`` then number its rows.

        Returns:
            ``(batch, num_words, embedding_dim)``; zeros for a word without pieces.
        """
        check_pieces(pieces)
        order = valid_first(pieces.piece_mask)  # the model counts places from the first piece
        parts = [part.gather(1, order) for part in pieces[:3]]
        pieces = Pieces._make([*parts, pieces.num_words])
        fused = self.fusion(self.hidden_states(pieces, table=table), pieces.piece_mask)
        return pool_words(fused, pieces.word_index, pieces.count_words(), pooling=self.pooling)

    def encode_pairs(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> PairedPieces:
        """Join pairs of sentences, as the model reads them: ``[CLS] first [SEP] second [SEP]`` for
        BERT.

        Pairs are not read in windows: if a pair is beyond the limit, its longer sentence is cut,
        then both, unless ``overflow="error"``.

        Args:
            pairs: Two lists of words each.

        Returns:
            Rows of pieces on the CPU, and their token types if tokenizer and model have them.

        Raises:
            ValueError: If a pair is beyond the limit under ``overflow="error"``, or an item has not
                two sentences.
            TypeError: If the tokenizer is missing or takes no pairs.
        """
        overflow: Literal["error", "truncate"] = "error" if self.overflow == "error" else "truncate"
        joined = align_pairs(pairs, self.tokenizer, max_length=self.max_length, overflow=overflow)
        self._known(joined.pieces)
        takes = "token_type_ids" in inspect.signature(self.model.forward).parameters
        # RoBERTa and its kind have one type
        told_apart = takes and getattr(self.model.config, "type_vocab_size", 2) > 1
        return joined if told_apart else joined._replace(token_types=None)

    def piece_vectors(
        self,
        pieces: Pieces,
        token_types: Int[Tensor, "batch piece"] | None = None,
        *,
        table: Float[Tensor, "row hidden"] | None = None,
    ) -> Float[Tensor, "batch piece embedding_dim"]:
        """Run the model and fuse its layers: a vector for each piece, special ones included.

        Args:
            pieces: Sentences or pairs cut into pieces, which are at the start of each row, as
                `encode` gives them; on the CPU the order of their words is checked.
            token_types: The sentence of each piece of a pair (`encode_pairs`); the model's own
                choice if None.
            table: As in `forward`.

        Returns:
            ``(batch, piece, embedding_dim)``; undefined where `piece_mask` is off.
        """
        check_pieces(pieces)
        fused: Tensor = self.fusion(
            self.hidden_states(pieces, token_types, table=table), pieces.piece_mask
        )
        return fused

    def hidden_states(
        self,
        pieces: Pieces,
        token_types: Int[Tensor, "batch piece"] | None = None,
        *,
        table: Float[Tensor, "row hidden"] | None = None,
        all_layers: bool = False,
    ) -> list[Float[Tensor, "batch piece hidden"]]:
        """Run the model, in windows if a row is longer than it reads at once (then a GPU's host
        waits for the lengths).

        Args:
            pieces: Sentences cut into pieces, which are at the start of each row.
            token_types: The sentence of each piece of a pair; pairs are not read in windows; the
                model's own choice if None.
            table: As in `forward`.
            all_layers: Whether to return all layers also where the fusion is `LastLayer`, which
                reads one.

        Returns:
            The embeddings and each layer's output, in the order of transformers; only the last
            layer's output if the fusion is `LastLayer`, unless `all_layers`.
        """
        ids, mask = pieces.piece_ids, pieces.piece_mask
        limit, everything = self.max_length, all_layers or not isinstance(self.fusion, LastLayer)
        if limit is None or ids.shape[1] <= limit:
            return self._run(ids, mask, token_types, table, everything)
        # without a tokenizer it is not known which pieces belong around each window
        may_cut = token_types is None and self.overflow == "window" and self.tokenizer is not None
        require(may_cut, "piece_ids", f"have at most {limit} pieces", ids.shape[1])
        take, real, give = plan_windows(mask, limit, *map(len, self.special))
        windows, runs = ids.flatten()[take], []
        sizes = real.sum(1)
        order = sizes.argsort(descending=True)
        for part in torch.split(order, WINDOWS_AT_ONCE):  # short rows stay short
            width = int(sizes[part[0]])
            states = self._run(windows[part, :width], real[part, :width], None, table, everything)
            runs.append([F.pad(x, (0, 0, 0, limit - width)) for x in states])
        back = order.argsort()
        return [torch.cat(x)[back].flatten(0, 1)[give] for x in zip(*runs, strict=True)]

    def train(self, mode: bool = True) -> Self:
        """Switch to training; a model that is frozen whole stays in evaluation mode."""
        super().train(mode)
        if self.freeze == "all":
            self.model.eval()
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle, without the hooks that the model adds to itself when it
        runs.

        The hooks are local functions, which cannot be pickled; the model adds them again.
        """
        model = without_output_hooks(self.model)
        state = super().__getstate__()  # type: ignore[no-untyped-call]
        return {**state, "_modules": {**self._modules, "model": model}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state in a new process."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        with torch.device("meta"):  # transformers notes a class's outputs when one is built
            type(self.model)(self.model.config)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the modules themselves, so that a layer copied with its encoder remains a part of
        the encoder.
        """
        memo[id(self)] = copied = self.__new__(type(self))
        vars(copied).update(deepcopy(super().__getstate__(), memo))  # type: ignore[no-untyped-call]
        return copied

    def _known(self, pieces: Pieces) -> Pieces:
        """Require pieces that the model has; a tokenizer may know a few more than its model (Gemma
        3's knows one more).
        """
        rows = getattr(self.model.config, "vocab_size", None)  # CANINE has none
        if rows is not None and pieces.piece_ids.numel():
            rule, top = f"be the model's, which has {rows} pieces", int(pieces.piece_ids.max())
            require(top < rows, "tokenizer", rule, f"one that gives the id {top}")
        return pieces

    def _run(
        self,
        ids: Tensor,
        mask: Tensor,
        token_types: Tensor | None,
        table: Tensor | None,
        everything: bool,
    ) -> list[Tensor]:
        if self._padding_counts and len(ids) > 1:
            return self._run_by_length(ids, mask, token_types, table, everything)
        if ids.numel() == 0:
            empty = next(self.model.parameters()).new_zeros(*ids.shape, self.embedding_dim)
            return [empty] * (self.num_hidden_states if everything else 1)
        # a row of padding alone attends to its first place: a softmax without entries would be NaN
        first = torch.arange(mask.shape[1], device=mask.device) == 0
        attended = mask | (first & ~mask.any(1, keepdim=True))
        inputs = {"input_ids": ids} if table is None else {"inputs_embeds": F.embedding(ids, table)}
        if token_types is not None:
            inputs["token_type_ids"] = token_types
        learns = self.freeze != "all" or (table is not None and table.requires_grad)
        with torch.set_grad_enabled(torch.is_grad_enabled() and learns):
            try:
                found = self.model(
                    **inputs,
                    attention_mask=attended.long(),
                    output_hidden_states=everything,
                    **self._options,
                )
            except IndexError as error:  # on a CPU; on a GPU the kernel asserts
                rule = "be among the pieces that the model has"
                raise ValueError(must("piece_ids", rule, error)) from error
        return list(found.hidden_states) if everything else [found.last_hidden_state]

    def _run_by_length(
        self, ids: Tensor, mask: Tensor, token_types: Tensor | None, *options: Any
    ) -> list[Tensor]:
        """Run each row by itself, without padding, because padding would change its words."""
        parts = []
        least = getattr(self.model.config, "downsampling_rate", 1)  # CANINE's takes no shorter row
        for row, length in enumerate(mask.sum(1).clamp(min=min(least, ids.shape[1])).tolist()):
            place = slice(row, row + 1), slice(0, length)
            types = None if token_types is None else token_types[place]
            states = self._run(ids[place], mask[place], types, *options)
            parts.append([F.pad(x, (0, 0, 0, ids.shape[1] - x.shape[1])) for x in states])
        return [torch.cat(layer) for layer in zip(*parts, strict=True)]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; the model and the tokenizer are files instead."""
        about = {"adapter_name": next(iter(self.adapters), None), "probed": probe(self.tokenizer)}
        return {**super().get_config(), **about}

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the model, its adapter and the tokenizer as transformers and peft do."""
        write_model(self.model, self.adapters, folder)
        if self.tokenizer is not None:
            self.tokenizer.save_pretrained(folder / TOKENIZER)
        return {name: name for name in sorted(os.listdir(folder))}  # a subfolder for each argument

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Open the model and the tokenizer of a saved folder."""
        tokenizer = read_tokenizer(config.pop(TOKENIZER, None), config.pop("probed"))
        adapter, name = config.pop(ADAPTER, None), config.pop("adapter_name")
        return cls(read_model(config.pop(ENCODER), adapter, name), tokenizer, **config)


@torch.no_grad()
def _behaviour(model: Any, options: dict[str, Any]) -> tuple[bool, bool]:
    """Check by running a model whether it is causal, and whether padding changes the vectors of
    words.

    Args:
        model: A model of transformers.
        options: More arguments of its call.

    Returns:
        Both answers. If the model cannot be run, as on the meta device, its configuration's class
        says whether it is causal, and padding is taken to change no vectors.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    config, kind = model.config, type(model.config)
    named = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
    first = next(model.parameters())
    padding = getattr(config, "pad_token_id", None) or 0
    count = getattr(config, "vocab_size", None) or 9
    known = [i for i in range(min(9, count)) if i != padding]
    if len(known) < 4:
        return named, False
    view: Any = evaluation_view(model)

    def run(ids: Tensor) -> Tensor:
        mask = (torch.arange(ids.shape[1], device=ids.device) < 4).long()[None]
        found = view(input_ids=ids, attention_mask=mask, **options)
        return found.last_hidden_state[0, :4].double().cpu()  # type: ignore[no-any-return]

    row = torch.tensor([known[-3:] + known[-3:-2]], device=first.device)  # CANINE takes 4 at least
    other = torch.cat([row[:, :-1], torch.full_like(row[:, :1], known[0])], 1)
    try:
        alone, changed, padded = map(run, (row, other, F.pad(row, (0, 8), value=padding)))
    except Exception:
        return named, False
    size = alone.abs().mean().clamp(min=1e-12)
    most = 1e-3 if first.dtype.itemsize >= 4 else 0.1
    causal = float((alone - changed)[:-1].abs().max() / size) < 1e-4
    return causal, not float((alone - padded).abs().max() / size) < most


def most_positions(model: nn.Module) -> int | None:
    """Return how many pieces a model reads at once, special ones included; None without a limit."""
    most: int | None = getattr(model.config, "max_position_embeddings", None)
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        padding = getattr(table, "padding_idx", None)
        if most is not None and padding is not None:
            most -= padding + 1  # RoBERTa counts from after the padding's position
    return most


def _embedding_layer(model: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters before the first layer: tables and their norm, by any name."""
    for place, module in model.named_modules():  # a number in the name is a layer's
        table = isinstance(module, nn.Embedding) and not re.search(r"\b\d+\b", place)
        for name, parameter in module.named_parameters(place, recurse=False):
            # the relative positions of DeBERTa and MPNet, which every layer reads
            relative = "rel_embeddings" in name or "relative" in name
            named = "embedding" in name or name.startswith("layer_norm_emb.")  # XLM's norm
            if (named or table) and not relative:
                yield parameter


def plan_windows(
    mask: Bool[Tensor, "batch piece"], size: int, before: int, after: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Cut each row by itself into windows of at most `size` pieces, with the row's special pieces
    around each.

    A row that fits is one window. In a longer row, neighbouring windows share half of their pieces,
    and the result for a piece in several windows is taken from the window in which it is farthest
    from an edge. So every piece has at least a quarter of a window as context on both sides, as far
    as the row has any. The plan of a row depends on the row's length alone. Lengths are read, which
    makes a GPU's host wait.

    Args:
        mask: True = a real piece, ``(batch, piece)``; real pieces are at the start of a row.
        size: The most pieces of a window.
        before: The number of special pieces at the start of a row.
        after: The number of special pieces at its end.

    Returns:
        The place of each window's pieces in the flattened rows, ``(window, size)``, in the order of
        the rows; whether each place holds a piece, bool of the same shape; and the place of each
        piece's result in the flattened windows, ``(batch, piece)``.
    """
    room = size - before - after
    step = room - room // 2
    place, give = torch.arange(size), torch.zeros(mask.shape, dtype=torch.int64)
    takes, reals, count = [], [], 0
    for row, length in enumerate(mask.sum(1).tolist()):
        beyond = max(0, length - size)
        start = torch.tensor([*range(0, beyond, step), beyond])
        inner = torch.where(place < size - after, start[:, None], beyond)
        shift = torch.where(place < before, 0, inner)
        real = (place < length).expand_as(shift)
        takes.append(torch.where(real, place + shift + row * mask.shape[1], 0))
        reals.append(real)
        # the last piece that the earlier window gives
        borders = before + (start[:-1] + start[1:] + room - 1) // 2
        piece = torch.arange(length)
        window = torch.searchsorted(borders, piece)
        give[row, :length] = (count + window) * size + piece - start[window]
        count += len(start)
    take, real = torch.cat(takes), torch.cat(reals)
    return take.to(mask.device), real.to(mask.device), give.to(mask.device)
