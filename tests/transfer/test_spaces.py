"""Mappings from pairs, equal words, similarities or vectors alone, their reports and errors."""

import itertools
import json

import numpy as np
import oracles
import pytest
import torch
from checks import refused
from toys import own_words
from transfer.sources import Source

import polyembed as pe
from polyembed.functional import csls, length_normalize, procrustes
from polyembed.transfer import AdversarialOptions, spaces
from polyembed.transfer.adversarial import adversarial_mapping
from polyembed.transfer.spaces import similarity_pairs
from polyembed.vectors import OrthogonalMapping

N, DIM = 211, 7
QUICK = {"adversarial": AdversarialOptions(num_epochs=2, epoch_size=320, hidden_size=7)}


def skewed(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=(n, DIM)) * np.linspace(1.5, 0.5, DIM)


def rotation() -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(1).standard_normal((DIM, DIM)))[0]


def planted(noise: float = 0.0, n: int = N) -> tuple[Source, Source]:
    """Return a space and its noisy rotation. Word i of one space is word i of the other."""
    x = skewed(n)
    y = x @ rotation() + noise * np.random.default_rng(9).standard_normal(x.shape)
    return Source({f"s{i}": x[i] for i in range(n)}), Source({f"t{i}": y[i] for i in range(n)})


def pairs_of(*numbers: int) -> list[tuple[str, str]]:
    return [(f"s{i}", f"t{i}") for i in numbers]


WAYS = [{"dictionary": pairs_of(0)}, {"dictionary": "similarity"}, QUICK]


def error_of(mapping: OrthogonalMapping) -> float:
    return float(np.abs(mapping.weight.numpy() - rotation()).max())


# The first mapping.


def test_pairs_alone_are_procrustes_of_the_normalised_vectors():
    source, target = planted(noise=0.3)
    x, y = (torch.tensor(vectors.vectors(vectors.words)) for vectors in (source, target))
    rows = torch.tensor([3, 1, 4, 15, 92, 65, 35, 8])
    for normalize, steps in (
        ((), lambda x: x),
        (("length",), length_normalize),
        (("center", "length"), lambda x: length_normalize(x - x.mean(0))),
    ):
        mapping = pe.align_spaces(
            source, target, dictionary=pairs_of(*rows.tolist()), refine=0, normalize=normalize
        )
        torch.testing.assert_close(mapping.weight, procrustes(steps(x)[rows], steps(y)[rows]))


def test_equal_words():
    source, target = planted()
    for i in range(0, 40, 2):
        target.rows[f"s{i}"] = target.rows.pop(f"t{i}")
    target.words = list(target.rows)
    mapping = pe.align_spaces(source, target, dictionary="identical", refine=0)
    assert error_of(mapping) < 1e-5
    expected = {"num_empty": 0, "dictionary": "identical", "num_pairs": 20, "num_dropped": 0}
    assert {key: value for key, value in mapping.report.items() if key != "criteria"} == expected


def test_similarities_know_no_dimension():
    source, target = planted(noise=0.01)
    mapping = pe.align_spaces(source, target, dictionary="similarity", refine=10)
    words = pairs_of(*range(N))
    assert pe.translation_accuracy(mapping(source), target, words, ks=(1,)).cosine[1] > 0.99
    assert mapping.report["dictionary"] == "similarity"
    assert 20 < mapping.report["num_pairs"] <= N


def test_the_adversarial_stage_takes_the_vectors_as_they_are():
    source, target = planted()
    mapping = pe.align_spaces(source, target, refine=0, **QUICK)
    x, y = (torch.tensor(vectors.vectors(vectors.words)) for vectors in (source, target))
    weight, criteria = adversarial_mapping(x, y, QUICK["adversarial"])
    assert torch.equal(mapping.weight, weight)
    assert json.loads(json.dumps(mapping.report))["restarts"] == criteria


# Refinement.


def test_a_refinement_is_procrustes_of_frequent_words_nearest_to_each_other(monkeypatch):
    scores = itertools.count()  # so that the last is the best
    monkeypatch.setattr(spaces, "mapping_criterion", lambda *_, **__: next(scores))
    monkeypatch.setattr(spaces, "REFINE_WORDS", 150)
    source, target = planted(noise=0.3)
    given = pairs_of(*range(0, 20, 2))
    x, y = (length_normalize(torch.tensor(v.vectors(v.words)).double()) for v in (source, target))
    first = pe.align_spaces(source, target, dictionary=given, refine=0).weight.double()
    pairs = torch.tensor(oracles.mutual_pairs(csls(x[:150] @ first, y[:150], 3).tolist()))
    expected = procrustes(x[pairs[:, 0]], y[pairs[:, 1]])
    mapping = pe.align_spaces(source, target, dictionary=given, refine=1, neighborhood=3)
    torch.testing.assert_close(mapping.weight.double(), expected, atol=1e-5, rtol=0)


