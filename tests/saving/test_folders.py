"""Saving and loading: exact values, and complete folders even after an interruption."""

import contextlib
import itertools
import os
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from checks import refused
from saving.folders import CORPUS, UNSEEN, build_tagger, change, only, sources_of, unopened
from torch import nn
from toys import ToyVectors, toy_lexicon

import polyembed as pe
from polyembed.saving import Configurable, PretrainedModule, model_card, writing
from polyembed.vectors import BPEmbVectors, FastTextVectors, OrthogonalMapping


@pytest.fixture
def tagger() -> pe.SequenceTagger:
    return build_tagger()


@pytest.fixture(scope="module")
def real_tagger(tmp_path_factory: pytest.TempPathFactory) -> pe.SequenceTagger:
    folder = tmp_path_factory.mktemp("vectors")
    source = FastTextVectors.train(CORPUS, folder / "es.bin", dim=5, min_count=1, bucket=100)
    return build_tagger(source, BPEmbVectors.train(CORPUS, folder / "pieces", vocab_size=30, dim=5))


def emissions(tagger: pe.SequenceTagger, sentences: list[list[str]]) -> torch.Tensor:
    return tagger.emissions(*tagger.lexicon.encode(sentences))


def test_without_vector_files_unseen_words_are_unknown_until_attached(
    real_tagger: pe.SequenceTagger, tmp_path: Path
):
    real_tagger.save_pretrained(tmp_path)
    whole = pe.SequenceTagger.from_pretrained(tmp_path)
    assert whole.predict(UNSEEN) == real_tagger.predict(UNSEEN)
    real_tagger.save_pretrained(tmp_path, copy_vectors=False)
    assert not list(tmp_path.glob("*.bin"))
    again = pe.SequenceTagger.from_pretrained(tmp_path)
    torch.testing.assert_close(emissions(again, CORPUS[:3]), emissions(real_tagger, CORPUS[:3]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again.predict(UNSEEN)
    assert any("attach FastTextVectors(path=" in str(warning.message) for warning in caught)
    for module, original in zip(sources_of(again), sources_of(real_tagger), strict=True):
        module.attach(original.source)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again.predict(UNSEEN) == real_tagger.predict(UNSEEN)


def test_a_module_in_two_places_is_saved_once(tmp_path: Path):
    lexicon = toy_lexicon()
    shared, other = (
        pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), dim), lexicon)
        for dim in (5, 3)
    )
    twice = pe.MetaEmbedding.concat([pe.UniqueWords(shared), pe.bake(other), shared])
    both = pe.MetaEmbedding.concat([twice, twice])
    both.save_pretrained(tmp_path)
    again = pe.MetaEmbedding.from_pretrained(tmp_path)
    assert again.embedders[0] is again.embedders[1]
    assert again.embedders[0].embedders[0].embedder is again.embedders[0].embedders[2]
    assert {part.lexicon for part in again.modules() if hasattr(part, "lexicon")} == {again.lexicon}
    assert [name.partition("-")[0] for name in sorted(os.listdir(tmp_path))] == [
        "config.json",
        "lexicon",
        "model",
    ]
    assert torch.equal(again(torch.arange(len(lexicon))), both(torch.arange(len(lexicon))))


def test_threads_load_and_predict_at_once(tagger: pe.SequenceTagger, tmp_path: Path):
    tagger.save_pretrained(tmp_path)
    expected = tagger.predict(CORPUS + UNSEEN)

    def work(_):
        return pe.SequenceTagger.from_pretrained(tmp_path).predict(CORPUS + UNSEEN)

    with ThreadPoolExecutor(3) as pool:
        assert [*pool.map(work, range(12))] == [expected] * 12


def test_characters_that_are_no_text_are_saved(tmp_path: Path):
    lexicon = pe.Lexicon(["\ud83d", "\ude00", "a\ud83d"])
    chars = pe.SpelledEmbedding.from_characters(lexicon, pe.CharCNN(lexicon.num_characters, 5))
    chars.save_pretrained(tmp_path)
    again = pe.SpelledEmbedding.from_pretrained(tmp_path)
    assert again.spelling.characters == chars.spelling.characters
    assert torch.equal(again(torch.arange(5)), chars(torch.arange(5)))


