"""What members of an ensemble have in common is one object, in memory and in a saved folder."""

import copy
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import characters, vector_source
from torch import nn
from toys import TAGS, ToyPieces, ToyVectors, toy_lexicon

import polyembed as pe
from polyembed.vectors import BPEmbVectors, FastTextVectors

CORPUS = [["me", "gusta", "that", "song"], ["canción", "y", "song"], ["naïve"]] * 20
UNSEEN = [["songs", "me", "cuando"], ["मुझे"]]


def build(seed: int, source: Any = None, subwords: Any = None) -> pe.SequenceTagger:
    """A tagger with objects of its own: frozen words and pieces, trained projections, characters and decoder."""
    torch.manual_seed(seed)
    lexicon = toy_lexicon()
    words = pe.SourceEmbedding(source or ToyVectors(64), lexicon)
    hme = pe.HierarchicalMetaEmbedding(
        words=pe.MetaEmbedding.self_attention(
            [words, vector_source(lexicon, 128)], embedding_dim=3
        ),
        subwords=pe.SpelledEmbedding.from_pieces(subwords or ToyPieces(8, 401), lexicon),
        characters=characters(lexicon),
    )
    return pe.SequenceTagger(pe.UniqueWords(hme), TAGS).eval()


def storages(model: nn.Module, *, frozen: bool) -> set[int]:
    return {
        part.untyped_storage().data_ptr()
        for part in model.parameters()
        if part.requires_grad != frozen
    }


def parts(model: nn.Module, name: str) -> set[int]:
    return {id(vars(part)[name]) for part in model.modules() if vars(part).get(name) is not None}


def assert_shared(model: pe.VotingEnsemble) -> None:
    frozen = [storages(member, frozen=True) for member in model.members]
    assert all(found == frozen[0] for found in frozen)
    assert (
        len(frozen[0]) == 5
    )  # two tables of words, one of pieces, spellings by pieces and by characters
    trained = [storages(member, frozen=False) for member in model.members]
    assert not set.intersection(*trained)
    assert len(parts(model, "lexicon")) == 1
    assert (len(parts(model, "source")), len(parts(model, "spelling"))) == (2, 2)


@pytest.fixture
def model() -> pe.VotingEnsemble:
    return pe.VotingEnsemble([build(seed) for seed in range(3)])


@pytest.mark.parametrize(
    "change",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), lambda model: model.double()],
)
def test_sharing_survives(model, change) -> None:
    assert_shared(model)
    assert_shared(change(model))


def test_a_folder_has_shared_parts_once(model, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "ensemble")
    assert [name for name in os.listdir(tmp_path / "ensemble") if name.startswith("lexicon")] == [
        "lexicon.json"
    ]
    build(0).save_pretrained(tmp_path / "member")
    sizes = [
        (tmp_path / name / "model.safetensors").stat().st_size for name in ("ensemble", "member")
    ]
    trained = sum(
        part.numel() * part.element_size() for part in build(0).parameters() if part.requires_grad
    )
    assert sizes[0] - sizes[1] < 2 * trained + 20_000
    again = pe.VotingEnsemble.from_pretrained(tmp_path / "ensemble")
    assert_shared(again)
    assert again.predict([*CORPUS[:3], *UNSEEN]) == model.predict([*CORPUS[:3], *UNSEEN])


def test_files_of_vectors_are_compared_by_content(tmp_path: Path) -> None:
    FastTextVectors.train(CORPUS, tmp_path / "0.bin", dim=5, min_count=1, bucket=100)
    BPEmbVectors.train(CORPUS, tmp_path / "pieces0", vocab_size=30, dim=5)
    shutil.copy(tmp_path / "0.bin", tmp_path / "1.bin")
    shutil.copytree(tmp_path / "pieces0", tmp_path / "pieces1")
    FastTextVectors.train(CORPUS, tmp_path / "2.bin", dim=5, min_count=1, bucket=101)
    shutil.copytree(tmp_path / "pieces0", tmp_path / "pieces2")

    def pieces(i: int) -> BPEmbVectors:
        folder = tmp_path / f"pieces{i}"
        return BPEmbVectors(
            model_file=folder / "pieces.model", vectors_file=folder / "pieces.vec", preprocess=i < 2
        )

    members = [build(i, FastTextVectors(tmp_path / f"{i}.bin"), pieces(i)) for i in range(3)]
    expected = [member.predict(UNSEEN) for member in members]
    model = pe.VotingEnsemble(members)
    assert len(parts(model, "source")) == 3  # the toy's, the two equal files, the third file
    assert len(parts(model, "spelling")) == 3  # by characters, by pieces in two preprocessings
    assert [member.predict(UNSEEN) for member in model.members] == expected


def test_trained_and_different_parts_stay_apart() -> None:
    one, trained, other = (
        pe.SequenceTagger(vector_source(toy_lexicon(), freeze=freeze), TAGS)
        for freeze in (True, False, True)
    )
    other.embedder.weight.data[3] += 1
    pe.VotingEnsemble([one, trained, other])
    assert len({member.embedder.weight.data_ptr() for member in (one, trained, other)}) == 3
    lexicons = [
        pe.Lexicon(["me"]),
        pe.Lexicon(["me"], lowercase_fallback=True),
        pe.Lexicon(["me", "y"]),
    ]
    model = pe.VotingEnsemble(
        [pe.SequenceTagger(vector_source(lexicon), TAGS) for lexicon in lexicons]
    )
    assert len(parts(model, "lexicon")) == 3
