"""The check that all analyses of labels begin with."""

from polyembed._checks import must, require
from polyembed.metrics import Labels


def check_labels(gold: Labels, **predicted: Labels) -> None:
    """Require sentences, and as many labels of each system for each sentence as the gold standard has."""
    require(any(len(right) for right in gold), "gold", "hold at least one sentence with a label", "none")
    for name, sentences in {"gold": gold, **predicted}.items():
        rule = f"have as many sentences as gold, {len(gold)}"
        require(len(sentences) == len(gold), name, rule, len(sentences))
        for index, (right, labels) in enumerate(zip(gold, sentences, strict=True)):
            if isinstance(labels, str):
                raise TypeError(must(f"{name}[{index}]", "be the labels of a sentence", f"the string {labels!r}"))
            rule = f"have as many labels as gold[{index}], {len(right)}"
            require(len(labels) == len(right), f"{name}[{index}]", rule, len(labels))
