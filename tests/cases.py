"""A `Case` for every public module; `test_public.py` fails if one is missing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from contracts import Batch, Case
from tiny_models import VOCABULARY, word_piece_tokenizer
from torch import Tensor, nn
from toys import TAGS, WORDS, ToyPieces, ToyVectors, toy_bpe_tokenizer, toy_lexicon

import polyembed as pe
from polyembed.embeddings import FeatureEncoder, PieceTransformer
from polyembed.embeddings.piece_pooling import PieceMean
from polyembed.embeddings.surface import FeatureSum
from polyembed.encoders import (
    AIF,
    CachedEmbedder,
    LaserEncoder,
    LaserSentences,
    SingleLayer,
    WideAndDeepEncoder,
)
from polyembed.encoders.cached import WordFeatures
from polyembed.text.pairs import PairedPieces
from polyembed.vectors import OrthogonalMapping

DIMS = (5, 3, 2)
TRAINS = "every_parameter_gets_a_gradient"
COMPILE = "compiles_as_one_graph"
OPERATIONS = "as_many_operations_for_any_batch"
LOW = "low_precision_is_close"
BOOL = "a_mask_is_bool"
NO_TRANSITIONS = {TRAINS: "transitions serve the loss alone"}


def ids(rows: int, width: int) -> Batch:
    """Return ids of the toy lexicon that include padding, the unknown word and every word."""
    count = 2 + len(WORDS)
    return {"ids": torch.arange(rows * width).mul(7).remainder(count).reshape(rows, width)}


def units(rows: int, width: int) -> Batch:
    """Return spellings of all lengths from 0 to `width`."""
    units = torch.randint(1, 11, (rows, width))
    return {
        "ids": torch.where(
            torch.arange(width) < torch.arange(rows).remainder(width + 1)[:, None], units, 0
        )
    }


def mask(rows: int, width: int) -> Tensor:
    """Return a mask with a full row, an empty row, and then rows with holes."""
    mask = torch.rand(rows, width) < 0.6
    mask[:1], mask[1:2] = True, False
    return mask


def masked(name: str, dim: int) -> Callable[[int, int], Batch]:
    """Return a function that builds vectors in `name` and a mask."""
    return lambda rows, width: {
        name: torch.randn(rows, width, dim, dtype=torch.float64),
        "mask": mask(rows, width),
    }


def tagged(name: str, dim: int, num_tags: int) -> Callable[[int, int], Batch]:
    """Return a function that builds vectors in `name`, tags and a mask."""
    return lambda rows, width: {
        **masked(name, dim)(rows, width),
        "tags": torch.randint(num_tags, (rows, width)),
    }


def xs(*dims: int) -> Callable[[int, int], Batch]:
    """Return a function that builds one tensor per source."""
    return lambda rows, width: {
        "xs": [torch.randn(rows, width, dim, dtype=torch.float64) for dim in dims]
    }


def sentences(rows: int, width: int) -> Batch:
    """Return a batch of ids, tags and a mask."""
    return {
        "inputs": ids(rows, width)["ids"],
        "tags": torch.randint(len(TAGS), (rows, width)),
        "mask": mask(rows, width),
    }


Wrong = tuple[Callable[[Batch], Batch], type[Exception], str]


def changed(name: str, change: Callable[[Any], Any], error: type[Exception], message: str) -> Wrong:
    """Return a change that spoils an argument, and the error that the module must raise."""
    return lambda batch: {**batch, name: change(batch[name])}, error, message


def short(name: str, dim: int) -> Wrong:
    rule = rf"^{name} must have a last axis of size {dim}, got shape \(13, 4, {dim - 1}\)$"
    return changed(name, lambda x: x[..., :-1], ValueError, rule)


def flat(name: str, axes: str) -> Wrong:
    rule = rf"^{name} must have the axes \({axes}\), got shape \(4"
    return changed(name, lambda x: x[0], ValueError, rule)


one_sentence = changed("inputs", lambda x: x[0], ValueError, "^inputs must be a batch of sentences")


def narrow(name: str) -> Wrong:
    rule = rf"^{name} must have shape \(13, 4\), got \(13, 3\)$"
    return changed(name, lambda x: x[:, 1:], ValueError, rule)


def no_ids(name: str, said: str | None = None) -> Wrong:
    rule = rf"^{said or name} must be int64 or int32, got torch.float64$"
    return changed(name, Tensor.double, TypeError, rule)


def outside(name: str, count: int, by: int | None = None, said: str | None = None) -> Wrong:
    rule = rf"^{said or name} must be in \[0, {count}\)"
    return changed(name, lambda x: x + (by or count), ValueError, rule)


def vector_source(lexicon: pe.Lexicon, dim: int = 5, **options: Any) -> pe.SourceEmbedding:
    return pe.SourceEmbedding(ToyVectors(dim), lexicon, **options)


def characters(lexicon: pe.Lexicon) -> pe.SpelledEmbedding:
    cnn = pe.CharCNN(lexicon.num_characters, 5, character_dim=3, kernel_sizes=(2, 3))
    return pe.SpelledEmbedding.from_characters(lexicon, cnn)


def surface(lexicon: pe.Lexicon) -> pe.SpelledEmbedding:
    return pe.SpelledEmbedding.from_surface(
        lexicon,
        embedding_dim=5,
        features=["lower", "shape", "suffix2"],
        num_buckets=40,
        feature_dim=3,
        dropout=0.0,
    )


def pieces(lexicon: pe.Lexicon, **options: Any) -> pe.SpelledEmbedding:
    return pe.SpelledEmbedding.from_pieces(ToyPieces(4), lexicon, **options)


def meta(lexicon: pe.Lexicon) -> pe.MetaEmbedding:
    return pe.MetaEmbedding.self_attention(
        [vector_source(lexicon, dim) for dim in DIMS], embedding_dim=7
    )


def hierarchical(lexicon: pe.Lexicon) -> pe.HierarchicalMetaEmbedding:
    return pe.HierarchicalMetaEmbedding(
        words=meta(lexicon), subwords=pieces(lexicon), characters=characters(lexicon)
    )


def tagger(**parts: Any) -> Callable[[], pe.SequenceTagger]:
    def build():
        lexicon = toy_lexicon()
        return pe.SequenceTagger(
            meta(lexicon), TAGS, **{key: make() for key, make in parts.items()}
        )

    return build


def token_classifier() -> pe.TokenClassifier:
    lexicon = toy_lexicon()
    return pe.TokenClassifier(
        meta(lexicon), TAGS, criterion=pe.tagging.LabelCrossEntropy(label_smoothing=0.1)
    )


def reorder(modules: nn.ModuleList, order: Sequence[int]) -> nn.ModuleList:
    return nn.ModuleList(modules[j] for j in order)


def rtn(name: str, **options: Any) -> Case:
    return Case(
        name,
        lambda: pe.RepresentationTransformationNetwork(5, 3, **options),
        lambda rows, width: {"h": torch.randn(rows, width, 5, dtype=torch.float64)},
        wordwise=True,
        wrong=(short("h", 5),),
    )


def permute_attention(
    combiner: pe.embeddings.AttentionCombiner, batch: Batch, order: Sequence[int]
) -> Batch:
    combiner.projections = reorder(combiner.projections, order)
    combiner.in_dims = tuple(combiner.in_dims[j] for j in order)
    return {"xs": [batch["xs"][j] for j in order]} if "xs" in batch else batch


def permute_linear(
    combiner: pe.embeddings.LinearCombiner, batch: Batch, order: Sequence[int]
) -> Batch:
    blocks = combiner.projection.weight.data.split(combiner.in_dims, dim=1)
    combiner.projection.weight.data = torch.cat([blocks[j] for j in order], dim=1)
    combiner.in_dims = tuple(combiner.in_dims[j] for j in order)
    return {"xs": [batch["xs"][j] for j in order]}


def permute_meta(embedder: pe.MetaEmbedding, batch: Batch, order: Sequence[int]) -> Batch:
    embedder.embedders = reorder(embedder.embedders, order)
    return permute_attention(embedder.combiner, batch, order)


def embedder(name: str, grow: Callable[[pe.Lexicon], nn.Module], **options: Any) -> Case:
    count = len(WORDS) + 2
    wrong = (no_ids("ids"), outside("ids", count), outside("ids", count, -count))
    call = {"call": lambda module, batch: module(batch["ids"])}
    return Case(name, lambda: grow(toy_lexicon()), ids, grow=grow, wrong=wrong, **call, **options)


def combiner(name: str, build: Callable[[], nn.Module], **options: Any) -> Case:
    rule = r"^xs\[0\] must have a last axis of size 5, got shape \(13, 4, 4\)$"
    wrong = (
        changed("xs", lambda xs: xs[1:], ValueError, r"^xs must hold 3 sources, got 2$"),
        changed("xs", lambda xs: [x[..., :-1] for x in xs], ValueError, rule),
    )
    return Case(name, build, xs(*DIMS), wrong=wrong, **options)


def speller(name: str, build: Callable[[], nn.Module], **options: Any) -> Case:
    wrong = (no_ids("ids"), outside("ids", 11))
    return Case(name, build, units, padded=("ids",), wrong=wrong, **options)


def encoder(name: str, build: Callable[[], nn.Module], **options: Any) -> Case:
    wrong = (short("x", 5), flat("x", "batch, word, input_size"))
    return Case(name, build, masked("x", 5), padded=("x",), wordwise=True, wrong=wrong, **options)


def decoder(name: str, build: Callable[[int, int], nn.Module]) -> list[Case]:
    """Return the cases of a decoder: its emissions and its loss."""
    wrong = (short("features", 5), flat("features", "batch, word, dim"))
    unused = NO_TRANSITIONS if name.startswith("CRFDecoder") else {}
    emissions = Case(
        f"{name}.emissions",
        lambda: build(5, 3),
        masked("features", 5),
        padded=("features",),
        wordwise=True,
        wrong=wrong,
        exceptions=unused,
    )
    loss = Case(
        f"{name}.loss",
        lambda: build(5, 3),
        tagged("features", 5, 3),
        lambda module, batch: module.loss(**batch),
        padded=("features", "tags"),
        reduced=True,
        wide=True,
        wrong=(*wrong, narrow("tags"), outside("tags", 3, said="(tags|labels)")),
    )
    return [emissions, loss]


def whole_tagger(name: str, build: Callable[[], pe.SequenceTagger]) -> list[Case]:
    """Return the cases of a tagger: its emissions and its loss."""
    count = len(WORDS) + 2
    wrong = (
        outside("inputs", count, said="ids"),
        no_ids("inputs", "ids"),
        one_sentence,
    )

    def emissions(module, batch):
        return module.emissions(batch["inputs"], batch["mask"])

    return [
        Case(
            f"{name}.emissions",
            build,
            sentences,
            emissions,
            padded=("inputs",),
            wordwise=True,
            wrong=wrong,
            exceptions=NO_TRANSITIONS if hasattr(build().decoder, "crf") else {},
        ),
        Case(
            f"{name}.loss",
            build,
            sentences,
            padded=("inputs", "tags"),
            reduced=True,
            wide=True,
            wrong=(*wrong, no_ids("tags", "(tags|labels)")),
        ),
    ]


def ensemble(
    build: Callable[[], pe.SequenceTagger], **options: Any
) -> Callable[[], pe.VotingEnsemble]:
    """Return a function that builds an ensemble of three taggers with equal frozen tables."""
    return lambda: pe.VotingEnsemble([build() for _ in range(3)], **options)


def voters(name: str, build: Callable[[], pe.VotingEnsemble], **exceptions: str) -> list[Case]:
    """Return the cases of an ensemble: its mean loss, its mean probabilities and its votes."""
    wrong = (no_ids("inputs", "ids"), one_sentence)

    def probabilities(module, batch):
        return module.probabilities(batch["inputs"], batch["mask"])

    def decode(module, batch):
        return module.decode(batch["inputs"], batch["mask"])

    words = Case(
        name,
        build,
        sentences,
        padded=("inputs",),
        wordwise=True,
        wrong=wrong,
        exceptions=exceptions,
    )
    integers = {**exceptions, LOW: "tags are no floats"}
    return [
        replace(
            words,
            name=f"{name}.loss",
            padded=("inputs", "tags"),
            wordwise=False,
            reduced=True,
            wide=True,
            wrong=(*wrong, no_ids("tags", "(tags|labels)")),
        ),
        replace(words, name=f"{name}.probabilities", call=probabilities, wide=True),
        replace(words, name=f"{name}.decode", call=decode, trains=False, exceptions=integers),
    ]


def fusion(
    name: str, build: Callable[[], nn.Module], layers: int = 3, hidden: int = 4, **options: Any
) -> Case:
    """Return a case with the hidden states of all layers, concatenated on the last axis."""

    def call(module, batch):
        return module(list(batch["states"].chunk(layers, -1)), batch["mask"])

    flat_states = changed(
        "states", lambda x: x[0], ValueError, r"^hidden_states\[0\] must have the axes \("
    )
    made = masked("states", layers * hidden)
    return Case(
        name, build, made, call, padded=("states",), wordwise=True, wrong=(flat_states,), **options
    )


def words_of_pieces(rows: int, width: int) -> Batch:
    """Return ids of a tiny model's pieces, in which each piece is one word."""
    return {"ids": torch.randint(5, 23, (rows, width)), "mask": mask(rows, width)}


