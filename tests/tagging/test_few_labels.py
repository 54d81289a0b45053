"""Labels that are half known, entities with probabilities, sets with a guarantee, what to annotate."""

import itertools
import warnings
from typing import Any

import pytest
import torch
from checks import refused
from torch import nn
from toys import toy_table

import polyembed as pe
from polyembed.crf import Constraints
from polyembed.data import TaggedSentence, read_tagged
from polyembed.evaluation import rank_for_annotation
from polyembed.metrics import accuracy, entity_f1, macro_f1
from polyembed.tagging import ConformalTagger, FocalLoss

BIO = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG"]
NAMES = ("ana", "luis", "acme", "banco", "ve", "a", "el")
EITHER = frozenset({"B-PER", "B-ORG"})


def tagger(decoder: Any = None, dim: int = 6) -> pe.SequenceTagger:
    torch.manual_seed(0)
    lexicon = pe.Lexicon(NAMES)
    table = pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), dim), lexicon)
    return pe.SequenceTagger(table, BIO, decoder=decoder)


PARTLY = TaggedSentence(("ana", "ve", "acme"), ("B-PER", None, EITHER))


@pytest.mark.parametrize("kind", [pe.CRFDecoder, pe.SoftmaxDecoder])
def test_the_loss_of_a_set_is_the_probability_of_its_tags(kind: type) -> None:
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
    torch.testing.assert_close(model(**batch), expected.double(), check_dtype=False)
    model(**batch).backward()


def test_names_alone_stay_ids_and_a_batch_may_have_both() -> None:
    model = tagger()
    assert model.encode_labels([["O", None]]).tolist() == [[0, -100]]
    both = model.encode_labels([["O"], [EITHER, "O"]])
    assert both.shape == (2, 2, 5)
    assert both[0, 1].all()  # padding


def test_sets_train_score_and_vote() -> None:
    rows = [
        TaggedSentence(("ana", "ve", "a", "acme"), ("B-PER", "O", "O", EITHER)),
        TaggedSentence(("acme", "ve", "luis"), ("B-ORG", "O", EITHER)),
        TaggedSentence(("luis", "ve"), ("B-PER", "O")),
    ] * 4
    model = tagger()
    options = pe.FitOptions(num_train_epochs=40, patience=None)
    assert pe.fit(model, rows, rows, options, progress=False).best.score == 1.0
    assert model.predict([rows[0].words])[0] == ["B-PER", "O", "O", "B-ORG"]
    ensemble = pe.VotingEnsemble([model, model])
    assert ensemble(**ensemble.collate(rows)).item() == pytest.approx(
        model(**model.collate(rows)).item()
    )
    assert pe.build_tagger(rows).tags == ("B-ORG", "B-PER", "O")


def test_a_prediction_inside_of_a_set_is_right() -> None:
    gold = [[EITHER, "O", None]]
    for metric in (accuracy, macro_f1, lambda *pair: entity_f1(*pair).f1):
        assert metric(gold, [["B-PER", "O", "O"]]) == metric(gold, [["B-ORG", "O", "O"]]) == 1.0
        assert metric(gold, [["O", "O", "O"]]) < 1.0


