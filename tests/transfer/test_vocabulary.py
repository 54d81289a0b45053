"""Extended vocabularies, with tiny models and tokenizers of every kind trained on a few lines."""

import functools
import json
from collections.abc import Callable

import pytest
import torch
import transformers
from checks import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import BERT_LAYOUT
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from torch import nn
from toys import own_words
from transformers import (
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
)

from polyembed import extend_vocabulary
from polyembed.text import align_words

OLD = [
    "me gusta la cancion", "esa cancion me gusta mucho", "no me gusta nada la musica", "la gente canta canciones",
    "mucha gente escucha musica", "escucha la musica de la gente",
    "canta conmigo una cancion mas",
]  # fmt: skip
NEW = [
    "bana bayi ni abana", "umwana wanjye ni mwiza", "abana bawe bari mu ishuri", "umwarimu yigisha abana mu ishuri",
    "ni mwiza cyane umwana wawe", "abarimu bari mu ishuri cyane", "umwana yiga mu ishuri",
] * 3  # fmt: skip
SCRIPT = ["ልጅ ወደ ትምህርት ቤት", "ልጆች ወደ ቤት", "ትምህርት ቤት ውስጥ ልጆች"] * 3
NAMES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"}
SPECIAL = list(NAMES.values())


def wrap(core: Tokenizer) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a mask piece after all others, which is not a piece of its model."""
    core.post_processor = BERT_LAYOUT
    mask = AddedToken("[MASK]", lstrip=True, special=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        **{f"{name}_token": piece for name, piece in NAMES.items()},
        mask_token=mask,
    )


@functools.cache
def word_piece() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.normalizer = normalizers.Lowercase()
    letters = "abcdefghijklmnopqrstuvwxyz"  # each letter at a word's start and inside
    trainer = trainers.WordPieceTrainer(vocab_size=110, special_tokens=SPECIAL, show_progress=False)
    core.train_from_iterator([*OLD, *letters, letters, "za"], trainer)
    return wrap(core)


def unigram() -> PreTrainedTokenizerFast:
    letters = sorted({letter for line in OLD for letter in line} - {" "})
    words = sorted({word for line in OLD for word in line.split()})
    vocabulary = [(piece, 0.0) for piece in SPECIAL] + [("\u2581", -4.0)]
    vocabulary += [(letter, -6.0 - i / 100) for i, letter in enumerate(letters)]
    vocabulary += [
        (f"\u2581{word[:4]}", -5.0 - i / 100) for i, word in enumerate(words) if len(word) > 3
    ]
    vocabulary = list({piece: (piece, score) for piece, score in vocabulary}.values())
    vocabulary += [(f"<0x{byte:02X}>", -9.0) for byte in range(256)]
    core = Tokenizer(models.Unigram(vocabulary, unk_id=1, byte_fallback=True))
    core.normalizer = normalizers.NFKC()
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    return wrap(core)


@functools.cache  # training breaks ties at random
def byte_level() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    core.train_from_iterator(OLD, trainer)
    return wrap(core)


@functools.cache
def byte_fallback_pairs() -> PreTrainedTokenizerFast:
    """Return a tokenizer like Llama's, without a pre-tokenizer.

    Spaces become marks, and unknown characters become bytes.
    """
    core = Tokenizer(models.BPE(unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.train_from_iterator(
        OLD, trainers.BpeTrainer(vocab_size=90, special_tokens=SPECIAL, show_progress=False)
    )
    plan = json.loads(core.to_str())
    vocabulary = plan["model"]["vocab"]
    vocabulary |= {f"<0x{byte:02X}>": len(vocabulary) + byte for byte in range(256)}
    plan["model"] |= {"byte_fallback": True, "fuse_unk": True}
    core = Tokenizer.from_str(json.dumps(plan))
    core.pre_tokenizer = None
    core.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    return wrap(core)


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "word-piece": word_piece,
    "unigram": unigram,
    "byte-level": byte_level,
    "byte fallback": byte_fallback_pairs,
}
STANDARD = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "pad_token_id": 0,
}

kinds = pytest.mark.parametrize("kind", TOKENIZERS)


def masked_lm(rows: int) -> nn.Module:
    config = BertConfig(vocab_size=rows, tie_word_embeddings=False, **STANDARD)
    model = BertForMaskedLM(config).eval()
    for parameter in model.parameters():  # biases are random too
        nn.init.normal_(parameter, std=0.5)
    return model


@functools.cache
def extended(kind: str):
    old = TOKENIZERS[kind]()
    return old, extend_vocabulary(old, masked_lm(len(old)), NEW, 60)


def cut(tokenizer, text: str) -> list[int]:
    return tokenizer(text)["input_ids"]


@kinds
def test_a_new_row_is_the_mean_of_what_it_replaces(kind: str):
    old = TOKENIZERS[kind]()
    model = masked_lm(len(old))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = extend_vocabulary(old, model, [*NEW, *SCRIPT], 80)
    special = {*old.all_special_ids}
    ordinary = [i for i in range(len(old)) if i not in special]
    if kind == "word-piece":  # other tokenizers have the space or bytes
        assert not all(found.origins)
    names = ("embeddings.word_embeddings.weight", "decoder.weight", "decoder.bias")
    changed = {n: table for n, table in model.state_dict().items() if n.endswith(names)}
    assert len(changed) == len(names)
    for name, table in changed.items():
        assert torch.equal(table[: len(old)], before[name])
        assert len(table) == len(found.tokenizer)
        for i, origin in enumerate(found.origins):
            mean = before[name][list(origin) or ordinary].mean(0)
            torch.testing.assert_close(table[len(old) + i], mean)


@kinds
def test_new_text_takes_fewer_pieces_and_old_ids_stay(kind: str):
    old, found = extended(kind)
    new, known = found.tokenizer, old.get_vocab()
    before, after = (sum(len(cut(tokenizer, text)) for text in NEW) for tokenizer in (old, new))
    assert after < 0.7 * before
    assert [cut(new, text) for text in OLD] == [cut(old, text) for text in OLD]
    assert "umwana" in found.pieces
    assert 0 < len({*found.pieces} - {*known}) == len(found.pieces) <= 60
    assert {piece: new.get_vocab()[piece] for piece in known} == known


@kinds
def test_a_word_is_one_piece_wherever_it_stands(kind: str):
    old, found = extended(kind)
    new = found.tokenizer
    own = new.convert_tokens_to_ids("umwana")
    for text in ("umwana", "la umwana la", "umwana, umwana."):
        assert cut(new, text).count(own) == text.count("umwana")
    assert own not in cut(new, "laumwana umwanala")
    rest = [i for i in cut(new, "la umwana la") if i != own]
    assert rest == cut(old, "la la"), "no piece for the space is left over"
    pieces = align_words([["la", "umwana", "gusta"]], new)
    assert pieces.piece_ids[0][pieces.word_index[0] == 1].tolist() == [own]


XLM = {"emb_dim": 16, "n_layers": 1, "n_heads": 2, "pad_index": 0}
MODELS = {
    "BertForMaskedLM": STANDARD,
    "XLMWithLMHead": XLM,
    "RemBertForMaskedLM": {**STANDARD, "input_embedding_size": 8, "output_embedding_size": 12},
    "AlbertForMaskedLM": {**STANDARD, "embedding_size": 8},
    "MobileBertForMaskedLM": {
        **STANDARD,
        "embedding_size": 8,
        "intra_bottleneck_size": 8,
        "true_hidden_size": 8,
    },
    "DebertaV2ForMaskedLM": STANDARD,
    "ModernBertForMaskedLM": STANDARD | dict.fromkeys(["bos_token_id", "eos_token_id"], 2),
    "ElectraForMaskedLM": {**STANDARD, "embedding_size": 8},
}


@pytest.mark.parametrize("multiple", [None, 8])
@pytest.mark.parametrize("name", MODELS)
def test_models_keep_their_logits_and_open_again(name, multiple, tmp_path):
    """The heads count their rows, have a table of another width, or resize themselves."""
    config = getattr(transformers, name.partition("With")[0].partition("For")[0] + "Config")
    old = word_piece()
    counts = {"n_words": len(old)} if "n_layers" in MODELS[name] else {}
    cls = getattr(transformers, name + ("Model" if counts else ""))
    model = cls(config(vocab_size=len(old), **counts, **MODELS[name])).eval()
    known = torch.tensor([cut(old, "[MASK] " + OLD[0])])
    before, state = model(known).logits, torch.get_rng_state()
    found = extend_vocabulary(old, model, NEW, 60, pad_to_multiple_of=multiple)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(model(known).logits[..., : len(old)], before)
    rows = -(-len(found.tokenizer) // (multiple or 1)) * (multiple or 1)
    ids = torch.tensor([cut(found.tokenizer, NEW[0])])
    assert model(ids, labels=ids).loss.isfinite()
    assert model(ids).logits.shape[-1] == rows == len(model.get_input_embeddings().weight)
    model.save_pretrained(tmp_path)
    assert torch.equal(cls.from_pretrained(tmp_path).eval()(ids).logits, model(ids).logits)


LETTERS = "".join(sorted({letter for text in [*OLD, *NEW] for letter in text}))


@given(
    kind=st.sampled_from(list(TOKENIZERS)),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.text(LETTERS, max_size=9),
)
@settings(max_examples=200, deadline=None)
def test_any_text_is_cut_as_before_or_with_new_pieces(kind: str, text: str):
    old, found = extended(kind)
    ids = cut(found.tokenizer, text)
    if max(ids) < len(old):
        assert ids == cut(old, text)


@own_words
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"texts": ["", " "]}, ValueError, r"hold a word that is not one piece, got none$"),
        ({"texts": "abana"}, TypeError, r"^texts must be a list of words, got the string 'abana'$"),
        ({"model": masked_lm(11)}, ValueError, r"^model must have a row .* \d+ pieces, got 11$"),
    ],
)  # fmt: skip
def test_bad_input(change, error, text):
    old = word_piece()
    model = masked_lm(len(old))
    options = {"tokenizer": old, "model": model, "texts": NEW, "size": 60, **change}
    refused(error, text, extend_vocabulary, **options)
    assert model.get_input_embeddings().num_embeddings == len(old)
