"""A check of the wheel without the repository, run by `make dist` in a separate environment."""

import tempfile
from pathlib import Path

import torch

import polyembed as pe
from polyembed.data import load_sample

assert "site-packages" in pe.__file__, pe.__file__
assert (Path(pe.__file__).parent / "py.typed").exists()
torch.manual_seed(0)
sentences = load_sample("es-en", "dev")
lexicon = pe.Lexicon.from_sentences(sentence.words for sentence in sentences)
characters = pe.SpelledEmbedding.from_characters(lexicon, pe.CharCNN(lexicon.num_characters, 12))
tags = sorted({tag for sentence in sentences for tag in sentence.tags})
tagger = pe.SequenceTagger(characters, tags)
options = pe.FitOptions(
    optimizer=lambda tagger: torch.optim.Adam(tagger.parameters(), lr=1e-2),
    num_train_epochs=3,
    metric="accuracy",
)
result = pe.fit(tagger, sentences, sentences, options, progress=False)
assert result.history[-1].loss < result.history[0].loss
with tempfile.TemporaryDirectory() as folder:
    tagger.save_pretrained(folder)
    again = pe.SequenceTagger.from_pretrained(folder)
words = [["me", "gusta", "that", "song"]]
assert again.predict(words) == tagger.predict(words)
print(f"polyembed {pe.__version__}: installed, trained, saved and opened")
