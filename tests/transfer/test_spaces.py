"""Mappings from pairs, equal words, similarities and nothing; what is reported, and what is refused."""

import itertools
import json
import logging

import numpy as np
import oracles
import pytest
import torch
from toys import own_words

import polyembed as pe
from polyembed.functional import csls, length_normalize, mean_center, procrustes
from polyembed.transfer import AdversarialOptions, spaces
from polyembed.transfer.adversarial import adversarial_mapping, mapping_criterion
from polyembed.transfer.spaces import similarity_pairs
from polyembed.vectors import OrthogonalMapping

N, DIM = 211, 7
FEW_STEPS = {"num_epochs": 2, "epoch_size": 320, "hidden_size": 7}


def quick(**options: int) -> AdversarialOptions:
    return AdversarialOptions(**FEW_STEPS, **options)


QUICK = {"adversarial": quick()}


class Source:
    """Rows of words; what it was asked for."""

    def __init__(self, rows: dict[str, np.ndarray]) -> None:
        self.rows, self.words, self.dim = rows, list(rows), len(next(iter(rows.values())))

    def vectors(self, words: list[str]) -> np.ndarray:
        return np.array([self.rows[word] for word in words], np.float32).reshape(-1, self.dim)


def skewed(n: int = N, dim: int = DIM, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=(n, dim)) * np.linspace(1.5, 0.5, dim)


def rotation(dim: int = DIM, seed: int = 1) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))[0]


def planted(noise: float = 0.0, n: int = N, seed: int = 0) -> tuple[Source, Source]:
    """A space, and the same turned, with noise; word i of the one is word i of the other."""
    x = skewed(n, seed=seed)
    y = x @ rotation() + noise * np.random.default_rng(seed + 9).standard_normal(x.shape)
    return Source({f"s{i}": x[i] for i in range(n)}), Source({f"t{i}": y[i] for i in range(n)})


def pairs_of(*numbers: int) -> list[tuple[str, str]]:
    return [(f"s{i}", f"t{i}") for i in numbers]


def error_of(mapping: OrthogonalMapping) -> float:
    return float(np.abs(mapping.weight.numpy() - rotation()).max())


def found(mapping: OrthogonalMapping, source: Source, target: Source) -> float:
    return pe.translation_accuracy(
        mapping(source), target, pairs_of(*range(len(source.words))), ks=(1,)
    ).cosine[1]


IDENTITY = OrthogonalMapping(torch.eye(DIM))


# Where the first mapping comes from.


@pytest.mark.parametrize("normalize", [(), ["center"], ("length", "center", "length")])
def test_a_planted_rotation_is_found_from_pairs(normalize: tuple[str, ...]) -> None:
    source, target = planted()
    given = pairs_of(*range(0, 60, 3))
    for refine in (0, 5):
        mapping = pe.align_spaces(
            source, target, dictionary=given, refine=refine, normalize=normalize
        )
        assert error_of(mapping) < 1e-5
        assert found(mapping, source, target) == 1
        assert (mapping.report["dictionary"], mapping.report["num_pairs"]) == ("pairs", 20)
        assert len(mapping.report["criteria"]) == refine + 1
        assert mapping.report["criteria"][0] == pytest.approx(1, abs=1e-5)


def test_pairs_alone_are_procrustes_of_the_normalised_vectors() -> None:
    source, target = planted(noise=0.3)
    x, y = (torch.tensor(vectors.vectors(vectors.words)) for vectors in (source, target))
    rows = torch.tensor([3, 1, 4, 15, 92, 65, 35, 8])
    for normalize, steps in (
        ((), lambda x: x),
        (("length",), length_normalize),
        (("center", "length"), lambda x: length_normalize(mean_center(x))),
    ):
        mapping = pe.align_spaces(
            source, target, dictionary=pairs_of(*rows.tolist()), refine=0, normalize=normalize
        )
        torch.testing.assert_close(mapping.weight, procrustes(steps(x)[rows], steps(y)[rows]))