def tiny_bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(**SMALLEST, vocab_size=23, max_position_embeddings=16)
    return BertModel(config, add_pooling_layer=False)


def call_word_encoder(module: nn.Module, batch: Batch) -> Tensor:
    mask = batch["mask"]
    index = torch.where(mask.bool(), mask.int().cumsum(1) - 1, -1)
    return module(pe.Pieces(batch["ids"], mask, index.long(), batch["ids"].shape[1]))


def criterion(name: str, build: Callable[[], nn.Module]) -> Case:
    """Return the case of a loss over scores and labels. One label in seven does not count."""

    def make(rows, width):
        ids = torch.arange(rows * width).reshape(rows, width)
        return {
            "logits": torch.randn(rows, width, 5, dtype=torch.float64),
            "labels": torch.where(ids % 7 == 3, -100, ids % 5),
        }

    wrong = (no_ids("labels"), narrow("labels"), outside("labels", 5))
    return Case(name, build, make, reduced=True, wide=True, wrong=wrong)


def text_classifier() -> pe.SequenceClassifier:
    return pe.SequenceClassifier(
        meta(toy_lexicon()),
        ["bad", "good", "so"],
        encoder=pe.TransformerSequenceEncoder(7, **SIZES),
        hidden_size=3,
        pooling="mean",
        dropout=0.0,
        criterion=pe.tagging.FocalLoss(),
    )


