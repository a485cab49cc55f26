import pytest
import torch
from torch import nn

from residuum.types import Samples


def make_samples(n=9, shape=(1, 6, 6), classes=4, seed=0):
    source = torch.Generator().manual_seed(seed)
    x = torch.rand((n, *shape), generator=source)
    y = torch.randint(classes, (n,), generator=source)
    return Samples(x, y, tuple(f"toy/{i:04d}" for i in range(n)))


def make_network(seed, classes=4):
    """A small network with batch-norm whose running statistics are not trivial, left in training mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(1, 5, 3, padding=1, bias=False),
            nn.BatchNorm2d(5),
            nn.ReLU(),
            nn.Conv2d(5, 6, 3, stride=2),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24, classes),
        )
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.3, 2)
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias, 0, 0.3)
        net[-1].weight.data *= 5
    return net.eval()


@pytest.fixture(scope="session")
def samples():
    return make_samples()


@pytest.fixture(scope="session")
def networks():
    return {"m": make_network(1), "n": make_network(2)}


@pytest.fixture(scope="session")
def reference():
    return make_network(3)