def test_the_best_by_the_criterion_is_returned_be_it_the_first(monkeypatch):
    source, target = planted(noise=0.3)
    given = pairs_of(*range(0, 20, 2))
    first = pe.align_spaces(source, target, dictionary=given, refine=0)
    for best in range(3):
        scores = [0.9 if i == best else 0.1 for i in range(3)]
        left = iter(scores)
        monkeypatch.setattr(spaces, "mapping_criterion", lambda *_, left=left, **__: next(left))
        mapping = pe.align_spaces(source, target, dictionary=given, refine=2)
        assert mapping.report["criteria"] == scores
        assert torch.equal(mapping.weight, first.weight) == (best == 0)


# The report.


def test_words_are_the_sources_or_those_given():
    source, target = planted(noise=0.2)
    given = pairs_of(*range(0, 60, 3))
    expected = pe.align_spaces(source, target, dictionary=given, max_words=50)
    assert expected.report["num_pairs"] == 17
    del source.words, target.words
    twice, once = iter([f"s{i // 2}" for i in range(100)]), np.array([f"t{i}" for i in range(50)])
    found = pe.align_spaces(source, target, dictionary=given, source_words=twice, target_words=once)
    assert torch.equal(found.weight, expected.weight)


def test_pairs_left_out_and_zero_rows_are_counted_once():
    source, target = planted()
    source.rows |= {"s3": np.zeros(DIM), "s4": np.zeros(DIM)}
    target.rows |= {"t5": np.zeros(DIM)}
    given = [*pairs_of(*range(20)), ("s1", "x"), ("x", "t1"), ("s1", "x"), ("s1", "t1")]
    mapping = pe.align_spaces(source, target, dictionary=given, refine=0)
    assert [mapping.report[f"num_{name}"] for name in ("empty", "pairs", "dropped")] == [3, 17, 5]
    assert error_of(mapping) < 1e-5


@pytest.mark.parametrize("options", WAYS)
def test_a_vocabulary_smaller_than_every_cut(options):
    """One word is fewer than the 75,000 words of the adversarial stage and than 10 neighbours."""
    mapping = pe.align_spaces(*planted(n=1), **options)
    assert len(mapping.report["criteria"]) == 6
    assert mapping.weight.isfinite().all()


# The modes of the caller.


@pytest.mark.parametrize("options", WAYS)
def test_modes_outside_do_no_harm(options):
    source, target = planted(noise=0.1)
    before = torch.get_rng_state()
    expected = pe.align_spaces(source, target, **options, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    for mode in (torch.autocast("cpu", torch.bfloat16), torch.inference_mode()):
        with mode:
            mapping = pe.align_spaces(source, target, **options)
        assert torch.equal(mapping.weight, expected.weight)
        assert mapping.report == expected.report
    mapping.transform(torch.ones(DIM, requires_grad=True)).sum().backward()


# Pairs by similarity.


def test_pairs_by_similarity_are_their_equation():
    x, y = torch.tensor(skewed(31)), torch.tensor(skewed(37, seed=5))

    def profile(x):
        values, vectors = torch.linalg.eigh(x @ x.mT)
        root = vectors @ torch.diag(values.clamp(min=0).sqrt()) @ vectors.mT
        unit = length_normalize(root.sort(1).values)
        return length_normalize(unit - unit.mean(0))

    expected = oracles.mutual_pairs(oracles.csls(profile(x).tolist(), profile(y[:31]).tolist(), 3))
    found = similarity_pairs(x, y, neighborhood=3)
    assert [tuple(pair) for pair in found.tolist()] == expected
    assert 0 < len(expected) < 31


# Errors.


@own_words
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dictionary": "equal"}, ValueError, "dictionary must be one of 'identical', 'similarity', got 'equal'"),
        ({"dictionary": [("a", "b", "c")]}, ValueError, r"dictionary\[0\] must be a source .*, got \['a', 'b', 'c'\]"),
        ({"dictionary": "identical"}, ValueError, "dictionary must hold a pair of words .*, got 0 pairs, none .*"),
        ({"refine": -1}, ValueError, "refine must be 0 or more, got -1"),
        ({"dictionary": [("s1", "x")]}, ValueError, "dictionary must hold .*, got 1 pairs, none of them known"),
        ({"normalize": ("length", "unit")}, ValueError, "normalize must be one of 'length', 'center', got 'unit'"),
        (QUICK, TypeError, "adversarial options must come without a dictionary, got .*"),
        ({"source_words": []}, ValueError, "source_words must be given where source lists no words, got none"),
        ({"target": Source({"t7": np.full(DIM, np.inf)})}, ValueError, r"the vector of 't7' in target must be finite, got \[inf .*"),
        ({"target": Source({"t0": np.ones(3)})}, ValueError, r"source and target must have .* length, got \[7, 3\]"),
        ({"source": Source({"a": np.zeros(7)})}, ValueError, "source must hold .*, got 1 words, none with a vector"),
        ({"target": {}}, TypeError, r"target must have dim and vectors\(words\), got dict"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(options, error, message):
    source, target = planted()
    arguments = {"source": source, "target": target, "dictionary": pairs_of(0, 1), **options}
    refused(error, f"^{message}$", pe.align_spaces, **arguments)
