"""Lexicons, embedders and taggers stay in step, whoever extends what."""

import copy

import pytest
import torch
from torch import nn
from toys import SENTENCES, TAGS, ToyVectors, toy_lexicon

import polyembed as pe

LONG = [["supercalifragilisticexpialidocious", "me"]]


def build(lexicon: pe.Lexicon, **options) -> pe.SequenceTagger:
    torch.manual_seed(0)
    chars = pe.SpelledEmbedding.from_characters(lexicon, pe.CharCNN(lexicon.num_characters, 5))
    hme = pe.HierarchicalMetaEmbedding(words=pe.SourceEmbedding(ToyVectors(3), lexicon), characters=chars)
    return pe.SequenceTagger(hme, TAGS, lexicon=lexicon, **options).eval()


def test_predicting_leaves_no_trace() -> None:
    tagger = build(toy_lexicon())
    before = {name: value.clone() for name, value in tagger.state_dict().items()}
    tagger.predict(LONG)
    after = tagger.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_long_words_are_spelled_whole_beside_short_ones() -> None:
    lexicon = toy_lexicon()
    later, start = build(lexicon), pe.Lexicon([*lexicon, *LONG[0]], characters=lexicon.spelling.characters)
    whole = build(start)
    lexicon.extend(LONG[0])
    later.embedder.extend(lexicon)
    ids = torch.arange(len(start)).reshape(2, -1)
    torch.testing.assert_close(later.embedder(ids), whole.embedder(ids))


def test_a_generator_is_tagged() -> None:
    tagger = build(toy_lexicon())
    assert tagger.predict(words for words in SENTENCES) == tagger.predict(SENTENCES)


def test_forgetting_and_learning_as_many_words_is_noticed() -> None:
    lexicon = toy_lexicon()
    tagger = build(lexicon)
    baked = pe.bake(copy.deepcopy(tagger.embedder))
    for words in (["x", "shared"], ["y", "shared"], ["y"], ["z", "y"]):
        lexicon.truncate(9)
        lexicon.extend(words)
        for embedder in (tagger.embedder, baked):
            embedder.extend(lexicon)
            fresh = build(pe.Lexicon(lexicon, characters=lexicon.spelling.characters)).embedder
            torch.testing.assert_close(embedder(torch.arange(len(lexicon))), fresh(torch.arange(len(lexicon))))


def test_predicting_notices_that_as_many_others_came() -> None:
    lexicon = toy_lexicon()
    tagger, seen = build(lexicon), []
    tagger.embedder.register_forward_hook(lambda module, inputs, output: seen.append(output))
    for words in (["supercalifragilistic"], ["zzz"]):
        lexicon.truncate(9)
        lexicon.extend(words)
        tagger.predict([words])
    fresh = build(pe.Lexicon(lexicon, characters=lexicon.spelling.characters)).embedder
    torch.testing.assert_close(seen[-1], fresh(torch.tensor([[lexicon.id_of("zzz")]])))


def test_foreign_lexicons_are_refused() -> None:
    ours, theirs = toy_lexicon(), pe.Lexicon(f"w{i}" for i in range(7))
    assert len(ours) == len(theirs)
    source = pe.SourceEmbedding(ToyVectors(3), ours)
    with pytest.raises(ValueError, match=r"^lexicon must begin with the 9 ids that the table was built for"):
        source.extend(theirs)
    with pytest.raises(ValueError, match=r"^embedders must be built for one lexicon, got different words$"):
        pe.MetaEmbedding.concat([source, pe.SourceEmbedding(ToyVectors(3), theirs)])
    with pytest.raises(ValueError, match=r"^embedder must be built for this lexicon, got one for other words$"):
        pe.SequenceTagger(source, TAGS, lexicon=theirs)


def test_taggers_that_share_a_lexicon_catch_up(tmp_path) -> None:
    lexicon = toy_lexicon()
    first, second = build(lexicon), build(lexicon)
    lexicon.extend(["zz"])
    first.embedder.extend(lexicon)
    assert second.predict([["zz"]]) == first.predict([["zz"]])
    lexicon.extend(["zzz"])
    second.save_pretrained(tmp_path / "second")
    assert pe.SequenceTagger.from_pretrained(tmp_path / "second").predict([["zzz"]]) == first.predict([["zzz"]])


def test_parts_that_are_none() -> None:
    lexicon = toy_lexicon()
    embedder = nn.Embedding(len(lexicon), 8)
    with pytest.raises(TypeError, match=r"^encoder must be a sequence encoder or None .*, got LSTM$"):
        pe.SequenceTagger(embedder, TAGS, lexicon=lexicon, encoder=nn.LSTM(8, 4))
    with pytest.raises(TypeError, match=r"^decoder must be a decoder or None .*, got Linear$"):
        pe.SequenceTagger(embedder, TAGS, lexicon=lexicon, decoder=nn.Linear(8, 5))
    with pytest.raises(TypeError, match=r"^embedder must be a word embedder or a word encoder .*, got Linear$"):
        pe.SequenceTagger(nn.Linear(8, 5), TAGS, lexicon=lexicon)
    with pytest.raises(TypeError, match=r"^tags must be a sequence of tag names, got set"):
        pe.SequenceTagger(embedder, {"A"}, lexicon=lexicon)  # type: ignore[arg-type]
