from dataclasses import dataclass

import pytest
import torch
from torch import nn

from residuum import Request, load_dataset, wrap
from residuum.core.samples import Samples
from residuum.data import read_data

MEAN, STD = 0.3, 0.37


class HerNet(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.1))
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        return self.fc(self.body(x))


def her_training(samples, seed, epochs=40):
    torch.manual_seed(seed)
    net = HerNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(samples)).split(64):
            x, y = samples.batch(rows)
            optimizer.zero_grad()
            nn.functional.cross_entropy(net((x - MEAN) / STD), y).backward()
            optimizer.step()
    return net.eval()


@dataclass(frozen=True)
class Case:
    train: Samples
    held_out: Samples
    net: nn.Module
    ids: list[str]

    @property
    def model(self):
        return wrap(self.net, mean=MEAN, std=STD)

    def request(self, **options):
        given = {"forget": self.ids, "held_out": self.held_out, "retrain": her_training} | options
        return Request(self.train, **given)


@pytest.fixture(scope="session")
def case():
    digits = load_dataset("digits").train
    x, y = digits.batch(torch.arange(len(digits)))
    train = read_data((x[:300], y[:300])).samples
    stranger = her_training(read_data((x[1500:], y[1500:])).samples, 9)
    with torch.no_grad():
        sure = stranger((train.x - MEAN) / STD).softmax(1)[torch.arange(300), train.y]
    hard = sorted(sure.argsort()[:24].tolist())  # what only a model that saw them knows
    return Case(train, read_data((x[900:1500], y[900:1500])).samples, her_training(train, 0), [str(k) for k in hard])
