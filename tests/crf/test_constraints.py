"""The grammar of tagging schemes, and a CRF that obeys it in training and in decoding."""

import itertools

import pytest
import torch
from checks import refused
from toys import own_words

import polyembed as pe
from polyembed.data import TaggedSentence

BIO = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
BIOES = ["O", "B-X", "I-X", "E-X", "S-X", "S-Y"]


def is_bio(path: list[str]) -> bool:
    before = ["O", *path]
    return all(
        not tag.startswith("I-") or last[1:] == tag[1:] for last, tag in itertools.pairwise(before)
    )


def is_bioes(path: list[str]) -> bool:
    inside = ""
    for tag in path:
        prefix, _, kind = tag.partition("-")
        if (prefix in "IE" and kind != inside) or (prefix in "OBS" and inside):
            return False
        inside = kind if prefix in "BI" else ""
    return not inside


@pytest.mark.parametrize(
    ("constraints", "tags", "holds"),
    [(pe.Constraints.bio(BIO), BIO, is_bio), (pe.Constraints.bioes(BIOES), BIOES, is_bioes)],
    ids=["bio", "bioes"],
)
def test_all_paths_of_four(constraints: pe.Constraints, tags: list[str], holds) -> None:
    """The rules allow what the scheme allows; a CRF gives the rest no probability, and all of it to them."""
    paths = torch.tensor(list(itertools.product(range(len(tags)), repeat=4)))
    allowed = torch.tensor([holds([tags[tag] for tag in path]) for path in paths.tolist()])
    assert 0 < allowed.sum() < len(paths)
    assert [
        constraints.first_violation(path) is None for path in paths.tolist()
    ] == allowed.tolist()
    crf = pe.CRF(len(tags), constraints=constraints).double()
    emissions = torch.randn(1, 4, len(tags), dtype=torch.float64).expand(len(paths), -1, -1)
    log_probs = crf.log_prob(emissions, paths)
    assert log_probs[~allowed].eq(-torch.inf).all()
    torch.testing.assert_close(log_probs[allowed].exp().sum().item(), 1.0)
    drawn = crf.sample(1e4 * emissions, 3).flatten(0, 1).tolist()
    for path in [
        *crf.decode(1e4 * torch.randn(97, 11, len(tags)).double(), torch.rand(97, 11) < 0.8),
        *drawn,
    ]:
        assert constraints.first_violation(path) is None
    best = crf.n_best(emissions[:1], int(allowed.sum()) + 1)
    assert best.log_probs[0, -1].item() == -torch.inf
    assert {tuple(path) for path in best.tags[0, :-1].tolist()} == set(
        map(tuple, paths[allowed].tolist())
    )


def test_a_sentence_without_a_path_is_named() -> None:
    crf = pe.CRF(3, constraints=pe.Constraints.bio(["O", "B-X", "I-X"]))
    emissions = torch.zeros(2, 3, 3)
    emissions[1, 0, :2] = -torch.inf  # only I-X is left, and it cannot begin
    refused(
        ValueError, r"^emissions of row 1 contain NaN or forbid every path$", crf.decode, emissions
    )
    assert crf.decode_tensor(emissions)[1].eq(-100).all()
    assert crf.decode_tensor(emissions)[0].ge(0).all()


def test_saved_with_the_decoder(tmp_path) -> None:
    constraints = pe.Constraints.bioes(BIOES)
    decoder = pe.CRFDecoder(7, len(BIOES), constraints=constraints).eval()
    assert list(decoder.crf.state_dict()) == list(pe.CRF(3).state_dict()), "torchcrf's names alone"
    decoder.save_pretrained(tmp_path)
    loaded = pe.CRFDecoder.from_pretrained(tmp_path)
    assert loaded.constraints == constraints
    assert not any(buffer.is_meta for buffer in loaded.buffers())
    features = 100 * torch.randn(5, 6, 7)
    assert torch.equal(loaded.decode(features), decoder.decode(features))


