"""Saving and loading: exact, whole or not at all, and nothing from a folder is ever run."""

import json
import os
import shutil
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn
from toys import TAGS, ToyPieces, ToyVectors, toy_lexicon

import polyembed as pe
from polyembed.saving import Configurable, PretrainedModule
from polyembed.vectors import BPEmbVectors, FastTextVectors, OrthogonalMapping

CORPUS = [["me", "gusta", "that", "song"], ["canción", "y", "song"], ["naïve"]] * 20
UNSEEN = [["songs", "que", "me", "gustaron"], ["cuando"]]


def build_tagger(source, pieces) -> pe.SequenceTagger:
    torch.manual_seed(0)
    lexicon = toy_lexicon()
    sources = [pe.SourceEmbedding(source, lexicon), pe.SourceEmbedding(ToyVectors(5), lexicon)]
    hme = pe.HierarchicalMetaEmbedding(
        words=pe.MetaEmbedding.self_attention(sources, embedding_dim=7),
        subwords=pe.SpelledEmbedding.from_pieces(pieces, lexicon),
        characters=pe.SpelledEmbedding.from_characters(
            lexicon, pe.CharCNN(lexicon.num_characters, 11)
        ),
    )
    encoder = pe.LSTMSequenceEncoder(hme.embedding_dim, hidden_size=13)
    return pe.SequenceTagger(pe.UniqueWords(hme), TAGS, encoder=encoder).eval()


def sources_of(model: nn.Module) -> list[pe.SourceEmbedding]:
    return [module for module in model.modules() if isinstance(module, pe.SourceEmbedding)]


@pytest.fixture
def tagger() -> pe.SequenceTagger:
    return build_tagger(ToyVectors(3), ToyPieces(5))


@pytest.fixture(scope="module")
def real_tagger(tmp_path_factory: pytest.TempPathFactory) -> pe.SequenceTagger:
    folder = tmp_path_factory.mktemp("vectors")
    source = FastTextVectors.train(CORPUS, folder / "es.bin", dim=5, min_count=1, bucket=100)
    return build_tagger(source, BPEmbVectors.train(CORPUS, folder / "pieces", vocab_size=30, dim=5))


def emissions(tagger: pe.SequenceTagger, sentences: list[list[str]]) -> torch.Tensor:
    return tagger.emissions(*tagger.lexicon.encode(sentences))


def test_a_new_process_gives_the_same_tags(real_tagger: pe.SequenceTagger, tmp_path: Path) -> None:
    real_tagger.save_pretrained(tmp_path / "tagger")
    moved = shutil.move(tmp_path / "tagger", tmp_path / "elsewhere")
    script = (
        "import json, sys, toys, polyembed as pe;"
        "tagger = pe.SequenceTagger.from_pretrained(sys.argv[1]);"
        "print(json.dumps(tagger.predict(json.loads(sys.argv[2]))))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    arguments = [sys.executable, "-c", script, str(moved), json.dumps(CORPUS[:3] + UNSEEN)]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == real_tagger.predict(CORPUS[:3] + UNSEEN)


def test_a_folder_saved_again_and_again(real_tagger: pe.SequenceTagger, tmp_path: Path) -> None:
    real_tagger.save_pretrained(tmp_path / "tagger")
    names = sorted(os.listdir(tmp_path / "tagger"))
    for _ in range(2):
        pe.SequenceTagger.from_pretrained(tmp_path / "tagger").save_pretrained(tmp_path / "tagger")
    assert sorted(os.listdir(tmp_path / "tagger")) == names
    again = pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    assert again.predict(UNSEEN) == real_tagger.predict(UNSEEN)
    torch.testing.assert_close(emissions(again, CORPUS[:3]), emissions(real_tagger, CORPUS[:3]))


def test_without_vector_files_unseen_words_are_unknown_until_attached(
    real_tagger: pe.SequenceTagger, tmp_path: Path
) -> None:
    real_tagger.save_pretrained(tmp_path / "tagger", copy_vectors=False)
    assert not any(name.endswith(".bin") for name in os.listdir(tmp_path / "tagger"))
    again = pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    torch.testing.assert_close(emissions(again, CORPUS[:3]), emissions(real_tagger, CORPUS[:3]))
    with pytest.warns(UserWarning, match=r"unseen words are unknown here: attach") as caught:
        again.predict(UNSEEN)
    assert any("attach FastTextVectors(path=" in str(warning.message) for warning in caught)
    for module, original in zip(sources_of(again), sources_of(real_tagger), strict=True):
        module.attach(original.source)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again.predict(UNSEEN) == real_tagger.predict(UNSEEN)


def test_without_source_tables(tagger: pe.SequenceTagger, tmp_path: Path) -> None:
    tagger.save_pretrained(tmp_path / "whole")
    tagger.save_pretrained(tmp_path / "light", save_sources=False, copy_vectors=False)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "light")]
    assert sizes[0] - sizes[1] > 4 * 9 * (3 + 5)
    again = pe.SequenceTagger.from_pretrained(tmp_path / "light")
    with pytest.raises(ValueError, match=r"the source must be attached .*, got none"):
        again.predict(CORPUS[:1])
    for module, source in zip(sources_of(again), (ToyVectors(3), ToyVectors(5)), strict=True):
        module.attach(source)
    torch.testing.assert_close(emissions(again, CORPUS[:3]), emissions(tagger, CORPUS[:3]))


