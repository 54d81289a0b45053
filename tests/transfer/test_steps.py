"""The loss that a model computes itself."""

import torch
from checks import refused
from tiny_models import SIZES, tiny_model, word_piece_tokenizer
from toys import own_words

import polyembed as pe
from polyembed.transfer.steps import model_loss


@own_words
def test_models_of_texts_return_it_and_those_of_transformers_name_it():
    from transformers import BertConfig, BertForTokenClassification

    encoder = pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer())
    tagger = pe.SequenceTagger(encoder, ["A", "B"]).eval()
    batch = tagger.collate([pe.data.TaggedSentence(("me", "gusta"), ("A", "B"))])
    assert torch.equal(model_loss(tagger, batch), tagger(**batch))
    theirs = BertForTokenClassification(BertConfig(**SIZES)).eval()
    ids = torch.tensor([[5, 6]])
    assert torch.equal(
        model_loss(theirs, {"input_ids": ids, "labels": ids % 2}), theirs(ids, labels=ids % 2).loss
    )
    message = r"^model must return a loss, got none from BertForTokenClassification \(give loss=, or labels"
    refused(TypeError, message, model_loss, theirs, {"input_ids": ids})
