import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from residuum.core.errors import InputError
from residuum.core.seeds import generator
from residuum.perturbations import FGSM, PGD, InputSpace
from residuum.perturbations.gradient import loss_direction, wrong_label

ATTACKS = [(FGSM(), 0.1), (PGD(), 0.1), (PGD(random_start=False), 0.1), (PGD(steps=3), 0.003)]
TARGETS = ["untargeted", "true", "random"]


def linear(seed=0, inputs=12, classes=5):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(inputs, classes)


def batch(rows=30, inputs=12, classes=5):
    source = generator(1)
    return torch.rand((rows, inputs), generator=source), torch.randint(classes, (rows,), generator=source)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("attack", "tau"), ATTACKS, ids=repr)
def test_results_stay_in_the_ball_and_in_the_unit_box(attack, tau, target):  # T13
    x, y = batch()
    x[:5] = x[:5].round()
    attack = type(attack)(**{**vars(attack), "target": target})
    moved = attack(linear(), x, y, generator(2), tau)
    assert (moved - x).abs().max() <= tau + 1e-6
    assert moved.min() >= 0
    assert moved.max() <= 1
    assert not torch.equal(moved, x)


@pytest.mark.parametrize("kind", [FGSM, PGD])
def test_untargeted_raises_and_true_lowers_the_loss_of_the_label(kind):  # T13
    x, y = batch()
    model = linear()
    before = F.cross_entropy(model(x), y, reduction="none")
    up, down = (
        F.cross_entropy(model(kind(target=target)(model, x, y, generator(2), 0.05)), y, reduction="none")
        for target in ("untargeted", "true")
    )
    assert (up > before).all()
    assert (down < before).all()


def test_random_lowers_the_loss_of_the_drawn_wrong_label():  # T13
    x, y = batch()
    model, attack = linear(), FGSM(target="random")
    randomness = attack.draw(np.random.default_rng(0), len(x), (12,))
    aims = wrong_label(y, randomness.uniform, 5)
    moved = attack.apply(model, x, y, attack.aim(model, x, y, randomness), InputSpace(), 0.05)
    assert (aims != y).all()
    assert (
        F.cross_entropy(model(moved), aims, reduction="none") < F.cross_entropy(model(x), aims, reduction="none")
    ).all()


def test_wrong_labels_are_uniform_over_the_others():
    y = torch.full((40_000,), 2)
    drawn = torch.bincount(wrong_label(y, torch.rand(40_000, generator=generator(0)).double(), 5), minlength=5)
    assert drawn[2] == 0
    assert (drawn[[0, 1, 3, 4]] - 10_000).abs().max() < 450


def test_fgsm_is_the_sign_of_the_cross_entropy_gradient():
    x, y = batch()
    model = nn.Sequential(linear(), nn.Tanh(), linear(1, 5, 5)).double()
    x = x.double().requires_grad_(True)
    (gradient,) = torch.autograd.grad(F.cross_entropy(model(x), y), x)
    expected = (x + 0.05 * gradient.sign()).clamp(0, 1)
    assert torch.allclose(FGSM()(model, x.detach(), y, generator(0), 0.05), expected)


def slow_pgd(model, x, y, attack, start, tau):
    """PGD as its definition reads, one input at a time."""
    rows = []
    for i in range(len(x)):
        moved = (x[i : i + 1] + tau * start[i : i + 1]).clamp(0, 1)
        for _ in range(attack.steps):
            moved = moved.detach().requires_grad_(True)
            loss = F.cross_entropy(model(moved), y[i : i + 1])
            (gradient,) = torch.autograd.grad(loss if attack.target == "untargeted" else -loss, moved)
            delta = (moved.detach() + attack.alpha * gradient.sign() - x[i : i + 1]).clamp(-tau, tau)
            moved = (x[i : i + 1] + delta).clamp(0, 1)
        rows.append(moved)
    return torch.cat(rows)


