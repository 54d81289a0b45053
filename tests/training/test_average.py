"""The mean of several epochs' weights, also of a run that was resumed."""

import pytest
import torch
from cases import tagger
from toys import toy_corpus

from polyembed.training import FitOptions, fit


def options(average: int, epochs: int = 5) -> FitOptions:
    return FitOptions(
        num_train_epochs=epochs,
        metric="accuracy",
        average=average,
        batch_size=2,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.05),
    )


@pytest.mark.parametrize("average", [1, 2, 99])
def test_the_best_epochs_are_averaged(average: int, tmp_path) -> None:
    data = toy_corpus(1)

    def train(epochs: int, checkpoint=None):
        torch.manual_seed(0)
        model, seen = tagger()(), []
        result = fit(
            model, data, data, options(average, epochs), checkpoint=checkpoint,
            on_epoch=lambda epoch: seen.append({name: p.detach().clone() for name, p in model.named_parameters()}),
        )  # fmt: skip
        return model, seen, result

    model, seen, result = train(5)
    best = sorted(range(5), key=lambda i: -result.history[i].score)[:average]
    for name, value in model.named_parameters():
        torch.testing.assert_close(value, torch.stack([seen[i][name] for i in best]).mean(0))
    train(3, tmp_path)
    resumed, later, _ = train(5, tmp_path)
    assert len(later) == 2
    torch.testing.assert_close(
        dict(resumed.named_parameters()), dict(model.named_parameters()), rtol=0, atol=0
    )
