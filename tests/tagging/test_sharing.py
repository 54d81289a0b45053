"""What members of an ensemble hold in common is there once: in memory, on disk, and after everything that moves it."""

import copy
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import characters, pieces, vector_source
from torch import nn
from toys import TAGS, ToyPieces, ToyVectors, toy_lexicon

import polyembed as pe
from polyembed.tagging._sharing import built_alike
from polyembed.vectors import BPEmbVectors, FastTextVectors

CORPUS = [["me", "gusta", "that", "song"], ["canción", "y", "song"], ["naïve"]] * 20
UNSEEN = [["songs", "me", "cuando"], ["मुझे"]]


def build(seed: int, source: Any = None, subwords: Any = None) -> pe.SequenceTagger:
    """A tagger with objects of its own: frozen words and pieces, trained projections, characters and decoder."""
    torch.manual_seed(seed)
    lexicon = toy_lexicon()
    words = pe.SourceEmbedding(source or ToyVectors(64), lexicon)
    hme = pe.HierarchicalMetaEmbedding(
        words=pe.MetaEmbedding.self_attention([words, vector_source(lexicon, 128)], embedding_dim=3),
        subwords=pe.SpelledEmbedding.from_pieces(
            subwords or ToyPieces(8, 401), lexicon, pooling="transformer", num_heads=2
        ),
        characters=characters(lexicon),
    )
    return pe.SequenceTagger(pe.UniqueWords(hme), TAGS).eval()


def places(model: nn.Module, *, frozen: bool) -> dict[int, int]:
    """Address to bytes of every storage that parameters stand in."""
    return {
        part.untyped_storage().data_ptr(): part.untyped_storage().nbytes()
        for part in model.parameters()
        if part.requires_grad != frozen
    }


def frozen_places(tagger: nn.Module) -> list[int]:
    return [part.data_ptr() for part in tagger.parameters() if not part.requires_grad]


def assert_shared(model: pe.VotingEnsemble) -> None:
    first = model.members[0]
    assert len(frozen_places(first)) == 5  # two tables of words, one of pieces, spellings by pieces and characters
    for tagger in model.members[1:]:
        assert frozen_places(tagger) == frozen_places(first)
        assert not places(tagger, frozen=False).keys() & places(first, frozen=False).keys()
        assert tagger.lexicon is first.lexicon
        for one, other in zip(embedders(tagger), embedders(first), strict=True):
            assert one.table is other.table


def embedders(tagger: nn.Module) -> list[nn.Module]:
    return [part for part in tagger.modules() if isinstance(part, pe.SourceEmbedding | pe.SpelledEmbedding)]


@pytest.fixture
def model() -> pe.VotingEnsemble:
    return pe.VotingEnsemble([build(seed) for seed in range(5)]).eval()


def test_memory_is_that_of_one_members_tables(model) -> None:
    alone = build(0)
    assert_shared(model)
    assert sum(places(model, frozen=True).values()) == sum(places(alone, frozen=True).values())
    assert sum(places(model, frozen=False).values()) == 5 * sum(places(alone, frozen=False).values())


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.double(),
        lambda model: model.to(torch.bfloat16).float(),
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: copy.deepcopy(model).double(),
    ],
    ids=["double", "there and back", "deepcopy", "pickle", "copied and moved"],
)
def test_sharing_survives(model, change: Callable[[pe.VotingEnsemble], pe.VotingEnsemble]) -> None:
    assert_shared(change(model))


