"""What does not fit is said: another order of classes, other inputs, training mode, foreign weights."""

import re

import numpy as np
import pytest
import torch
from tests.request.conftest import MEAN, STD, HerNet
from torch import nn

from residuum import InputError, Recipe, Request, wrap
from residuum.core.errors import ResiduumWarning
from residuum.request import Reading


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


def test_class_names_of_a_folder_in_another_order_number_its_classes(tmp_path):
    x, names = torch.eye(3).repeat(8, 1), ["cat", "dog", "fox"]
    for file in ("train", "held"):
        np.savez(tmp_path / f"{file}.npz", x=x + 0.1 * (file == "held"), y=np.arange(24) % 3, class_names=names)
    options = {"forget": ["3"], "held_out": tmp_path / "held.npz", "recipe": Recipe(epochs=1)}
    order = Reading(class_names=["fox", "cat", "dog"])
    request = Request(tmp_path / "train.npz", reading=order, **options)
    assert request.source.samples.y[:3].tolist() == request.held_out.y[:3].tolist() == [1, 2, 0]
    network = nn.Linear(3, 3)
    network.load_state_dict({"weight": 9 * torch.eye(3)[[2, 0, 1]], "bias": torch.zeros(3)})
    found = request.check(wrap(network, bounds=None))
    assert (found.training_accuracy, found.held_out_accuracy) == (100, 100)
    with pytest.raises(InputError, match="class_names: 'fox' is not among them: cat, dog, wolf"):
        Request(tmp_path / "train.npz", reading=Reading(class_names=["cat", "dog", "wolf"]), **options)


def test_class_names_in_another_order_than_a_data_sets_are_refused():
    class Pets(torch.utils.data.Dataset):
        classes = ("cat", "dog")

        def __len__(self):
            return 6

        def __getitem__(self, row):
            return torch.full((2,), row / 6), row % 2

    with pytest.raises(
        InputError, match="expected the order of the data set, cat, dog, because your training function"
    ):
        Request(Pets(), ["3"], reading=Reading(class_names=["dog", "cat"]))
    renamed = Request(Pets(), ["3"], reading=Reading(class_names=["Katze", "Hund"]))
    assert renamed.class_names == ("Katze", "Hund")


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
