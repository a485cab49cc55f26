from __future__ import annotations

import pytest
import torch
from torch import nn

from residuum.core.samples import Splits
from residuum.core.seeds import generator
from residuum.data import load_dataset, make_splits
from residuum.models.layers import initialize
from residuum.training import Recipe, train


class Net(nn.Module):
    """Three convolutions with batch-norm; the tests' own, so that ours may change."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv3, self.bn3 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.relu, self.maxpool, self.avgpool = nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(32, 3)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.maxpool(self.relu(self.bn2(self.conv2(x))))
        x = self.maxpool(self.relu(self.bn3(self.conv3(x))))
        return self.fc(self.avgpool(x).flatten(1))


@pytest.fixture(scope="session")
def splits() -> Splits:
    sizes = {"train_size": 120, "validation_size": 60, "test_size": 60}
    return make_splits(load_dataset("digits"), classes=[1, 3, 8], forget_class=2, forget_fraction=0.5, **sizes)


@pytest.fixture(scope="session")
def class_splits() -> Splits:
    sizes = {"train_size": 120, "validation_size": 60, "test_size": 60}
    return make_splits(load_dataset("digits"), classes=[1, 3, 8], forget_class=2, **sizes)


@pytest.fixture(scope="session")
def initial():
    model = Net()
    initialize(model, generator(3))
    return model


@pytest.fixture(scope="session")
def original(initial, splits):
    return train(initial, splits.train, Recipe(epochs=6, lr=0.05, batch_size=32), seed=4)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
