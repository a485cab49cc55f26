"""What does not fit is said: another order of classes, other inputs, training mode, foreign weights."""

import re

import pytest
import torch
from tests.request.conftest import MEAN, STD, HerNet
from torch import nn

from residuum import InputError, Request, wrap
from residuum.core.errors import ResiduumWarning


def test_a_model_on_its_own_data_fits(case):
    found = case.request().check(case.model)
    assert found.fits
    assert found.training_accuracy > 95
    assert str(found).endswith("fits")


def test_another_order_of_classes_is_found(case):
    model = case.model
    order = torch.tensor([3, 1, 2, 0, 4, 5, 6, 7, 8, 9])
    with torch.no_grad():
        model.fc.weight.copy_(model.fc.weight[order])
        model.fc.bias.copy_(model.fc.bias[order])
    (problem,) = case.request().check(model).problems
    assert "in the order 3, 1, 2, 0, 4, 5, 6, 7, 8, 9" in problem


def test_forgotten_and_doubled_normalization_is_found(case):
    scaled = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    scaled.load_state_dict({"1.weight": torch.eye(64)[:10], "1.bias": torch.zeros(10)})
    assert any("weights, its training data" in text for text in case.request().check(scaled).problems)
    problems = case.request().check(wrap(case.net)).problems
    bright = wrap(nn.Sequential(nn.Flatten(), _Divided(case.net)))
    found = case.request().check(bright).problems
    assert any("multiplied by 255" in text for text in found), (problems, found)


class _Divided(nn.Module):
    """A network that was trained on pixels of 0 to 255."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net((x.view(-1, 1, 8, 8) / 255 - MEAN) / STD)


def test_training_mode_and_probabilities_are_said(case):
    model = case.model.train()
    assert any("training mode" in text for text in case.request().check(model).problems)
    sure = wrap(nn.Sequential(case.model, nn.Softmax(1)))
    with pytest.warns(ResiduumWarning, match="probabilities"):
        problems = case.request().check(sure).problems
    assert any("probabilities" in text for text in problems)


def test_foreign_weights_are_said(case):
    problems = case.request().check(wrap(HerNet(), mean=MEAN, std=STD)).problems
    assert any("are these its weights" in text for text in problems)


@pytest.mark.parametrize(("training", "held_out", "words"), [
    (1, 1, "data: expected labels 0..2, because the model returns 3 outputs, got 1..3; number the classes from 0"),
    (0, 2, "held_out: expected labels 0..2, because the model returns 3 outputs, got 4; number its classes as those"),
])  # fmt: skip
def test_labels_beyond_the_outputs_are_said_of_the_data_that_have_them(training, held_out, words):
    x, y = torch.rand(30, 4, generator=torch.Generator().manual_seed(1)), torch.arange(30) % 3
    request = Request((x, y + training), ["3"], held_out=(x + 1, y + held_out))
    with pytest.raises(InputError, match=re.escape(words)):
        request.check(wrap(nn.Linear(4, 3), bounds=None))


def test_where_the_logits_are_is_asked_first():
    x, y = torch.rand(30, 4, generator=torch.Generator().manual_seed(1)), torch.arange(30) % 3
    model = wrap(_Scores(nn.Linear(4, 3)), bounds=None)
    with pytest.raises(InputError, match=r"^expected logits from _Scores, which returns dict; say where .* logits=$"):
        Request((x, y), ["3"]).check(model)


class _Scores(nn.Module):
    """A network that returns a dictionary without `logits`."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return {"scores": self.net(x)}