def test_a_folder_holds_what_is_shared_once(model, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model.save_pretrained(tmp_path / "model")
    saved = load_file(tmp_path / "model" / "model.safetensors").values()
    trained, tables = places(model.members[0], frozen=False), places(model.members[0], frozen=True)
    assert sum(part.nbytes for part in saved) == sum(tables.values()) + 5 * sum(trained.values())
    assert sorted(os.listdir(tmp_path / "model")) == ["config.json", "lexicon.json", "model.safetensors"]


def test_a_loaded_ensemble_shares(model, tmp_path: Path) -> None:
    expected = model.predict([*CORPUS[:3], *UNSEEN])
    model.save_pretrained(tmp_path / "model")
    again = pe.VotingEnsemble.from_pretrained(tmp_path / "model")
    assert_shared(again)
    assert again.predict([*CORPUS[:3], *UNSEEN]) == expected
    assert_shared(again.double())


def test_words_met_later_are_shared(model, tmp_path: Path) -> None:
    expected = model.predict(UNSEEN)
    model.lexicon.extend(["songs", "cuando"])
    model.get_config()  # members catch up
    for tagger in model.members:
        tagger.get_config()
    first = model.members[0]
    assert len(frozen_places(first)) == 9, "two tables of words and two of spellings have later rows"
    assert all(frozen_places(tagger) == frozen_places(first) for tagger in model.members)
    model.save_pretrained(tmp_path / "model")
    again = pe.VotingEnsemble.from_pretrained(tmp_path / "model")
    assert all(frozen_places(tagger) == frozen_places(again.members[0]) for tagger in again.members)
    assert again.predict(UNSEEN) == expected


def test_a_word_embedder_without_anything_to_train_is_one(model) -> None:
    tables = [[part for part in embedders(tagger) if isinstance(part, pe.SourceEmbedding)] for tagger in model.members]
    assert all(one is other for row in tables for one, other in zip(row, tables[0], strict=True))


def test_files_of_vectors_are_compared_by_content(tmp_path: Path) -> None:
    """Members trained apart have copies of the files; a folder holds one."""

    def source(name: str, dim: int = 5) -> FastTextVectors:
        return FastTextVectors.train(CORPUS, tmp_path / name, dim=dim, min_count=1, bucket=100)

    def subwords(name: str) -> BPEmbVectors:
        return BPEmbVectors.train(CORPUS, tmp_path / name, vocab_size=30, dim=8)

    first = build(0, source("a.bin"), subwords("a"))
    first.save_pretrained(tmp_path / "first")
    second = pe.SequenceTagger.from_pretrained(tmp_path / "first")
    third = build(2, source("c.bin", dim=7), subwords("c"))
    model = pe.VotingEnsemble([first, second, third])
    one, two, other = (embedders(tagger) for tagger in (first, second, third))
    assert one[0] is two[0]
    assert one[0].source is not other[0].source
    assert one[2].spelling is two[2].spelling
    model.save_pretrained(tmp_path / "model")
    binaries = sorted(name.split("-", 2)[2] for name in os.listdir(tmp_path / "model") if name.startswith("vectors-"))
    assert binaries.count("a.bin") == binaries.count("c.bin") == 1
    expected = model.predict(UNSEEN)
    assert pe.VotingEnsemble.from_pretrained(tmp_path / "model").predict(UNSEEN) == expected


def test_files_that_are_gone_are_not_compared(tmp_path: Path) -> None:
    one = FastTextVectors.train(CORPUS, tmp_path / "one.bin", dim=5, min_count=1, bucket=100)
    shutil.copyfile(tmp_path / "one.bin", tmp_path / "other.bin")
    other = FastTextVectors(tmp_path / "other.bin")
    assert built_alike(one, other)
    os.remove(tmp_path / "other.bin")
    assert not built_alike(one, other)
    assert built_alike(other, other)


def test_equal_rows_of_different_sources_share_memory_alone() -> None:
    """A source that knows more words gives the same rows for these, and others for words to come."""

    class MoreVectors(ToyVectors):
        def vectors(self, words):
            rows = super().vectors(words)
            known = set(toy_lexicon())
            return rows + [[float(word not in known)] for word in words]

    one, other = build(0), build(1, source=MoreVectors(64))
    expected = [one.predict(UNSEEN), other.predict(UNSEEN)]
    pe.VotingEnsemble([one, other])
    first, second = embedders(one)[0], embedders(other)[0]
    assert first.weight is second.weight
    assert first.table is not second.table
    assert [one.predict(UNSEEN), other.predict(UNSEEN)] == expected
    lexicon = one.lexicon
    lexicon.extend(["cuando"])
    for tagger in (one, other):
        tagger.get_config()
    ids = torch.tensor([len(lexicon) - 1])
    torch.testing.assert_close(second(ids), first(ids) + 1)


def test_what_differs_or_trains_stays_apart() -> None:
    def over(seed: int, freeze: bool) -> pe.SequenceTagger:
        lexicon = toy_lexicon()
        return pe.SequenceTagger(vector_source(lexicon, 5, seed, freeze=freeze), TAGS)

    for one, other in (((0, True), (1, True)), ((0, False), (0, False)), ((0, True), (0, False))):
        members = [over(*one), over(*other)]
        pe.VotingEnsemble(members)
        assert members[0].embedder.weight.data_ptr() != members[1].embedder.weight.data_ptr()
        assert [tagger.embedder.weight.requires_grad for tagger in members] == [not one[1], not other[1]]


@pytest.mark.parametrize("frozen", [0, 1])
def test_what_one_member_trains_is_not_taken_from_another(frozen: int) -> None:
    """Twins, of which one is frozen: equal in content, and yet two."""
    members = [build(0), build(0)]
    members[frozen].requires_grad_(False)
    flags = [[part.requires_grad for part in tagger.parameters()] for tagger in members]
    own = places(members[1 - frozen], frozen=False)
    pe.VotingEnsemble(members)
    assert [[part.requires_grad for part in tagger.parameters()] for tagger in members] == flags
    assert places(members[1 - frozen], frozen=False) == own
    assert not own.keys() & places(members[frozen], frozen=True).keys()


def test_rows_that_somebody_changed_stay_apart() -> None:
    lexicons = [toy_lexicon() for _ in range(2)]
    members = [pe.SequenceTagger(vector_source(lexicon), TAGS) for lexicon in lexicons]
    members[1].embedder.weight.data[3] += 1
    before = [tagger.embedder(torch.arange(9)) for tagger in members]
    pe.VotingEnsemble(members)
    assert all(
        torch.equal(tagger.embedder(torch.arange(9)), rows) for tagger, rows in zip(members, before, strict=True)
    )


class Kept(ToyVectors):
    """What it writes into a folder nobody can compare."""

    def write_files(self, folder: Path) -> dict[str, str]:
        return {}


def test_only_what_can_be_compared_is_alike() -> None:
    assert built_alike(ToyVectors(3), ToyVectors(3))
    assert not built_alike(ToyVectors(3), ToyVectors(3, seed=1))
    assert not built_alike(Kept(3), Kept(3))
    assert not built_alike(object(), object())
    assert not built_alike({"a": 1}, {"a": 1, "b": 2})
    assert not built_alike([1], [1, 2])
    assert not built_alike(1, True)
    assert not built_alike(None, 0)


def test_lexicons_that_differ_stay_apart() -> None:
    lexicons = [
        pe.Lexicon(["me", "song"]),
        pe.Lexicon(["song", "me"]),
        pe.Lexicon(["me", "song"], lowercase_fallback=True),
        pe.Lexicon(["me", "song"], normalization="NFC"),
        pe.Lexicon(["me", "song"], characters="mesong!"),
        pe.Lexicon(["me", "song"]),
    ]
    members = [pe.SequenceTagger(vector_source(lexicon), TAGS) for lexicon in lexicons]
    pe.VotingEnsemble(members)
    assert [tagger.lexicon is lexicons[0] for tagger in members] == [True, False, False, False, False, True]


def test_a_member_that_is_behind_its_lexicon_catches_up() -> None:
    lexicon = toy_lexicon()
    one, other = (pe.SequenceTagger(vector_source(lexicon), TAGS) for _ in range(2))
    lexicon.extend(["songs"])
    one.embedder.extend(lexicon)
    pe.VotingEnsemble([one, other])
    assert one.embedder is other.embedder


def test_what_is_two_in_a_member_stays_two() -> None:
    def twice() -> pe.SequenceTagger:
        lexicon = toy_lexicon()
        nested = pe.MetaEmbedding.concat([vector_source(lexicon), vector_source(lexicon)])
        parts = [nested, vector_source(lexicon), characters(lexicon), characters(lexicon)]
        return pe.SequenceTagger(pe.MetaEmbedding.linear(parts, embedding_dim=3), TAGS)

    members = [twice() for _ in range(3)]
    pe.VotingEnsemble(members)
    (nested, source, one, other), *rest = (tagger.embedder.embedders for tagger in members)
    for parts in rest:
        assert parts[0] is nested
        assert parts[1] is source
        assert parts[2].table is one.table
        assert parts[3].table is other.table
    assert len({id(part.table) for part in (*nested.embedders, source, one, other)}) == 5
    assert len(frozen_places(members[0])) == len(set(frozen_places(members[0]))) == 5


def test_a_part_in_two_places_is_replaced_in_both() -> None:
    def twice() -> pe.SequenceTagger:
        lexicon = toy_lexicon()
        part = vector_source(lexicon)
        return pe.SequenceTagger(pe.MetaEmbedding.linear([part, part], embedding_dim=3), TAGS)

    one, other = twice(), twice()
    pe.VotingEnsemble([one, other])
    parts = [*one.embedder.embedders, *other.embedder.embedders]
    assert all(part is parts[0] for part in parts)


def test_a_trained_baked_table_is_each_members_own() -> None:
    def baked(seed: int) -> pe.SequenceTagger:
        tagger = build(seed)
        return pe.SequenceTagger(pe.bake(tagger.embedder), TAGS).eval()

    members = [baked(0), baked(1)]
    expected = [tagger.predict(UNSEEN) for tagger in members]
    pe.VotingEnsemble(members)
    one, other = (tagger.embedder for tagger in members)
    assert one.weight.data_ptr() != other.weight.data_ptr()
    assert embedders(one)[0] is embedders(other)[0]
    assert [tagger.predict(UNSEEN) for tagger in members] == expected


def test_frozen_pieces_share(tmp_path: Path) -> None:
    """Spelled words of frozen pieces train nothing: one embedder, and in a folder one file of each kind."""

    def spelled() -> pe.SequenceTagger:
        lexicon = toy_lexicon()
        return pe.SequenceTagger(pieces(lexicon), TAGS)

    model = pe.VotingEnsemble([spelled(), spelled()])
    assert model.members[0].embedder is model.members[1].embedder
    model.save_pretrained(tmp_path / "model")
    again = pe.VotingEnsemble.from_pretrained(tmp_path / "model")
    assert again.members[0].embedder is again.members[1].embedder
