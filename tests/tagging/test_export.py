"""Exported taggers against the taggers, tag by tag."""

import copy
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import meta, tagger
from checks import refused
from toys import NEW_WORDS, TAGS, WORDS, ToyWordEncoder, compiles

import polyembed as pe
from polyembed.crf import numpy_viterbi, viterbi
from polyembed.tagging import OnnxTagger, onnx_tagger

pytestmark = compiles

SIZES = {"hidden_size": 12, "num_layers": 1, "num_heads": 3, "feed_forward_size": 17}


@pytest.fixture(scope="module")
def model() -> pe.SequenceTagger:
    """Return a tagger over a baked meta-embedding, with constraints.

    The scores of its decoder are far from zero, so that they matter.
    """
    torch.manual_seed(1)
    lexicon = pe.Lexicon([*WORDS, "Ñu"], lowercase_fallback=True, normalization="NFC")
    encoder = pe.TransformerSequenceEncoder(7, **SIZES)
    decoder = pe.CRFDecoder(12, TAGS, constraints=pe.Constraints.bio(TAGS))
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=2.0)
    return pe.SequenceTagger(pe.bake(meta(lexicon)), TAGS, encoder=encoder, decoder=decoder).eval()


def sentences(*lengths: int) -> list[list[str]]:
    """Return sentences of words of the lexicon, mixed with a word outside every lexicon."""
    random = np.random.default_rng(sum(lengths))
    return [random.choice([*WORDS, "zzz"], size=length).tolist() for length in lengths]


RAGGED = sentences(*range(51), 1, 1, 0, 50, 7)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    pytest.importorskip("onnxscript", reason="no onnxscript: pip install polyembed[onnx]")
    folder = tmp_path_factory.mktemp("onnx") / "crf"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pe.tagging.export_onnx(model, folder)
    return folder


def known_only(model: pe.SequenceTagger, rows: list[list[str]]) -> list[list[str]]:
    """Return the predicted tags, with unseen words as the unknown word."""
    ids, mask = model.lexicon.encode(rows)
    with torch.no_grad():
        decoded = model.decode(ids, mask).tolist()
    return [[TAGS[tag] for tag in tags if tag != -100] for tags in decoded]


def test_gives_the_same_tags(model, folder):
    fast = OnnxTagger(folder)
    assert fast.tags == tuple(TAGS)
    found = fast.predict(RAGGED, batch_size=7)
    assert found == known_only(model, RAGGED)
    assert len({tag for tags in found for tag in tags}) == len(TAGS)
    assert fast.predict([]) == []
    once = (iter(words) for words in RAGGED[:5])
    assert fast.predict(once, batch_size=2) == found[:5]


def test_gives_the_same_emissions_and_tags_on_masks_with_holes(model, folder):
    fast = OnnxTagger(folder)
    ids, whole = model.lexicon.encode(RAGGED)
    mask = whole & (torch.rand(whole.shape) < 0.6)
    with torch.no_grad():
        emissions, tags = model.emissions(ids, mask), model.decode(ids, mask)
    torch.testing.assert_close(
        torch.from_numpy(fast.scores(ids.numpy(), mask.numpy())[0]), emissions
    )
    np.testing.assert_array_equal(fast.decode(ids.numpy(), mask.numpy()), tags.numpy())
    for shape in ((0, 3), (2, 0), (0, 0)):
        assert fast.decode(np.zeros(shape, np.int64), np.ones(shape, bool)).shape == shape


