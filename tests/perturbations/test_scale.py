"""Units of features: a feature of scale 0 stays, others move by tau times their scale, whatever the perturbation."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from residuum.core.errors import InputError
from residuum.core.seeds import generator
from residuum.perturbations import FGSM, PGD, Gaussian, InputSpace, Substitution, UniformL2, UniformLinf
from residuum.studies.parsing import build_perturbation

SCALE = (0.0, 1.0, 10.0)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Linear(3, 4)


@pytest.mark.parametrize("kind", [Gaussian, UniformLinf, UniformL2, FGSM, PGD])
def test_features_move_in_their_own_units_and_categories_not_at_all(kind, model):
    x, y = torch.randn(200, 3), torch.arange(200) % 4
    step = kind()(model, x, y, generator(0), 0.1, InputSpace(None, SCALE)) - x
    assert bool((step[:, 0] == 0).all())
    spread = step.abs().mean(0)
    if kind is not PGD:  # whose steps of alpha may end before the border
        assert spread[2] / spread[1] == pytest.approx(10, rel=0.3)
    if kind in (FGSM, UniformLinf, PGD):
        assert bool((step.abs() <= 0.1 * torch.tensor(SCALE) + 1e-5).all())


@pytest.mark.parametrize("kind", [Gaussian, PGD, FGSM])
def test_scale_one_is_no_scale(kind, model):
    x, y = torch.rand(20, 3), torch.arange(20) % 4
    plain, scaled = (kind()(model, x, y, generator(3), 0.1, InputSpace(scale=scale)) for scale in (None, 1.0))
    assert torch.allclose(plain, scaled)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scale": -1.0}, "0 or more"),
        ({"scale": "wide"}, "finite numbers"),
        ({"unit": "std"}, "std with a layer"),
        ({"unit": "furlong", "at": "fc"}, "expected unit raw"),
    ],
)
def test_units_that_mean_nothing_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        InputSpace(**options)
    text = ":".join(f"{key}={value}" for key, value in options.items())
    with pytest.raises(InputError, match=f"gaussian: .*{words}"):
        build_perturbation(f"gaussian:{text}")
    space = InputSpace(None, (1.0, 2.0))
    with pytest.raises(InputError, match="expected a scale for inputs of shape"):
        Gaussian()(nn.Identity(), torch.rand(2, 3), torch.zeros(2), generator(0), 0.1, space)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gaussian:scale=2.0:at=fc", "gaussian: .*got both"),
        ("substitution:vocabulary=9:at=fc", "substitution: expected it to act on the inputs themselves"),
        ("substitution:vocabulary=9:scale=2", "substitution: expected it to act on the inputs themselves"),
    ],
)
def test_texts_with_a_layer_where_none_can_be_are_refused(text, words):
    with pytest.raises(InputError, match=words):
        build_perturbation(text)


def test_texts_change_the_space_of_the_model():
    table = InputSpace(None, scale=(1.0, 2.0), fixed=(1,))
    assert build_perturbation("gaussian", table) == (Gaussian(), table)
    assert build_perturbation("gaussian:bounds=0,9", table)[1] == InputSpace((0, 9), scale=(1.0, 2.0), fixed=(1,))
    assert build_perturbation("gaussian:at=fc:unit=std", table)[1] == InputSpace(None, at="fc", unit="std")
    text = InputSpace(None, names=("ids", "mask"), tokens=True, at="embedding", unit="std")
    assert build_perturbation("fgsm:at=none", text)[1] == text
    assert build_perturbation("substitution:vocabulary=9", text)[1] == InputSpace(None, names=text.names, tokens=True)


def test_settings_say_what_was_asked_for_and_nothing_else():
    assert Gaussian().settings() == {"name": "gaussian"}
    assert InputSpace().settings() == {"bounds": (0.0, 1.0)}
    assert InputSpace(at="fc", unit="std").settings() == {"bounds": None, "at": "fc", "unit": "std"}
    assert InputSpace(None, scale=[1, 0]).settings()["scale"] == (1.0, 0.0)
    for space in (InputSpace(), InputSpace((0, 9), 2.0), InputSpace(None, at="fc"), InputSpace(None, (1, 0))):
        assert InputSpace.of_settings(json.loads(json.dumps(space.settings()))) == space
    fixed = InputSpace(None, 2.0, fixed=(1,)).settings((3,))
    assert torch.equal(InputSpace.of_settings(fixed).scale_of((3,)), torch.tensor([2.0, 0.0, 2.0]))


def test_substitution_replaces_about_tau_of_the_free_tokens_by_uniform_ones():
    text = torch.randint(3, 50, (500, 40)).float()
    mask = (torch.arange(40) < 30).float().expand(500, 40)
    x = torch.stack([text, mask], 1)
    x[:, 0, 0] = 1.0  # kept
    attack = Substitution(vocabulary=50, keep=(0, 1, 2), mask=1)
    moved = attack(nn.Identity(), x, torch.zeros(500), generator(0), 0.2)
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
    call = (nn.Identity(), x, torch.zeros(20), randomness, InputSpace(None, tokens=True))
    near, far = (attack.apply(*call, tau) for tau in (0.1, 0.5))
    replaced = near != x
    assert torch.equal(near[replaced], far[replaced])
    assert torch.equal(attack.apply(*call, 0.0), x)


@pytest.mark.parametrize("options", [{"vocabulary": 0}, {"vocabulary": 1, "keep": (0,)}])
def test_substitutions_that_cannot_be_made_are_refused(options):
    with pytest.raises(InputError, match="substitution: expected tokens to draw"):
        Substitution(**options)
    with pytest.raises(InputError, match="substitution: expected a radius <= 1"):
        Substitution(vocabulary=9)(nn.Identity(), torch.ones(1, 3), torch.zeros(1), generator(0), 1.5)