def classifier(name: str, build: Callable[[], nn.Module]) -> list[Case]:
    """Return the cases of a text classifier: its scores and its loss."""

    def make(rows, width):
        return {
            **ids(rows, width),
            "mask": mask(rows, width),
            "labels": torch.arange(rows).remainder(4) - 1,
        }

    def logits(module, batch):
        return module.logits(batch["ids"], batch["mask"])

    def loss(module, batch):
        labels = torch.where(batch["labels"] < 0, -100, batch["labels"])
        return module(batch["ids"], labels=labels, mask=batch["mask"])

    return [
        Case(f"{name}.logits", build, make, logits, padded=("ids",)),
        Case(f"{name}.loss", build, make, loss, padded=("ids",), reduced=True, wide=True),
    ]


def pair_classifier() -> pe.PairClassifier:
    lexicon = toy_lexicon()
    return pe.PairClassifier(meta(lexicon), ["no", "yes"], pooling="max", hidden_size=3)


def of_pairs(rows: int, width: int) -> Batch:
    first, second = ids(rows, width)["ids"], ids(rows, width)["ids"].flip(0)
    return {"first": first, "second": second, "mask": mask(rows, width)}


def call_pairs(module: nn.Module, batch: Batch) -> Tensor:
    both = torch.stack([batch["first"], batch["second"]], 1)
    return module.logits(both, torch.stack([batch["mask"], batch["mask"]], 1))


