"""A10-A15: searches against closed forms and identities."""

import numpy as np
import pytest
import torch
from torch import nn

from residuum.auditing.predictor import Predictor
from residuum.auditing.probes import Depth, Evidence
from residuum.auditing.probes.boundary import easier_to_push, pushed_to
from residuum.auditing.probes.search import recovery_radii
from residuum.auditing.probes.worst_case import more_often, worst_case
from residuum.auditing.statistics import Classes, rank
from residuum.core.roles import Role
from residuum.core.samples import Samples, Splits

TAU = 0.4


def linear(seed, d=6):
    source = torch.Generator().manual_seed(seed)
    net = nn.Linear(d, 2)
    net.weight.data = torch.randn(2, d, generator=source)
    net.bias.data = -net.weight.data @ torch.full((d,), 0.5) + 0.1 * torch.randn(2, generator=source)
    return net.eval()


def points(n=40, d=6, seed=0, spread=0.1, name="p"):
    source = torch.Generator().manual_seed(seed)
    x = 0.5 + spread * (2 * torch.rand(n, d, generator=source) - 1)
    return Samples(x, torch.randint(2, (n,), generator=source), tuple(f"{name}{i}" for i in range(n)))


def exact_rho(net, samples):
    """|w.x + b| / ||w||_1, positive where the label is not predicted; valid where the ball ends before the clamp."""
    w, b = (net.weight[1] - net.weight[0]).double(), (net.bias[1] - net.bias[0]).double()
    value = samples.x.double() @ w + b
    return (-torch.where(samples.y == 1, value, -value) / w.abs().sum()).detach().numpy()


def test_a10_two_class_linear_models_have_the_closed_form_radius():
    net, samples = linear(1), points()
    found = recovery_radii(Predictor(net, samples.x), samples, tau_max=TAU, signed=True)
    exact = exact_rho(net, samples)
    assert np.abs(exact).max() < TAU
    assert (exact > 0).any()
    assert (exact < 0).any()
    assert np.abs(found.rho - exact).max() < TAU / 256
    assert (np.abs(found.rho) >= np.abs(exact) - 1e-6).all()  # a search can only give an upper bound
    unsigned = recovery_radii(Predictor(net, samples.x), samples, tau_max=TAU)
    assert np.allclose(unsigned.rho, np.where(exact > 0, found.rho, 0), atol=1e-12)


def test_a11_the_model_predicts_the_label_at_the_stored_input_whose_norm_is_rho(networks, samples):
    predictor = Predictor(networks["m"], samples.x)
    found = recovery_radii(predictor, samples, tau_max=0.5)
    known = np.isfinite(found.rho)
    assert known.any()
    assert (found.rho > 0).any()
    assert (predictor(found.x) == samples.y).numpy()[known].all()
    norms = (found.x.double() - samples.x.double()).abs().flatten(1).amax(1).numpy()
    assert np.array_equal(norms[known], found.rho[known])
    assert found.x.min() >= 0
    assert found.x.max() <= 1


def test_a_radius_beyond_the_largest_is_infinite():
    net, samples = linear(1), points()
    found = recovery_radii(Predictor(net, samples.x), samples, tau_max=0.02)
    exact = exact_rho(net, samples)
    assert np.array_equal(np.isinf(found.rho), exact > 0.02)


def test_a12_the_same_model_differs_by_0_and_the_same_samples_give_one_half():
    net, samples = linear(1), points()
    rho = recovery_radii(Predictor(net, samples.x), samples, tau_max=TAU, signed=True).rho
    classes = Classes(samples.y.numpy(), samples.y.numpy())
    same = rank(-rho, -rho, classes)
    assert same.auc == 0.5
    assert same.minus(same)[0] == 0.0


def test_samples_are_pushed_to_forgotten_labels_and_a_fragile_model_is_named():
    pool = Samples(torch.rand(30, 2), torch.arange(30) % 3, tuple(f"h{i}" for i in range(30)))
    forgotten = Samples(torch.rand(5, 2), torch.full((5,), 2), tuple("abcde"))
    chosen, labels = pushed_to(pool, forgotten, seed=1)
    assert len(chosen) == 5
    assert (chosen.y != 2).all()
    assert (labels == 2).all()
    assert easier_to_push(np.zeros(8), np.ones(8)) == pytest.approx(1 / 256)
    assert easier_to_push(np.ones(8), np.ones(8)) == 1.0


