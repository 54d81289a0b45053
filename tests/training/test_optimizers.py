import pytest
import torch
from tiny_models import tiny_model, word_piece_tokenizer
from toys import toy_lexicon, toy_table

import polyembed as pe
from polyembed.embeddings import surface_scores
from polyembed.encoders import WideAndDeepEncoder
from polyembed.training import FitOptions, default_optimizer, noam_schedule


def wide_and_deep() -> pe.SequenceTagger:
    lexicon = toy_lexicon()
    embedder = pe.MetaEmbedding.concat([toy_table(4), surface_scores(lexicon, 2, num_buckets=64)])
    encoder = WideAndDeepEncoder(pe.LSTMSequenceEncoder(4, hidden_size=4), 2)
    decoder = pe.CRFDecoder(encoder.embedding_dim, 2, extra_emissions=True)
    return pe.SequenceTagger(embedder, ["X", "VERB"], encoder=encoder, decoder=decoder)


def test_each_parameter_is_in_one_group():
    tagger = wide_and_deep()
    next(tagger.parameters()).requires_grad_(False)
    optimizer = default_optimizer(tagger, 1e-2)
    names = {value: name for name, value in tagger.named_parameters()}
    groups = [{names[value] for value in group["params"]} for group in optimizer.param_groups]
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([1e-2, 0.3, 10.0])
    assert [group["eps"] for group in optimizer.param_groups] == [1e-8, 1e-8, 1.0]
    names = {name.rsplit(".", 1)[1] for name in groups[1]}
    assert names == {"transitions", "start_transitions", "end_transitions", "edges"}
    assert len(groups[2]) == 2  # for the features of the word and for its neighbours'
    trainable = {name for name, value in tagger.named_parameters() if value.requires_grad}
    assert set.union(*groups) == trainable
    assert sum(map(len, groups)) == len(trainable)


def tuned() -> pe.SequenceTagger:
    words = pe.PretrainedWordEncoder(
        tiny_model("bert"), word_piece_tokenizer(), freeze="embeddings", fusion=pe.ScalarMix(4)
    )
    return pe.SequenceTagger(words, ["X", "VERB"])


def test_a_pretrained_encoder_has_a_rate_of_its_own():
    tagger = tuned()
    network, encoder, crf = default_optimizer(tagger).param_groups
    assert [group["lr"] for group in (network, encoder, crf)] == pytest.approx([1e-3, 1e-4, 3e-2])
    assert [group["weight_decay"] for group in (network, encoder, crf)] == [0.0, 0.01, 0.0]
    model = tagger.embedder.model
    assert {*encoder["params"]} == {x for x in model.parameters() if x.requires_grad}
    table = model.get_input_embeddings().weight  # the table of pieces is in no group
    assert not any(x is table for group in (network, encoder, crf) for x in group["params"])


def test_the_default_schedule_warms_an_encoder_up():
    optimizer = default_optimizer(tuned())
    schedule = FitOptions().make_scheduler(optimizer, 20)
    rates = []
    for _ in range(21):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    network, encoder, crf = zip(*rates, strict=True)
    assert network == pytest.approx([1e-3 * (1 - 0.9 * t / 20) for t in range(21)])
    assert crf == pytest.approx([30 * rate for rate in network])
    rises, falls = [0.5e-4, 1e-4], [1e-4 * (20 - t) / 18 for t in range(2, 21)]
    assert encoder == pytest.approx(rises + falls)


@pytest.mark.parametrize(
    ("tags", "metric", "scheme"),
    [
        (["B-PER", "I-PER", "O"], "f1", "bio"),
        (["B", "L", "I", "U", "O"], "f1", "bilou"),
        (["NOUN", "VERB"], "accuracy", "bio"),
    ],
)
def test_the_metric_follows_the_labels(tags, metric, scheme):
    tagger = pe.SequenceTagger(toy_table(4), tags)
    found = FitOptions().for_training(tagger, 1000)
    assert (found.metric, found.scheme) == (metric, scheme)
    chosen = FitOptions(metric="macro_f1", scheme="iob1").for_training(tagger, 1000)
    assert (chosen.metric, chosen.scheme) == ("macro_f1", "iob1")


def test_epochs_and_batches_follow_the_number_of_texts():
    sizes = (1, 100, 578, 1000, 2222, 8323)
    plain = [FitOptions().for_training(wide_and_deep(), size) for size in sizes]
    assert [one.num_train_epochs for one in plain] == [40, 40, 40, 40, 18, 8]
    assert [one.batch_size for one in plain] == [2, 4, 16, 16, 16, 16]
    trained = [FitOptions().for_training(tuned(), size) for size in sizes]
    assert [one.num_train_epochs for one in trained] == [20, 20, 10, 6, 6, 6]


def test_noam_follows_the_equation():
    """The rate follows equation 3 of Vaswani et al. 2017 at step ``s = t + 1``, times `lr`."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    schedule = noam_schedule(optimizer, 13, warmup_steps=5)
    rates = []
    for _ in range(11):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    equation = [13**-0.5 * min(s**-0.5, s * 5**-1.5) for s in range(1, 12)]
    assert rates == pytest.approx([2.0 * value for value in equation])
    assert max(rates) == rates[4]
