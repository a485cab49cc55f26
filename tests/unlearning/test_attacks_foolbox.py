"""FGSM and PGD without random start, as RURK uses them, agree with foolbox in float64 (T13)."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from residuum.core.seeds import generator
from residuum.perturbations import FGSM, PGD
from residuum.unlearning import RURK

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # foolbox imports scipy's old names
    import foolbox


@pytest.fixture(scope="module")
def case(original, splits) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return copy.deepcopy(original).double().eval(), splits.train.x.double(), splits.train.y


def second_opinion(attack, model, x, criterion, tau) -> torch.Tensor:
    _, moved, _ = attack(foolbox.PyTorchModel(model, bounds=(0, 1)), x, criterion, epsilons=tau)
    return moved


@pytest.mark.parametrize("tau", [0.01, 0.1, 0.4])
def test_fgsm_untargeted(tau, case):
    model, x, y = case
    other = second_opinion(foolbox.attacks.FGSM(), model, x, foolbox.criteria.Misclassification(y), tau)
    ours = FGSM()(model, x, y, generator(0), tau)
    assert (ours - other).abs().max() < 1e-6
    assert (ours - x).abs().max() > 0.5 * tau


@pytest.mark.parametrize("tau", [0.01, 0.1])
@pytest.mark.parametrize("steps", [1, 5, 10])
def test_pgd_untargeted_and_towards_a_label(steps, tau, case):
    model, x, y = case
    attack = foolbox.attacks.LinfPGD(abs_stepsize=2 / 255, steps=steps, random_start=False)
    for target, criterion in (
        ("untargeted", foolbox.criteria.Misclassification(y)),
        ("true", foolbox.criteria.TargetedMisclassification(y)),
    ):
        ours = PGD(steps=steps, random_start=False, target=target)(model, x, y, generator(0), tau)
        assert (ours - second_opinion(attack, model, x, criterion, tau)).abs().max() < 1e-6


@pytest.mark.parametrize("attack", ["fgsm", "pgd"])
@pytest.mark.parametrize("aim", ["min_loss", "random_wrong_label"])
def test_rurk_stays_in_ball_and_range_and_moves_the_loss_its_way(attack, aim, case):
    model, x, y = case
    moved = RURK(attack=attack, aim=aim, tau=0.07).perturbed(model, x, y, generator(0))
    assert (moved - x).abs().max() <= 0.07 + 1e-12
    assert 0 <= moved.min() <= moved.max() <= 1
    before, after = F.cross_entropy(model(x), y), F.cross_entropy(model(moved), y)
    assert after < before if aim == "min_loss" else after > before
