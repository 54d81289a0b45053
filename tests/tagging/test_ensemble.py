"""Ensembles: their votes on batches and on raw words, and refused arguments."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import SIZES, hierarchical, mask, sentences, vector_source
from checks import refused
from torch import Tensor, nn
from toys import SENTENCES, TAGS, toy_corpus, toy_lexicon, toy_table

import polyembed as pe
from polyembed.functional import entity_vote, majority_vote
from polyembed.metrics import entities

UNSEEN = [["songs", "me", "cuando"], ["मुझे"], [], ["y", "songs", "canción", "me", "gusta"]]
EVERYTHING = [*SENTENCES, *UNSEEN]


def member(seed: int, *, decoder: Callable[[int, int], Any] = pe.CRFDecoder) -> pe.SequenceTagger:
    """Return a tagger with its own lexicon and tables, and with clear preferences."""
    torch.manual_seed(seed)
    lexicon = toy_lexicon()
    embedder = hierarchical(lexicon)
    encoder = pe.TransformerSequenceEncoder(embedder.embedding_dim, **SIZES, dropout=0.0)
    tagger = pe.SequenceTagger(
        pe.UniqueWords(embedder), TAGS, encoder=encoder, decoder=decoder(4, len(TAGS))
    )
    nn.init.normal_(tagger.decoder.linear.weight, std=2)
    return tagger.double().eval()


def ensemble(num_members: int = 3, **options: Any) -> pe.VotingEnsemble:
    return pe.VotingEnsemble([member(seed) for seed in range(num_members)], **options).eval()


def batch(rows: int = 13, width: int = 7) -> tuple[Tensor, Tensor]:
    """Return ids, and a mask with holes, a full row and an empty row."""
    torch.manual_seed(1)
    return sentences(rows, width)["inputs"], mask(rows, width)


def test_a_hard_vote_is_the_majority_of_what_members_decode():
    model, (ids, mask) = ensemble(5), batch()
    votes = torch.stack([tagger.decode(ids, mask) for tagger in model.members])
    assert torch.equal(model.votes(ids, mask), votes)
    assert torch.equal(model.decode(ids, mask), majority_vote(votes))
    assert not torch.equal(model.decode(ids, mask), votes[0]), "the others have no say"
    assert model.decode(ids, mask).eq(-100).equal(~mask)
    two = pe.VotingEnsemble(model.members[:2])  # they tie wherever they differ
    assert torch.equal(two.decode(ids, mask), votes[0])


@pytest.mark.parametrize("decoder", [pe.CRFDecoder, pe.SoftmaxDecoder])
def test_a_soft_vote_is_the_best_mean_probability(decoder):
    members = [member(seed, decoder=decoder) for seed in range(5)]
    model, (ids, mask) = pe.VotingEnsemble(members, vote="soft").eval(), batch()
    mean = sum(tagger.probabilities(ids, mask) for tagger in members) / 5
    torch.testing.assert_close(model.probabilities(ids, mask), mean)
    assert torch.equal(model.decode(ids, mask)[mask], mean.argmax(-1)[mask])
    assert model.decode(ids, mask).eq(-100).equal(~mask)
    hard = pe.VotingEnsemble(members).decode(ids, mask)
    assert not torch.equal(model.decode(ids, mask), hard), "a soft vote is a vote of its own"


def test_an_entity_vote_runs_over_the_valid_words():
    model, (ids, mask) = ensemble(5, vote="entity"), batch(rows=40)
    found, votes = model.decode(ids, mask), model.votes(ids, mask)
    assert found.eq(-100).equal(~mask)
    names = [[[TAGS[tag] for tag in row if tag >= 0] for row in voter] for voter in votes.tolist()]
    expected = entity_vote(names)
    assert [[TAGS[tag] for tag in row if tag >= 0] for row in found.tolist()] == expected
    assert any(map(entities, expected))
    assert expected != majority_vote(names)


def test_predicts_what_members_predict_in_the_majority():
    model = ensemble(5)
    alone = [tagger.predict(EVERYTHING) for tagger in model.members]
    assert model.predict(EVERYTHING) == majority_vote(alone)
    model = pe.VotingEnsemble(model.members, vote="entity")
    assert model.predict(EVERYTHING, batch_size=2) == entity_vote(alone)


@pytest.mark.parametrize("decoder", [pe.CRFDecoder, pe.SoftmaxDecoder])
@pytest.mark.parametrize("vote", ["hard", "soft", "entity"])
def test_a_member_of_nan_leaves_no_vote(vote, decoder):
    tags = ["O", "B-X", "I-X"]
    members = [pe.SequenceTagger(toy_table(8), tags, decoder=decoder(8, 3)) for _ in range(3)]
    nn.init.constant_(members[2].decoder.linear.bias, torch.nan)
    ensemble = pe.VotingEnsemble(members, vote=vote)
    for call in (ensemble.predict, ensemble.predict_probabilities):
        refused(ValueError, r"texts\[1\].* for each word, got NaN", call, [[], ["b", "a"]])
    inputs, mask = ensemble.encode([["a"], ["b", "a"]])
    assert ensemble.decode(inputs, mask).tolist() == [[-100, -100]] * 2


def test_the_loss_is_the_mean_of_the_members():
    model = ensemble()
    inputs = model.collate(toy_corpus(1))
    assert inputs["inputs"].shape == inputs["tags"].shape == inputs["mask"].shape == (3, 4)
    loss = model(**inputs)
    losses = [tagger(**inputs) for tagger in model.members]
    torch.testing.assert_close(loss, sum(losses) / 3)


def test_a_member_may_vote_twice(tmp_path):
    one, other = member(0), member(1)
    pe.VotingEnsemble([other, one, one]).save_pretrained(tmp_path / "twice")
    again, (ids, mask) = pe.VotingEnsemble.from_pretrained(tmp_path / "twice"), batch()
    assert again.members[1] is again.members[2]
    assert torch.equal(again.decode(ids, mask), one.decode(ids, mask))


def over(words: list[str], dim: int, seed: int) -> pe.SequenceTagger:
    torch.manual_seed(seed)
    lexicon = pe.Lexicon(words)
    tagger = pe.SequenceTagger(vector_source(lexicon, dim), TAGS).eval()
    nn.init.normal_(tagger.decoder.linear.weight, std=2)
    return tagger


def test_members_of_several_lexicons():
    """Each member reads its own ids.

    A word that only one member knows is added to the others during prediction.
    """
    known = (["me", "song"], ["that", "me", "y"], ["me", "song"])
    members = [over(words, 2 + i, i) for i, words in enumerate(known)]
    alone = [tagger.predict(EVERYTHING) for tagger in members]
    model = pe.VotingEnsemble(members)
    assert model.lexicon is None
    assert model.predict(EVERYTHING) == majority_vote(alone)
    inputs, mask = model.encode(iter(SENTENCES))
    votes = [tagger.decode(ids, mask) for tagger, ids in zip(members, inputs, strict=True)]
    assert torch.equal(model.decode(inputs, mask), majority_vote(torch.stack(votes)))
    assert model(**model.collate(toy_corpus(1))).isfinite()


def tagger_with(tags: list[str]) -> pe.SequenceTagger:
    return pe.SequenceTagger(toy_table(3), tags)


ONE = tagger_with(TAGS)


def test_an_entity_vote_reads_the_scheme_off_the_tags():
    member = tagger_with(["O", "B-A", "I-A", "E-A", "S-A"])
    assert pe.VotingEnsemble([member], vote="entity").scheme == "bioes"


@pytest.mark.parametrize(
    ("members", "vote", "message"),
    [
        ([], "hard", "members must hold at least one tagger, got none$"),
        ([ONE, nn.Linear(3, 2)], "hard", r"members\[1\] must be a SequenceTagger, got Linear$"),
        (
            [ONE, tagger_with(["B-ES", "O"])],
            "hard",
            r"members\[1\] must have .*, got \('B-ES', 'O'\)$",
        ),
        ([ONE], "loud", "vote must be one of 'hard', 'soft', 'entity', got 'loud'$"),
        ([tagger_with(["VERB"])], "entity", "labels must be O, B-<type> or I-<type>, got 'VERB'"),
        ([tagger_with(["O", "I-ES"])], "entity", "tags must hold B-ES for an entity vote, got"),
    ],
)
def test_wrong_members(members, vote, message):
    refused((ValueError, TypeError), f"^{message}", pe.VotingEnsemble, members, vote=vote)