def call_joint(module: nn.Module, batch: Batch) -> Tensor:
    """Compute the scores of pairs in which every other piece belongs to the second text."""
    mask, ids = batch["mask"], batch["ids"]
    types = torch.arange(ids.shape[1]).remainder(2).expand_as(ids)
    return module.logits(
        PairedPieces(pe.Pieces(ids, mask, torch.full_like(ids, -1)), types.to(ids))
    )


def call_text(module: nn.Module, batch: Batch) -> Tensor:
    ids = batch["ids"]
    return module.logits(pe.Pieces(ids, batch["mask"], torch.full_like(ids, -1)))


def spelled_words(rows: int, width: int) -> Batch:
    """Return words of one id each: a character, or a piece without a text."""
    return {"ids": torch.randint(4, 11 + len(VOCABULARY), (rows, width)), "mask": mask(rows, width)}


def call_character_encoder(module: nn.Module, batch: Batch) -> Tensor:
    ids, mask = batch["ids"], batch["mask"]
    symbols = torch.stack([torch.full_like(ids, 2), ids], -1).flatten(
        1
    )  # the mark of a word's edge precedes each id
    index = torch.where(mask.bool(), mask.int().cumsum(1) - 1, -1).long()
    twice = (part.repeat_interleave(2, 1) for part in (mask, index))
    return module(pe.Pieces(symbols, *twice, ids.shape[1]))