def test_a_tagger_refuses_to_learn_what_it_cannot_say() -> None:
    lexicon = pe.Lexicon(["a", "b"])
    decoder = pe.CRFDecoder(4, 5, constraints=pe.Constraints.bio(BIO))
    tagger = pe.SequenceTagger(
        pe.SourceEmbedding.from_embedding(torch.nn.Embedding(4, 4), lexicon), BIO, decoder=decoder
    )
    good, bad = (
        TaggedSentence(("a", "b"), ("B-PER", "I-PER")),
        TaggedSentence(("a", "b"), ("O", "I-PER")),
    )
    tagger(**tagger.collate([good])).backward()
    rule = r"^tags\[1\] must be a sequence that the decoder's constraints allow, got O I-PER at 1$"
    refused(ValueError, rule, tagger.collate, [good, bad])


def test_custom_constraints() -> None:
    """Tags that must alternate, and end with the first."""
    constraints = pe.Constraints([[0, 1], [1, 0]], end=[True, True])
    crf = pe.CRF(2, constraints=constraints)
    assert crf.decode(torch.tensor([[[0.0, 9.0], [0.0, 9.0], [0.0, 1.0]]])) == [[1, 0, 1]]
    assert constraints.first_violation([1, 0, 0]) == 2
    size = constraints.num_tags
    for tag in (size, -1, "O", None, True):
        message = rf"^tags\[1\] must be an id in \[0, {size}\) or -100, got {tag!r}$"
        with pytest.raises(ValueError, match=message):
            constraints.first_violation([1, tag])
    assert pe.Constraints([[1, 1], [1, 1]], end=[True, False]).first_violation([0, 1]) == 2
    assert constraints != pe.Constraints([[1, 1], [1, 1]])
    assert hash(constraints) == hash(pe.Constraints([[False, True], [True, False]]))


def cycles(*lengths: int) -> tuple[list[list[bool]], list[bool]]:
    """Return transitions and starts of cycles: the tags that can follow n words repeat after their common multiple."""
    places = [(length, i) for length in lengths for i in range(length)]
    return [[to == (size, (i + 1) % size) for to in places] for size, i in places], [
        i == 0 for _, i in places
    ]


def test_cycles_are_followed() -> None:
    transitions, start = cycles(2, 3)
    end = [i < size - 1 for size in (2, 3) for i in range(size)]  # not in a cycle's last tag
    with pytest.raises(ValueError, match=r"got no sequence of 6 words$"):
        pe.Constraints(transitions, start, end)
    end[1] = True  # the last of the first cycle
    assert pe.Constraints(transitions, start, end).first_violation([*range(2)] * 9) is None


@own_words
def test_wrong_constraints() -> None:
    refused(
        ValueError, r"^tags\[1\] must be O, B-X or I-X, got E-X$", pe.Constraints.bio, ["O", "E-X"]
    )
    refused(
        ValueError,
        r"^tags\[0\] must be O, B-X, I-X, E-X or S-X, got B-$",
        pe.Constraints.bioes,
        ["B-"],
    )
    with pytest.raises(
        ValueError,
        match=r"^constraints must allow a sequence of every length, got no sequence of 1 word$",
    ):
        pe.Constraints.bioes(["B-X", "E-X"])
    with pytest.raises(
        ValueError,
        match=r"^constraints must allow a sequence of every length, got no sequence of 3 words$",
    ):
        pe.Constraints([[False, True], [False, False]])
    for name, arguments in {
        r"transitions\[1\]": [[[True] * 2, [True] * 3]],
        "start": [[[True]], [True, True]],
    }.items():
        refused(ValueError, rf"^{name} must have . entries, got", pe.Constraints, *arguments)
    rule = r"^transitions must have a row per tag, at least one, got none$"
    refused(ValueError, rule, pe.Constraints, [])