@pytest.mark.parametrize("target", ["untargeted", "true"])
def test_pgd_agrees_with_its_definition(target):
    x, y = batch()
    x = x.double()
    model = nn.Sequential(linear(), nn.Tanh(), linear(1, 5, 5)).double()
    attack, tau = PGD(steps=4, alpha=0.02, target=target), 0.05
    randomness = attack.draw(np.random.default_rng(0), len(x), (12,))
    start = randomness.noise.double()
    moved = attack.apply(model, x, y, randomness, InputSpace(), tau)
    assert torch.allclose(moved, slow_pgd(model, x, y, attack, start, tau), atol=1e-9)


def test_pgd_with_one_full_step_and_no_random_start_is_fgsm():
    x, y = batch()
    model = linear()
    one = PGD(alpha=0.1, steps=1, random_start=False)(model, x, y, generator(0), 0.1)
    assert torch.allclose(one, FGSM()(model, x, y, generator(0), 0.1), atol=1e-7)


def test_radius_zero_returns_the_input():
    x, y = batch()
    for attack in (FGSM(), PGD()):
        assert torch.equal(attack(linear(), x, y, generator(0), 0.0), x)


@pytest.mark.parametrize(("attack", "tau"), ATTACKS, ids=repr)
def test_flags_restored_no_gradients_left_and_nothing_changed(attack, tau):  # T13
    model = nn.Sequential(nn.Linear(12, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.BatchNorm1d(6), nn.Linear(6, 5))
    model.train()
    model[3].eval()
    flags = [module.training for module in model.modules()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    x, y = batch()
    before = x.clone()
    with torch.no_grad():
        moved = attack(model, x, y, generator(0), tau)
    assert torch.equal(moved, attack(model, x, y, generator(0), tau))  # dropout was off
    assert [module.training for module in model.modules()] == flags
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(x, before)
    assert not moved.requires_grad


def test_flags_are_restored_when_the_model_fails():
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("broken")

    model = Broken().train()
    with pytest.raises(RuntimeError, match="broken"):
        FGSM()(model, *batch(), generator(0), 0.1)
    assert model.training


def test_a_sure_model_is_still_attacked():
    model = linear()
    with torch.no_grad():
        model.weight *= 10_000
    x, _ = batch()
    y = model(x).argmax(1)
    logits = model(x).detach().requires_grad_(True)
    F.cross_entropy(logits, y).backward()
    assert (logits.grad == 0).all(1).any()  # where the textbook formula stands still
    moved = FGSM()(model, x, y, generator(0), 0.02)
    assert ((moved != x).any(1)).all()


def test_loss_direction_is_proportional_to_softmax_minus_one_hot():
    logits = torch.randn(20, 5, generator=generator(3), dtype=torch.float64)
    labels = torch.arange(20) % 5
    plain = logits.softmax(1) - F.one_hot(labels, 5)
    scale = 1 - logits.softmax(1).gather(1, labels[:, None])
    assert torch.allclose(loss_direction(logits, labels) * scale, plain)


def test_all_outcomes_of_fgsm_are_those_of_its_draws():
    x, y = batch(rows=1)
    model, attack = linear(), FGSM(target="random")
    listed = attack.outcomes(5)
    many = x.repeat(4, 1), y.repeat(4)
    moved = attack.apply(model, many[0], many[1], attack.aim(model, *many, listed), InputSpace(), 0.1)
    drawn = {tuple(attack(model, x, y, generator(seed), 0.1)[0].tolist()) for seed in range(60)}
    assert {tuple(row.tolist()) for row in moved} == drawn
    assert len(FGSM().outcomes(5).uniform) == 1
    assert PGD().outcomes(5) is None
    assert len(PGD(random_start=False, target="random").outcomes(5).uniform) == 4


def test_bad_settings_are_refused():
    for make, message in (
        (lambda: FGSM(target="best"), "expected a target of untargeted, true, random, got 'best'"),
        (lambda: PGD(steps=0), "steps >= 1"),
        (lambda: PGD(alpha=0), "alpha > 0"),
        (lambda: FGSM()(linear(), *batch(), generator(0), -1), "radius"),
    ):
        with pytest.raises(InputError, match=message):
            make()
    with pytest.raises(InputError, match="at least 2 classes"):
        FGSM(target="random")(linear(classes=1), batch()[0], torch.zeros(30, dtype=torch.long), generator(0), 0.1)
