"""The character model: frames, candidates, training, and the error of a model trained on real words."""

import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from polyembed.text import CharacterTransliterator, WordPrior, character_error_rate, train_transliterator
from polyembed.text.ctc import ctc_beam_search
from polyembed.text.train_transliterator import _loss

CONSONANTS = {"k": "क", "m": "म", "n": "न", "l": "ल", "p": "प"}
SIGNS = {"a": "ा", "i": "ी", "u": "ू", "e": "े", "o": "ो"}
SYLLABLES = [(c + v, CONSONANTS[c] + SIGNS[v]) for c in CONSONANTS for v in SIGNS]
PAIRS = [(a + c, b + d) for (a, b), (c, d) in itertools.product(SYLLABLES, SYLLABLES)]
SMALL = {"hidden_size": 16, "num_layers": 1, "kernel_size": 3}


def small(pairs=PAIRS, **options) -> CharacterTransliterator:
    torch.manual_seed(0)
    return CharacterTransliterator.for_pairs(pairs, **{**SMALL, **options}).eval()


def test_learns_what_it_has_not_seen() -> None:
    train, test = PAIRS[::2], PAIRS[1::2]
    untrained = small()
    expected = [[word] for _, word in test]
    assert character_error_rate(untrained.transliterate([roman for roman, _ in test]), expected) > 0.5
    model = train_transliterator(train, model=small(), num_train_epochs=8, batch_size=16)
    assert not model.training
    assert character_error_rate(model.transliterate([roman for roman, _ in test]), expected) < 0.02
    assert model.transliterate(["Kapola", "mi-lo!", "@kapola", "kapo1", "क"]) == [
        "कापोला",
        "मी-लो!",
        "@kapola",
        "kapo1",
        "क",
    ]
    assert model.transliterate(["kapoooo", "kapoo"])[0] == model.transliterate(["kapoo"])[0]