def test_equal_words() -> None:
    source, target = planted()
    for i in range(0, 40, 2):
        target.rows[f"s{i}"] = target.rows.pop(f"t{i}")
    target.words = list(target.rows)
    mapping = pe.align_spaces(source, target, dictionary="identical", refine=0)
    assert error_of(mapping) < 1e-5
    expected = {"num_empty": 0, "dictionary": "identical", "num_pairs": 20, "num_dropped": 0}
    assert {key: value for key, value in mapping.report.items() if key != "criteria"} == expected


def test_similarities_know_no_dimension() -> None:
    source, target = planted(noise=0.01)
    mapping = pe.align_spaces(source, target, dictionary="similarity", refine=10)
    assert found(mapping, source, target) > 0.99
    assert mapping.report["dictionary"] == "similarity"
    assert 20 < mapping.report["num_pairs"] <= N


def test_nothing_at_all() -> None:
    """The rotation is one that the adversarial stage can reach; tests of that stage say how sure it is."""
    x = skewed()
    skew = np.random.default_rng(2).standard_normal((DIM, DIM))
    skew = torch.tensor(skew - skew.T)
    turn = torch.linalg.matrix_exp(skew / torch.linalg.matrix_norm(skew, 2)).numpy()
    source = Source({f"s{i}": row for i, row in enumerate(x)})
    target = Source({f"t{i}": x[i] @ turn for i in np.random.default_rng(3).permutation(N)})
    sizes = {"num_epochs": 2, "epoch_size": 8000, "discriminator_steps": 3, "hidden_size": 32}
    mapping = pe.align_spaces(
        source, target, adversarial=AdversarialOptions(**sizes, beta=0.01, seed=5)
    )
    assert found(IDENTITY, source, target) < 0.2
    assert found(mapping, source, target) == 1
    np.testing.assert_allclose(mapping.weight.numpy(), turn, atol=1e-4)
    report = mapping.report
    assert report["dictionary"] == "adversarial"
    assert [len(run) for run in report["restarts"]] == [2]
    assert len(report["criteria"]) == 6
    assert json.loads(json.dumps(report)) == report


def test_the_adversarial_stage_takes_the_vectors_as_they_are() -> None:
    source, target = planted()
    mapping = pe.align_spaces(source, target, refine=0, adversarial=quick(seed=3))
    x, y = (torch.tensor(vectors.vectors(vectors.words)) for vectors in (source, target))
    assert torch.equal(mapping.weight, adversarial_mapping(x, y, quick(seed=3)).weight)
    assert torch.equal(
        pe.align_spaces(source, target, refine=0, adversarial=quick(seed=3)).weight, mapping.weight
    )
    assert not torch.equal(
        pe.align_spaces(source, target, refine=0, adversarial=quick(seed=4)).weight, mapping.weight
    )


# Refinement.


def test_refinement_mends_a_noisy_dictionary() -> None:
    source, target = planted(noise=0.05)
    wrong = [(f"s{i}", f"t{i + 1}") for i in range(0, 20, 2)]
    given = [*wrong, *pairs_of(*range(100, 120))]
    rough = pe.align_spaces(source, target, dictionary=given, refine=0)
    refined = pe.align_spaces(source, target, dictionary=given)
    assert error_of(refined) < 0.3 * error_of(rough)
    assert found(refined, source, target) > found(rough, source, target)
    assert (
        refined.report["criteria"][0]
        == rough.report["criteria"][0]
        < max(refined.report["criteria"])
    )
    x, y = (length_normalize(torch.tensor(v.vectors(v.words))) for v in (source, target))
    score = mapping_criterion(refined.transform(x), y)
    assert score == pytest.approx(max(refined.report["criteria"]), abs=1e-6), "the best is returned"


