"""What prepares the words of a sentence before a tagger looks them up."""

from collections.abc import Callable, Sequence

from polyembed._checks import check_sentences, check_words, require

Step = Callable[[list[str]], Sequence[str]]
Prepare = Step | Sequence[Step] | None


def prepare_words(
    prepare: Prepare, texts: Sequence[Sequence[str]], start: int = 0
) -> list[list[str]]:
    """Run the steps on each sentence; errors count sentences from `start`."""
    sentences = check_sentences(texts, start=start)
    steps = prepare if isinstance(prepare, Sequence) else [prepare] if prepare else []
    for step in steps:
        for i, words in enumerate(sentences):
            found = check_words(step(list(words)), name="what prepare returns")
            rule = f"keep the {len(words)} words of sentences[{start + i}]"
            require(len(found) == len(words), "prepare", rule, len(found))
            sentences[i] = found
    return sentences
