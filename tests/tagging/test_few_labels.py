"""Partial labels, entities with probabilities, sets with a guarantee, and choice of annotations."""

import itertools
from typing import Any

import pytest
import torch
from checks import refused
from torch import nn
from toys import toy_table

import polyembed as pe
from polyembed.data import TaggedSentence, read_tagged
from polyembed.evaluation import rank_for_annotation
from polyembed.functional import vote_entropy
from polyembed.metrics import accuracy, entity_f1, macro_f1
from polyembed.tagging import ConformalTagger, FocalLoss

BIO = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG"]
NAMES = ("ana", "luis", "acme", "banco", "ve", "a", "el")
EITHER = frozenset({"B-PER", "B-ORG"})


def tagger(decoder: Any = None, **options: Any) -> pe.SequenceTagger:
    torch.manual_seed(0)
    lexicon = pe.Lexicon(NAMES)
    table = pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 6), lexicon)
    return pe.SequenceTagger(table, BIO, decoder=decoder, **options)


PARTLY = TaggedSentence(("ana", "ve", "acme"), ("B-PER", None, EITHER))


@pytest.mark.parametrize("kind", [pe.CRFDecoder, pe.SoftmaxDecoder])
def test_the_loss_of_a_set_is_the_probability_of_its_tags(kind):
    model = tagger(kind(6, BIO)).double().eval()
    batch = model.collate([PARTLY])
    assert batch["tags"].dtype == torch.bool
    assert batch["tags"][0].long().tolist() == [[0, 1, 0, 0, 0], [1] * 5, [0, 1, 0, 1, 0]]
    inputs, mask = model.encode([PARTLY.words])
    total = 0.0
    if kind is pe.CRFDecoder:
        for first in EITHER:
            for middle in BIO:
                tags = model.encode_labels([["B-PER", middle, first]])
                total += float(torch.exp(-model(inputs, tags=tags, mask=mask)).detach())
        expected = -torch.tensor(total).log()
    else:
        rows = model.probabilities(inputs, mask)[0]
        expected = -(rows[0, 1].log() + (rows[2, 1] + rows[2, 3]).log()) / 2
    torch.testing.assert_close(model(**batch), expected.double())
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.float()(**batch)
    assert loss.dtype == torch.float32
    loss.backward()


def test_names_alone_stay_ids_and_a_batch_may_have_both():
    assert tagger().encode_labels([["O", None]]).tolist() == [[0, -100]]
    own = TaggedSentence(("a", "a"), (["O"], {"O", "_"}))
    assert tagger().labels_of(own) == [["O"], None]
    both = tagger().encode_labels([["O"], [EITHER, "O"]])
    assert both.sum(-1).tolist() == [[1, 5], [2, 1]]  # padding has all tags


def test_sets_train_and_score():
    rows = [
        TaggedSentence(("ana", "ve", "a", "acme"), ("B-PER", "O", "O", EITHER)),
        TaggedSentence(("acme", "ve"), ("B-ORG", "O")),
    ] * 4
    model = tagger()
    options = pe.FitOptions(num_train_epochs=40, patience=None)
    assert pe.fit(model, rows, rows, options, progress=False).best.score == 1.0
    assert model.predict([rows[0].words])[0] == ["B-PER", "O", "O", "B-ORG"]
    assert pe.build_tagger(rows).tags == ("B-ORG", "B-PER", "O")


def test_a_prediction_inside_of_a_set_is_right():
    gold = [[EITHER, "O", None]]
    for metric in (accuracy, macro_f1, lambda *pair: entity_f1(*pair).f1):
        assert metric(gold, [["B-PER", "O", "O"]]) == metric(gold, [["B-ORG", "O", "O"]]) == 1.0
        assert metric(gold, [["O", "O", "O"]]) < 1.0


def test_a_file_with_sets(tmp_path):
    path = tmp_path / "a.conll"
    for names in ("B-PER|B-ORG\nve\tO", "B-PER | B-ORG\nve\tO|O"):
        path.write_text(f"acme\t{names}\n")
        assert read_tagged(path, set_separator="|")[0].tags == (EITHER, "O")
    path.write_text("acme\tB-PER|\n")
    rule = r"^set_separator must stand between names, got B-PER\|$"
    refused(ValueError, rule, read_tagged, path, set_separator="|")
    path = tmp_path / "a.csv"
    path.write_text("Sent,Word,Tag\n1,acme,B-PER|Other\n1,ve,Other\n")
    assert read_tagged(path, "csv", set_separator="|")[0].tags == (frozenset(("B-PER", "O")), "O")


