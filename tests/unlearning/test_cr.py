"""CR: second order on logistic loss, residual within its bound (T9)."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from torch import nn

from residuum.core.errors import InputError, ResiduumWarning
from residuum.core.seeds import generator
from residuum.models import build_model, forward, give_unit_head, head_features, head_of, load_weights, save_weights
from residuum.theory import gaussian_epsilon, objective_epsilon, output_epsilon
from residuum.unlearning import CR, Context, make_method, unlearn
from residuum.unlearning.cr import Objective, fit_heads, newton_removal


def objective(n: int = 60, d: int = 5, classes: int = 3, *, l2: float = 0.02, std: float = 1.0):
    noise = generator(7)
    y = torch.randint(classes, (n,), generator=noise)
    centers = torch.randn(classes, d, generator=noise, dtype=torch.float64)
    x = F.normalize(centers[y] + torch.randn(n, d, generator=noise, dtype=torch.float64), dim=1)
    offset = std * torch.randn(classes, d, generator=noise, dtype=torch.float64)
    made = Objective(x, 2.0 * F.one_hot(y, classes).double() - 1, l2, offset, torch.ones(n, dtype=torch.float64))
    return made, y


def without(every: Objective, count: int, weight: float = 0.0) -> Objective:
    weights = every.weights.clone()
    weights[:count] = weight
    return every._replace(weights=weights)


def slow_removal(heads, x, y, forget, l2, offsets):
    """Newton's step and its bound on the logistic loss, head by head and sample by sample in numpy."""
    kept, after, bounds = x[~forget], [], []
    for k, w in enumerate(heads):
        signs = np.where(y == k, 1.0, -1.0)
        slopes = [-t / (1 + math.exp(t * (row @ w))) * row + l2 * w for row, t in zip(x, signs, strict=True)]
        shares = [1 / (1 + math.exp(-row @ w)) for row in kept]
        curvature = sum(s * (1 - s) * np.outer(row, row) for s, row in zip(shares, kept, strict=True))
        left = np.array(slopes)[~forget].sum(axis=0) + offsets[k]
        move = np.linalg.solve(curvature + l2 * len(kept) * np.eye(len(w)), left)
        bent = np.linalg.svd(kept)[1][0] * np.linalg.norm(move) * np.linalg.norm(kept @ move) / 4
        after.append(w - move)
        bounds.append(np.linalg.norm(sum(slopes) + offsets[k]) + bent)
    return np.stack(after), np.array(bounds)


