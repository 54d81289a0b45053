"""A masked language model of one layer, its tokenizer, texts, and a recorder of its batches."""

import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaForMaskedLM

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
PIECES = ["▁ga", "to", "▁per", "ro", "▁ca", "sa", "▁run", "s", "▁sleep", "ing", "▁the", "▁", "."]
WORDS = ["gato", "perro", "casa", "runs", "sleep", "sleeping", "the", "runs."]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer like XLM-R's: a unigram model with a mark at the start of a word."""
    core = Tokenizer(models.Unigram([(piece, -1.0) for piece in SPECIAL + PIECES], unk_id=3))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )  # fmt: skip
    names = ("bos_token", "pad_token", "eos_token", "unk_token", "mask_token")
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        **dict(zip(names, SPECIAL, strict=True)),
        cls_token="<s>",
        sep_token="</s>",
    )


TOKENIZER = build_tokenizer()
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def build(seed: int = 0, *, dropout: float = 0.1) -> XLMRobertaForMaskedLM:
    torch.manual_seed(seed)
    config = XLMRobertaConfig(
        vocab_size=len(TOKENIZER),
        max_position_embeddings=31,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **SIZES,
    )
    model = XLMRobertaForMaskedLM(config)
    for parameter in model.parameters():
        parameter.data.mul_(5)  # so that predictions differ
    return model


def build_texts(count: int = 23, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 5))) for _ in range(count)]


TEXTS = build_texts()


def pieces_of(text: str) -> list[int]:
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


NAMES = ("input_ids", "labels", "attention_mask")


class Spy:
    """Records the batches of a model."""

    def __init__(self, model: nn.Module, *, stop: int | None = None) -> None:
        self.batches: list[dict[str, torch.Tensor]] = []
        self.stop = stop
        self.handle = model.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, model: nn.Module, args: tuple, kwargs: dict) -> None:
        if len(self.batches) == self.stop:
            raise KeyboardInterrupt
        self.batches.append({name: kwargs[name].clone() for name in NAMES if name in kwargs})

    def originals(self, start: int = 0, stop: int | None = None) -> list[tuple[int, ...]]:
        """Return the rows before masking, without special pieces."""
        rows = []
        for batch in self.batches[start:stop]:
            whole = torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])
            for row, mask in zip(whole.tolist(), batch["attention_mask"].tolist(), strict=True):
                real = row[: sum(mask)]
                assert real[0] == 0
                assert real[-1] == 2
                rows.append(tuple(real[1:-1]))
        return rows
