"""Members of one architecture run stacked: the same numbers as one by one, from parameters as they are now."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from cases import SIZES, characters, hierarchical, mask, sentences, vector_source
from torch import Tensor, nn
from toys import TAGS, ToyWordEncoder, compiles, own_words, toy_corpus, toy_lexicon

import polyembed as pe
from polyembed._pretrained import Configurable
from polyembed.tagging import ensemble as ensemble_module

EMBEDDERS: dict[str, Callable[[pe.Lexicon], nn.Module]] = {
    "hme": hierarchical,
    "unique": lambda lexicon: pe.UniqueWords(hierarchical(lexicon)),
    "baked": lambda lexicon: pe.bake(hierarchical(lexicon).double()),
    "trained table": lambda lexicon: nn.Embedding(len(lexicon), 5, padding_idx=0),
    "table and characters": lambda lexicon: pe.MetaEmbedding.concat(
        [nn.Embedding(len(lexicon), 5), characters(lexicon)]
    ),
    "frozen": vector_source,
}
DECODERS = {"crf": pe.CRFDecoder, "softmax": pe.SoftmaxDecoder}


def member(seed: int, embedder: str = "unique", decoder: str = "crf", **options: Any) -> pe.SequenceTagger:
    torch.manual_seed(seed)
    lexicon = toy_lexicon()
    words = EMBEDDERS[embedder](lexicon)
    encoder = pe.TransformerSequenceEncoder(words.embedding_dim, **{**SIZES, "dropout": 0.0, **options})
    tagger = pe.SequenceTagger(words, TAGS, lexicon=lexicon, encoder=encoder, decoder=DECODERS[decoder](4, len(TAGS)))
    nn.init.normal_(tagger.decoder.linear.weight, std=2)
    return tagger.double()


def both(members: Sequence[pe.SequenceTagger], **options: Any) -> tuple[pe.VotingEnsemble, pe.VotingEnsemble]:
    """The same members, stacked and one by one."""
    stacked, apart = (pe.VotingEnsemble(members, stacked=stacked, **options) for stacked in (True, False))
    return stacked, apart


def batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    made = sentences(13, 7)
    return made["inputs"], mask(13, 7), made["tags"]


def assert_same(stacked: pe.VotingEnsemble, apart: pe.VotingEnsemble) -> None:
    ids, mask, tags = batch()
    close = {"rtol": 0.0, "atol": 1e-9}
    for found, expected in (
        (stacked(ids, tags=tags, mask=mask), apart(ids, tags=tags, mask=mask)),
        (stacked.probabilities(ids, mask), apart.probabilities(ids, mask)),
    ):
        torch.testing.assert_close(found, expected, **close)
        trained = [value for value in apart.parameters() if value.requires_grad]
        weights = torch.arange(1, found.numel() + 1).double().cos().reshape(found.shape)
        one, other = (
            torch.autograd.grad((value * weights).sum(), trained, allow_unused=True) for value in (found, expected)
        )
        for gradient, expected_gradient in zip(one, other, strict=True):
            assert (gradient is None) == (expected_gradient is None)
            if gradient is not None:
                torch.testing.assert_close(gradient, expected_gradient, **close)
    assert torch.equal(stacked.votes(ids, mask), apart.votes(ids, mask))
    assert torch.equal(stacked.decode(ids), apart.decode(ids))


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("embedder", EMBEDDERS)
def test_same_numbers_as_one_by_one(embedder: str, decoder: str) -> None:
    stacked, apart = both([member(seed, embedder, decoder) for seed in range(3)])
    votes = apart.votes(*batch()[:2])
    assert not torch.equal(votes[0], votes[1]), "members that agree show nothing"
    assert_same(stacked.eval(), apart.eval())


def test_frozen_members_differ_all_the_same() -> None:
    members = [member(seed).requires_grad_(False) for seed in range(3)]
    stacked, apart = both(members)
    ids, mask, tags = batch()
    torch.testing.assert_close(stacked.probabilities(ids, mask), apart.probabilities(ids, mask))
    torch.testing.assert_close(stacked(ids, tags=tags, mask=mask), apart(ids, tags=tags, mask=mask))


def test_a_part_in_two_places_of_one_member_alone() -> None:
    """What is tied in one member need not be in the next."""

    def build(*which: int) -> pe.SequenceTagger:
        lexicon = toy_lexicon()
        parts = [characters(lexicon), characters(lexicon)]
        words = pe.MetaEmbedding.concat([parts[i] for i in which])
        return pe.SequenceTagger(words, TAGS, lexicon=lexicon).double()

    assert_same(*both([build(0, 0), build(0, 1), build(1, 1)]))
    assert_same(*both([build(0, 1), build(0, 0)]))


def test_a_parameter_in_two_places_of_one_member_alone() -> None:
    def build(tied: bool) -> pe.SequenceTagger:
        lexicon = toy_lexicon()
        parts = [characters(lexicon), characters(lexicon)]
        if tied:
            parts[1].encoder.embedding.weight = parts[0].encoder.embedding.weight
        return pe.SequenceTagger(pe.MetaEmbedding.concat(parts), TAGS, lexicon=lexicon).double()

    assert_same(*both([build(True), build(False)]))


class RecurrentWordEncoder(ToyWordEncoder):
    """torch.vmap has no rule for its GRU."""

    def __init__(self, embedding_dim: int, num_pieces: int = 17) -> None:
        super().__init__(embedding_dim, num_pieces)
        self.recurrent = nn.GRU(embedding_dim, embedding_dim, batch_first=True)

    def forward(self, pieces: pe.Pieces, num_words: int | None = None) -> Tensor:
        return self.recurrent(super().forward(pieces, num_words))[0]


def test_embedders_that_cannot_run_stacked_are_called_in_turn() -> None:
    members = [pe.SequenceTagger(RecurrentWordEncoder(5), TAGS, lexicon=None).double() for _ in range(3)]
    stacked, apart = both(members)
    inputs, mask = stacked.encode([["me", "gusta"], ["song"]])
    torch.testing.assert_close(stacked.probabilities(inputs, mask), apart.probabilities(inputs, mask))


def test_embedders_of_different_kinds_under_one_encoder() -> None:
    members = [member(0, "frozen"), member(1, "trained table"), member(2, "frozen")]
    assert_same(*both(members))


def test_without_an_encoder() -> None:
    lexicons = [toy_lexicon() for _ in range(3)]
    assert_same(*both([pe.SequenceTagger(hierarchical(x), TAGS, lexicon=x).double() for x in lexicons]))


def test_constraints_hold() -> None:
    members = []
    for seed in range(3):
        lexicon = toy_lexicon()
        decoder = pe.CRFDecoder(5, len(TAGS), constraints=pe.Constraints.bio(TAGS))
        torch.manual_seed(seed)
        members.append(pe.SequenceTagger(vector_source(lexicon), TAGS, lexicon=lexicon, decoder=decoder).double())
        nn.init.normal_(decoder.linear.weight, std=2)
    stacked, apart = both(members)
    ids, mask, _ = batch()
    assert torch.equal(stacked.votes(ids, mask), apart.votes(ids, mask))
    torch.testing.assert_close(stacked.probabilities(ids, mask), apart.probabilities(ids, mask))


@pytest.mark.parametrize("count", [1, 3])
def test_members_with_nothing_of_their_own(count: int) -> None:
    one = member(0).requires_grad_(False)
    stacked, apart = both([one] * count)
    ids, mask, tags = batch()
    assert torch.equal(stacked.votes(ids, mask), apart.votes(ids, mask))
    assert stacked.votes(ids, mask).shape == (count, *ids.shape)
    torch.testing.assert_close(stacked(ids, tags=tags, mask=mask), apart(ids, tags=tags, mask=mask))


def test_training_goes_on() -> None:
    """No parameter of an earlier call is left anywhere."""
    stacked, apart = both([member(seed) for seed in range(3)])
    ids, mask, tags = batch()
    optimizer = torch.optim.SGD(stacked.parameters(), lr=0.02)
    before = stacked(ids, tags=tags, mask=mask)
    for _ in range(3):
        optimizer.zero_grad()
        stacked(ids, tags=tags, mask=mask).backward()
        optimizer.step()
        assert_same(stacked, apart)
    assert stacked(ids, tags=tags, mask=mask) < before
    stacked.members[1].decoder.linear.bias.data.zero_()  # nor one changed behind autograd's back
    assert_same(stacked, apart)
    stacked.members[2] = apart.members[2] = member(7)
    assert_same(stacked, apart)


def test_each_member_drops_its_own() -> None:
    """Twins differ in training, since dropout is drawn for each, and agree in evaluation."""
    twins = [member(0, dropout=0.5), member(0, dropout=0.5)]
    model, (ids, mask, _) = pe.VotingEnsemble(twins, stacked=True, vote="soft"), batch()
    mean = model.train().probabilities(ids, mask)
    torch.manual_seed(3)
    gradients = torch.autograd.grad(mean.square().sum(), [twin.decoder.linear.weight for twin in twins])
    assert not torch.allclose(*gradients)
    mean = model.eval().probabilities(ids, mask)
    gradients = torch.autograd.grad(mean.square().sum(), [twin.decoder.linear.weight for twin in twins])
    torch.testing.assert_close(*gradients)


def test_predicts_the_same_words_never_seen_included() -> None:
    for embedder in ("unique", "trained table", "baked"):
        stacked, apart = both([member(seed, embedder) for seed in range(3)])
        corpus = [["songs", "me", "cuando"], ["मुझे"], [], *(sentence.words for sentence in toy_corpus(1))]
        assert stacked.predict(corpus) == apart.predict(corpus)


def test_pieces_run_stacked() -> None:
    members = []
    for seed in range(3):
        torch.manual_seed(seed)
        members.append(pe.SequenceTagger(ToyWordEncoder(5), TAGS, lexicon=None).double())
    stacked, apart = both(members)
    inputs, mask = stacked.encode([["me", "gusta"], ["song"]])
    assert torch.equal(stacked.votes(inputs, mask), apart.votes(inputs, mask))
    torch.testing.assert_close(stacked.probabilities(inputs, mask), apart.probabilities(inputs, mask))


def test_low_precision_and_autocast() -> None:
    stacked, apart = both([member(seed) for seed in range(3)])
    ids, mask, _ = batch()
    expected = apart.eval().probabilities(ids, mask).float()
    stacked.eval().bfloat16()
    low = stacked.probabilities(ids, mask)
    assert low.dtype == torch.float32
    stacked.float()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = stacked.probabilities(ids, mask)
    for value in (low, mixed):
        torch.testing.assert_close(value, expected, rtol=0.1, atol=0.1)


def test_runs_stacked_on_a_gpu_alone_if_not_told(monkeypatch) -> None:
    calls: list[str] = []

    def run(members, method, *rest, **options) -> Tensor:
        calls.append(method)
        return run_stacked(members, method, *rest, **options)

    run_stacked = ensemble_module.run_stacked
    monkeypatch.setattr(ensemble_module, "run_stacked", run)
    model, (ids, mask, tags) = pe.VotingEnsemble([member(seed) for seed in range(2)]), batch()
    recurrent = pe.VotingEnsemble([with_lstm(), with_lstm()])
    for elsewhere in (False, True):
        if elsewhere:
            monkeypatch.setattr(pe.VotingEnsemble, "device", torch.device("cuda"))
        recurrent.decode(ids, mask)
        model.decode(ids, mask)
        model(ids, tags=tags, mask=mask)
        model.probabilities(ids, mask)
        assert calls == (["decode", "loss", "probabilities"] if elsewhere else [])


@compiles
def test_runs_one_by_one_where_something_compiles(monkeypatch) -> None:
    monkeypatch.setattr(pe.VotingEnsemble, "device", torch.device("cuda"))
    model = pe.VotingEnsemble([member(seed, "frozen", "softmax") for seed in range(2)]).eval()
    ids, mask, _ = batch()
    compiled = torch.compile(model.probabilities, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(ids, mask), model.probabilities(ids, mask))


def with_lstm() -> pe.SequenceTagger:
    lexicon = toy_lexicon()
    encoder = pe.LSTMSequenceEncoder(5, hidden_size=3)
    return pe.SequenceTagger(vector_source(lexicon), TAGS, lexicon=lexicon, encoder=encoder)


def plain(decoder: nn.Module | None = None, words: Sequence[str] | None = None) -> pe.SequenceTagger:
    lexicon = toy_lexicon() if words is None else pe.Lexicon(words)
    return pe.SequenceTagger(vector_source(lexicon), TAGS, lexicon=lexicon, decoder=decoder)


class ScaledEncoder(Configurable, nn.Module):
    """An encoder with a buffer."""

    input_size = embedding_dim = 5

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.rand(5))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x * self.scale

    def get_config(self) -> dict[str, Any]:
        return {}


def test_buffers_are_each_members_own() -> None:
    lexicon = toy_lexicon()
    members = [
        pe.SequenceTagger(vector_source(lexicon), TAGS, lexicon=lexicon, encoder=ScaledEncoder()).double()
        for _ in range(3)
    ]
    assert_same(*both(members))


def test_what_cannot_run_stacked() -> None:
    rule = r"^stacked must be None or False for these members, got True for "
    with pytest.raises(ValueError, match=rule + r"a part of class LSTM, which torch.vmap has no rule for$"):
        pe.VotingEnsemble([with_lstm(), with_lstm()], stacked=True)
    with pytest.raises(ValueError, match=rule + r"another encoder in members\[1\]$"):
        pe.VotingEnsemble([member(0), member(1, num_layers=1)], stacked=True)
    with pytest.raises(ValueError, match=rule + r"another encoder in members\[1\]$"):
        pe.VotingEnsemble([plain(), with_lstm()], stacked=True)
    with pytest.raises(ValueError, match=rule + r"another decoder in members\[1\]$"):
        pe.VotingEnsemble([plain(), plain(pe.SoftmaxDecoder(5, len(TAGS)))], stacked=True)
    constrained = pe.CRFDecoder(5, len(TAGS), constraints=pe.Constraints.bio(TAGS))
    with pytest.raises(ValueError, match=rule + r"another decoder in members\[1\]$"):
        pe.VotingEnsemble([plain(), plain(constrained)], stacked=True)
    with pytest.raises(ValueError, match=rule + r"members that do not read alike$"):
        pe.VotingEnsemble([plain(), plain(words=["me"])], stacked=True)
    assert pe.VotingEnsemble([with_lstm(), with_lstm()]).predict([["me"]])


class Homemade(nn.Module):
    """An encoder that does not say how it was built."""

    input_size = embedding_dim = 5

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x


def test_parts_that_cannot_be_compared_run_one_by_one() -> None:
    lexicon = toy_lexicon()
    members = [pe.SequenceTagger(vector_source(lexicon), TAGS, lexicon=lexicon, encoder=Homemade()) for _ in range(2)]
    with pytest.raises(ValueError, match=r"got True for another encoder in members\[1\]$"):
        pe.VotingEnsemble(members, stacked=True)
    assert pe.VotingEnsemble(members).predict([["me"]])


@own_words
def test_inputs_are_checked() -> None:
    model, (ids, mask, tags) = pe.VotingEnsemble([member(0), member(1)], stacked=True), batch()
    with pytest.raises(TypeError, match=r"^inputs must be what all members read, got a list$"):
        model.decode([ids, ids], mask)
    with pytest.raises(ValueError, match=r"^tags must have shape \(13, 7\), got \(13, 6\)$"):
        model(ids, tags=tags[:, 1:], mask=mask)
    with pytest.raises(ValueError, match=r"^tags must lie in \[0, 5\) where the mask is on, got"):
        model(ids, tags=tags + 5, mask=mask)
