"""An encoder that reads characters, against the same encoder over the rows of its table."""

import pytest
import torch
from tiny_models import MODELS, tiny_model, word_piece_tokenizer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from toys import own_words
from transformers import PreTrainedTokenizerFast

import polyembed as pe
from polyembed.encoders import Char2Subword
from polyembed.text import piece_surfaces

TOKENIZER = word_piece_tokenizer()
SENTENCES = [["me", "gusta", "la", "cancion"], [], ["songs", "\u200b", "zzz", "gusta"]]
SMALL = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "readout_size": 16}


def characters(tokenizer=TOKENIZER, seed: int = 0) -> Char2Subword:
    torch.manual_seed(seed)
    return Char2Subword.for_vocabulary(piece_surfaces(tokenizer), 8, **SMALL).eval()


def encoder(name: str = "bert", unit: str = "piece", module=None, **options) -> pe.CharWordEncoder:
    inner = pe.PretrainedWordEncoder(tiny_model(name), TOKENIZER, **options)
    return pe.CharWordEncoder(inner, characters() if module is None else module, unit=unit).eval()


def spelled_model(ours: pe.CharWordEncoder, name: str) -> nn.Module:
    """The same model with a table whose rows are what the characters give."""
    model = tiny_model(name)
    with torch.no_grad():
        for i, surface in enumerate(piece_surfaces(TOKENIZER)):
            if surface is not None:
                vector = ours.char2subword(ours.char2subword.spell([surface]))[0]
                model.get_input_embeddings().weight[i] = vector
    return model


@pytest.mark.parametrize(
    ("name", "pooling"), [(name, "mean") for name in MODELS] + [("bert", "first")]
)
def test_pieces_are_as_if_the_table_held_their_vectors(name: str, pooling: str) -> None:
    ours = encoder(name, pooling=pooling, fusion=pe.ScalarMix(4))
    by_table = pe.PretrainedWordEncoder(
        spelled_model(ours, name), TOKENIZER, pooling=pooling, fusion=pe.ScalarMix(4)
    )
    (pieces, mask), (expected, other) = ours.encode(SENTENCES), by_table.eval().encode(SENTENCES)
    assert torch.equal(mask, other)
    torch.testing.assert_close(ours(pieces), by_table(expected), atol=1e-5, rtol=1e-4)
    assert torch.equal(ours(pieces._replace(num_words=None)), ours(pieces)), (
        "words are counted by the symbols too"
    )


def test_the_special_piece_that_is_the_first_of_the_vocabulary() -> None:
    """XLM-R's ``<s>`` has the id 0: it must have the row of the table, as the others."""
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    rules = Tokenizer(
        models.Unigram(
            [(piece, -1.0) for piece in [*names, "\u2581me", "\u2581gus", "ta"]], unk_id=3
        )
    )
    rules.pre_tokenizer = pre_tokenizers.Metaspace()
    rules.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )  # fmt: skip
    special = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token"), names, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=rules, **special)
    model = tiny_model("xlm-roberta", pad_token_id=1)
    module = characters(tokenizer)
    ours = pe.CharWordEncoder(pe.PretrainedWordEncoder(model, tokenizer), module).eval()
    found = ours(ours.encode([["me", "gusta"]])[0])
    table = model.get_input_embeddings().weight
    spelled = module(
        module.spell([piece for piece in piece_surfaces(tokenizer) if piece is not None])
    )
    vectors = torch.cat([table[:1], spelled, table[2:3]])[None]
    expected = model(inputs_embeds=vectors).last_hidden_state[0]
    torch.testing.assert_close(found[0], expected[1:3], atol=1e-5, rtol=1e-4)


def test_words_are_one_unit_each() -> None:
    ours = encoder(unit="word")
    pieces, mask = ours.encode(SENTENCES)
    found = ours(pieces)
    model, table = tiny_model("bert"), tiny_model("bert").get_input_embeddings().weight
    for row, words in enumerate(SENTENCES):
        texts = [pe.text.surfaces.PieceSurface(word, edge=True) for word in words]
        own = ours.char2subword(ours.char2subword.spell(texts)) if words else table[:0]
        vectors = torch.cat([table[2:3], own, table[3:4]])[None]
        expected = model(inputs_embeds=vectors).last_hidden_state[0, 1:-1]
        torch.testing.assert_close(found[row, : len(words)], expected, atol=1e-5, rtol=1e-4)
        assert not found[row, len(words) :].any()
    assert mask.tolist() == [[True] * 4, [False] * 4, [True] * 4]


def test_each_spelling_once(monkeypatch) -> None:
    ours = encoder(unit="word")
    seen = []
    forward = Char2Subword.forward
    monkeypatch.setattr(
        Char2Subword, "forward", lambda self, ids: (seen.append(ids), forward(self, ids))[1]
    )
    ours(ours.encode([["me", "gusta", "me"], ["gusta", "me", "me"]])[0])
    rows = [tuple(row) for ids in seen for row in ids.tolist() if any(row)]
    assert len(rows) == len(set(rows)) == 2


