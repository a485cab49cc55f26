"""RURK's searched variants: the right inputs, labels and signs, and flags as they were (T5, T13 as RURK uses them)."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from residuum.core.errors import InputError
from residuum.core.seeds import generator
from residuum.models import forward
from residuum.perturbations import FGSM, PGD, Gaussian
from residuum.training import Batch
from residuum.unlearning import GD, RURK, NegGrad, make_method, unlearn
from residuum.unlearning.rurk import wrong_labels


def states_equal(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def whole(samples) -> Batch:
    return Batch(samples.x, samples.y, torch.arange(len(samples)))


COMMON = {"lr": 0.02, "epochs": 2, "batch_size": 32, "clip": 1.0, "weight_decay": 1e-4, "schedule": "constant"}


@pytest.mark.parametrize("attack", ["gaussian", "fgsm", "pgd"])
def test_without_weights_it_is_gd_and_without_lambda_a_neggrad(attack, original, splits):
    gd = unlearn(original, splits, GD(**COMMON), seed=2).model
    assert states_equal(
        gd, unlearn(original, splits, RURK(lambda_f=0, lambda_a=0, attack=attack, **COMMON), seed=2).model
    )
    neggrad = unlearn(original, splits, NegGrad(beta=0.05, **COMMON), seed=2).model
    only_f = RURK(lambda_f=0.05, lambda_a=0, attack=attack, **COMMON)
    assert states_equal(neggrad, unlearn(original, splits, only_f, seed=2).model)


@pytest.mark.parametrize("attack", ["gaussian", "fgsm", "pgd"])
def test_at_radius_zero_in_eval_mode_both_weights_add_up(attack, original, splits):
    method = RURK(lambda_f=0.02, lambda_a=0.03, tau=0, attack=attack, bn_mode="eval", v=3, **COMMON)
    both = unlearn(original, splits, method, seed=2).model
    sum_of_both = unlearn(original, splits, NegGrad(beta=0.05, bn_mode="eval", **COMMON), seed=2).model
    for a, b in zip(both.parameters(), sum_of_both.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"attack": "gaussian"}, Gaussian()),
        ({"attack": "fgsm"}, FGSM(target="true")),
        ({"attack": "pgd"}, PGD(target="true")),
        ({"attack": "fgsm", "aim": "random_wrong_label"}, FGSM(target="untargeted")),
    ],
)
def test_the_perturbation_is_the_one_asked_for(settings, expected):
    assert RURK(tau=0.1, **settings).perturbation() == expected


@pytest.mark.parametrize("attack", ["fgsm", "pgd"])
def test_min_loss_lowers_the_loss_of_the_label_and_is_subtracted(attack, original, splits):
    method, batch = RURK(attack=attack, tau=0.1, v=2), whole(splits.forget)
    moved = method.perturbation()(original, batch.x, batch.y, generator(1), method.tau)
    model = copy.deepcopy(original).eval()
    assert F.cross_entropy(model(moved), batch.y) < F.cross_entropy(model(batch.x), batch.y)
    twice = batch.x.repeat(2, 1, 1, 1), batch.y.repeat(2)
    expected = -F.cross_entropy(model(method.perturbation()(model, *twice, generator(1), method.tau)), twice[1])
    assert torch.equal(method.vulnerable_loss(model, batch, generator(1)), expected)


def test_random_wrong_label_raises_the_wrong_loss_and_is_added(original, splits):
    method, batch = RURK(attack="fgsm", aim="random_wrong_label", tau=0.1), whole(splits.forget)
    model = copy.deepcopy(original).eval()
    noise = generator(1)
    wrong = wrong_labels(model, batch.x, batch.y, noise)
    moved = FGSM()(model, batch.x, wrong, noise, 0.1)
    expected = F.cross_entropy(model(moved), wrong)
    assert expected > F.cross_entropy(model(batch.x), wrong)
    assert torch.equal(method.vulnerable_loss(model, batch, generator(1)), expected)


def test_wrong_labels_are_uniform_over_the_others(original):
    y = torch.tensor([0, 1, 2]).repeat(3000)
    wrong = wrong_labels(original, torch.zeros(1, 1, 8, 8), y, generator(0))
    assert not bool(wrong.eq(y).any())
    for label in range(3):
        share = wrong[y == label].eq((label + 1) % 3).double().mean().item()
        assert abs(share - 0.5) < 5 * 0.5 / 3000**0.5


def test_copies_are_averaged_not_summed(original, splits):
    batch, model = whole(splits.forget), copy.deepcopy(original).eval()
    one, four = (RURK(attack="fgsm", tau=0.05, v=v).vulnerable_loss(model, batch, generator(0)).item() for v in (1, 4))
    assert one == pytest.approx(four, rel=1e-5)


@pytest.mark.parametrize("attack", ["fgsm", "pgd"])
def test_flags_of_every_module_survive_the_attack_and_no_gradient_is_left(attack, original, splits):
    model = copy.deepcopy(original).train()
    model.bn2.eval()
    flags = [module.training for module in model.modules()]
    statistics = [b.clone() for b in model.buffers()]
    RURK(attack=attack).perturbation()(model, splits.forget.x, splits.forget.y, generator(0), 0.03)
    assert [module.training for module in model.modules()] == flags
    assert all(torch.equal(a, b) for a, b in zip(statistics, model.buffers(), strict=True))
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(("attack", "extra"), [("gaussian", 0), ("fgsm", 1), ("pgd", 10)])
def test_passes_count_the_search(attack, extra, original, splits):
    method = RURK(attack=attack, v=2, epochs=1, batch_size=999)
    done = unlearn(original, splits, method, seed=1)
    assert done.passes == len(splits.retain) + (1 + 2 + 2 * extra) * len(splits.forget)


@pytest.mark.parametrize("attack", ["gaussian", "fgsm", "pgd"])
def test_it_forgets_what_was_perturbed_and_keeps_the_retain_set(attack, original, splits):
    settings = {"epochs": 6, "lr": 0.02, "batch_size": 32, "tau": 0.1, "lambda_f": 0.03}
    right = []
    for lambda_a in (0.0, 0.06):
        after = unlearn(original, splits, RURK(attack=attack, lambda_a=lambda_a, **settings), seed=1).model
        moved = Gaussian()(after, splits.forget.x, splits.forget.y, generator(9), 0.1)
        right.append(after.eval()(moved).argmax(1).eq(splits.forget.y).double().mean().item())
        assert forward(after, splits.retain).argmax(1).eq(splits.retain.y).double().mean() > 0.85
    assert right[1] < right[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"v": 0}, "v: .*1 or more, got 0"),
        ({"tau": -0.1}, "tau: .*0 or more"),
        ({"lambda_a": -1}, "lambda_a: .*0 or more"),
        ({"attack": "cw"}, "attack: .*'gaussian', 'fgsm' or 'pgd', got 'cw'"),
        ({"aim": "max"}, "aim: .*'min_loss', 'random_wrong_label' or 'untargeted'"),
        ({"v": 0}, "v: .*1 or more"),
        ({"tau": -1}, "tau: .*0 or more"),
    ],
)
def test_wrong_settings_are_refused_with_the_range(settings, message):
    with pytest.raises(InputError, match=message):
        make_method("rurk", settings)