def test_a13_a14_a15_worst_cases_verify_are_nested_and_begin_with_the_clean_count(networks, reference, samples):
    model, other = (Predictor(net, samples.x) for net in (networks["m"], reference))
    radii = [0.1, 0.0, 0.05]
    found, inputs = worst_case(model, other, samples, radii, seed=3, restarts=2, steps=10)
    clean = ((model(samples.x) == samples.y) & (other(samples.x) != samples.y)).numpy()
    assert np.array_equal(found[:, 1], clean)
    assert (found[:, 1] <= found[:, 2]).all()
    assert (found[:, 2] <= found[:, 0]).all()
    assert found.any()
    for column, radius in enumerate(radii):
        rows = found[:, column]
        x = inputs[column]
        assert (x - samples.x).abs().max() <= radius + 1e-6
        assert x.min() >= 0
        assert x.max() <= 1
        assert ((model(x) == samples.y) & (other(x) != samples.y)).numpy()[rows].all()
    assert not worst_case(other, other, samples, radii, seed=3, restarts=2, steps=4)[0].any()


def test_a_search_finds_what_exists_between_two_linear_models():
    """In two classes m right and a wrong is two half-spaces: linear programming says where they meet a ball."""
    from scipy.optimize import linprog

    one, other, samples = linear(1), linear(2), points()
    model, reference = (Predictor(net, samples.x) for net in (one, other))
    radius = 0.05
    found, _ = worst_case(model, reference, samples, [radius], seed=3)
    exists = []
    for x, y in zip(samples.x.double().numpy(), samples.y.tolist(), strict=True):
        rows, sides = [], []
        for net, sign in ((one, 1), (other, -1)):
            w = (net.weight[1] - net.weight[0]).detach().double().numpy() * (1 if y == 1 else -1) * sign
            b = float((net.bias[1] - net.bias[0]).detach()) * (1 if y == 1 else -1) * sign
            rows.append(-w)
            sides.append(b - 1e-6)
        bounds = [(max(0, v - radius), min(1, v + radius)) for v in x]
        exists.append(linprog(np.zeros(len(x)), A_ub=rows, b_ub=sides, bounds=bounds).status == 0)
    exists = np.array(exists)
    assert not (found[:, 0] & ~exists).any()
    assert found[:, 0].sum() >= 0.9 * exists.sum() > 0


def test_mcnemar_counts_only_samples_found_for_one_of_both():
    model, control = np.array([1, 1, 1, 1, 0], bool), np.array([1, 0, 0, 0, 0], bool)
    assert more_often(model, control) == pytest.approx(1 / 8)
    assert more_often(control, model) == 1.0


def test_depth_is_the_mean_distance_to_the_edge_of_the_labels_region_in_closed_form():
    net, other = linear(1), linear(2)
    forget, heldout = points(), points(n=60, seed=5, name="h")
    splits = Splits(forget, forget, forget, forget, heldout, heldout, ("a", "b"))
    roles = {"retrain": Role.REFERENCE, "m": Role.METHOD}
    found = Depth(tau_max=TAU).measure(Evidence(splits, 1, roles, {"retrain": other, "m": net}, [0.1]))
    for label, model in {"m": net, "retrain": other}.items():
        assert found[label].value == pytest.approx(-exact_rho(model, forget).mean(), abs=TAU / 256)
        assert found[label].details["heldout"] == pytest.approx(-exact_rho(model, heldout).mean(), abs=TAU / 256)
    assert found["retrain"].p == 1.0  # no sample is nearer or farther
    further = Evidence(splits, 1, {"reference": Role.CONTROL}, {"reference": net}, [0.1])
    alone = Depth(tau_max=0.02).measure(further)["reference"]
    assert alone.value == pytest.approx(-exact_rho(net, forget).clip(-0.02, 0.02).mean(), abs=0.02 / 256)
    assert alone.p is None