@pytest.mark.parametrize(
    ("name", "unit"), [("bert", "word"), ("xlm-roberta", "piece"), ("modernbert", "piece")]
)
def test_long_sentences_are_read_in_windows(name: str, unit: str) -> None:
    """Every window as the model alone reads it; a limit counts units, not characters."""
    short = {} if name == "modernbert" else {"max_position_embeddings": 12}
    inner = pe.PretrainedWordEncoder(tiny_model(name, **short), word_piece_tokenizer(10))
    ours = pe.CharWordEncoder(inner, characters(), unit=unit).eval()
    words = ["me", "gus", "la", "a", "b", "c", "can", "song"] * 3
    found = ours(ours.encode([words, words[:5]])[0])
    assert found.shape == (2, 24, 8)
    assert found[0].abs().sum(-1).gt(0).all()
    alone = ours(ours.encode([words[:5]])[0])
    torch.testing.assert_close(found[1, :5], alone[0], atol=1e-5, rtol=1e-4)
    limit = inner.max_length
    start = ours(ours.encode([words[: limit - 2]])[0])[0, : (limit - 2) // 2]
    torch.testing.assert_close(found[0, : len(start)], start, atol=1e-5, rtol=1e-4)


def test_overflow() -> None:
    words = ["me"] * 12
    for unit in ("piece", "word"):
        inner = pe.PretrainedWordEncoder(
            tiny_model("bert"), word_piece_tokenizer(7), overflow="truncate"
        )
        found = pe.CharWordEncoder(inner, characters(), unit=unit)
        pieces, _ = found.encode([words])
        assert int(pieces.word_index.max()) == 4
        assert not found(pieces)[0, 5:].any()
        inner = pe.PretrainedWordEncoder(
            tiny_model("bert"), word_piece_tokenizer(7), overflow="error"
        )
        what = "5 words" if unit == "word" else "7 pieces"
        with pytest.raises(ValueError, match=rf"^sentences\[0\] must have at most {what}"):
            pe.CharWordEncoder(inner, characters(), unit=unit).encode([words])


def test_words_are_normalised_as_the_tokenizer_does() -> None:
    tokenizer = word_piece_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    inner = pe.PretrainedWordEncoder(tiny_model("bert"), tokenizer)
    ours = pe.CharWordEncoder(inner, characters(), unit="word")
    assert (
        ours.encode([["ME"]])[0].piece_ids.tolist() == ours.encode([["me"]])[0].piece_ids.tolist()
    )


@pytest.mark.parametrize("freeze", ["none", "embeddings", "all"])
def test_characters_learn_through_a_frozen_encoder(freeze: str) -> None:
    ours = encoder(freeze=freeze).train()
    ours(ours.encode(SENTENCES)[0]).square().sum().backward()
    assert ours.char2subword.projection.weight.grad.abs().sum() > 0
    weight = next(part for name, part in ours.encoder.model.named_parameters() if "layer.0" in name)
    assert (weight.grad is None) == (freeze == "all")
    table = ours.encoder.model.get_input_embeddings().weight
    assert (table.grad is None) == (freeze != "none")
    for parameter in ours.char2subword.parameters():
        parameter.requires_grad_(False)
    assert ours(ours.encode(SENTENCES)[0]).requires_grad == (freeze != "all")


def test_in_a_tagger_saved_and_loaded(tmp_path) -> None:
    ours = encoder(unit="word", pooling="mean")
    tagger = pe.SequenceTagger(ours, ["A", "B"]).eval()
    predicted = tagger.predict(SENTENCES)
    assert [len(tags) for tags in predicted] == [4, 0, 4]
    tagger.save_pretrained(tmp_path)
    loaded = pe.SequenceTagger.from_pretrained(tmp_path)
    assert loaded.predict(SENTENCES) == predicted
    assert repr(loaded.embedder) == repr(ours)
    pieces, _ = ours.encode(SENTENCES)
    assert torch.equal(loaded.embedder(pieces), ours(pieces))


@own_words
def test_bad_input() -> None:
    inner = pe.PretrainedWordEncoder(tiny_model("bert"), TOKENIZER)
    with pytest.raises(ValueError, match=r"^unit must be one of 'piece', 'word', got 'letter'$"):
        pe.CharWordEncoder(inner, characters(), unit="letter")
    with pytest.raises(ValueError, match=r"^char2subword must give vectors of size 8, got 5$"):
        pe.CharWordEncoder(inner, Char2Subword("abc", 5, **SMALL))
    with pytest.raises(TypeError, match=r"^encoder must have a tokenizer, got None$"):
        pe.CharWordEncoder(pe.PretrainedWordEncoder(tiny_model("bert")), characters())
    for unit in ("piece", "word"):
        with pytest.raises(
            TypeError, match=r"^sentences\[0\] must be a list of words, got the string 'me'$"
        ):
            encoder(unit=unit).encode(["me"])
    odd = tiny_model("bert")
    odd.get_input_embeddings().embed_scale = 2.0
    with pytest.raises(
        TypeError, match=r"^encoder must have a plain table of its pieces, got Embedding$"
    ):
        pe.CharWordEncoder(pe.PretrainedWordEncoder(odd, TOKENIZER), characters())
