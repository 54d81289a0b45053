"""Exported taggers against the taggers, tag by tag."""

import copy
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import meta, tagger, vector_source
from toys import NEW_WORDS, TAGS, WORDS, ToyWordEncoder, compiles, toy_lexicon

import polyembed as pe
from polyembed.crf import numpy_viterbi, viterbi
from polyembed.tagging import OnnxTagger, onnx_tagger

pytestmark = compiles

SIZES = {"hidden_size": 12, "num_layers": 1, "num_heads": 3, "feed_forward_size": 17}


def crf_tagger() -> pe.SequenceTagger:
    """Over a baked meta-embedding, with constraints; scores far from zero, so that they count."""
    torch.manual_seed(1)
    lexicon = pe.Lexicon([*WORDS, "Ñu"], lowercase_fallback=True, normalization="NFC")
    embedder = pe.bake(meta(lexicon))
    decoder = pe.CRFDecoder(12, len(TAGS), constraints=pe.Constraints.bio(TAGS))
    model = pe.SequenceTagger(
        embedder,
        TAGS,
        encoder=pe.TransformerSequenceEncoder(embedder.embedding_dim, **SIZES),
        decoder=decoder,
    )
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.normal_(std=2.0)
    return model.eval()


def sentences(*lengths: int) -> list[list[str]]:
    """Words of the lexicon, and some that no lexicon holds and that are unknown."""
    random = np.random.default_rng(sum(lengths))
    return [random.choice([*WORDS, "zzz"], size=length).tolist() for length in lengths]


RAGGED = sentences(*range(51), 1, 1, 0, 50, 7)


def options() -> object:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return options


def open_tagger(folder: Path) -> OnnxTagger:
    return OnnxTagger(folder, session_options=options())


@pytest.fixture(scope="module")
def model() -> pe.SequenceTagger:
    return crf_tagger()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    pytest.importorskip("onnxscript", reason="no onnxscript: pip install polyembed[onnx]")
    folder = tmp_path_factory.mktemp("onnx") / "crf"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pe.tagging.export_onnx(model, folder)
    return folder


def known_only(model: pe.SequenceTagger, rows: list[list[str]]) -> list[list[str]]:
    """Tag without the vectors of unseen words."""
    ids, mask = model.lexicon.encode(rows)
    with torch.no_grad():
        decoded = model.decode(ids, mask).tolist()
    return [
        [TAGS[tag] for tag in tags[: len(words)]] for tags, words in zip(decoded, rows, strict=True)
    ]


def test_gives_the_same_tags(model, folder) -> None:
    fast = open_tagger(folder)
    assert fast.tags == tuple(TAGS)
    found = fast.predict(RAGGED, batch_size=7)
    assert found == known_only(model, RAGGED)
    assert len({tag for tags in found for tag in tags}) == len(TAGS)
    assert all(
        model.decoder.constraints.first_violation([TAGS.index(tag) for tag in tags]) is None
        for tags in found
    )
    assert fast.predict([]) == []
    assert fast.predict([[], []]) == [[], []]


def test_reads_what_can_be_read_only_once(model, folder) -> None:
    fast, rows = open_tagger(folder), RAGGED[:5]
    assert fast.predict((iter(words) for words in rows), batch_size=2) == known_only(model, rows)
    for found, expected in zip(
        fast.encode(iter(words) for words in rows), fast.encode(rows), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ("", r"^sentences must be lists of words, got the string ''$"),
        (["me"], r"^sentences\[0\] must be a list of words, got 'me'$"),
        ([["me"], ""], r"^sentences\[1\] must be a list of words, got ''$"),
        ([["me"], None], r"^sentences\[1\] must be a list of words, got NoneType$"),
        ([["me"], ["me", 3]], r"^sentences\[1\]\[1\] must be a string, got int$"),
    ],
)
def test_what_is_no_list_of_words_is_refused(folder, sentences, message: str) -> None:
    fast = open_tagger(folder)
    for call in (fast.encode, fast.predict):
        with pytest.raises(TypeError, match=message):
            call(sentences)


