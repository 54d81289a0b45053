"""Perplexity, and the accuracy at switches of language, against plain loops for any batches."""

import math
import random

import pytest
import torch
from _switches import kinds_of, switch_accuracy
from tiny_masked_lm import SIZES, TEXTS, TOKENIZER, build, pieces_of
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast, TrainingArguments

from polyembed.data import TaggedSentence
from polyembed.training import adapt_masked_lm, perplexity
from polyembed.training.masked_text import ExampleEncoder


def plain_perplexity(
    model: nn.Module, texts: list[str], share: float, seed: int, room: int = 15
) -> float:
    model = model.double().eval()
    losses = []
    for text in texts:
        ids = pieces_of(text)
        for start in range(0, len(ids), room):
            row = [0, *ids[start : start + room], 2]
            count = max(1, round(share * (len(row) - 2)))
            chosen = random.Random(f"{seed} {row}").sample(range(1, len(row) - 1), count)
            masked = [TOKENIZER.mask_token_id if i in chosen else id_ for i, id_ in enumerate(row)]
            with torch.no_grad():
                scores = model(input_ids=torch.tensor([masked])).logits[0]
            losses += [float(scores[i].exp().sum().log() - scores[i, row[i]]) for i in chosen]
    return math.exp(sum(losses) / len(losses))


@pytest.mark.parametrize(("share", "seed"), [(0.15, 0), (0.4, 0), (0.15, 3)])
def test_perplexity_is_the_plain_loop(share, seed):
    texts = [*TEXTS, " ".join(["gato runs"] * 9)]
    options = {"max_length": 17, "mlm_probability": share, "seed": seed}
    found = perplexity(build(), TOKENIZER, texts, **options)
    assert found == pytest.approx(plain_perplexity(build(), texts, share, seed), rel=1e-5)
    assert perplexity(build(), TOKENIZER, texts, truncation=True, **options) != found


def test_perplexity_depends_neither_on_batches_nor_on_order():
    model = build()
    model.lm_head.eval()
    state = torch.get_rng_state()
    expected = perplexity(model, TOKENIZER, TEXTS, max_length=17)
    found = perplexity(model, TOKENIZER, lambda: iter(TEXTS[::-1]), max_length=17, batch_size=3)
    assert found == pytest.approx(expected, rel=1e-6)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert not model.lm_head.training


def spoken(text: str) -> TaggedSentence:
    words, languages = zip(*(part.split("/") for part in text.split()), strict=True)
    return TaggedSentence(words, ("X",) * len(words), languages)


SENTENCES = [
    spoken("gato/es runs/en sleeping/en casa/es"),
    spoken("the/OTHER gato/es ./OTHER perro/es ./OTHER runs/en"),
    spoken("sleep/en"),
    spoken("runs/en gato/MIXED casa/es perro/es"),
]
KINDS = ["RSRS", "NRNRNS", "R", "RSSR"]


def plain_hits(model: nn.Module, folds: int) -> dict[str, list[bool]]:
    """Return the hits on masked words, with one sentence per row and one row per pass."""
    model = model.eval()
    found: dict[str, list[bool]] = {"S": [], "R": [], "N": []}
    for sentence, kinds in zip(SENTENCES, KINDS, strict=True):
        pieces = [pieces_of(word) for word in sentence.words]
        row = [0, *(piece for ids in pieces for piece in ids), 2]
        words = [None, *(i for i, ids in enumerate(pieces) for _ in ids), None]
        for fold in range(folds):
            places = [
                i for i, word in enumerate(words) if word is not None and word % folds == fold
            ]
            masked = [TOKENIZER.mask_token_id if i in places else x for i, x in enumerate(row)]
            with torch.no_grad():
                scores = model(input_ids=torch.tensor([masked])).logits[0]
            for i in places:
                found[kinds[words[i]]].append(int(scores[i].argmax()) == row[i])
    return found


@pytest.mark.parametrize("folds", [6, 2])
def test_accuracy_at_switches_is_the_plain_loop(folds):
    pytest.importorskip("accelerate", reason="adapt_masked_lm needs polyembed[train]")
    letters = {"switch": "S", "rest": "R", None: "N"}
    assert ["".join(letters[kind] for kind in kinds_of(one)) for one in SENTENCES] == KINDS
    model = build()
    args = TrainingArguments(
        num_train_epochs=4, per_device_train_batch_size=3, learning_rate=0.01, use_cpu=True
    )
    adapt_masked_lm(model, TOKENIZER, TEXTS, args, max_length=17)  # some guesses are right
    found = switch_accuracy(model, TOKENIZER, SENTENCES, folds=folds, max_length=17)
    assert model.training
    expected = plain_hits(model, folds)
    for name in ("switch", "rest"):
        hits = expected[letters[name]]
        assert found[name] == pytest.approx(sum(hits) / len(hits))
    assert 0 < found["rest"] < 1
    assert math.isnan(switch_accuracy(model, TOKENIZER, SENTENCES[2:3])["switch"])


def test_long_sentences_lose_no_word():
    encoder = ExampleEncoder(build(), TOKENIZER, max_length=17)
    words = ["gato", "runs"] * 9
    found = [(first, part.ids[1:-1]) for first, part in encoder.words(words, "sentence")]
    assert [piece for _, ids in found for piece in ids] == pieces_of(" ".join(words))
    assert [first for first, _ in found] == [0, 7, 14]


def test_words_stand_as_in_a_text_for_byte_level_tokenizers():
    """Pieces after a space differ from other pieces. Without spaces, words would be joined."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=["<pad>", "<mask>"], **options)
    core.train_from_iterator(["gato runs the casa"] * 5, trainer)
    names = {"pad_token": "<pad>", "mask_token": "<mask>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **names)
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **SIZES))
    encoder = ExampleEncoder(model, tokenizer, max_length=17)
    [(_, part)] = encoder.words(["gato", "runs", "the"], "sentence")
    assert part.ids == tokenizer(" gato runs the")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(part.ids)[-1] == "\u0120the"