def test_numbers_of_numpy_are_saved(tmp_path: Path):
    cnn = pe.CharCNN(np.int64(7), 5, kernel_sizes=np.array([2, 3]), dropout=np.float32(0.5))
    cnn.save_pretrained(tmp_path)
    assert pe.CharCNN.from_pretrained(tmp_path).get_config() == cnn.get_config()


@pytest.mark.parametrize("name", ["word2vec.es-en", ".vec"])
def test_names_of_vector_files(name: str, tmp_path: Path):
    """A saved vector file of this name is opened, and the next save removes it."""
    folder = tmp_path / "saved"
    (tmp_path / name).write_text("me 1 2\n")
    embedder = pe.SourceEmbedding(pe.TextVectors(tmp_path / name), pe.Lexicon(["me"]))
    embedder.save_pretrained(folder)
    opened = pe.SourceEmbedding.from_pretrained(folder)
    assert opened.source.vectors(["me"]).tolist() == [[1, 2]]
    opened.save_pretrained(folder, copy_vectors=False)
    assert len(os.listdir(folder)) == 3


class Homemade(pe.LSTMSequenceEncoder):
    """A module that does not keep its argument."""

    def __init__(self, size: int):
        super().__init__(size, hidden_size=3)

    get_config = Configurable.get_config
    from_config = Configurable.from_config


class CharCNN(pe.CharCNN):
    """A user's class with the name of a class of the library."""


class Scaled(PretrainedModule, nn.Linear):
    """A torch class with a non-persistent buffer."""

    def __init__(self):
        super().__init__(1, 1)
        self.register_buffer("scale", torch.ones(1), persistent=False)


def test_a_buffer_without_values_is_named(tmp_path: Path):
    Scaled().save_pretrained(tmp_path)
    refused(
        ValueError, "must hold all .*, got none for {'scale'}", Scaled.from_pretrained, tmp_path
    )


class Nothing(PretrainedModule):
    """A module without arguments, which inherits its constructor."""


