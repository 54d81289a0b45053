"""Tiny random encoders of transformers, and tokenizers in public layouts, without a network."""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [
    *SPECIAL,
    "me",
    "gus",
    "##ta",
    "la",
    "can",
    "##ci",
    "##on",
    "song",
    "##s",
    "a",
    "b",
    "c",
]
SIZES = {
    "vocab_size": 23,
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 11,
}


BERT_LAYOUT = processors.TemplateProcessing(
    single="[CLS] $A [SEP]",
    pair="[CLS] $A [SEP] $B [SEP]",
    special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
)


def word_piece_tokenizer(max_length: int | None = None):
    """Return a fast tokenizer like BERT's."""
    from transformers import PreTrainedTokenizerFast

    rules = Tokenizer(
        models.WordPiece({piece: i for i, piece in enumerate(VOCABULARY)}, unk_token="[UNK]")
    )
    rules.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rules.post_processor = BERT_LAYOUT
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL, strict=True))
    limit = {} if max_length is None else {"model_max_length": max_length}
    return PreTrainedTokenizerFast(
        tokenizer_object=rules, **{f"{name}_token": piece for name, piece in names.items()}, **limit
    )


def slow_tokenizer(folder: Path):
    """Return XLM's tokenizer, which reads byte pairs from files and has no fast version."""
    from transformers import XLMTokenizer

    pieces = [
        "<s>",
        "</s>",
        "<pad>",
        "<unk>",
        "<special0>",
        "<special1>",
        "me</w>",
        "a</w>",
        "b",
        "c</w>",
        "bc</w>",
    ]
    letters = sorted({letter for word in ("gusta", "cancion", "me") for letter in word})
    pieces += [*letters, *(f"{letter}</w>" for letter in letters)]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\nm e</w>\nb c</w>\n")
    return XLMTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt"), do_lowercase_and_remove_accent=False
    )


def _model(name: str, **options) -> Callable[..., nn.Module]:
    """Return a function that builds a model of transformers, with changed sizes if given."""

    def build(**sizes):
        import transformers

        config = getattr(transformers, f"{name}Config")(**{**options, **sizes})
        return getattr(transformers, f"{name}Model")(config)

    return build


CAUSAL = {**SIZES, "num_key_value_heads": 1, "head_dim": 4, "pad_token_id": 0}
CAUSAL |= {"max_position_embeddings": 64}
CAUSAL_MODELS: dict[str, Callable[..., nn.Module]] = {
    "gpt2": _model("GPT2", vocab_size=23, n_embd=8, n_layer=3, n_head=2, n_positions=64),
    "llama": _model("Llama", **CAUSAL),
    "gemma3": _model("Gemma3Text", sliding_window=4, query_pre_attn_scalar=4, **CAUSAL),
    "qwen3": _model("Qwen3", **CAUSAL),
}
MODELS: dict[str, Callable[..., nn.Module]] = {
    "bert": _model("Bert", **SIZES),
    "xlm-roberta": _model("XLMRoberta", pad_token_id=0, **SIZES),
    "distilbert": _model("DistilBert", vocab_size=23, dim=8, n_layers=3, n_heads=2, hidden_dim=11),
    "xlm": _model("XLM", vocab_size=23, emb_dim=8, n_layers=3, n_heads=2),
    "modernbert": _model(
        "ModernBert",
        pad_token_id=0,
        cls_token_id=2,
        sep_token_id=3,
        bos_token_id=2,
        eos_token_id=3,
        **SIZES,
    ),
    "deberta-v3": _model(
        "DebertaV2",
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm",
        position_buckets=4,
        share_att_key=True,
        position_biased_input=False,
        **SIZES,
    ),
}


def tiny_model(name: str, *, seed: int = 0, **sizes) -> nn.Module:
    """Return a model in evaluation mode, with random weights that depend on the seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return {**MODELS, **CAUSAL_MODELS}[name](**sizes).eval()