STRICT = pe.CRFDecoder(6, BIO, constraints=pe.Constraints.bio(BIO))


@pytest.mark.parametrize(
    ("decoder", "names", "message"),
    [
        (None, {"O", "B-LOC"}, r"tags\[0\]\[1\] must be one of O, .*, got 'B-LOC'$"),
        (None, set(), r"tags\[0\]\[1\] must be a set of names, got an empty one$"),
        (None, ["O"], "tags must be names or sets of names, got list"),
        (STRICT, {"I-PER", "I-ORG"}, r"tags\[0\] must be a sequence that .* constraints allow"),
    ],
)
def test_sets_that_cannot_be(decoder, names, message):
    refused((ValueError, TypeError), f"^{message}", tagger(decoder).encode_labels, [["O", names]])


def test_a_criterion_takes_no_sets():
    focal = tagger(pe.SoftmaxDecoder(6, BIO, criterion=FocalLoss()))
    rule = "^tags must be single names for a criterion, got sets$"
    refused(TypeError, rule, focal, **focal.collate([PARTLY]))


# Entities


@pytest.mark.parametrize("kind", [pe.CRFDecoder, pe.SoftmaxDecoder])
def test_entities_have_their_probability(kind):
    model = tagger(kind(6, BIO)).eval()
    text = ("ana", "luis", "ve", "new")
    (found,) = model.predict_entities([text], min_probability=0.0, overlapping=True)
    assert len(found) == 2 * (4 + 3 + 2 + 1)
    shares = [one.probability for one in found]
    assert shares == sorted(shares, reverse=True)
    (rows,) = model.predict_probabilities([text])
    # the entities that begin at a word sum to the probability of its B tag
    for kind_name, begin in (("PER", 1), ("ORG", 3)):
        for word in range(4):
            starts = sum(x.probability for x in found if (x.start, x.label) == (word, kind_name))
            assert starts == pytest.approx(rows[word, begin].item(), abs=1e-5)
    apart, _ = model.predict_entities([text, []], min_probability=0.0)
    assert all(one.end <= other.start for one, other in itertools.pairwise(apart))
    assert found[0] in apart


def test_a_type_without_a_tag_that_goes_on_has_entities_of_one_word():
    model = pe.SequenceTagger(toy_table(4), ["O", "B-PER"]).eval()
    (found,) = model.predict_entities([("ana", "luis")], min_probability=0.0, overlapping=True)
    assert {(one.start, one.end) for one in found} == {(0, 1), (1, 2)}


def test_entities_that_cannot_be_asked_for():
    words = pe.SequenceTagger(toy_table(4), ["NOUN", "VERB"])
    refused(ValueError, "^tags must mark entities", words.predict_entities, [["me"]])
    rule = r"^min_probability must be in \[0, 1\], got 1.5$"
    refused(ValueError, rule, tagger().predict_entities, [["ana"]], min_probability=1.5)
    rule = "^max_words must be a positive integer, got 0$"
    refused(ValueError, rule, tagger().predict_entities, [["ana"]], max_words=0)


# Sets with a guarantee


def draw(count: int, model: Any, generator: torch.Generator) -> list[TaggedSentence]:
    """Return sentences of one to six words, with tags drawn from the model's own probabilities."""
    sizes = torch.randint(1, 7, (count,), generator=generator).tolist()
    ids = [torch.randint(len(NAMES), (size,), generator=generator).tolist() for size in sizes]
    texts = [tuple(NAMES[i] for i in row) for row in ids]
    rows = model.predict_probabilities(texts)
    tags = [torch.multinomial(row, 1, generator=generator)[:, 0].tolist() for row in rows]
    pairs = zip(texts, tags, strict=True)
    return [TaggedSentence(words, tuple(BIO[i] for i in row)) for words, row in pairs]