def character_encoder() -> pe.CharWordEncoder:
    encoder = pe.PretrainedWordEncoder(tiny_bert(), word_piece_tokenizer(), pooling="mean")
    return pe.CharWordEncoder(
        encoder, pe.encoders.Char2Subword("abcdefg", 4, **CHARACTERS), unit="word"
    )


def cached_embedder() -> CachedEmbedder:
    encoder = pe.PretrainedWordEncoder(tiny_bert())
    return CachedEmbedder(encoder, layers=[0, 1], fusion=pe.ScalarMix(2))


def laser_encoder(num_layers: int = 2, **options: Any) -> LaserEncoder:
    return LaserEncoder(23, 4, 3, num_layers=num_layers, **options)


def token_ids(rows: int, width: int) -> Batch:
    """Return ids of pieces under the argument name that `LaserEncoder` uses."""
    batch = words_of_pieces(rows, width)
    return {"token_ids": batch["ids"], "mask": batch["mask"]}


def laser_states(name: str, call: Callable[[nn.Module, Batch], Tensor], **options: Any) -> Case:
    wrong = (
        no_ids("token_ids"),
        flat("token_ids", "batch, piece"),
        outside("token_ids", 23),
    )
    build = lambda: laser_encoder(dictionary=toy_bpe_tokenizer().dictionary)  # noqa: E731
    return Case(
        name, build, token_ids, call, padded=("token_ids",), wrong=wrong, exceptions=LSTM, **options
    )