def test_training_is_decided_by_the_seed() -> None:
    untrained = [small() for _ in range(3)]
    state = torch.get_rng_state()
    models = [
        train_transliterator(PAIRS[:50], model=model, num_train_epochs=1, batch_size=7, seed=seed)
        for model, seed in zip(untrained, (3, 3, 4), strict=True)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    first, again, other = (torch.cat([value.flatten() for value in m.state_dict().values()]) for m in models)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_new_model_is_decided_by_the_seed() -> None:
    models = [train_transliterator(PAIRS[:11], num_train_epochs=1, seed=5) for _ in range(2)]
    assert models[0].get_config() == models[1].get_config()
    assert torch.equal(models[0].linear.weight, models[1].linear.weight)
    assert models[0].letters == "aeikmnou"
    assert set(models[0].symbols) == set("कमनाीूेो")


def test_loss_sums_over_all_alignments() -> None:
    model = small(dropout=0.0).double()
    words, targets = ["ka", "pomi"], [[1], [2, 2, 3]]
    frames = model(model.encode(words)).flatten(1, 2).exp()
    expected = []
    for row, length, target in zip(frames.tolist(), (4, 8), targets, strict=True):
        total = 0.0
        for path in itertools.product([0, 1, 2, 3], repeat=length):  # any other symbol fits neither target
            merged = [label for i, label in enumerate(path) if i == 0 or label != path[i - 1]]
            if [label for label in merged if label] == target:
                total += math.prod(row[i][label] for i, label in enumerate(path))
        expected.append(-math.log(total) / len(target))
    assert _loss(model, model.encode(words), targets).item() == pytest.approx(sum(expected) / 2, rel=1e-9)


def test_encode() -> None:
    model = CharacterTransliterator("akm", "कम", **SMALL)
    assert model.encode(["Kama", "", "kaaaaa", "kéxm"]).tolist() == [[2, 1, 3, 1], [0] * 4, [2, 1, 1, 0], [2, 3, 0, 0]]


def test_candidates_are_ranked_with_the_prior() -> None:
    prior = WordPrior({"काम": 50, "पी": 3})
    plain, ranked = small(), small(prior=prior, prior_weight=0.7)
    ranked.load_state_dict(plain.state_dict())
    words = ["kama", "pi", "", "o", "poli"]
    for word, before, after in zip(words, plain.candidates(words), ranked.candidates(words), strict=True):
        rows = plain(plain.encode([word]))[0].flatten(0, 1).tolist()
        expected = {
            "".join(plain.symbols[label - 1] for label in labels): score
            for labels, score in ctc_beam_search(rows, beam_size=16)
        }
        assert {c.word: c.score for c in before} == pytest.approx(expected, rel=1e-5)
        assert {c.word: c.score for c in after} == pytest.approx(
            {found: score + 0.7 * prior.log_prob(found) for found, score in expected.items()}, rel=1e-5
        )
        for candidates in (before, after):
            scores = [candidate.score for candidate in candidates]
            assert scores == sorted(scores, reverse=True)
    assert [c.word for c in plain.candidates(["poli"])[0]] != [c.word for c in ranked.candidates(["poli"])[0]]


def test_words_do_not_depend_on_their_neighbours() -> None:
    model = small()
    words = ["ka", "kapolimo" * 5, "", "mi"]
    together = model.candidates(words, batch_size=2)
    for word, candidates in zip(words, together, strict=True):
        alone = model.candidates([word])[0]
        assert [c.word for c in alone] == [c.word for c in candidates]
        assert [c.score for c in alone] == pytest.approx([c.score for c in candidates], abs=1e-4)


def test_mode_stays() -> None:
    model = small().train()
    assert model.transliterate(["ka", "ka"])[0] == model.eval().transliterate(["ka"])[0]
    model.train().candidates(["ka"])
    assert model.training


def test_a_word_without_known_letters_stays() -> None:
    model = small()
    assert model.transliterate(["xyz", "", "ß"]) == ["xyz", "", "ß"]
    assert model.transliterate([]) == []


def test_no_more_symbols_than_frames() -> None:
    model = small(slots=1)
    with torch.no_grad():
        model.linear.bias[0] = -50.0  # never a blank
    assert all(len(c.word) <= 2 for c in model.candidates(["ka"])[0])


def test_saved_with_its_prior(tmp_path) -> None:
    model = small(prior=WordPrior({"काम": 5}, order=2), prior_weight=0.25, beam_size=7, slots=3)
    model.save_pretrained(tmp_path / "model")
    again = CharacterTransliterator.from_pretrained(tmp_path / "model")
    assert repr(again) == repr(model)
    assert again.candidates(["kama", "poli"]) == model.candidates(["kama", "poli"])


def test_pairs_that_cannot_be_aligned_are_left_out() -> None:
    short = [("k", "कमक"), ("k", "कक")]  # two frames; equal symbols need a blank between
    with pytest.warns(UserWarning, match=r"^2 of 52 pairs left out: more symbols than frames$"):
        train_transliterator(PAIRS[:50] + short, num_train_epochs=1)
    with pytest.raises(
        ValueError, match=r"^pairs must have as many frames as symbols, one at least, got none that has$"
    ):
        train_transliterator(short, num_train_epochs=1)


@pytest.mark.parametrize(
    ("pairs", "options", "error", "text"),
    [
        ([], {}, ValueError, r"^pairs must hold at least one pair, got none$"),
        ([("ka", "का"), ("", "का")], {}, ValueError, r"^pairs\[1\] must have a word on each side, got \('', 'का'\)$"),
        ([("ka", "")], {}, ValueError, r"^pairs\[0\] must have a word on each side, got \('ka', ''\)$"),
        ([("ka", 3)], {}, TypeError, r"^pairs\[0\] must be two strings, got \('ka', 3\)$"),
        (["ka"], {}, TypeError, r"^pairs\[0\] must be two strings, got 'ka'$"),
        (["kam"], {}, TypeError, r"^pairs\[0\] must be two strings, got 'kam'$"),
        (
            [("ka", "ख")],
            {"model": small()},
            ValueError,
            r"^pairs\[0\] must be written with the model's symbols, got 'ख'$",
        ),
        (PAIRS[:3], {"num_train_epochs": 0}, ValueError, r"^num_train_epochs must be a positive integer, got 0$"),
        (PAIRS[:3], {"batch_size": 0}, ValueError, r"^batch_size must be a positive integer, got 0$"),
        (PAIRS[:3], {"learning_rate": 0.0}, ValueError, r"^learning_rate must be positive, got 0.0$"),
        (PAIRS[:3], {"max_grad_norm": 0.0}, ValueError, r"^max_grad_norm must be positive, got 0.0$"),
    ],
)
def test_training_errors(pairs: list, options: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        train_transliterator(pairs, **options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"letters": ""}, ValueError, r"^letters must be different characters, at least one, got ''$"),
        ({"letters": "aba"}, ValueError, r"^letters must be different characters, at least one, got 'aba'$"),
        ({"symbols": "कक"}, ValueError, r"^symbols must be different characters, at least one, got 'कक'$"),
        ({"kernel_size": 4}, ValueError, r"^kernel_size must be odd, got 4$"),
        ({"hidden_size": 0}, ValueError, r"^hidden_size must be a positive integer, got 0$"),
        ({"slots": 0}, ValueError, r"^slots must be a positive integer, got 0$"),
        ({"beam_size": 0}, ValueError, r"^beam_size must be a positive integer, got 0$"),
        ({"dropout": 1.0}, ValueError, r"^dropout must lie in \[0, 1\), got 1.0$"),
        ({"prior_weight": -1.0}, ValueError, r"^prior_weight must not be negative, got -1.0$"),
        ({"prior": {"क": 1}}, TypeError, r"^prior must be a WordPrior or None, got dict$"),
    ],
)
def test_constructor_errors(options: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        CharacterTransliterator(**{"letters": "ab", "symbols": "क", **options})


def test_call_errors() -> None:
    with pytest.raises(ValueError, match=r"^batch_size must be a positive integer, got 0$"):
        small().candidates(["ka"], batch_size=0)
    with pytest.raises(TypeError, match=r"^words must be a sequence of words, got the string 'ka'$"):
        small().transliterate("ka")


def test_float64_and_other_sizes() -> None:
    model = small(num_layers=3, kernel_size=1, slots=3).double()
    assert isinstance(model.convolutions[2], nn.Conv1d)
    assert model(model.encode(["kamo", "k"])).shape == (2, 4, 3, 11)
    assert len(model.transliterate(["kamo"])) == 1


def test_on_words_of_a_real_text(data_folder: Path) -> None:
    """A quick training on the thousand most frequent words: held-out words are read better than letter by letter."""
    import lzma
    import re
    from collections import Counter

    from polyembed.text import synthetic_pairs
    from polyembed.text.romanize import is_devanagari

    with lzma.open(data_folder / "text" / "mono" / "hi.txt.xz", "rt", encoding="utf-8") as lines:
        counts = Counter(re.findall("[\u0900-\u0963]+", "".join(itertools.islice(lines, 4000))))
    words = [word for word, _ in counts.most_common(1100) if is_devanagari(word)]
    train, test = words[::10] + words[1::2], words[2::10]
    model = train_transliterator(synthetic_pairs(train), num_train_epochs=8, batch_size=64, learning_rate=1e-2)
    pairs = synthetic_pairs(test, per_word=1)
    found = model.transliterate([roman for roman, _ in pairs])
    assert len(pairs) > 90
    assert character_error_rate(found, [[word] for _, word in pairs]) < 0.27
