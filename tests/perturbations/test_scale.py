"""Units of features: a feature of scale 0 stays, others move by tau times their scale, whatever the perturbation."""

import numpy as np
import pytest
import torch
from torch import nn

from residuum.core.errors import InputError
from residuum.core.seeds import generator
from residuum.perturbations import FGSM, PGD, Gaussian, Substitution, UniformL2, UniformLinf

SCALE = (0.0, 1.0, 10.0)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Linear(3, 4)


@pytest.mark.parametrize("kind", [Gaussian, UniformLinf, UniformL2, FGSM, PGD])
def test_features_move_in_their_own_units_and_categories_not_at_all(kind, model):
    x, y = torch.randn(200, 3), torch.arange(200) % 4
    step = kind(0.1, bounds=None, scale=SCALE)(model, x, y, generator(0)) - x
    assert bool((step[:, 0] == 0).all())
    spread = step.abs().mean(0)
    if kind is not PGD:  # whose steps of alpha may end before the border
        assert spread[2] / spread[1] == pytest.approx(10, rel=0.3)
    if kind in (FGSM, UniformLinf, PGD):
        assert bool((step.abs() <= 0.1 * torch.tensor(SCALE) + 1e-5).all())


@pytest.mark.parametrize("kind", [Gaussian, PGD, FGSM])
def test_scale_one_is_no_scale(kind, model):
    x, y = torch.rand(20, 3), torch.arange(20) % 4
    plain, scaled = (kind(0.1, scale=scale)(model, x, y, generator(3)) for scale in (None, 1.0))
    assert torch.allclose(plain, scaled)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": -1.0}, "0 or more"),
        ({"scale": "wide"}, "finite numbers"),
        ({"unit": "std"}, "std with a layer"),
        ({"unit": "furlong", "at": "fc"}, "expected unit raw"),
        ({"scale": 2.0, "at": "fc"}, "got both"),
    ],
)
def test_units_that_mean_nothing_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Gaussian(**options)
    with pytest.raises(InputError, match="expected a scale for inputs of shape"):
        Gaussian(bounds=None, scale=(1.0, 2.0))(nn.Identity(), torch.rand(2, 3), torch.zeros(2), generator(0))


def test_settings_say_what_was_asked_for_and_nothing_else():
    assert Gaussian().settings() == {"name": "gaussian", "bounds": (0.0, 1.0)}
    assert Gaussian(at="fc", unit="std").settings() == {"name": "gaussian", "bounds": None, "at": "fc", "unit": "std"}
    assert Gaussian(bounds=None, scale=[1, 0]).settings()["scale"] == (1.0, 0.0)


def test_substitution_replaces_about_tau_of_the_free_tokens_by_uniform_ones():
    text = torch.randint(3, 50, (500, 40)).float()
    mask = (torch.arange(40) < 30).float().expand(500, 40)
    x = torch.stack([text, mask], 1)
    x[:, 0, 0] = 1.0  # kept
    attack = Substitution(0.2, vocabulary=50, keep=(0, 1, 2), mask=1)
    moved = attack(nn.Identity(), x, torch.zeros(500), generator(0))
    changed = moved[:, 0] != x[:, 0]
    assert torch.equal(moved[:, 1], mask)
    assert not changed[:, 0].any()
    assert not changed[:, 30:].any()
    assert changed[:, 1:30].double().mean() == pytest.approx(0.2 * 46 / 47, abs=0.01)
    new = moved[:, 0][changed].long()
    assert new.min() == 3
    counts = np.bincount(new.numpy(), minlength=50)[3:]
    assert counts.max() < 2 * counts.min() + 20


def test_substitution_at_a_larger_radius_keeps_the_tokens_it_replaced():
    x, rng = torch.randint(50, (20, 30)).float(), np.random.default_rng(0)
    attack = Substitution(vocabulary=50)
    randomness = attack.draw(rng, 20, (30,))
    near, far = (attack.with_radius(tau).apply(nn.Identity(), x, torch.zeros(20), randomness) for tau in (0.1, 0.5))
    replaced = near != x
    assert torch.equal(near[replaced], far[replaced])
    assert torch.equal(attack.with_radius(0.0).apply(nn.Identity(), x, torch.zeros(20), randomness), x)


@pytest.mark.parametrize("options", [{"tau": 1.5, "vocabulary": 9}, {"vocabulary": 0}, {"vocabulary": 1, "keep": (0,)}])
def test_substitutions_that_cannot_be_made_are_refused(options):
    with pytest.raises(InputError, match="substitution: expected tau <= 1"):
        Substitution(**options)
