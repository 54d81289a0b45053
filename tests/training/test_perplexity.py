"""Perplexity and switch points: the plain loops, whatever the batches."""

import math
import random

import pytest
import torch
from tiny_masked_lm import SIZES, TEXTS, TOKENIZER, Spy, build, pieces_of
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast, TrainingArguments

from polyembed.data import TaggedSentence
from polyembed.training import adapt_masked_lm, perplexity, switch_points


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
def test_perplexity_is_the_plain_loop(share: float, seed: int) -> None:
    texts = [*TEXTS, " ".join(["gato runs"] * 9)]
    options = {"max_length": 17, "mlm_probability": share, "seed": seed}
    found = perplexity(build(), TOKENIZER, texts, **options)
    assert found == pytest.approx(plain_perplexity(build(), texts, share, seed), rel=1e-5)
    assert perplexity(build(), TOKENIZER, texts, truncation=True, **options) != found


def test_perplexity_depends_neither_on_batches_nor_on_order() -> None:
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


def plain_switch_points(model: nn.Module, folds: int | None) -> dict[str, list[tuple[float, bool]]]:
    """Mask words in rows of one sentence, one row a pass."""
    model = model.double().eval()
    found: dict[str, list[tuple[float, bool]]] = {"S": [], "R": [], "N": []}
    for sentence, kinds in zip(SENTENCES, KINDS, strict=True):
        pieces = [pieces_of(word) for word in sentence.words]
        row = [0, *(piece for ids in pieces for piece in ids), 2]
        words = [None, *(i for i, ids in enumerate(pieces) for _ in ids), None]
        step = len(pieces) if folds is None else folds
        for fold in range(step):
            places = [i for i, word in enumerate(words) if word is not None and word % step == fold]
            masked = [TOKENIZER.mask_token_id if i in places else x for i, x in enumerate(row)]
            with torch.no_grad():
                scores = model(input_ids=torch.tensor([masked])).logits[0].log_softmax(-1)
            for i in places:
                right = int(scores[i].argmax()) == row[i]
                found[kinds[words[i]]].append((-float(scores[i, row[i]]), right))
    return found


@pytest.mark.parametrize("folds", [None, 2])
def test_switch_points_are_the_plain_loop(folds: int | None) -> None:
    pytest.importorskip("accelerate", reason="adapt_masked_lm needs polyembed[train]")
    model = build()
    args = TrainingArguments(
        num_train_epochs=4, per_device_train_batch_size=3, learning_rate=0.01, use_cpu=True
    )
    adapt_masked_lm(model, TOKENIZER, TEXTS, args, max_length=17)  # some guesses are right
    result = switch_points(model, TOKENIZER, SENTENCES, folds=folds, max_length=17, batch_size=3)
    assert model.training
    expected = plain_switch_points(model, folds)
    for name, kind in (("switch", "S"), ("rest", "R"), ("no_language", "N")):
        score, scores = getattr(result, name), expected[kind]
        assert score.pieces == len(scores)
        assert score.words == sum(kinds.count(kind) for kinds in KINDS)
        assert score.loss == pytest.approx(sum(loss for loss, _ in scores) / len(scores), rel=1e-5)
        assert score.accuracy == pytest.approx(sum(hit for _, hit in scores) / len(scores))
    assert 0 < result.rest.accuracy < 1


def test_switch_points_of_other_tags() -> None:
    counts = switch_points(
        build(), TOKENIZER, SENTENCES, max_length=17, no_language={"OTHER", "MIXED"}
    )
    assert (counts.switch.words, counts.rest.words, counts.no_language.words) == (4, 7, 4)
    alone = switch_points(build(), TOKENIZER, SENTENCES[2:3], max_length=17)
    assert (alone.rest.words, alone.switch.words) == (1, 0)
    assert math.isnan(alone.switch.accuracy)


def test_long_sentences_lose_no_word() -> None:
    sentence = spoken(" ".join(["gato/es", "runs/en"] * 9))
    result = switch_points(build(), TOKENIZER, [sentence], max_length=17)
    assert (result.switch.words, result.rest.words) == (17, 1)
    assert result.switch.pieces + result.rest.pieces == 36


def test_words_stand_as_in_a_text_for_byte_level_tokenizers() -> None:
    """A piece after a space is another one than without: a sentence's words would be read as one."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=["<pad>", "<mask>"], **options)
    core.train_from_iterator(["gato runs the casa"] * 5, trainer)
    names = {"pad_token": "<pad>", "mask_token": "<mask>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **names)
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **SIZES))
    spy = Spy(model)
    switch_points(model, tokenizer, [spoken("gato/es runs/en the/en")])
    ids = tokenizer(" gato runs the")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids)[-1] == "\u0120the"
    seen = {piece for batch in spy.batches for row in batch["input_ids"].tolist() for piece in row}
    assert seen - {tokenizer.mask_token_id} == set(ids)


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        (
            [TaggedSentence(("gato",), ("X",))],
            {},
            "a sentence must have words and a language for each .*, got languages None",
        ),
        (
            [spoken("gato/es runs./en")],
            {"max_length": 4},
            r"sentences\[0\]\.words\[1\] must have at most 2 pieces .*, got 3",
        ),
    ],
)
def test_wrong_sentences(sentences: list, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        switch_points(build(), TOKENIZER, sentences, **{"max_length": 17, **options})
