"""The character model: encoding, probabilities, candidates, training, and the error on real pairs."""

import itertools
import unicodedata
from pathlib import Path

import pytest
import torch
from checks import refused

from polyembed.text import CharacterTransliterator, character_error_rate, train_transliterator

CONSONANTS = {"k": "क", "m": "म", "n": "न", "l": "ल", "p": "प"}
SIGNS = {"a": "ा", "i": "ी", "u": "ू", "e": "े", "o": "ो"}
SYLLABLES = [(c + v, CONSONANTS[c] + SIGNS[v]) for c in CONSONANTS for v in SIGNS]
PAIRS = [(a + c, b + d) for (a, b), (c, d) in itertools.product(SYLLABLES, SYLLABLES)] + SYLLABLES


def small(pairs=PAIRS, **options) -> CharacterTransliterator:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_layers": 1, "num_heads": 2}
    return CharacterTransliterator.for_pairs(pairs, **{**sizes, **options}).eval()


@pytest.mark.parametrize("back", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_learns_what_it_has_not_seen(back: bool) -> None:
    pairs = [(b, a) for a, b in PAIRS] if back else PAIRS
    train, test = pairs[::2] + pairs[-len(SYLLABLES) :], pairs[1 : -len(SYLLABLES) : 2]
    words, expected = [source for source, _ in test], [[word] for _, word in test]
    untrained = small(pairs, hidden_size=32)
    assert character_error_rate(untrained.transliterate(words), expected) > 0.5
    model = train_transliterator(
        train, model=untrained, num_train_epochs=30, batch_size=16, learning_rate=1e-2
    )
    assert not model.training
    assert character_error_rate(model.transliterate(words), expected) < 0.05
    words = (
        ["कापो", "मी-लो!", "@कापो", "कापो1", "kapo"]
        if back
        else ["Kapo", "mi-lo!", "@kapo", "kapo1", "क"]
    )
    right = (
        ["kapo", "mi-lo!", "@कापो", "कापो1", "kapo"]
        if back
        else ["कापो", "मी-लो!", "@kapo", "kapo1", "क"]
    )
    assert model.transliterate(words) == right
    if not back:
        assert model.transliterate(["kapoooo"]) == model.transliterate(["kapoo"])


def test_training_is_decided_by_the_seed() -> None:
    new = [train_transliterator(PAIRS[:11], num_train_epochs=1, seed=5) for _ in range(2)]
    assert torch.equal(new[0].network.lm_head.weight, new[1].network.lm_head.weight)
    assert (new[0].letters, set(new[0].symbols)) == ("aeikmnou", set("कमनाीूेो"))
    untrained = [small() for _ in range(3)]
    state = torch.get_rng_state()
    models = [
        train_transliterator(PAIRS[:50], model=model, num_train_epochs=1, batch_size=7, seed=seed)
        for model, seed in zip(untrained, (3, 3, 4), strict=True)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    first, again, other = (
        torch.cat([value.flatten() for value in m.state_dict().values()]) for m in models
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_encode() -> None:
    model = CharacterTransliterator("akm", "कमा", hidden_size=4, num_layers=1, num_heads=1)
    assert model.encode(["Kama", "", "kaaaaa", "kéxm"]).tolist() == [
        [3, 2, 4, 2, 1],
        [1, 0, 0, 0, 0],
        [3, 2, 2, 1, 0],
        [3, 4, 1, 0, 0],
    ]
    assert model.encode_targets(["काम", "क"]).tolist() == [[5, 7, 6, 1], [5, 1, 0, 0]]
    nukta = CharacterTransliterator(
        "k", unicodedata.normalize("NFC", "\u0958"), hidden_size=4, num_heads=1
    )
    assert (
        nukta.encode_targets(["\u0958"]).tolist() == nukta.encode_targets(["\u0915\u093c"]).tolist()
    )


def test_log_probabilities_are_those_of_each_prefix() -> None:
    """Each symbol's value is the network's own log-softmax after the symbols before it, one at a time."""
    model = small(dropout=0.5).double()
    ids, targets = model.encode(["kapo", "mi"]), model.encode_targets(["कापो", "मी"])
    found = model(ids, targets)
    assert found.shape == targets.shape
    assert found[1, 3:].eq(0).all()
    for row, width in ((0, 5), (1, 3)):
        letters = ids[row][ids[row].ne(0)][None].long()
        for place in range(width):
            before = torch.tensor([[1, *targets[row, :place].tolist()]])
            scores = model.network(
                input_ids=letters, decoder_input_ids=before, use_cache=False
            ).logits[0, -1]
            expected = scores.log_softmax(-1)[targets[row, place]]
            torch.testing.assert_close(found[row, place], expected)


def test_candidates_are_ranked_by_their_probability() -> None:
    model = small(num_beams=5, dropout=0.5).train()
    assert model.candidates(["ka"]) == model.candidates(["ka"])
    assert all(part.training for part in model.modules())
    model.eval()
    words = ["kama", "pi", "", "poli" * 5]
    for word, candidates in zip(words, model.candidates(words, batch_size=2), strict=True):
        assert len(candidates) == 5
        scores = [candidate.score for candidate in candidates]
        assert scores == sorted(scores, reverse=True)
        assert [c.word for c in model.candidates([word])[0]] == [c.word for c in candidates]
        assert [c.score for c in model.candidates([word])[0]] == pytest.approx(scores, abs=1e-4)
        ended = [
            c for c in candidates if len(c.word) < 8
        ]  # an untrained model may write until it must stop
        for candidate in ended:
            value = model(model.encode([word]), model.encode_targets([candidate.word])).sum().item()
            assert candidate.score == pytest.approx(value, rel=0.05)


def test_words_that_cannot_be_spelt_stay() -> None:
    model = small()
    long = "ka" * 70
    assert model.transliterate(["xyz", "", "ß", long]) == ["xyz", "", "ß", long]
    other = ["@कापो", "कापो1", "kapo"]  # to Latin, where Latin is no letter
    assert small([(b, a) for a, b in PAIRS]).transliterate(other) == other
    assert model.transliterate([]) == []


@pytest.mark.parametrize(
    ("pairs", "options", "error", "text"),
    [
        ([], {}, ValueError, r"^pairs must hold at least one pair, got none$"),
        (
            [("ka", "का"), ("", "का")],
            {},
            ValueError,
            r"^pairs\[1\] must have a word on each side, got \('', 'का'\)$",
        ),
        ([("ka", 3)], {}, TypeError, r"^pairs\[0\] must be two strings, got \('ka', 3\)$"),
        (["ka"], {}, TypeError, r"^pairs\[0\] must be two strings, got 'ka'$"),
        (
            [("ka", "ख")],
            {"model": small()},
            ValueError,
            r"^the target 'ख' must have the model's symbols only, got \['ख'\]$",
        ),
        (
            PAIRS[:3],
            {"num_train_epochs": 0},
            ValueError,
            r"^num_train_epochs must be a positive integer, got 0$",
        ),
        (
            PAIRS[:3],
            {"batch_size": 0},
            ValueError,
            r"^batch_size must be a positive integer, got 0$",
        ),
        (
            PAIRS[:3],
            {"learning_rate": 0.0},
            ValueError,
            r"^learning_rate must be positive, got 0.0$",
        ),
    ],
)
def test_training_errors(pairs: list, options: dict, error: type[Exception], text: str) -> None:
    refused(error, text, train_transliterator, pairs, **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"letters": ""}, r"^letters must be different characters, at least one, got ''$"),
        ({"letters": "aba"}, r"^letters must be different characters, at least one, got 'aba'$"),
        ({"symbols": "कक"}, r"^symbols must be different characters, at least one, got 'कक'$"),
        ({"hidden_size": 0}, r"^hidden_size must be a positive integer, got 0$"),
        ({"hidden_size": 10}, r"^hidden_size must be a multiple of num_heads, 4, got 10$"),
        ({"num_beams": 0}, r"^num_beams must be a positive integer, got 0$"),
        ({"num_beams": 1}, r"^num_beams must be at least 2, got 1$"),
        ({"dropout": 1.0}, r"^dropout must lie in \[0, 1\), got 1.0$"),
    ],
)
def test_constructor_errors(options: dict, text: str) -> None:
    refused(
        ValueError, text, CharacterTransliterator, **{"letters": "ab", "symbols": "क", **options}
    )


def test_call_errors() -> None:
    model = small()
    refused(
        ValueError,
        r"^batch_size must be a positive integer, got 0$",
        model.candidates,
        ["ka"],
        batch_size=0,
    )
    refused(
        TypeError,
        r"^words must be a sequence of words, got the string 'ka'$",
        model.transliterate,
        "ka",
    )
    refused(
        ValueError,
        r"^words must have fewer than 128 characters, got 128$",
        model.encode,
        ["ka" * 64],
    )


@pytest.mark.slow
def test_on_real_pairs(data_folder: Path) -> None:
    """A short training on pairs that people wrote."""
    pairs = {}
    for split in ("train", "dev"):
        path = data_folder / "transliteration" / "dakshina_hi" / f"hi.translit.sampled.{split}.tsv"
        pairs[split] = [
            tuple(line.split("\t")[:2]) for line in path.read_text("utf-8").splitlines()
        ]
    model = train_transliterator(pairs["train"][::9], num_train_epochs=3)
    dev = pairs["dev"][::10]
    found = model.transliterate([roman for roman, _ in dev])
    assert character_error_rate(found, [[word] for _, word in dev]) < 0.65