def test_gives_the_same_emissions_and_tags_on_masks_with_holes(model, folder) -> None:
    fast = open_tagger(folder)
    ids, whole = model.lexicon.encode(RAGGED)
    mask = whole & (torch.rand(whole.shape) < 0.6)
    with torch.no_grad():
        emissions, tags = model.emissions(ids, mask), model.decode(ids, mask)
    torch.testing.assert_close(
        torch.from_numpy(fast.emissions(ids.numpy(), mask.numpy())), emissions
    )
    np.testing.assert_array_equal(fast.decode(ids.numpy(), mask.numpy()), tags.numpy())
    for shape in ((0, 3), (2, 0), (0, 0)):
        assert fast.decode(np.zeros(shape, np.int64), np.ones(shape, bool)).shape == shape


def test_reads_words_as_the_lexicon(model, folder) -> None:
    odd = [
        "SONG",
        "cancio\u0301n",
        "CANCIO\u0301N",
        "naïve",
        "N\u0303u",
        "",
        "\ud800",
        "<pad>",
        "zzz",
        "Me",
    ]
    fast = open_tagger(folder)
    rows = [odd, [], odd[::-1], *([word] for word in odd)]
    ids, mask = fast.encode(rows)
    expected, expected_mask = model.lexicon.encode(rows)
    np.testing.assert_array_equal(ids, expected.numpy())
    np.testing.assert_array_equal(mask, expected_mask.numpy())
    assert {1, *range(2, 2 + len(WORDS))} & set(expected[0].tolist()) > {1}
    with pytest.raises(ValueError, match=r"^ids must be what encode gives, not negative, got -1$"):
        fast.decode(np.array([[2, -1]]), np.ones((1, 2), bool))
    with pytest.raises(
        ValueError, match=r"^ids and mask must have the same axes \(batch, word\), got \(2, 3\), "
    ):
        fast.emissions(np.zeros((2, 3), np.int64), np.ones((2, 4), bool))


def test_serves_without_torch_and_without_the_package(folder, model, tmp_path) -> None:
    alone = tmp_path / "serving.py"
    shutil.copy(onnx_tagger.__file__, alone)
    shutil.copy(numpy_viterbi.__file__, tmp_path)
    program = (
        "import sys; sys.modules['torch'] = sys.modules['polyembed'] = None; import serving; "
        f"print(serving.OnnxTagger({str(folder)!r}).predict({RAGGED[5:9]!r}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if "polyembed" not in path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(known_only(model, RAGGED[5:9]))


def test_says_nothing_of_the_machine(folder) -> None:
    content = (folder / "tagger.onnx").read_bytes()
    assert b".py" not in content
    assert os.getcwd().encode() not in content


def test_a_softmax_tagger_that_is_not_baked_with_more_words(tmp_path) -> None:
    """Over no encoder, in float64 and in training mode; the tagger is as before."""
    pytest.importorskip("onnxscript", reason="no onnxscript: pip install polyembed[onnx]")
    model = tagger(decoder=lambda: pe.SoftmaxDecoder(7, len(TAGS), dropout=0.5))().double()
    state, size = copy.deepcopy(model.state_dict()), len(model.lexicon)
    folder = tmp_path / "softmax"
    folder.mkdir()
    pe.tagging.export_onnx(model, folder, words=[*NEW_WORDS, "me"])
    assert model.training
    assert len(model.lexicon) == size == model.embedder.num_embeddings
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)
    fast = open_tagger(folder)
    rows = [[*NEW_WORDS, *words] for words in RAGGED]
    ids, mask = model.lexicon.encode([["zzz", "me"]])
    with torch.no_grad():
        unknown = TAGS[int(model.eval().decode(ids, mask)[0, 0])]
    assert fast.predict([["never seen"]]) == [[unknown]]
    known = [[word for word in words if word != "zzz"] for words in rows]
    assert fast.predict(known) == model.predict(known)
    assert fast.decode(*fast.encode([["me"], ["me", "y"]]))[0].tolist()[1] == -100