def laser_words(name: str, build: Callable[[], nn.Module], **exceptions: str) -> Case:
    """Return a case of words with two pieces, where the last word of a row may have one piece."""

    def call(module, batch):
        mask = batch["mask"]
        index = torch.where(mask, (mask.int().cumsum(1) - 1).div(2, rounding_mode="floor"), -1)
        return module(pe.Pieces(batch["ids"], mask, index.long(), batch["ids"].shape[1]))

    exceptions = {BOOL: "its mask is called piece_mask", **exceptions}
    return Case(
        name, build, words_of_pieces, call, padded=("ids",), wordwise=True, exceptions=exceptions
    )


SMALLEST = {
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 5,
}
CHARACTERS = {"hidden_size": 4, "num_layers": 1, "num_heads": 2, "readout_size": 5, "num_places": 3}
LSTM = {
    COMPILE: "torch compiles no LSTM",
    OPERATIONS: "a recurrent network walks from word to word",
}
GRU = {COMPILE: "torch compiles no GRU", OPERATIONS: "it walks through the longest word"}
SIZES = {"hidden_size": 4, "num_layers": 2, "num_heads": 2, "feed_forward_size": 7}
TRANSFORMER_SOFTMAX = tagger(
    encoder=lambda: pe.TransformerSequenceEncoder(7, **SIZES),
    decoder=lambda: pe.SoftmaxDecoder(4, len(TAGS)),
)

PIECES = {
    TRAINS: "the bias of attention's keys has no effect",
    BOOL: "its mask is called piece_mask",
}