def test_a_module_in_two_places_is_saved_once(tmp_path: Path) -> None:
    lexicon = toy_lexicon()
    shared, other = (
        pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), dim), lexicon)
        for dim in (5, 3)
    )
    twice = pe.MetaEmbedding.concat([pe.UniqueWords(shared), pe.bake(other), shared])
    both = pe.MetaEmbedding.concat([twice, twice])
    both.save_pretrained(tmp_path / "both")
    again = pe.MetaEmbedding.from_pretrained(tmp_path / "both")
    assert again.embedders[0] is again.embedders[1]
    assert again.embedders[0].embedders[0].embedder is again.embedders[0].embedders[2]
    assert {part.lexicon for part in again.modules() if hasattr(part, "lexicon")} == {again.lexicon}
    assert sorted(os.listdir(tmp_path / "both")) == [
        "config.json",
        "lexicon.json",
        "model.safetensors",
    ]
    ids = torch.arange(len(lexicon))
    assert torch.equal(again(ids), both(ids))


def test_loading_draws_no_random_numbers(tagger: pe.SequenceTagger, tmp_path: Path) -> None:
    tagger.save_pretrained(tmp_path / "tagger")
    before = torch.get_rng_state()
    pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    assert torch.equal(torch.get_rng_state(), before)


def test_threads_load_and_build_modules_at_once(tagger: pe.SequenceTagger, tmp_path: Path) -> None:
    tagger.save_pretrained(tmp_path / "tagger")

    def work(number: int) -> None:
        if number % 2:
            pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
        else:
            nn.ModuleList(
                nn.Linear(2, 2) for _ in range(2000)
            )  # more parts than the folder's limit: 1,000 and a few

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(40)))
    finally:
        sys.setswitchinterval(interval)


def test_characters_that_are_no_text_are_saved(tmp_path: Path) -> None:
    lexicon = pe.Lexicon(["\ud83d", "\ude00", "a\ud83d"])
    chars = pe.SpelledEmbedding.from_characters(lexicon, pe.CharCNN(lexicon.num_characters, 5))
    chars.save_pretrained(tmp_path / "chars")
    again = pe.SpelledEmbedding.from_pretrained(tmp_path / "chars")
    assert again.spelling.characters == chars.spelling.characters
    assert torch.equal(again(torch.arange(5)), chars(torch.arange(5)))


class Homemade(pe.LSTMSequenceEncoder):
    """A module that keeps no argument."""

    def __init__(self, size: int) -> None:
        super().__init__(size, hidden_size=3)

    get_config = Configurable.get_config
    from_config = Configurable.from_config


def test_what_cannot_be_rebuilt_is_not_saved(tagger: pe.SequenceTagger, tmp_path: Path) -> None:
    for encoder, message in (
        (nn.Linear(2, 3), r"model.encoder must be something that can be rebuilt .*, got Linear"),
        (
            Homemade(7),
            r"Homemade must keep its argument size as an attribute, or define get_config, got neither",
        ),
    ):
        tagger.encoder = encoder
        with pytest.raises(TypeError, match=message):
            tagger.save_pretrained(tmp_path / "new" / "tagger")
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_opened_is_not_saved(tmp_path: Path) -> None:
    lexicon = toy_lexicon()
    embedder = pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 2), lexicon)
    for _ in range(48):
        embedder = pe.UniqueWords(embedder)
    embedder.save_pretrained(tmp_path / "deep")
    pe.UniqueWords.from_pretrained(tmp_path / "deep")
    with pytest.raises(ValueError, match=r"^module must be saved in at most 100 levels, got more$"):
        pe.UniqueWords(embedder).save_pretrained(tmp_path / "deeper")
    for number in (10**18 - 1, -(10**17) + 1):
        OrthogonalMapping(torch.eye(2), report={"seed": number}).save_pretrained(
            tmp_path / "mapping"
        )
        assert OrthogonalMapping.from_pretrained(tmp_path / "mapping").report == {"seed": number}
    with pytest.raises(
        ValueError, match=r"^model.report.seed must be saved in at most 18 digits, got 19$"
    ):
        OrthogonalMapping(torch.eye(2), report={"seed": 10**18}).save_pretrained(
            tmp_path / "mapping"
        )


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn])
def test_dtypes_that_are_not_saved(dtype: torch.dtype, tmp_path: Path) -> None:
    cnn = pe.CharCNN(7, 5)
    cnn.embedding.weight = nn.Parameter(
        cnn.embedding.weight.detach().to(dtype), requires_grad=False
    )
    with pytest.raises(
        ValueError, match=r"^embedding.weight must be a boolean, an integer, or a float of 16 bits"
    ):
        cnn.save_pretrained(tmp_path / "cnn")
    assert os.listdir(tmp_path) == []


