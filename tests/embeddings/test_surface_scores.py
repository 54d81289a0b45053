"""The linear path, as in a CRF with hand-made features: scores, training, saving and export."""

import pytest
import torch
from checks import refused
from torch import nn
from toys import SENTENCES, TAGS, toy_lexicon

import polyembed as pe
from polyembed.data import TaggedSentence
from polyembed.embeddings import surface_scores
from polyembed.embeddings.surface import FeatureSum
from polyembed.encoders import WideAndDeepEncoder
from polyembed.tagging import export_program


def linear_tagger(deep=False, **options) -> pe.SequenceTagger:
    lexicon = toy_lexicon()
    embedder = surface_scores(lexicon, len(TAGS), num_buckets=5000, **options)
    encoder = None
    if deep:
        words = pe.SourceEmbedding.from_embedding(nn.Embedding(len(lexicon), 6), lexicon)
        embedder, encoder = (
            pe.MetaEmbedding.concat([words, embedder]),
            pe.LSTMSequenceEncoder(6, hidden_size=4),
        )
    context = WideAndDeepEncoder(encoder, len(TAGS), **options)
    decoder = pe.CRFDecoder(context.embedding_dim, len(TAGS), extra_emissions=True)
    return pe.SequenceTagger(embedder, TAGS, encoder=context, decoder=decoder)


def fill(tagger: pe.SequenceTagger) -> pe.SequenceTagger:
    torch.manual_seed(1)
    for value in tagger.parameters():
        if value.is_floating_point():
            nn.init.normal_(value)
    return tagger.eval()


@torch.no_grad()
def test_a_score_is_the_sum_over_features_of_the_window():
    tagger = fill(linear_tagger(window=1))
    words = ["me", "Gusta", "song"]
    own, near = tagger.embedder.embedders
    edges = tagger.encoder.edges

    def given(member, word):
        return sum(member.encoder.embedding.weight[i] for i in member.spelling.spell([word])[0])

    expected = torch.stack(
        [
            given(own, word)
            + (given(near, words[t - 1])[: len(TAGS)] if t > 0 else edges[0])
            + (given(near, words[t + 1])[len(TAGS) :] if t + 1 < len(words) else edges[1])
            for t, word in enumerate(words)
        ]
    )
    tagger = tagger.with_words(words)
    inputs, mask = tagger.encode([words])
    torch.testing.assert_close(tagger.emissions(inputs, mask)[0], expected)


def test_features_left_out_in_training_keep_the_mean():
    layer = FeatureSum(10, 2, dropout=0.5)
    nn.init.ones_(layer.embedding.weight)
    ids = torch.tensor([[1, 2, 3, 0]]).expand(4000, 4)
    totals = layer(ids)[:, 0]
    assert set(totals.tolist()) == {0.0, 2.0, 4.0, 6.0}
    assert totals.mean().item() == pytest.approx(3.0, abs=0.15)
    assert torch.equal(
        layer.eval()(ids[:1]), torch.full((1, 2), 3.0)
    )  # the padding's row is not used


@pytest.mark.parametrize("deep", [False, True])
def test_it_learns_and_is_saved(deep, tmp_path):
    sentences = [
        TaggedSentence(tuple(words), tuple(TAGS[len(word) % len(TAGS)] for word in words))
        for words in SENTENCES
    ]
    torch.manual_seed(0)
    tagger = linear_tagger(deep)
    linear = [part.embedding.weight for part in tagger.modules() if isinstance(part, FeatureSum)]
    others = [value for value in tagger.parameters() if not any(value is one for one in linear)]
    groups = [{"params": others}, {"params": linear, "lr": 1.0, "eps": 1.0}]
    options = pe.FitOptions(
        num_train_epochs=30,
        optimizer=lambda _: torch.optim.Adam(groups, lr=0.01),
        metric="accuracy",
    )
    pe.fit(tagger, sentences, sentences, options, progress=False)
    tagger.save_pretrained(tmp_path)
    for model in (tagger, pe.SequenceTagger.from_pretrained(tmp_path)):
        assert model.predict(SENTENCES) == [list(sentence.tags) for sentence in sentences]


def test_it_exports():
    rule = r"^tagger\.encoder must be without recurrence"
    refused(TypeError, rule, export_program, linear_tagger(deep=True).eval())
    tagger = fill(linear_tagger())
    ids, mask = tagger.encode([*SENTENCES, ["me"]])
    mask[0, 0] = False  # a hole in the mask
    found, expected = export_program(tagger).module()(ids, mask)[0], tagger.emissions(ids, mask)
    torch.testing.assert_close(found[mask], expected[mask], rtol=1e-5, atol=1e-5)