def test_reads_words_as_the_lexicon(model, folder):
    odd = ["SONG", "cancio\u0301n", "CANCIO\u0301N", "N\u0303u", "", "\ud800", "<pad>", "zzz", "Me"]
    fast = OnnxTagger(folder)
    rows = [odd, [], odd[:2]]
    ids, mask = fast.encode(rows)
    expected, expected_mask = model.lexicon.encode(rows)
    np.testing.assert_array_equal(ids, expected.numpy())
    np.testing.assert_array_equal(mask, expected_mask.numpy())
    assert {1, *range(2, 2 + len(WORDS))} & set(expected[0].tolist()) > {1}


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (
            TypeError,
            r"sentences\[0\] must be a list of words, got 'me'$",
            lambda x: x.predict(["me"]),
        ),
        (
            TypeError,
            r"sentences\[1\] must be a list of words, got \['me', 3\]$",
            lambda x: x.encode([["me"], ["me", 3]]),
        ),
        (
            ValueError,
            "batch_size must be a positive integer, got -1",
            lambda x: x.predict([["me"]], batch_size=-1),
        ),
        (
            ValueError,
            r"ids must be in \[0, \d+\), got -1$",
            lambda x: x.scores(np.array([[2, -1]]), np.ones((1, 2), bool)),
        ),
    ],
)
def test_wrong_inputs(folder, error, message, call):
    refused(error, f"^{message}", call, OnnxTagger(folder))


def test_wrong_folders(tmp_path):
    message = "^folder must hold tagger.json, got nothing at "
    refused(FileNotFoundError, message, OnnxTagger, tmp_path)
    (tmp_path / "tagger.json").write_text(json.dumps({"format_version": 2}))
    message = "^folder must hold tagger.onnx, got nothing at "
    refused(FileNotFoundError, message, OnnxTagger, tmp_path)
    (tmp_path / "tagger.onnx").touch()
    message = r"^tagger\.json must be of format 3, got 2\. Export the tagger again$"
    refused(ValueError, message, OnnxTagger, tmp_path)


def test_serves_without_torch_and_without_the_package(folder, model, tmp_path):
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


def test_says_nothing_of_the_machine(folder):
    content = (folder / "tagger.onnx").read_bytes()
    assert b".py" not in content
    assert os.getcwd().encode() not in content


def test_a_softmax_tagger_that_is_not_baked_with_more_words(tmp_path):
    """The tagger has no encoder, is in float64 and in training mode, and does not change."""
    pytest.importorskip("onnxscript", reason="no onnxscript: pip install polyembed[onnx]")
    model = tagger(decoder=lambda: pe.SoftmaxDecoder(7, len(TAGS), dropout=0.5))().double()
    state = copy.deepcopy(model.state_dict())
    pe.tagging.export_onnx(model, tmp_path, words=[*NEW_WORDS, "me"])
    assert model.training
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)
    fast = OnnxTagger(tmp_path)
    assert fast.predict([["never seen"]]) == known_only(model.eval(), [["zzz"]])
    known = [[*NEW_WORDS, *(word for word in words if word != "zzz")] for words in RAGGED]
    assert fast.predict(known) == model.predict(known)
    assert fast.decode(*fast.encode([["me"], ["me", "y"]]))[0].tolist()[1] == -100


def test_torch_export_with_free_sizes(model):
    with torch.autocast("cpu", torch.bfloat16):
        run = pe.tagging.export_program(model).module()
    for rows in (RAGGED, RAGGED[1:2], RAGGED[:1], RAGGED[3:5]):
        ids, mask = model.lexicon.encode(rows)
        with torch.no_grad():
            emissions, *scores = run(ids, mask)
            torch.testing.assert_close(emissions, model.emissions(ids, mask))
            assert torch.equal(viterbi(emissions, mask, *scores), model.decode(ids, mask))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: pe.VotingEnsemble([tagger()()] * 2),
            r" must be a SequenceTagger \(.*\), got Voting",
        ),
        (
            lambda: pe.SequenceTagger(ToyWordEncoder(5), TAGS),
            r"\.embedder must be a type embedder, .*, got ToyWordEncoder$",
        ),
        (
            tagger(encoder=lambda: pe.LSTMSequenceEncoder(7, hidden_size=5)),
            r"\.encoder must be without recurrence, .*, got LSTMSequenceEncoder$",
        ),
    ],
)
def test_what_cannot_be_exported(build, message, tmp_path):
    refused(TypeError, f"^tagger{message}", pe.tagging.export_onnx, build(), tmp_path / "folder")
    assert not list(tmp_path.iterdir())