CASES: list[Case] = [
    criterion(
        "LabelCrossEntropy",
        lambda: pe.tagging.LabelCrossEntropy([1.0, 2, 0, 4, 3], label_smoothing=0.1),
    ),
    criterion("FocalLoss", lambda: pe.tagging.FocalLoss(0.5, weights=[1.0, 2, 0, 4, 3])),
    *classifier("SequenceClassifier", text_classifier),
    Case(
        "SequenceClassifier.pieces",
        lambda: pe.SequenceClassifier(
            pe.PretrainedWordEncoder(tiny_bert()), ["bad", "good"], dropout=0.0
        ),
        words_of_pieces,
        call_text,
        padded=("ids",),
        exceptions=PIECES,
    ),
    Case(
        "PairClassifier",
        pair_classifier,
        of_pairs,
        call_pairs,
        padded=("first", "second"),
        exceptions={BOOL: "its mask is of both texts"},
    ),
    Case(
        "PairClassifier.joint",
        lambda: pe.PairClassifier(
            pe.PretrainedWordEncoder(tiny_bert()), ["no", "yes"], pooling="mean", dropout=0.0
        ),
        words_of_pieces,
        call_joint,
        padded=("ids",),
        exceptions=PIECES,
    ),
    Case(
        "PretrainedWordEncoder",
        lambda: pe.PretrainedWordEncoder(tiny_bert(), fusion=pe.ScalarMix(2), pooling="mean"),
        words_of_pieces,
        call_word_encoder,
        padded=("ids",),
        wordwise=True,
        exceptions=PIECES,
    ),
    Case(
        "CachedEmbedder",
        cached_embedder,
        lambda rows, width: {
            "features": torch.randn(rows, width, 2, 4, dtype=torch.float64),
            "mask": mask(rows, width),
        },
        lambda module, batch: module(WordFeatures(**batch)),
        padded=("features",),
        wordwise=True,
    ),
    Case(
        "CharWordEncoder",
        character_encoder,
        spelled_words,
        call_character_encoder,
        padded=("ids",),
        wordwise=True,
        exceptions={
            TRAINS: "the bias of attention's keys has no effect",
            BOOL: "its mask is called piece_mask",
            COMPILE: "its units are found on the host",
            OPERATIONS: "torch.unique takes rows one by one",
        },
    ),
    speller("Char2Subword", lambda: pe.encoders.Char2Subword("abcdefg", 5, **CHARACTERS)),
    laser_states("LaserEncoder", lambda module, batch: module(**batch)),
    laser_states(
        "LaserEncoder.states",
        lambda module, batch: torch.cat(module.hidden_states(**batch), -1),
        wordwise=True,
    ),
    laser_words(
        "BPEBow", lambda: pe.encoders.BPEBow(laser_encoder().embed_tokens, toy_bpe_tokenizer())
    ),
    laser_words(
        "BPEGRU", lambda: pe.encoders.BPEGRU(laser_encoder().embed_tokens, hidden_size=3), **GRU
    ),
    laser_words(
        "LaserTop", lambda: pe.encoders.LaserTop(laser_encoder(), toy_bpe_tokenizer()), **LSTM
    ),
    laser_words(
        "LaserElmo", lambda: pe.encoders.LaserElmo(laser_encoder(3), freeze="embeddings"), **LSTM
    ),
    Case(
        "LaserSentences",
        lambda: LaserSentences(laser_encoder(), toy_bpe_tokenizer()),
        words_of_pieces,
        lambda module, batch: module(
            pe.Pieces(batch["ids"], batch["mask"], torch.full_like(batch["ids"], -1))
        ),
        padded=("ids",),
        exceptions=LSTM,
    ),
    fusion("LastLayer", pe.LastLayer),
    fusion("LayerAverage", lambda: pe.LayerAverage([0, -1])),
    fusion("ScalarMix", lambda: pe.ScalarMix(3)),
    fusion("SingleLayer", lambda: SingleLayer(-1, gate=AIF(4, reduction_ratio=2))),
    fusion("DLFA", lambda: pe.DLFA(4, 1, reduction_ratio=2)),
    fusion(
        "DLFA.literal",
        lambda: pe.DLFA(4, 0, reduction_ratio=2, weighting="literal", branches="global"),
    ),
    Case(
        "OrthogonalMapping",
        lambda: OrthogonalMapping(torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q),
        xs(4),
        lambda module, batch: module.transform(batch["xs"][0]),
        trains=False,
        wrong=(
            changed(
                "xs",
                lambda xs: [xs[0][..., :-1]],
                ValueError,
                r"^x must have a last axis of size 4",
            ),
            changed(
                "xs", lambda xs: [xs[0].long()], TypeError, r"^x must be floating point, got torch."
            ),
        ),
    ),
    Case(
        "AIF",
        lambda: pe.encoders.AIF(4, reduction_ratio=2, branches="local"),
        masked("x", 4),
        padded=("x",),
        wordwise=True,
        wrong=(short("x", 4),),
    ),
    combiner("ConcatCombiner", lambda: pe.embeddings.ConcatCombiner(DIMS)),
    combiner(
        "LinearCombiner", lambda: pe.embeddings.LinearCombiner(DIMS, 7), permute=permute_linear
    ),
    combiner(
        "AttentionCombiner",
        lambda: pe.embeddings.AttentionCombiner(DIMS, 7),
        permute=permute_attention,
    ),
    combiner(
        "AttentionCombiner.source",
        lambda: pe.embeddings.AttentionCombiner(DIMS, 7, attention="source", bias=True),
        permute=permute_attention,
    ),
    speller("CharCNN", lambda: pe.CharCNN(11, 5, character_dim=3, kernel_sizes=(1, 2, 6))),
    speller("FeatureSum", lambda: FeatureSum(11, 5, dropout=0.0)),
    speller("FeatureEncoder", lambda: FeatureEncoder(11, 11, 5, feature_dim=3, dropout=0.0)),
    speller("PieceMean", lambda: PieceMean(torch.randn(11, 1), freeze=False)),
    speller(
        "PieceTransformer",
        lambda: PieceTransformer(
            torch.randn(11, 3),
            freeze=False,
            hidden_size=4,
            num_heads=2,
            num_layers=2,
            kernel_size=3,
        ),
    ),
    embedder("SourceEmbedding", vector_source),
    embedder("SourceEmbedding.trained", lambda lexicon: vector_source(lexicon, freeze=False)),
    embedder("SpelledEmbedding", characters),
    embedder("SpelledEmbedding.surface", surface),
    embedder(
        "SpelledEmbedding.transformer",
        lambda lexicon: pieces(lexicon, pooling="transformer", num_heads=2),
    ),
    embedder("MetaEmbedding", meta, permute=permute_meta),
    embedder("HierarchicalMetaEmbedding", hierarchical),
    embedder("UniqueWords", lambda lexicon: pe.UniqueWords(hierarchical(lexicon))),
    embedder(
        "BakedEmbedding", lambda lexicon: pe.bake(hierarchical(lexicon).double()), trains=False
    ),
    encoder("TransformerSequenceEncoder", lambda: pe.TransformerSequenceEncoder(5, **SIZES)),
    encoder(
        "TransformerSequenceEncoder.windows",
        lambda: pe.TransformerSequenceEncoder(5, **SIZES, norm_first=False, kernel_size=3),
    ),
    encoder(
        "LSTMSequenceEncoder",
        lambda: pe.LSTMSequenceEncoder(5, hidden_size=3, num_layers=2),
        exceptions=LSTM,
    ),
    Case(
        "CRF",
        lambda: pe.CRF(3),
        tagged("emissions", 3, 3),
        lambda module, batch: module(**batch, reduction="none"),
        padded=("emissions", "tags"),
        wide=True,
        wrong=(
            short("emissions", 3),
            flat("emissions", "batch, word, tag"),
            narrow("tags"),
            outside("tags", 3, -3),
        ),
    ),
    encoder("WideAndDeepEncoder", lambda: WideAndDeepEncoder(None, 1)),
    encoder(
        "WideAndDeepEncoder.deep",
        lambda: WideAndDeepEncoder(
            pe.TransformerSequenceEncoder(2, hidden_size=4, dropout=0.0), 1, window=1
        ),
    ),
    *decoder("CRFDecoder", pe.CRFDecoder),
    *decoder("CRFDecoder.direct", lambda dim, tags: pe.CRFDecoder(dim, tags, extra_emissions=True)),
    *decoder("SoftmaxDecoder", pe.SoftmaxDecoder),
    *whole_tagger("TokenClassifier", token_classifier),
    *whole_tagger("SequenceTagger", tagger()),
    *whole_tagger("SequenceTagger.encoder", TRANSFORMER_SOFTMAX),
    Case(
        "ConformalTagger",
        lambda: pe.tagging.ConformalTagger(TRANSFORMER_SOFTMAX(), 0.4),
        lambda rows, width: {"probabilities": torch.rand(rows, width, 5, dtype=torch.float64)},
        lambda module, batch: module(batch["probabilities"]).to(batch["probabilities"].dtype),
        trains=False,
    ),
    *voters("VotingEnsemble", ensemble(tagger(decoder=lambda: pe.SoftmaxDecoder(7, len(TAGS))))),
    *voters("VotingEnsemble.soft", ensemble(TRANSFORMER_SOFTMAX, vote="soft"))[1:],
    voters(
        "VotingEnsemble.entity",
        ensemble(tagger(), vote="entity"),
        **{COMPILE: "entities are found on the host"},
    )[-1],
    rtn("RepresentationTransformationNetwork"),
    rtn("RepresentationTransformationNetwork.equation", residual=False, detach_input=False),
    rtn("RepresentationTransformationNetwork.separate", gate="separate"),
]

WAITS = {
    "UniqueWords": "how many words differ is a value",
    "CharWordEncoder": "its units are found on the host",
    "BPEGRU": "how many words have pieces is a value",
    "VotingEnsemble.entity.decode": "entities are voted on the host",
}
"""The modules whose call makes the host wait for the device, each with its reason."""
DEVICE = "stays_on_its_device_without_waiting"
CASES = [
    replace(case, exceptions={**case.exceptions, DEVICE: WAITS[known]}) if known else case
    for case in CASES
    for known in [next((name for name in WAITS if case.name.startswith(name)), None)]
]