@pytest.mark.parametrize(("unit", "score"), [("word", "probability"), ("sentence", "adaptive")])
def test_the_expected_error_of_a_new_sentence_is_at_most_the_error(unit, score, monkeypatch):
    model = tagger(pe.SoftmaxDecoder(6, BIO)).eval()
    generator = torch.Generator().manual_seed(3)
    pool = draw(400, model, generator)
    texts = [sentence.words for sentence in pool]
    known = dict(zip(texts, model.predict_probabilities(texts), strict=True))
    monkeypatch.setattr(model, "predict_probabilities", lambda asked: [known[x] for x in asked])
    missed = []
    for _ in range(1000):
        drawn = [pool[i] for i in torch.randperm(400, generator=generator)[:24].tolist()]
        held_out, new = drawn[:20], drawn[20:]
        sets = ConformalTagger.calibrate(model, held_out, 0.2, unit=unit, score=score)
        for sentence, found in zip(new, sets.predict_sets([x.words for x in new]), strict=True):
            wrong = [tag not in kept for tag, kept in zip(sentence.tags, found, strict=True)]
            missed.append(max(wrong) if unit == "sentence" else sum(wrong) / len(wrong))
    mean = sum(missed) / len(missed)
    assert mean <= 0.2 + 0.02  # three standard errors of the mean
    if score == "probability":
        assert mean >= 0.2 - 0.08  # sets of all tags would have a smaller error


def test_the_threshold_is_the_smallest_that_keeps_the_bound():
    model = tagger(pe.SoftmaxDecoder(6, BIO)).eval()
    sentences = draw(40, model, torch.Generator().manual_seed(4))
    sets = ConformalTagger.calibrate(model, sentences, 0.1, score="probability")
    losses = sets._losses(sentences)

    def risk(threshold):
        shares = [sum(w for a, w in pairs if a > threshold) for pairs in losses]
        return (1 + sum(shares)) / (len(losses) + 1)

    assert risk(sets.threshold) <= 0.1 + 1e-9 < risk(sets.threshold - 1e-6)
    # probabilities differ by rounding in another batch
    assert sets(torch.tensor(1 - sets.threshold - 5e-7))


def test_entities_with_a_guarantee():
    model = tagger().eval()
    rows = [TaggedSentence(("ana", "ve", "acme"), ("B-PER", "O", "B-ORG"))] * 30
    sets = ConformalTagger.calibrate(model, rows, 0.1, unit="entity")
    sets.threshold -= 5e-7  # as if the probabilities were from another batch
    (found,) = sets.predict_sets([("ana", "ve", "acme")])
    assert {("PER", 0, 1), ("ORG", 2, 3)} <= {(x.label, x.start, x.end) for x in found}


def test_sentences_that_are_half_known_do_not_count_for_entities():
    model = tagger().eval()
    known = TaggedSentence(("ana", "ve"), ("B-PER", "O"))
    half = [TaggedSentence(("ana", "ve"), tags) for tags in ((EITHER, "O"), ("B-PER", None))]
    rule = "^sentences must hold at least 9 sentences that count for this error, got 8$"
    rows = [*[known] * 8, *half * 20]
    refused(ValueError, rule, ConformalTagger.calibrate, model, rows, unit="entity")


@pytest.mark.parametrize("unit", ["word", "sentence", "entity"])
def test_tags_that_are_never_predicted_have_no_guarantee(unit):
    known = [TaggedSentence(("ana", "ve"), ("B-PER", "O"))] * 30
    strange = [TaggedSentence(("ana", "ve"), ("B-LOC", "I-LOC"))]
    sets = ConformalTagger.calibrate(tagger(), [*known, *strange], 0.1, unit=unit)
    assert sets.threshold <= 1  # a few such sentences are within the error
    rule = r"^sentences must have tags that the tagger can predict, got 4.0 sentences without$"
    rows = [*known, *strange * 4]
    refused(ValueError, rule, ConformalTagger.calibrate, tagger(), rows, 0.1, unit=unit)


