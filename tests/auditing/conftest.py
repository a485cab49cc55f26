import numpy as np
import pytest
import torch
from torch import nn

from residuum.auditing import Auditor, Counts
from residuum.core.samples import Samples
from residuum.perturbations import make_perturbation

PATTERNS = np.array([[pattern >> bit & 1 for bit in (2, 1, 0)] for pattern in range(8)])  # original, model, reference


def counted(models, reference, samples, perturbation, *, draws, **options):
    """Return what `audit` does, with the further options of `Auditor.count`."""
    further = ("heldout", "seen", "batch_size", "progress", "checkpoint")
    how = {name: options.pop(name) for name in further if name in options}
    return Auditor(models, reference, make_perturbation(perturbation), **options).count(samples, draws, **how)


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


def make_counts(joint, labels=None, prefix="s", taus=None):
    """Return the counts of a table (n, T, 8) of draws per pattern; two models that are wrong say the same."""
    _, m, a = PATTERNS.T
    joint = np.asarray(joint)
    n, T = joint.shape[:2]
    return Counts.of_joint(
        [f"{prefix}{i:04d}" for i in range(n)],
        np.zeros(n) if labels is None else labels,
        np.linspace(0.1, 1, T) if taus is None else taus,
        joint,
        joint @ (m == a),
    )


def draw_table(rng, p, draws, repeats):
    """Return `repeats` studies as columns (n, repeats, 8); `p` (n, 3) or (n, repeats, 3) are chances to be right.

    Half of the draws decide for each model on its own, half for all three by one number.
    """
    p = np.broadcast_to(p if p.ndim == 3 else p[:, None], (len(p), repeats, 3))
    alone = np.prod(np.where(PATTERNS, p[..., None, :], 1 - p[..., None, :]), axis=-1)
    least_right = np.where(PATTERNS, p[..., None, :], 1.0).min(-1)
    most_wrong = np.where(PATTERNS, 0.0, p[..., None, :]).max(-1)
    together = np.maximum(least_right - most_wrong, 0)
    cells = (alone + together / together.sum(-1, keepdims=True)) / 2
    return rng.multinomial(draws, cells / cells.sum(-1, keepdims=True))


@pytest.fixture(scope="session")
def counts_of():
    return make_counts


@pytest.fixture(scope="session")
def drawn():
    return draw_table