@pytest.mark.parametrize("decoder", [pe.CRFDecoder, pe.SoftmaxDecoder])
def test_scores_of_nan_give_no_tags(decoder, tmp_path) -> None:
    pytest.importorskip("onnxscript", reason="no onnxscript: pip install polyembed[onnx]")
    model = tagger(decoder=lambda: decoder(7, len(TAGS)))()
    with torch.no_grad():
        model.decoder.linear.bias[1] = torch.nan
    pe.tagging.export_onnx(model, tmp_path)
    with pytest.raises(
        ValueError, match=r"^sentences\[1\] must have a tag for each word \(scores of NaN"
    ):
        open_tagger(tmp_path).predict([[], ["me", "zzz"]])


def test_torch_export_with_free_sizes(model) -> None:
    run = pe.tagging.export_program(model).module()
    for rows in (RAGGED, RAGGED[1:2], RAGGED[:1], RAGGED[3:5]):
        ids, mask = model.lexicon.encode(rows)
        with torch.no_grad():
            emissions, *scores = run(ids, mask)
            torch.testing.assert_close(emissions, model.emissions(ids, mask))
            assert torch.equal(viterbi(emissions, mask, *scores), model.decode(ids, mask))
    for found, expected in zip(scores, model.decoder.crf.constrained_scores(), strict=True):
        assert torch.equal(found, expected)


def test_a_baked_table_that_grows_is_exported_whole() -> None:
    lexicon = toy_lexicon()
    model = pe.SequenceTagger(pe.bake(vector_source(lexicon)).with_words(NEW_WORDS), TAGS).eval()
    lexicon = model.lexicon
    emissions = pe.tagging.export_program(model).module()(*lexicon.encode([NEW_WORDS, ["me"]]))[0]
    with torch.no_grad():
        torch.testing.assert_close(emissions, model.emissions(*lexicon.encode([NEW_WORDS, ["me"]])))


def test_constrained_scores_forbid(model) -> None:
    transitions, start, end = model.decoder.crf.constrained_scores()
    assert torch.equal(transitions.isinf(), ~torch.tensor(pe.Constraints.bio(TAGS).transitions))
    assert start.isinf().tolist() == [tag.startswith("I-") for tag in TAGS]
    assert torch.equal(end, model.decoder.crf.end_transitions)
    assert pe.CRF(3).constrained_scores(torch.float64)[0].dtype == torch.float64


class OwnDecoder(pe.tagging.Decoder):
    def loss(self, features, tags, mask=None):
        return features.sum()

    def decode(self, features, mask=None):
        return features.argmax(-1)

    def probabilities(self, features, mask=None):
        return features


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: pe.VotingEnsemble([tagger()()] * 2),
            r"^tagger must be a SequenceTagger \(.*\), got VotingEnsemble$",
        ),
        (
            lambda: pe.SequenceTagger(ToyWordEncoder(5), TAGS),
            r"^tagger\.embedder must be a type embedder, .*, got ToyWordEncoder$",
        ),
        (
            tagger(encoder=lambda: pe.LSTMSequenceEncoder(7, hidden_size=5)),
            r"^tagger\.encoder must be without recurrence, .*, got LSTMSequenceEncoder$",
        ),
        (
            tagger(decoder=lambda: OwnDecoder(7, len(TAGS))),
            r"^tagger\.decoder must be a .*, got OwnDecoder$",
        ),
    ],
)
def test_what_cannot_be_exported(build, message: str, tmp_path) -> None:
    with pytest.raises(TypeError, match=message):
        pe.tagging.export_onnx(build(), tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def test_bad_arguments(tmp_path, monkeypatch) -> None:
    model = tagger()()
    monkeypatch.setitem(sys.modules, "onnx", None)
    message = (
        r"^export_onnx must find the package 'onnx', got .* pip install \"polyembed\[onnx\]\"$"
    )
    with pytest.raises(ImportError, match=message):
        pe.tagging.export_onnx(model, tmp_path)
