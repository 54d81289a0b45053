"""Vectors from spellings."""

import torch
from checks import refused
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from toys import ToyPieces, toy_lexicon

import polyembed as pe


def characters(lexicon: pe.Lexicon) -> pe.SpelledEmbedding:
    return pe.SpelledEmbedding.from_characters(
        lexicon, pe.CharCNN(lexicon.num_characters, 5)
    ).eval()


def test_a_word_is_its_encoded_spelling():
    """A moving average of the weights over time does not change the spellings."""
    lexicon = toy_lexicon()
    averaged = AveragedModel(characters(lexicon), multi_avg_fn=get_ema_multi_avg_fn(0.9))
    embedder = averaged.module
    for _ in range(3):
        averaged.update_parameters(embedder)
    ids, _ = lexicon.encode([["canción", "y"], ["nobody"]])
    found = embedder(ids)
    for i, word in (((0, 0), "canción"), ((0, 1), "y")):
        spelled = torch.tensor(lexicon.spelling.spell([word]))
        torch.testing.assert_close(found[i], embedder.encoder(spelled)[0])
    torch.testing.assert_close(
        found[1, 0], embedder.encoder(torch.tensor([lexicon.spelling.unknown]))[0]
    )
    assert found[1, 1].eq(0).all()


def test_pieces_are_averaged():
    lexicon, pieces = toy_lexicon(), ToyPieces(4)
    embedder = pe.SpelledEmbedding.from_pieces(pieces, lexicon)
    expected = torch.stack(
        [torch.from_numpy(pieces.table[ids]).mean(0) for ids in pieces.piece_ids(list(lexicon))]
    )
    torch.testing.assert_close(embedder(torch.arange(2, len(lexicon))), expected)
    torch.testing.assert_close(embedder(torch.tensor(1)), torch.from_numpy(pieces.table[0]))
    assert not embedder.encoder.weight.requires_grad


def test_a_longer_word_widens_the_table():
    lexicon = toy_lexicon()
    embedder = characters(lexicon)
    before = embedder(torch.arange(len(lexicon)))
    longer = embedder.with_words(["gustagustagustagusta", "me2"])
    torch.testing.assert_close(longer(torch.arange(9)), before)
    expected = embedder.encoder(torch.tensor(lexicon.spelling.spell(["gustagustagustagusta"])))
    torch.testing.assert_close(longer(torch.tensor([9])), expected)
    longer.table._apply(torch.Tensor.long)  # as to another device
    assert embedder.table.weight.dtype == torch.int64


def test_the_state_of_another_lexicon_is_refused():
    one, other = (characters(pe.Lexicon(words)) for words in (["me", "em"], ["em", "me"]))
    rule = "table.weight must be of the same lexicon"
    refused(ValueError, rule, one.load_state_dict, other.state_dict())


def test_an_encoder_for_other_units_is_refused():
    lexicon = toy_lexicon()
    count = lexicon.num_characters
    for encoder, units in ((pe.CharCNN(count + 1, 5), count + 1), (torch.nn.Linear(3, 3), None)):
        rule = rf"^encoder must be for the spelling's {count} units, got {units}$"
        refused(ValueError, rule, pe.SpelledEmbedding.from_characters, lexicon, encoder)


def test_words_without_units_are_spelled_like_the_unknown_one():
    class Dropping(ToyPieces):
        def piece_ids(self, words):
            return [
                ids[: 9 * (word != "\u200b")]
                for word, ids in zip(words, super().piece_ids(words), strict=True)
            ]

    embedder = pe.SpelledEmbedding.from_pieces(Dropping(4), pe.Lexicon(["\u200b", "me"]))
    assert torch.equal(embedder(torch.tensor(2)), embedder(torch.tensor(1)))