def test_gradient_and_curvature_are_derivatives_of_the_value():
    every, _ = objective()
    every = without(every, 10, 0.5)
    heads = torch.randn(3, 5, generator=generator(1), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(every.value(heads).sum(), heads, create_graph=True)
    assert torch.allclose(gradient, every.gradient(heads.detach()), atol=1e-10)
    for k in range(3):
        for j in range(5):
            (row,) = torch.autograd.grad(gradient[k, j], heads, retain_graph=True)
            assert torch.allclose(row[k], every.curvature(heads.detach())[k, j], atol=1e-10)


def test_fit_is_the_minimizer_of_a_general_solver():
    every, y = objective()
    heads = fit_heads(every)
    assert every.gradient(heads).norm(dim=1).max() <= 1e-10 * len(y)
    x, b = every.x.numpy(), every.offset.numpy()
    for k in range(3):
        signs = np.where(y.numpy() == k, 1.0, -1.0)

        def value(w, signs=signs, b=b[k]):
            return np.logaddexp(0, -signs * (x @ w)).sum() + every.l2 * len(x) / 2 * w @ w + b @ w

        assert np.allclose(heads[k].numpy(), minimize(value, np.zeros(5), tol=1e-9).x, atol=1e-5)


def test_removal_on_logistic_loss_is_of_second_order():
    every, _ = objective()
    heads = fit_heads(every)
    errors = []
    for share in (0.4, 0.2, 0.1, 0.05):
        kept = without(every, 6, 1 - share)
        errors.append((newton_removal(heads, every, kept).heads - fit_heads(kept)).norm().item())
    ratios = [big / small for big, small in pairwise(errors)]
    assert all(3.3 < ratio < 4.9 for ratio in ratios), ratios


@pytest.mark.parametrize("count", [1, 5, 20])
@pytest.mark.parametrize("l2", [1e-3, 1e-1])
def test_measured_residual_never_exceeds_the_bound(count, l2):
    every, _ = objective(l2=l2)
    kept, heads = without(every, count), fit_heads(every)
    removal = newton_removal(heads, every, kept)
    residual = kept.gradient(removal.heads).norm(dim=1)
    assert bool((residual <= removal.bounds).all())
    assert bool((residual < kept.gradient(heads).norm(dim=1)).all())


def test_bound_counts_what_a_bad_fit_left():
    every, _ = objective()
    heads = fit_heads(every) + 0.05
    kept = without(every, 3)
    removal = newton_removal(heads, every, kept)
    assert bool((kept.gradient(removal.heads).norm(dim=1) <= removal.bounds).all())
    assert bool((every.gradient(heads).norm(dim=1) > 0.01).all())


def test_removal_agrees_with_a_slow_loop():
    every, y = objective()
    heads = fit_heads(every)
    ours, forget = newton_removal(heads, every, without(every, 8)), np.arange(60) < 8
    after, bounds = slow_removal(heads.numpy(), every.x.numpy(), y.numpy(), forget, every.l2, every.offset.numpy())
    assert np.allclose(ours.heads.numpy(), after, atol=1e-8)
    assert np.allclose(ours.bounds.numpy(), bounds, rtol=1e-4)


def test_output_noise_hides_the_distance_to_the_refit():
    """No assumption on independence: two fixed points and one Gaussian."""
    every, _ = objective(std=0.0)
    kept = without(every, 5)
    removal = newton_removal(fit_heads(every), every, kept)
    distance, residual = float((removal.heads - fit_heads(kept)).norm()), float(removal.bounds.norm())
    assert 0 < distance <= residual / (every.l2 * 55)
    assert gaussian_epsilon(distance / 0.1, 1e-5) <= output_epsilon(residual, 55, every.l2, 0.1, 1e-5).value


def test_offset_must_be_part_of_the_gradient():
    every, _ = objective(std=3.0)
    kept, heads = without(every, 6), fit_heads(every)
    exact = fit_heads(kept)
    with_offset = newton_removal(heads, every, kept).heads
    slope = kept.gradient(heads) - kept.offset
    forgetting_it = heads - torch.linalg.solve(kept.curvature(heads), slope)
    assert (with_offset - exact).norm() < 0.3 * (heads - exact).norm() < (forgetting_it - exact).norm()


def test_nothing_to_forget_changes_nothing():
    every, _ = objective()
    heads = fit_heads(every)
    assert torch.allclose(newton_removal(heads, every, every).heads, heads, atol=1e-12)


def test_step_size_scales_the_step():
    every, _ = objective()
    heads, kept = fit_heads(every), without(every, 6)
    full, tenth = (newton_removal(heads, every, kept, step_size=size).heads - heads for size in (1.0, 0.1))
    assert full.norm() > 1e-3
    assert torch.allclose(tenth, full / 10, atol=1e-12)


def heads_of(model: nn.Module) -> torch.Tensor:
    return model.fc[1].weight.detach()


@pytest.mark.filterwarnings("ignore:the certificate")
def test_the_method_fits_on_unit_features_and_removes(original, splits):
    method = CR(l2=0.01, std=0.5)
    done = unlearn(original, splits, method, seed=3)
    after = done.model
    x = F.normalize(
        torch.cat([head_features(original, part) for part in (splits.retain, splits.forget)]).double(), dim=1
    )
    y = torch.cat([splits.retain.y, splits.forget.y]).numpy()
    offsets = 0.5 * torch.randn(3, 32, generator=generator(Context(3).noise_seed), dtype=torch.float64).numpy()
    signs = torch.from_numpy(np.where(y[:, None] == np.arange(3), 1.0, -1.0))
    ones = torch.ones(len(y), dtype=torch.float64)
    fitted = fit_heads(Objective(x, signs, 0.01, torch.from_numpy(offsets), ones)).numpy()
    forget = np.arange(len(y)) >= len(splits.retain)
    removed, bounds = slow_removal(fitted, x.numpy(), y, forget, 0.01, offsets)
    total = float(np.linalg.norm(bounds))
    assert np.allclose(heads_of(after).numpy(), removed, atol=1e-5)
    assert done.notes["bound"] == pytest.approx(total, rel=1e-4)
    assert done.notes["epsilon"] == pytest.approx(objective_epsilon(total, 0.5, 1e-4).value, rel=1e-4)
    printed = math.sqrt(2 * math.log(1.5 / 1e-4)) * total / 0.5
    assert done.notes["epsilon_printed"] == pytest.approx(printed, rel=1e-4)
    assert done.notes["residual"] <= done.notes["bound"]
    assert not np.allclose(fitted, removed, atol=1e-3)


def test_the_result_computes_heads_of_unit_features_and_keeps_the_body(original, splits):
    after = unlearn(original, splits, CR(), seed=1).model
    features = head_features(original, splits.test)
    expected = features / features.norm(dim=1, keepdim=True) @ heads_of(after).T
    assert torch.allclose(forward(after, splits.test), expected, atol=1e-5)
    body = {n: v for n, v in original.state_dict().items() if not n.startswith("fc.")}
    assert all(torch.equal(v, after.state_dict()[n]) for n, v in body.items())


@pytest.mark.filterwarnings("ignore:the certificate")
def test_it_learns(original, splits):
    after = unlearn(original, splits, CR(l2=1e-3, std=0.1), seed=1).model
    assert forward(after, splits.test).argmax(1).eq(splits.test.y).double().mean() > 0.8


def test_weights_file_rebuilds_the_head(tmp_path, splits):
    model = build_model("cnn", (1, 8, 8), 3, width=2, seed=0)
    after = unlearn(model, splits, CR(), seed=1).model
    save_weights(after, tmp_path / "cr.safetensors")
    loaded = load_weights(tmp_path / "cr.safetensors")
    assert loaded.architecture == after.architecture == model.architecture | {"head": "unit"}
    assert torch.equal(forward(loaded, splits.test), forward(after, splits.test))
    assert "head" not in model.architecture


def test_a_plain_model_keeps_its_record(tmp_path):
    assert "head" not in build_model("cnn", (1, 8, 8), 3, seed=0).architecture
    with pytest.raises(InputError, match=r"unknown head 'round'.*linear, unit"):
        build_model("cnn", (1, 8, 8), 3, head="round", seed=0)


def test_no_epsilon_without_a_full_step(original, splits):
    for settings in ({"step_size": 0.5}, {"std": 0}):
        done = unlearn(original, splits, CR(**settings), seed=1)
        assert done.notes["epsilon"] is None
        assert "step_size = 1" in done.notes["epsilon_missing"]


@pytest.mark.filterwarnings("ignore:the certificate")
def test_over_budget_the_heads_are_fitted_anew(original, splits):
    done = unlearn(original, splits, CR(std=0.1, l2=0.01, budget=1e-9), seed=1)
    anew = done.model
    assert done.notes["heads_fitted_anew"]
    assert done.notes["epsilon"] < 1e-3 < done.notes["epsilon_of_the_step"]
    assert done.notes["constants"]["retained"] == len(splits.retain)
    every, forget = CR(std=0.1, l2=0.01).objective(original, splits, Context(1).noise_seed)
    exact = fit_heads(every._replace(weights=torch.where(forget, 0.0, every.weights)))
    assert torch.allclose(heads_of(anew).double(), exact, atol=1e-5)
    calm = unlearn(original, splits, CR(std=0.1, l2=0.01, budget=1e9), seed=1)
    assert "heads_fitted_anew" not in calm.notes


def test_a_useless_certificate_is_warned_about(original, splits):
    with pytest.warns(ResiduumWarning, match=r"certificate says next to nothing \(epsilon above 10\)"):
        unlearn(original, splits, CR(std=0.01, l2=1e-3), seed=1)


def test_a_whole_class_is_refused(original, class_splits, splits):
    with pytest.raises(InputError, match=r"cannot remove a whole class \(8\)"):
        unlearn(original, class_splits, CR(), seed=1)
    same = replace(class_splits, form="sample", forget_class=None)
    with pytest.raises(InputError, match="no positive sample"):
        unlearn(original, same, CR(), seed=1)


class Softened(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 3)

    def forward(self, x):
        return torch.tanh(self.fc(x.flatten(1)))


@pytest.mark.parametrize(
    ("model", "message"),
    [(nn.Sequential(nn.Conv2d(1, 3, 8), nn.Flatten()), "no nn.Linear layer"), (Softened(), "something follows it")],
)
def test_models_without_a_linear_head_are_refused(model, message, splits):
    with pytest.raises(InputError, match=message):
        unlearn(model, splits, CR(), seed=1)


def test_a_lone_linear_layer_has_no_features():
    with pytest.raises(InputError, match="no features before its head"):
        give_unit_head(nn.Linear(3, 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"l2": 0}, "l2: .*more than 0, got 0"),
        ({"step_size": 0}, "step_size: .*more than 0"),
        ({"step_size": 2}, "step_size: .*1 or less, got 2"),
        ({"delta": 1}, "delta: .*less than 1"),
        ({"std": -1}, "std: .*0 or more"),
        ({"epochs": 3}, "unknown setting of cr 'epochs'"),
    ],
)
def test_wrong_settings_are_refused_with_the_range(settings, message):
    with pytest.raises(InputError, match=message):
        make_method("cr", settings)


def test_a_unit_head_is_replaced_by_one_of_the_same_shape(tmp_path):
    model = give_unit_head(build_model("cnn", (1, 6, 6), 3, width=2, seed=1))
    names = list(model.state_dict())
    features = head_of(model)[1].in_features
    again = give_unit_head(model, torch.ones(3, features))
    assert list(again.state_dict()) == names
    assert torch.equal(head_of(again)[1].weight, torch.ones(3, features))
    save_weights(again, tmp_path / "model.safetensors")
    assert torch.equal(head_of(load_weights(tmp_path / "model.safetensors"))[1].weight, torch.ones(3, features))