def test_a_module_without_a_constructor_is_saved(tmp_path: Path):
    Nothing().save_pretrained(tmp_path)
    Nothing.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (lambda: nn.Linear(2, 3), r"model.encoder must be .* rebuilt .*, got Linear"),
        (lambda: Homemade(7), r"Homemade keeps no attribute for its argument size"),
        (
            lambda: type("Local", (pe.CharCNN,), {})(7, 5),  # the class has no importable name
            r"class must be a configurable class .*, got .*:Local",
        ),
    ],
)
def test_what_cannot_be_rebuilt_is_not_saved(
    part, message: str, tagger: pe.SequenceTagger, tmp_path: Path
):
    tagger.encoder = part()
    refused((TypeError, ValueError), message, tagger.save_pretrained, tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_class_of_the_users_own_is_the_newest_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    CharCNN(7, 5).save_pretrained(tmp_path)
    assert type(pe.CharCNN.from_pretrained(tmp_path)) is CharCNN
    again = type("CharCNN", (pe.CharCNN,), {})
    monkeypatch.setitem(globals(), "CharCNN", again)
    assert type(pe.CharCNN.from_pretrained(tmp_path)) is again
    monkeypatch.delitem(globals(), "CharCNN")  # as in a program that does not define it
    rule = "be a configurable class that this program has imported"
    refused(ValueError, rule, pe.CharCNN.from_pretrained, tmp_path)


def test_files_have_the_mode_of_others_made_here(tmp_path: Path):
    tagger = build_tagger(OrthogonalMapping(torch.eye(3))(ToyVectors(3)))
    before = os.umask(0o007)
    try:
        tagger.save_pretrained(tmp_path, card="# A tagger")
    finally:
        os.umask(before)
    modes = {path.name.split("-")[0]: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    names = ["README.md", "config.json", "lexicon", "mapping", "model"]
    assert modes == dict.fromkeys(names, 0o660)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_tables_are_mapped_from_the_file(tagger: pe.SequenceTagger, tmp_path: Path):
    """Opening does not copy tensors into memory, so processes can share the pages of the file."""
    tagger.save_pretrained(tmp_path)
    opened = pe.SequenceTagger.from_pretrained(tmp_path)
    file = str(only(tmp_path, "*.safetensors"))
    maps = [
        line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if file in line
    ]
    ranges = [[int(end, 16) for end in one.split("-")] for one in maps]
    for name, tensor in opened.state_dict().items():
        assert any(start <= tensor.data_ptr() < stop for start, stop in ranges), name


def test_a_failed_save_leaves_the_old(
    tagger: pe.SequenceTagger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tagger.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(writing, "_write_weights", fail)
    with pytest.raises(OSError, match="the disk is full"):
        build_tagger(seed=1).save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("call", range(8))
def test_an_interrupted_save_leaves_the_old_or_the_new(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    models = [build_tagger(seed=0), build_tagger(ToyVectors(4), seed=1)]
    models[0].save_pretrained(tmp_path)
    expected = [emissions(model, CORPUS[:2]) for model in models]
    calls = itertools.count()

    def counted(change):  # as in a killed process, later changes do not happen
        def inner(*args, **options):
            if next(calls) >= call:
                raise KeyboardInterrupt
            return change(*args, **options)

        return inner

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        with contextlib.suppress(KeyboardInterrupt):
            models[1].save_pretrained(tmp_path)
    found = emissions(pe.SequenceTagger.from_pretrained(tmp_path), CORPUS[:2])
    assert any(torch.equal(found, one) for one in expected)
    models[1].save_pretrained(tmp_path)  # the next save is complete
    found = emissions(pe.SequenceTagger.from_pretrained(tmp_path), CORPUS[:2])
    assert torch.equal(found, expected[1])


@pytest.mark.parametrize("pattern", ["model-*", "lexicon-*"])
def test_damaged_and_missing_files_are_named(
    pattern: str, tagger: pe.SequenceTagger, tmp_path: Path
):
    tagger.save_pretrained(tmp_path)
    path = only(tmp_path, pattern)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    unopened(tmp_path, rf"{path.name} is damaged or was changed")
    path.unlink()
    unopened(tmp_path, rf"{path.name} is missing", FileNotFoundError)


@pytest.mark.parametrize(
    ("version", "advice"),
    [(2, "Open it with the version"), (4, "A newer polyembed")],
)
def test_other_formats_say_what_to_do(
    version: int, advice: str, tagger: pe.SequenceTagger, tmp_path: Path
):
    tagger.save_pretrained(tmp_path)
    change(tmp_path, lambda config: config.update(format_version=version))
    unopened(tmp_path, rf"format_version 3, got {version}. {advice}")


def test_a_card_has_what_the_module_and_its_author_know(tagger: pe.SequenceTagger):
    card = model_card(tagger, repo_id="me/tagger", language="es", tags=["mix"], notes="Limits.")
    for text in (
        "- polyembed",
        "- mix",
        "language: es",
        'from_pretrained("me/tagger"',
        "`decoder`: CRFDecoder",
    ):
        assert text in card
    assert card.endswith("Limits.\n")
    card = model_card(pe.bake(tagger.embedder))
    assert "\nfrom polyembed.embeddings.precomputed import BakedEmbedding\n" in card
    assert model_card(pe.CharCNN(7, 5)).startswith("---\nlibrary_name: polyembed\n")


def test_what_is_no_folder_of_the_class(tagger: pe.SequenceTagger, tmp_path: Path):
    (tmp_path / "file").touch()
    unopened(tmp_path, "config.json is missing: save_pretrained did not", FileNotFoundError)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    unopened(tmp_path, "a model of transformers is for PretrainedWordEncoder")
    refused(ValueError, "have no config.json of another", tagger.save_pretrained, tmp_path)
    (tmp_path / "config.json").unlink()
    tagger.decoder.linear = torch.compile(tagger.decoder.linear, backend="eager")
    tagger.save_pretrained(tmp_path)
    rule = "must hold a CharCNN, got a SequenceTagger"
    refused(ValueError, rule, pe.CharCNN.from_pretrained, tmp_path)
    assert isinstance(PretrainedModule.from_pretrained(tmp_path), pe.SequenceTagger)
    assert (tmp_path / "file").exists(), "files of others stay"
