import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from residuum.core.errors import InputError
from residuum.core.seeds import generator
from residuum.perturbations import PERTURBATIONS, Gaussian, UniformL2, UniformLinf, make_perturbation

ADDITIVE = [Gaussian, UniformL2, UniformLinf]
Y = torch.zeros(4000, dtype=torch.long)


def moved(kind, tau, x, seed=0):
    return kind()(nn.Identity(), x, Y[: len(x)], generator(seed), tau)


@pytest.mark.parametrize("kind", ADDITIVE)
def test_same_generator_state_same_result_and_inputs_unchanged(kind):
    x = torch.rand(5, 1, 4, 4)
    before = x.clone()
    assert torch.equal(moved(kind, 0.1, x), moved(kind, 0.1, x))
    assert not torch.equal(moved(kind, 0.1, x), moved(kind, 0.1, x, seed=1))
    assert torch.equal(x, before)


@pytest.mark.parametrize("kind", ADDITIVE)
def test_radius_zero_returns_the_input_and_large_radii_stay_in_the_unit_box(kind):
    x = torch.rand(50, 6)
    assert torch.equal(moved(kind, 0.0, x), x)
    far = moved(kind, 5.0, x)
    assert far.min() == 0
    assert far.max() == 1


@pytest.mark.parametrize("kind", ADDITIVE)
def test_noise_scales_with_the_radius_so_that_radii_share_a_draw(kind):
    x = torch.full((20, 6), 0.5)
    small, large = (moved(kind, tau, x) - x for tau in (0.01, 0.04))
    assert torch.allclose(4 * small, large, atol=1e-6)


def test_calls_in_a_row_use_fresh_noise():
    source, x = generator(3), torch.full((4, 6), 0.5)
    first, second = (Gaussian()(nn.Identity(), x, Y[:4], source, 0.1) for _ in range(2))
    assert not torch.equal(first, second)


def test_gaussian_noise_is_normal_with_std_tau():
    noise = (moved(Gaussian, 0.05, torch.full((4000, 3), 0.5)) - 0.5).numpy().ravel() / 0.05
    assert stats.kstest(noise, "norm").pvalue > 0.01


def test_linf_noise_is_uniform_in_the_cube():
    noise = (moved(UniformLinf, 0.05, torch.full((4000, 3), 0.5)) - 0.5).numpy().ravel() / 0.05
    assert stats.kstest(noise, "uniform", args=(-1, 2)).pvalue > 0.01


@pytest.mark.parametrize("d", [1, 3, 64])
def test_l2_noise_is_uniform_in_the_ball(d):
    noise = (moved(UniformL2, 0.3, torch.full((4000, d), 0.5)) - 0.5).numpy() / 0.3
    radius = np.linalg.norm(noise, axis=1)
    assert radius.max() <= 1 + 1e-5
    assert stats.kstest(radius**d, "uniform").pvalue > 0.01
    assert np.abs(noise.mean(0)).max() < 5 / np.sqrt(len(noise) * d)


def test_names_and_settings():
    for name, kind in PERTURBATIONS.items():
        assert make_perturbation(name) == kind()
        assert kind().settings()["name"] == name
        assert not {"tau", "bounds"} & set(kind().settings())


@pytest.mark.parametrize("tau", [-0.1, float("nan"), float("inf")])
def test_impossible_radii_are_refused(tau):
    with pytest.raises(InputError, match="expected a finite radius"):
        moved(Gaussian, tau, torch.rand(1, 2))


def test_unknown_names_are_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean gaussian"):
        make_perturbation("gausian")
