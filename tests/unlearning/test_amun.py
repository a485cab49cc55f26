"""AMUN: the attack finds what the original misreads, and no more is trained on than that (U13-U15)."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from residuum.core.samples import Samples
from residuum.models import forward, wrap
from residuum.unlearning import AMUN, GD, unlearn
from residuum.unlearning.amun import nearest_errors
from residuum.unlearning.streams import joined

LOOP = {"epochs": 2, "lr": 0.05, "weight_decay": 1e-3, "batch_size": 32}


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.fixture(scope="module")
def errors(original, splits):
    return nearest_errors(original, splits.forget, 0.04, 12)


def test_u13_the_original_misreads_every_input_found_within_its_radius(errors, original, splits):
    moved, y = errors.x, splits.forget.y
    exact = copy.deepcopy(original).double().eval()
    assert errors.eps.isfinite().all()
    assert not exact(moved.double()).argmax(1).eq(y).any()
    assert moved.min() >= 0
    assert moved.max() <= 1
    distance = (moved.double() - splits.forget.x.double()).flatten(1).norm(dim=1)
    assert (distance <= errors.eps * (1 + 1e-6)).all()
    assert set((errors.eps / 0.04).log2().round(decimals=6).tolist()) <= {float(k) for k in range(13)} | {-torch.inf}


@pytest.mark.long
def test_u13_at_half_the_radius_the_attack_had_failed(errors, original, splits):
    for doublings in range(int((errors.eps.max() / 0.04).log2().round())):
        fewer = nearest_errors(original, splits.forget, 0.04, doublings)
        larger = errors.eps > 0.04 * 2**doublings * 1.01
        assert torch.equal(fewer.eps.isinf(), larger)
        assert torch.equal(fewer.x[~larger], errors.x[~larger])


def test_u14_without_copies_and_forget_samples_it_is_gd(original, splits):
    right = forward(original, splits.forget).argmax(1).eq(splits.forget.y).nonzero().flatten()
    splits = replace(splits, forget=splits.forget.subset(right.numpy()))
    whole = replace(splits, retain=joined(splits.retain, splits.forget))
    gd = unlearn(original, whole, GD(**LOOP), seed=3).model
    nothing = AMUN(**LOOP, eps=1e-12)
    assert same(gd, unlearn(original, splits, nothing, seed=3).model)
    assert not same(gd, unlearn(original, splits, AMUN(**LOOP), seed=3).model)


def test_u15_labels_differ_and_failures_are_absent_and_counted(original, splits):
    eps = 0.04 / 2**10  # the largest radius is too small for some
    few = nearest_errors(original, splits.forget, eps)
    samples = few.samples(splits.forget)
    names = [name.removesuffix("/adversarial") for name in samples.ids]
    rows = torch.tensor([splits.forget.ids.index(name) for name in names])
    assert 0 < len(samples) < len(splits.forget)
    assert not samples.y.eq(splits.forget.y[rows]).any()
    assert torch.equal(samples.x, few.x[rows])
    done = unlearn(original, splits, AMUN(**LOOP, eps=eps), seed=3)
    assert done.notes["adversarial"] == len(samples)
    assert done.notes["failed"] == len(splits.forget) - len(samples)
    trained = 2 * (len(splits.train) + len(samples))
    assert done.passes == few.passes + trained


def test_u15_samples_misread_as_they_are_count_as_such(original, splits):
    wrong = Samples(splits.forget.x, (splits.forget.y + 1) % 3, splits.forget.ids)
    errors = nearest_errors(original, wrong, 0.04, 0)
    already = int(errors.eps.eq(0).sum())
    assert already > 0
    assert torch.equal(errors.x[errors.eps == 0], splits.forget.x[errors.eps == 0])
    done = unlearn(original, replace(splits, forget=wrong), AMUN(**LOOP, eps=1e-12), seed=3)
    assert done.notes["already_misread"] == already


def test_a_label_that_fills_the_space_ends_the_search():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    with torch.no_grad():
        model[1].weight.mul_(1e-6)
        model[1].bias.copy_(torch.tensor([100.0, 0.0]))
    samples = Samples(torch.rand(3, 1, 2, 2), torch.zeros(3, dtype=torch.long), ("a", "b", "c"))
    errors = nearest_errors(model, samples, 0.04, 3)
    assert errors.eps.isinf().all()
    assert len(errors.samples(samples)) == 0
    assert errors.passes == 3 * 4 * 50


def test_the_model_is_left_as_it_was(original, splits):
    model = copy.deepcopy(original).train()
    before = copy.deepcopy(model)
    nearest_errors(model, splits.forget, 0.04, 1)
    assert same(model, before)
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_neighbors_of_forgotten_samples_are_misread_afterwards(original, splits, errors):
    after = unlearn(original, splits, AMUN(epochs=10, lr=0.03, batch_size=32), seed=3).model.eval()
    misread_alike = after(errors.x).argmax(1).eq(errors.y).double().mean()
    assert misread_alike > 0.5


@pytest.mark.parametrize(("scale", "radius"), [(1.0, 1.28), (0.5, 2.56), (0.1, 10.24)])
def test_the_radius_is_in_the_units_of_the_features(scale, radius):
    net = nn.Linear(2, 2)
    net.weight.data, net.bias.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.zeros(2)
    model = wrap(net, bounds=None, scale=scale)
    errors = nearest_errors(model, Samples(torch.tensor([[1.0, 0.0]]), torch.tensor([0]), ("a",)), 0.04, 12)
    assert errors.eps.item() == pytest.approx(radius)  # the first doubling of 0.04 beyond the boundary, at 1 / scale
    assert -0.2 <= errors.x[0, 0].item() < 0  # a step behind the boundary, not far beyond


def test_features_of_scale_0_are_left_alone():
    torch.manual_seed(0)
    model = wrap(nn.Linear(3, 2), bounds=None, scale=[1.0, 0.5, 2.0], categorical=[1])
    x = torch.rand(8, 3)
    errors = nearest_errors(model, Samples(x, model(x).argmax(1), tuple("abcdefgh")), 0.04, 12)
    assert errors.eps.isfinite().all()
    assert torch.equal(errors.x[:, 1], x[:, 1])
    away = ((errors.x - x) / torch.tensor([1.0, 1.0, 2.0])).norm(dim=1)
    assert (away <= errors.eps * (1 + 1e-5)).all()