def test_calibrations_that_cannot_be():
    ensemble = pe.VotingEnsemble([tagger(), tagger()])
    rule = "^tagger must be a SequenceTagger for entities, got VotingEnsemble$"
    refused(TypeError, rule, ConformalTagger.calibrate, ensemble, [], unit="entity")
    rows = [TaggedSentence(("ana",), ("B-PER",))]
    rule = "^sentences must hold at least 9 sentences that count for this error, got 8$"
    refused(ValueError, rule, ConformalTagger.calibrate, tagger(), rows * 8)
    rule = "^error must be between 0 and 1, got 1$"
    refused(ValueError, rule, lambda: ConformalTagger(tagger(), 0.5, error=1))


def test_calibration_on_what_may_be_training_sentences_warns(recwarn):
    model = tagger(prepare=pe.Normalizer(lowercase=True))
    rows = [TaggedSentence(("Ana",), ("B-PER",))] * 60
    ConformalTagger.calibrate(model, [*rows, TaggedSentence(("new",), ("O",))])
    assert not recwarn
    with pytest.warns(UserWarning, match="lexicon: sentences that the tagger was trained on"):
        ConformalTagger.calibrate(model, rows)


# What to annotate next


def test_ranks_follow_the_probabilities():
    model = tagger().eval()
    texts = [["ana"], ["ana", "ve", "a", "el", "acme"], ["luis", "new"]]
    wide = model.with_words(["new"])
    inputs, mask = wide.encode(texts)
    best = [[x for _, x in paths] for paths in model.predict_n_best(texts, 2)]
    first, second = torch.tensor(best).T
    expected = {
        "entropy": wide.decoder.crf.entropy(wide.emissions(inputs, mask), mask),
        "margin": second.exp() - first.exp(),
        "length-normalised": -first / mask.sum(1),
    }
    for by, scores in expected.items():
        order = scores.argsort(descending=True).tolist()
        assert rank_for_annotation(model, [*texts, []], by=by) == [*order, 3]
        assert rank_for_annotation(model, texts, by=by, count=2) == order[:2]
    long = [["ana"] * n for n in (200, 150, 300)]  # probabilities below the range of float32
    assert rank_for_annotation(model, long, by="margin") == [2, 0, 1]


def test_ranks_follow_the_votes():
    members = [tagger(pe.SoftmaxDecoder(6, BIO)).eval() for _ in range(3)]
    texts = [["ana"], ["acme", "ve"], ["el", "a", "luis"]]
    for by in ("entropy", "margin", "length-normalised"):
        assert sorted(rank_for_annotation(members[0], texts, by=by)) == [0, 1, 2]
    nn.init.normal_(members[1].decoder.linear.weight, std=3.0)
    ensemble = pe.VotingEnsemble(members)
    inputs, mask = ensemble.encode(texts)
    votes = vote_entropy(ensemble.votes(inputs, mask)).sum(1) / mask.sum(1)
    expected = votes.argsort(descending=True, stable=True).tolist()
    assert rank_for_annotation(ensemble, texts, by="vote") == expected
    nn.init.constant_(members[1].decoder.linear.weight, float("nan"))
    refused(ValueError, "numbers, got NaN", rank_for_annotation, ensemble, texts, by="vote")


def test_different_texts_are_chosen():
    model = tagger().eval()
    texts = [["ana"]] * 6 + [["acme", "ve"]] * 6 + [["el", "a", "luis"]] * 6
    for one in (model, pe.VotingEnsemble([model, model.with_words(["new"])])):
        found = rank_for_annotation(one, texts, count=3, diverse=True)
        assert len({tuple(texts[i]) for i in found}) == 3
    assert rank_for_annotation(model, texts[:2], count=3, diverse=True) == [0, 1]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (tagger(), {"by": "vote"}, "model must be a VotingEnsemble"),
        (nn.Linear(1, 1), {}, "model must be a tagger"),
        (tagger(), {"by": "luck"}, "by must be one of"),
        (tagger(), {"diverse": True}, "count must be"),
        (tagger(), {"texts": ["a b"]}, r"texts\[0\] must be a list of words, got the string 'a b'"),
        (tagger(), {"texts": [{"words": []}]}, r"texts\[0\] must be a list of words, got dict"),
    ],
)
def test_ranks_that_cannot_be(model, options, message):
    options = {"texts": [["a"]], **options}
    refused((TypeError, ValueError), f"^{message}", rank_for_annotation, model, **options)