def test_places_that_are_no_folders(tagger: pe.SequenceTagger, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^folder must name a folder, got ''$"):
        tagger.save_pretrained("")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^folder must not be a file, got .*file$"):
        tagger.save_pretrained(tmp_path / "file")
    (tmp_path / "model" / "model.safetensors").mkdir(parents=True)
    with pytest.raises(
        ValueError,
        match=r"model\.safetensors must not be a folder: a file of this name is to be saved",
    ):
        tagger.save_pretrained(tmp_path / "model")
    assert os.listdir(tmp_path / "model") == ["model.safetensors"]
    for name in ("nobody/nothing", str(tmp_path / "nothing"), "a name with spaces"):
        with pytest.raises(
            FileNotFoundError,
            match=r"name_or_folder must be a folder or a repository on the hub, got",
        ):
            pe.SequenceTagger.from_pretrained(name, local_files_only=True)


@pytest.mark.parametrize("umask", [0o022, 0o007])
def test_files_have_the_mode_of_others_made_here(umask: int, tmp_path: Path) -> None:
    source = OrthogonalMapping(torch.eye(3))(ToyVectors(3))
    tagger = build_tagger(source, ToyPieces(5))
    before = os.umask(umask)
    try:
        for _ in range(2):  # anew, and over the old files
            tagger.save_pretrained(tmp_path / "tagger", card="# A tagger")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "tagger").iterdir()}
    names = [
        "README.md",
        "config.json",
        "lexicon.json",
        "mapping-0.safetensors",
        "model.safetensors",
    ]
    assert modes == dict.fromkeys(names, 0o666 & ~umask)


def test_only_files_of_the_folder_go(tmp_path: Path) -> None:
    source = FastTextVectors.train(
        CORPUS, tmp_path / "run" / "vectors-es.bin", dim=5, min_count=1, bucket=100
    )
    tagger = build_tagger(source, ToyPieces(5))
    for _ in range(2):
        tagger.save_pretrained(tmp_path / "run")
    assert sorted(os.listdir(tmp_path / "run")) == [
        "config.json", "lexicon.json", "model.safetensors", "vectors-0-vectors-es.bin", "vectors-es.bin"
    ]  # fmt: skip
    again = pe.SequenceTagger.from_pretrained(tmp_path / "run")
    again.save_pretrained(tmp_path / "run", copy_vectors=False)
    assert (tmp_path / "run" / "vectors-0-vectors-es.bin").exists(), "the tagger still reads it"
    tagger.save_pretrained(tmp_path / "run", copy_vectors=True)
    tagger.save_pretrained(tmp_path / "run", copy_vectors=False)
    assert not (tmp_path / "run" / "vectors-0-vectors-es.bin").exists()


def test_another_class(tagger: pe.SequenceTagger, tmp_path: Path) -> None:
    tagger.save_pretrained(tmp_path / "tagger")
    with pytest.raises(ValueError, match=r"must hold a CharCNN, got a SequenceTagger"):
        pe.CharCNN.from_pretrained(tmp_path / "tagger")
    assert isinstance(PretrainedModule.from_pretrained(tmp_path / "tagger"), pe.SequenceTagger)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_tables_are_mapped_from_the_file(tagger: pe.SequenceTagger, tmp_path: Path) -> None:
    """None is copied into memory: opening costs nothing, and processes share the pages."""
    tagger.save_pretrained(tmp_path / "tagger")
    opened = pe.SequenceTagger.from_pretrained(tmp_path / "tagger")
    maps = Path("/proc/self/maps").read_text().splitlines()
    ranges = [
        line.split()[0].split("-")
        for line in maps
        if str(tmp_path / "tagger" / "model.safetensors") in line
    ]
    for name, tensor in opened.state_dict().items():
        assert any(int(start, 16) <= tensor.data_ptr() < int(stop, 16) for start, stop in ranges), (
            name
        )