def test_a_refinement_is_procrustes_of_mutual_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = itertools.count()  # so that the last is the best
    monkeypatch.setattr(spaces, "mapping_criterion", lambda *_, **__: next(scores))
    source, target = planted(noise=0.3)
    given = pairs_of(*range(0, 20, 2))
    x, y = (length_normalize(torch.tensor(v.vectors(v.words)).double()) for v in (source, target))
    first = pe.align_spaces(source, target, dictionary=given, refine=0).weight.double()
    pairs = torch.tensor(oracles.mutual_pairs(csls(x @ first, y, 3).tolist()))
    expected = procrustes(x[pairs[:, 0]], y[pairs[:, 1]])
    mapping = pe.align_spaces(source, target, dictionary=given, refine=1, neighborhood=3)
    torch.testing.assert_close(mapping.weight.double(), expected, atol=1e-5, rtol=0)


def test_the_best_by_the_criterion_is_returned_be_it_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = planted(noise=0.3)
    given = pairs_of(*range(0, 20, 2))
    by_count = [pe.align_spaces(source, target, dictionary=given, refine=i) for i in range(4)]
    for best in range(4):
        scores = iter([0.9 if i == best else 0.1 for i in range(4)])
        monkeypatch.setattr(
            spaces, "mapping_criterion", lambda *_, scores=scores, **__: next(scores)
        )
        mapping = pe.align_spaces(source, target, dictionary=given, refine=3)
        monkeypatch.undo()
        assert mapping.report["criteria"] == [0.9 if i == best else 0.1 for i in range(4)]
        if best == 0:
            assert torch.equal(mapping.weight, by_count[0].weight)
        else:
            assert not torch.equal(mapping.weight, by_count[0].weight)


def test_refinements_look_at_the_most_frequent_words(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = planted(noise=0.3)
    given = pairs_of(*range(0, 20, 2))
    scores = itertools.count()  # so that the last is the best
    monkeypatch.setattr(spaces, "mapping_criterion", lambda *_, **__: next(scores))
    every = pe.align_spaces(source, target, dictionary=given, refine=1)
    monkeypatch.setattr(spaces, "REFINE_WORDS", 50)
    few = pe.align_spaces(source, target, dictionary=given, refine=1)
    assert not torch.equal(every.weight, few.weight)
    source.rows |= {f"s{i}": -source.rows[f"s{i}"] for i in range(50, N)}
    assert torch.equal(
        pe.align_spaces(source, target, dictionary=given, refine=1).weight, few.weight
    )


# What is reported.


def test_pairs_left_out_are_counted_once() -> None:
    source, target = planted()
    given = [
        ("s1", "t1"),
        ("s1", "x"),
        ("x", "t1"),
        ("x", "y"),
        ("s1", "t1"),
        ("x", "y"),
        ("s2", "t2"),
        ("s2", "t1"),
    ]
    report = pe.align_spaces(source, target, dictionary=given, refine=0).report
    assert (report["num_pairs"], report["num_dropped"]) == (3, 3)


def test_words_are_the_sources_or_those_given() -> None:
    source, target = planted(noise=0.2)
    given = pairs_of(*range(0, 60, 3))
    expected = pe.align_spaces(source, target, dictionary=given, max_words=50)
    assert expected.report["num_pairs"] == 17
    del source.words, target.words
    twice, once = iter([f"s{i // 2}" for i in range(100)]), np.array([f"t{i}" for i in range(50)])
    words = {"source_words": twice, "target_words": once}
    assert torch.equal(
        pe.align_spaces(source, target, dictionary=given, **words).weight, expected.weight
    )
    with pytest.raises(
        ValueError, match=r"^source_words must be given where source lists no words, got Source$"
    ):
        pe.align_spaces(source, target, dictionary=given)


def test_pairs_left_out_and_zero_rows_are_counted_once() -> None:
    source, target = planted()
    given = [
        ("s1", "t1"),
        ("s1", "x"),
        ("x", "t1"),
        ("x", "y"),
        ("s1", "t1"),
        ("x", "y"),
        ("s2", "t2"),
        ("s2", "t1"),
    ]
    report = pe.align_spaces(source, target, dictionary=given, refine=0).report
    assert (report["num_pairs"], report["num_dropped"]) == (3, 3)
    source.rows |= {"s3": np.zeros(DIM), "s4": np.zeros(DIM)}
    target.rows |= {"t5": np.zeros(DIM)}
    mapping = pe.align_spaces(source, target, dictionary=pairs_of(*range(20)), refine=0)
    assert [mapping.report[name] for name in ("num_empty", "num_pairs", "num_dropped")] == [
        3,
        17,
        3,
    ]
    assert error_of(mapping) < 1e-5


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    "options", [{"dictionary": pairs_of(0)}, {"dictionary": "similarity"}, QUICK]
)
def test_a_vocabulary_smaller_than_every_cut(n: int, options: dict) -> None:
    """The most frequent 75,000 of the adversarial stage, the neighbourhood of 10, one word alone."""
    mapping = pe.align_spaces(*planted(n=n), **options)
    assert len(mapping.report["criteria"]) == 6
    assert mapping.weight.isfinite().all()


