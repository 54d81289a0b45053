"""Writes the folders of `tests/data/format_1`, which every later version must open: python tests/write_format_1.py.

They stay as they are as long as format 1 is read. A new format gets a script and a folder of its own; this one then
serves to read how they came about, with the version of polyembed that their `config.json` names.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch

import polyembed as pe
from polyembed.vectors import FastTextVectors

sys.path.insert(0, str(Path(__file__).parent))

from tiny_models import tiny_model, word_piece_tokenizer
from toys import NEW_WORDS, SENTENCES, TAGS, toy_corpus, toy_lexicon

FOLDER = Path(__file__).parent / "data" / "format_1"
TEXTS = [*SENTENCES, NEW_WORDS, []]
PAIRS = [(SENTENCES[0], SENTENCES[1]), (SENTENCES[2], SENTENCES[2]), (SENTENCES[1], NEW_WORDS)]


def build_tagger(vectors: Path) -> pe.SequenceTagger:
    """Words and characters of the library's own kinds, with a file; a table in two places; a CRF with constraints."""
    lexicon, corpus = toy_lexicon(), [list(sentence.words) for sentence in toy_corpus(20)]
    source = FastTextVectors.train(corpus, vectors / "toy.bin", dim=5, min_count=1, bucket=50)
    shared = torch.nn.Embedding(len(lexicon), 3)
    hme = pe.HierarchicalMetaEmbedding(
        words=pe.MetaEmbedding.self_attention([pe.SourceEmbedding(source, lexicon), shared], embedding_dim=7),
        subwords=pe.UniqueWords(shared),
        characters=pe.SpelledEmbedding.from_characters(lexicon, pe.CharCNN(lexicon.num_characters, 5)),
    )
    encoder = pe.TransformerSequenceEncoder(
        hme.embedding_dim, hidden_size=12, num_layers=1, num_heads=2, feed_forward_size=8
    )
    decoder = pe.CRFDecoder(12, len(TAGS), constraints=pe.Constraints.bio(TAGS))
    return pe.SequenceTagger(pe.UniqueWords(hme), TAGS, encoder=encoder, decoder=decoder)


def build_classifier() -> pe.PairClassifier:
    """An encoder of transformers with its tokenizer, and a fusion of its layers."""
    encoder = pe.PretrainedWordEncoder(tiny_model("bert"), word_piece_tokenizer(), fusion=pe.ScalarMix(4))
    return pe.PairClassifier(encoder, ["no", "yes"], hidden_size=5)


@torch.no_grad()
def numbers(tagger: pe.SequenceTagger, classifier: pe.PairClassifier) -> dict[str, list[list[float]]]:
    """Give what tags and labels rest on."""
    emissions = tagger.eval().emissions(*tagger.encode(SENTENCES[:1]))[0]
    logits = classifier.eval().logits(*classifier.encode(PAIRS))
    return {
        name: [[round(value, 5) for value in row] for row in rows.tolist()]
        for name, rows in {"emissions": emissions, "logits": logits}.items()
    }


def adam(tagger: torch.nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam([p for p in tagger.parameters() if p.requires_grad], lr=0.02)


def main() -> None:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as vectors:
        tagger = build_tagger(Path(vectors))
        rows = [row for row in toy_corpus() if row.tags[0].startswith(("B", "O"))]
        options = pe.FitOptions(num_train_epochs=10, batch_size=4, optimizer=adam)
        pe.fit(tagger, rows, rows, options)
        tagger.save_pretrained(FOLDER / "tagger")
        classifier = build_classifier().eval()
        classifier.save_pretrained(FOLDER / "classifier")
        expected = {"tags": tagger.predict(TEXTS), **numbers(tagger, classifier)}
        (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
