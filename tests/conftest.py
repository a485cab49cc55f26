"""Fixtures that every folder of tests may use: small data, a trained model, and bitwise comparison."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from uuid import uuid4

import hypothesis
import pytest
import torch
import torch.nn.functional as F

from residuum.data import Dataset, make_splits
from residuum.models import build_model
from residuum.request import Request
from residuum.training import Recipe, train

torch.set_num_threads(1)  # more threads would not survive the forks of some tests, which would wait for them for ever

# a change must not fail for a case that its author did not draw; at home every run tries new cases
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


@pytest.fixture(autouse=True, scope="session")
def no_notes_at_home(tmp_path_factory):
    """Keep notes of what was written away from the developer's own; fixtures of modules write some, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def own_notes(no_notes_at_home, tmp_path_factory, monkeypatch):
    """Let no test find what another one noted."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "states" / uuid4().hex))


@pytest.fixture(autouse=True, scope="session")
def store_of_requests_elsewhere(tmp_path_factory):
    """Keep the store of requests out of the folder that the tests are started in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(Request.audit.__kwdefaults__, "store", tmp_path_factory.mktemp("store"))
        yield


def rounding():
    """Return a hash of a few steps of plain torch: machines that agree on it agree on the golden numbers."""
    generator = torch.Generator().manual_seed(0)
    filters, head = torch.randn(8, 1, 3, 3, generator=generator), torch.randn(128, 10, generator=generator) / 10
    digest = hashlib.sha256(torch.__version__.encode())
    for batch in (4, 41, 64):
        x, y = torch.rand(batch, 1, 8, 8, generator=generator), torch.arange(batch) % 10
        weights = [filters.clone().requires_grad_(), head.clone().requires_grad_()]
        for _ in range(3):
            features = F.max_pool2d(F.relu(F.conv2d(x, weights[0], padding=1)), 2).flatten(1)
            loss = F.cross_entropy(features @ weights[1], y)
            weights = [
                (weight - 0.1 * gradient).detach().requires_grad_()
                for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True)
            ]
        for weight in weights:
            digest.update(weight.detach().numpy().tobytes())
    return digest.hexdigest()


@pytest.fixture
def golden_machine():
    """Skip a test of exact numbers on processors and versions of torch that round otherwise."""
    if rounding() != (Path(__file__).parent / "golden" / "rounding.txt").read_text(encoding="utf-8").strip():
        pytest.skip("this processor or this version of torch rounds otherwise than the golden files")


def clustered_dataset(n=90, classes=3, shape=(1, 6, 6), seed=0):
    """Noisy copies of one pattern per class, so that a small network learns them in a second."""
    noise = torch.Generator().manual_seed(seed)
    patterns = torch.rand(classes, *shape, generator=noise)
    y = torch.arange(n) % classes
    x = (0.6 * patterns[y] + 0.4 * torch.rand(n, *shape, generator=noise)).clamp(0, 1)
    return Dataset.from_arrays(x.numpy(), y.numpy())


@pytest.fixture(scope="session")
def splits():
    return make_splits(
        clustered_dataset(), forget_class=0, forget_fraction=0.5, train_size=50, validation_size=20, test_size=20
    )


@pytest.fixture(scope="session")
def class_splits():
    return make_splits(clustered_dataset(), forget_class=0, train_size=50, validation_size=20, test_size=20)


@pytest.fixture(scope="session")
def original(splits):
    start = build_model("cnn", (1, 6, 6), 3, width=2, seed=1)
    return train(start, splits.train, Recipe(epochs=5, lr=0.05, batch_size=16), seed=2)


@pytest.fixture(scope="session")
def same_weights():
    def equal(a, b, atol=0.0):
        left, right = a.state_dict(), b.state_dict()
        return left.keys() == right.keys() and all(
            torch.allclose(left[k].double(), right[k].double(), rtol=0, atol=atol) for k in left
        )

    return equal
