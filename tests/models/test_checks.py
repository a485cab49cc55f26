"""Models that cannot be used are refused, and probabilities are noticed."""

import warnings

import pytest
import torch
from torch import nn

from residuum.models import build_model, check_model
from residuum.types import InputError, ResiduumWarning, Samples

SAMPLES = Samples(
    torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0)),
    torch.zeros(20).long(),
    tuple("abcdefghijklmnopqrst"),
)


def linear(outputs, *more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, outputs), *more)


class Broken(nn.Module):
    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, x):
        return self.output(x)


def poisoned(x):
    out = torch.randn(len(x), 3)
    out[2, 1] = float("nan")
    return out


@pytest.mark.parametrize("model", [linear(3), build_model("cnn", (1, 4, 4), 3, seed=1)])
def test_good_models_pass_in_silence(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_model(model, SAMPLES, 3)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (linear(4), r"returns 4 outputs per sample, but there are 3 classes; build it with 3 outputs"),
        (Broken(lambda x: x), r"must return logits \(16, 3\) for 16 samples, got \(16, 1, 4, 4\)"),
        (Broken(lambda x: torch.zeros(1, 3)), r"for 16 samples, got \(1, 3\)"),
        (Broken(poisoned), r"NaN or infinite logits for 'c'"),
        (Broken(lambda x: torch.full((len(x), 3), torch.inf)), r"NaN or infinite logits for 'a'"),
        (Broken(lambda x: {"logits": x}), r"cannot take inputs of shape \(1, 4, 4\)"),
        (nn.Linear(16, 3), r"cannot take inputs of shape \(1, 4, 4\) \(.*\)$"),
    ],
)
def test_unusable_models_are_refused(model, message):
    with pytest.raises(InputError, match=message) as caught:
        check_model(model, SAMPLES, 3)
    assert "\n" not in str(caught.value)


def test_probabilities_are_noticed():
    with pytest.warns(ResiduumWarning, match="returns probabilities"):
        check_model(linear(3, nn.Softmax(1)), SAMPLES, 3)


@pytest.mark.parametrize(
    "last", [nn.ReLU(), nn.LogSoftmax(1), nn.Sigmoid(), Broken(lambda x: x - x.mean(1, keepdim=True) + 1 / 3)]
)
def test_other_outputs_are_not_taken_for_probabilities(last):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_model(linear(3, last), SAMPLES, 3)


def test_the_model_is_left_as_it_was():
    model = build_model("cnn", (1, 4, 4), 3, seed=1).train()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    check_model(model, SAMPLES, 3)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