def test_a_file_with_sets(tmp_path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("acme\tB-PER|B-ORG\nve\tO\n")
    assert read_tagged(path, set_separator="|")[0].tags == (EITHER, "O")
    assert read_tagged(path)[0].tags == ("B-PER|B-ORG", "O")
    refused(ValueError, "^set_separator must be", read_tagged, path, set_separator="")


def test_sets_that_cannot_be() -> None:
    model = tagger()
    rule = r"^tags\[0\]\[0\] must be one of O, .*, got 'B-LOC'$"
    refused(ValueError, rule, model.encode_labels, [[{"O", "B-LOC"}]])
    rule = r"^tags\[0\]\[0\] must be a set of names, got an empty one$"
    refused(ValueError, rule, model.encode_labels, [[set()]])
    focal = tagger(pe.SoftmaxDecoder(6, BIO, criterion=FocalLoss()))
    rule = r"^tags must be single names for a criterion, got sets$"
    refused(TypeError, rule, focal, **focal.collate([PARTLY]))
    strict = tagger(pe.CRFDecoder(6, BIO, constraints=Constraints.bio(BIO)))
    impossible = [["O", frozenset({"I-PER", "I-ORG"})]]
    refused(ValueError, "constraints allow", strict.encode_labels, impossible)


# Entities


@pytest.mark.parametrize("kind", [pe.CRFDecoder, pe.SoftmaxDecoder])
def test_entities_have_their_probability(kind: type) -> None:
    model = tagger(kind(6, BIO)).eval()
    text = ("ana", "luis", "ve", "new")
    (found,) = model.predict_entities([text], min_probability=0.0, overlapping=True)
    assert len(found) == 2 * (4 + 3 + 2 + 1)
    assert [one.probability for one in found] == sorted(
        (x.probability for x in found), reverse=True
    )
    (rows,) = model.predict_probabilities([text])
    for kind_name, begin in (("PER", 1), ("ORG", 3)):  # each word begins an entity, or does not
        for word in range(4):
            starts = sum(x.probability for x in found if (x.start, x.label) == (word, kind_name))
            assert starts == pytest.approx(rows[word, begin].item(), abs=1e-5)
    (apart,) = model.predict_entities([text, []], min_probability=0.0)[:1]
    assert all(one.end <= other.start for one, other in itertools.pairwise(apart))
    assert found[0] in apart
    assert model.predict_entities([[]]) == [[]]


def test_entities_that_cannot_be_asked_for() -> None:
    words = pe.SequenceTagger(toy_table(4), ["NOUN", "VERB"])
    refused(ValueError, "^tags must mark entities", words.predict_entities, [["me"]])
    rule = r"^min_probability must be in \[0, 1\], got 1.5$"
    refused(ValueError, rule, tagger().predict_entities, [["ana"]], min_probability=1.5)


# Sets with a guarantee


def draw(count: int, generator: torch.Generator, model: Any, tags: Any) -> list[TaggedSentence]:
    """Sentences whose tags are drawn by the model's own probabilities, of one to six words."""
    found = []
    for _ in range(count):
        size = int(torch.randint(1, 7, (), generator=generator))
        words = [NAMES[i] for i in torch.randint(len(NAMES), (size,), generator=generator).tolist()]
        (rows,) = model.predict_probabilities([words])
        ids = torch.multinomial(rows, 1, generator=generator)[:, 0].tolist()
        found.append(TaggedSentence(tuple(words), tuple(tags[i] for i in ids)))
    return found


@pytest.mark.parametrize("score", ["adaptive", "probability"])
@pytest.mark.parametrize("unit", ["word", "sentence"])
def test_the_expected_error_of_a_new_sentence_is_at_most_the_error(
    unit: str, score: str, monkeypatch
) -> None:
    model = tagger(pe.SoftmaxDecoder(6, BIO)).eval()
    generator = torch.Generator().manual_seed(3)
    pool = draw(400, generator, model, BIO)
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
        assert mean >= 0.2 - 0.08  # not by sets of everything


def test_the_threshold_is_the_smallest_that_keeps_the_bound() -> None:
    model = tagger(pe.SoftmaxDecoder(6, BIO)).eval()
    sentences = draw(40, torch.Generator().manual_seed(4), model, BIO)
    sets = ConformalTagger.calibrate(model, sentences, 0.1, score="probability")
    losses = sets._losses(sentences)

    def risk(threshold: float) -> float:
        shares = [sum(w for a, w in pairs if a > threshold) for pairs in losses]
        return (1 + sum(shares)) / (len(losses) + 1)

    assert risk(sets.threshold) <= 0.1 + 1e-9 < risk(sets.threshold - 1e-6)


def test_entities_with_a_guarantee(tmp_path) -> None:
    model = tagger().eval()
    rows = [TaggedSentence(("ana", "ve", "acme"), ("B-PER", "O", "B-ORG"))] * 30
    sets = ConformalTagger.calibrate(model, rows, 0.1, unit="entity")
    (found,) = sets.predict_sets([("ana", "ve", "acme")])
    assert {("PER", 0, 1), ("ORG", 2, 3)} <= {(x.label, x.start, x.end) for x in found}
    sets.save_pretrained(tmp_path)
    again = ConformalTagger.from_pretrained(tmp_path)
    assert (again.threshold, again.unit, again.error) == (sets.threshold, "entity", 0.1)
    assert again.predict_sets([("ana", "ve")]) == sets.predict_sets([("ana", "ve")])


def test_calibrations_that_cannot_be() -> None:
    model = tagger().eval()
    rows = [TaggedSentence(("ana",), ("B-PER",))]
    rule = r"^sentences must hold at least 9 sentences that count for this error, got 8$"
    refused(ValueError, rule, ConformalTagger.calibrate, model, rows * 8)
    with pytest.raises(ValueError, match=r"^error must be between 0 and 1, got 1$"):
        ConformalTagger(model, 0.5, error=1)
    refused(
        TypeError, r"^tagger must be a Tagger, got Linear$", ConformalTagger, nn.Linear(1, 1), 0.5
    )
    with pytest.warns(UserWarning, match="lexicon: sentences that the tagger was trained on"):
        ConformalTagger.calibrate(model, rows * 60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConformalTagger.calibrate(model, [*rows * 60, TaggedSentence(("new",), ("O",))])


# What to annotate next


def test_ranks_follow_the_probabilities() -> None:
    model = tagger().eval()
    texts = [["ana"], ["ana", "ve", "a", "el", "acme"], [], ["luis", "new"]]
    full = [0, 1, 3]
    inputs, mask = model.with_words(["new"]).encode([texts[i] for i in full])
    wide = model.with_words(["new"])
    entropy = wide.decoder.crf.entropy(wide.emissions(inputs, mask), mask)
    expected = [full[i] for i in entropy.argsort(descending=True).tolist()]
    assert rank_for_annotation(model, texts) == [*expected, 2]
    best = [model.predict_n_best([texts[i]], 2)[0] for i in full]
    shares = [[torch.tensor(x[1]).exp().item() for x in one] for one in best]
    margins = torch.tensor([one[1] - one[0] for one in shares])
    found = rank_for_annotation(model, texts, by="margin")
    assert found == [*(full[i] for i in margins.argsort(descending=True).tolist()), 2]
    normal = torch.tensor([-best[i][0][1] / len(texts[full[i]]) for i in range(3)])
    found = rank_for_annotation(model, texts, by="length-normalised", count=2)
    assert found == [full[i] for i in normal.argsort(descending=True).tolist()][:2]


def test_votes_and_softmax() -> None:
    soft = tagger(pe.SoftmaxDecoder(6, BIO)).eval()
    texts = [["ana"], ["acme", "ve"], ["el", "a", "luis"]]
    for by in ("entropy", "margin", "length-normalised"):
        assert sorted(rank_for_annotation(soft, texts, by=by)) == [0, 1, 2]
    other = tagger(pe.SoftmaxDecoder(6, BIO)).eval()
    nn.init.normal_(other.decoder.linear.weight, std=3.0)
    ensemble = pe.VotingEnsemble([soft, other, soft])
    inputs, mask = ensemble.encode(texts)
    votes = torch.where(mask, ensemble.vote_entropy(inputs, mask), 0.0).sum(1) / mask.sum(1)
    expected = votes.argsort(descending=True, stable=True).tolist()
    assert rank_for_annotation(ensemble, texts, by="vote") == expected


def test_different_texts_are_chosen() -> None:
    model = tagger().eval()
    texts = [["ana"]] * 6 + [["acme", "ve"]] * 6 + [["el", "a", "luis"]] * 6
    found = rank_for_annotation(model, texts, count=3, diverse=True)
    assert len({tuple(texts[i]) for i in found}) == 3
    assert rank_for_annotation(model, texts[:2], count=3, diverse=True) == [0, 1]


def test_ranks_that_cannot_be() -> None:
    model = tagger()
    refused(TypeError, "^model must be a VotingEnsemble", rank_for_annotation, model, [], by="vote")
    refused(TypeError, "^model must be a tagger", rank_for_annotation, nn.Linear(1, 1), [["a"]])
    refused(ValueError, "^by must be one of", rank_for_annotation, model, [], by="luck")
    refused(ValueError, "^count must be", rank_for_annotation, model, [], diverse=True)
    assert rank_for_annotation(model, []) == []