# Kindness to the caller.


@pytest.mark.parametrize(
    "options", [{"dictionary": pairs_of(*range(20))}, {"dictionary": "similarity"}, QUICK]
)
def test_modes_random_state_and_log_do_not_matter_and_stay(
    options: dict, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = planted(noise=0.1)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    with caplog.at_level(logging.DEBUG):
        expected = pe.align_spaces(source, target, **options, device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert not caplog.records
    for mode in (torch.autocast("cpu", torch.bfloat16), torch.inference_mode()):
        with mode:
            mapping = pe.align_spaces(source, target, **options)
        assert torch.equal(mapping.weight, expected.weight)
        assert mapping.report == expected.report
    mapping.transform(torch.ones(DIM, requires_grad=True)).sum().backward()


def test_dictionaries_of_every_kind() -> None:
    source, target = planted(noise=0.2)
    given = pairs_of(*range(20))
    expected = pe.align_spaces(source, target, dictionary=given, refine=1)
    for same in (iter(given), np.array(given), [list(pair) for pair in given], dict(given).items()):
        mapping = pe.align_spaces(
            source, target, dictionary=same, refine=np.int64(1), normalize=iter(["length"])
        )
        assert torch.equal(mapping.weight, expected.weight)


# What is refused.


@own_words
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"dictionary": "equal"},
            ValueError,
            "dictionary must be one of 'identical', 'similarity', got 'equal'",
        ),
        ({"dictionary": {"s1": "t1"}}, TypeError, "dictionary must be pairs of words, got dict"),
        ({"dictionary": 5}, TypeError, "dictionary must be pairs of words, got int"),
        (
            {"dictionary": "identical"},
            ValueError,
            "dictionary must hold a pair of words .*, got no pair",
        ),
        (
            {"normalize": ("length", "unit")},
            ValueError,
            "normalize must be one of 'length', 'center', got 'unit'",
        ),
        ({"normalize": "length"}, TypeError, "normalize must be a sequence of steps, got 'length'"),
        ({"normalize": None}, TypeError, "normalize must be a sequence of steps, got None"),
        ({"refine": -1}, ValueError, "refine must be a number of refinements, got -1"),
        ({"refine": 2.5}, ValueError, "refine must be a number of refinements, got 2.5"),
        ({"refine": True}, ValueError, "refine must be a number of refinements, got True"),
        ({"neighborhood": 0}, ValueError, "neighborhood must be a positive integer, got 0"),
        ({"max_words": 0}, ValueError, "max_words must be a positive integer, got 0"),
        (
            {"adversarial": quick()},
            TypeError,
            r"adversarial options must come without a dictionary, got .*",
        ),
        ({"source_words": 5}, TypeError, "source_words must be words, got int"),
        ({"source_words": "sol"}, TypeError, "source_words must be words, got the string 'sol'"),
        ({"target_words": ["t1", 3]}, TypeError, "target_words must be strings, got 3"),
        ({"source_words": []}, ValueError, "source_words must hold a word, got none"),
    ],
)
def test_bad_options_are_refused(options: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{message}$"):
        pe.align_spaces(*planted(), **{"dictionary": pairs_of(0, 1), **options})


class Transposed(Source):
    def vectors(self, words: list[str]) -> np.ndarray:
        return super().vectors(words).T


@own_words
def test_bad_vectors_are_refused() -> None:
    given = {"dictionary": pairs_of(0, 1), "refine": 0, "max_words": 8}
    source, target = planted()
    bad, empty, x = planted()[1], Source({"a": np.zeros(7), "b": np.zeros(7)}), torch.ones(3, 5)
    bad.rows["t7"] = np.array([*[1.0] * 6, np.inf])
    for call, error, message in (
        (
            lambda: pe.align_spaces(source, bad, **given),
            ValueError,
            "the vector of 't7' in target must be finite, .*",
        ),
        (
            lambda: pe.align_spaces(source, Source({"t0": np.ones(3)})),
            ValueError,
            ".* of one length, got 7 and 3",
        ),
        (
            lambda: pe.align_spaces(empty, target),
            ValueError,
            "source must hold .*, got 2 words, none with a vector",
        ),
        (
            lambda: pe.align_spaces(source, {}, **given),
            TypeError,
            r"target must have dim and vectors\(.*, got dict",
        ),
        (
            lambda: pe.align_spaces(Transposed(source.rows), target, **given),
            ValueError,
            r".* one row a word, got .*",
        ),
        (
            lambda: similarity_pairs(x[0], x),
            ValueError,
            r"x must have the axes \(n, dim\), got shape \(5,\)",
        ),
        (
            lambda: similarity_pairs(x, x / 0),
            ValueError,
            "y must be finite, got NaN or an infinity",
        ),
        (
            lambda: similarity_pairs(x, x.long()),
            TypeError,
            "y must be floating point, got torch.int64",
        ),
        (
            lambda: similarity_pairs(x, x, num_words=0),
            ValueError,
            "num_words must be a positive integer, got 0",
        ),
        (
            lambda: similarity_pairs(x, x, neighborhood=0),
            ValueError,
            "neighborhood must be a positive integer, got 0",
        ),
    ):
        with pytest.raises(error, match=f"^{message}$"):
            call()
    assert error_of(pe.align_spaces(source, bad, **{**given, "max_words": 7})) > 0, (
        "a word that is not asked for"
    )


# Pairs by similarity.


def test_pairs_by_similarity_are_the_right_ones_of_a_turned_space() -> None:
    x = torch.tensor(skewed())
    pairs = similarity_pairs(x, (x @ torch.tensor(rotation())).flip(0))
    assert pairs.tolist() == [[i, N - 1 - i] for i in range(N)]
    assert torch.equal(
        similarity_pairs(x, torch.cat([x, torch.zeros(N, 3)], 1)), similarity_pairs(x, x)
    )
    assert similarity_pairs(x[:0], x).shape == (0, 2)


def test_pairs_by_similarity_are_their_equation() -> None:
    x, y = torch.tensor(skewed(31)), torch.tensor(skewed(37, seed=5))

    def profile(x: torch.Tensor) -> torch.Tensor:
        values, vectors = torch.linalg.eigh(x @ x.mT)
        root = vectors @ torch.diag(values.clamp(min=0).sqrt()) @ vectors.mT
        rows = root.sort(1).values
        return length_normalize(mean_center(length_normalize(rows)))

    expected = oracles.mutual_pairs(oracles.csls(profile(x).tolist(), profile(y[:31]).tolist(), 3))
    found = similarity_pairs(x, y, neighborhood=3)
    assert [tuple(pair) for pair in found.tolist()] == expected
    assert 0 < len(expected) < 31
    few = similarity_pairs(x, y, num_words=11, neighborhood=3)
    assert torch.equal(few, similarity_pairs(x[:11], y[:11], neighborhood=3))
