"""Acceptance tests T1-T5 and T12 and the definitions of GD, NGD, GA, NegGrad+ and RURK."""

from __future__ import annotations

import copy
import dataclasses
import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.metrics import mean_loss
from residuum.models import build_model
from residuum.training import Batch, Recipe
from residuum.unlearning import GA, GD, NGD, RURK, Context, GradientMethod, NegGrad, make_method, unlearn

SAME_LOOP = {"epochs": 2, "lr": 0.05, "weight_decay": 1e-3, "batch_size": 16, "clip": 1.0}
ALL = [GD(**SAME_LOOP), NGD(**SAME_LOOP), GA(**SAME_LOOP), NegGrad(**SAME_LOOP), RURK(**SAME_LOOP)]


def poisoned(samples: Samples) -> Samples:
    return dataclasses.replace(samples, x=torch.full_like(samples.x, torch.nan))


@pytest.mark.parametrize("method", ALL, ids=lambda m: m.name)
def test_t1_the_original_is_bitwise_unchanged(method, original, splits, same_weights):
    before, flags = copy.deepcopy(original), [m.training for m in original.modules()]
    edited = unlearn(original, splits, method, seed=3).model
    assert same_weights(original, before)
    assert [m.training for m in original.modules()] == flags
    assert not same_weights(edited, original)
    assert all(p.grad is None for p in original.parameters())


@pytest.mark.parametrize("method", [GD(**SAME_LOOP), NGD(**SAME_LOOP)], ids=lambda m: m.name)
def test_t2_retain_only_methods_never_touch_the_forget_set(method, original, splits):
    canary = dataclasses.replace(splits, forget=poisoned(splits.forget))
    edited = unlearn(original, canary, method, seed=3).model
    assert all(torch.isfinite(value).all() for value in edited.state_dict().values())


def test_t2_the_canary_would_be_noticed(original, splits):
    canary = dataclasses.replace(splits, forget=poisoned(splits.forget))
    with pytest.raises(InputError, match="finite loss"):
        unlearn(original, canary, NegGrad(**SAME_LOOP), seed=3)


@pytest.mark.parametrize("bn_mode", ["train", "eval"])
def test_t3_methods_without_their_extra_term_are_gd(bn_mode, original, splits, same_weights):
    common = {**SAME_LOOP, "bn_mode": bn_mode}
    gd = unlearn(original, splits, GD(**common), seed=3).model
    others = [
        NegGrad(**common, beta=0),
        NGD(**common, sigma=0),
        RURK(**common, lambda_f=0, lambda_a=0, schedule="constant"),
    ]
    for method in others:
        assert same_weights(unlearn(original, splits, method, seed=3).model, gd), method.name
    assert not same_weights(unlearn(original, splits, NegGrad(**common, beta=0.1), seed=3).model, gd)


def test_t4_rurk_without_perturbations_is_neggrad(original, splits, same_weights):
    rurk = RURK(**SAME_LOOP, lambda_f=0.1, lambda_a=0, schedule="constant")
    neggrad = NegGrad(**SAME_LOOP, beta=0.1)
    assert same_weights(unlearn(original, splits, rurk, seed=3).model, unlearn(original, splits, neggrad, seed=3).model)


@pytest.mark.parametrize("v", [1, 3])
def test_t5_rurk_at_radius_zero_is_neggrad_with_both_weights(v, original, splits, same_weights):
    rurk = RURK(**SAME_LOOP, lambda_f=0.1, lambda_a=0.2, tau=0, v=v, schedule="constant", bn_mode="eval")
    neggrad = NegGrad(**SAME_LOOP, beta=0.3, bn_mode="eval")
    pair = [unlearn(original, splits, method, seed=3).model for method in (rurk, neggrad)]
    assert same_weights(*pair, atol=1e-6)


def test_t12_ga_at_rate_zero_moves_only_the_statistics(original, splits):
    frozen = unlearn(original, splits, GA(lr=0, bn_mode="eval"), seed=3).model.state_dict()
    moving = unlearn(original, splits, GA(lr=0, bn_mode="train"), seed=3).model.state_dict()
    for name, value in original.state_dict().items():
        assert torch.equal(frozen[name], value), name
        is_statistic = "running" in name or "num_batches" in name
        assert torch.equal(moving[name], value) != is_statistic, name


def test_one_gd_step_is_a_hand_written_sgd_step(splits):
    model = build_model("logistic", splits.train.shape, 3, seed=5)
    one_batch = GD(epochs=1, lr=0.1, momentum=0, weight_decay=0.01, batch_size=len(splits.retain))
    edited = unlearn(model, splits, one_batch, seed=3).model
    loss = F.cross_entropy(model(splits.retain.x), splits.retain.y)
    for (name, weight), gradient in zip(
        model.named_parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
    ):
        expected = weight - 0.1 * (gradient + 0.01 * weight)
        torch.testing.assert_close(edited.state_dict()[name], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", [m.configured({**m.settings, "epochs": 0}) for m in ALL], ids=lambda m: m.name)
def test_no_epochs_give_the_original(method, original, splits, same_weights):
    assert same_weights(unlearn(original, splits, method, seed=3).model, original)


@pytest.mark.parametrize(("noise", "variance"), [("grad", (0.1 * 0.03) ** 2), ("langevin", 2 * 0.1 * 0.03**2)])
def test_ngd_noise_has_the_stated_variance(noise, variance, splits):
    model = build_model("mlp", splits.train.shape, 3, width=300, seed=5)
    retain = dataclasses.replace(splits.retain, x=torch.zeros_like(splits.retain.x))
    for p in model.parameters():
        torch.nn.init.zeros_(p)  # a dead network: the hidden layer has no gradient, so its weights only feel the noise
    quiet = dataclasses.replace(splits, retain=retain)
    steps = 4 * -(-len(quiet.retain) // 10)
    method = NGD(epochs=4, lr=0.1, momentum=0, weight_decay=0, sigma=0.03, noise=noise, batch_size=10)
    moved = unlearn(model, quiet, method, seed=3).model.state_dict()["hidden.weight"]
    assert moved.var().item() == pytest.approx(steps * variance, rel=0.05)


def test_one_ascent_step_raises_the_forget_loss(original, splits):
    method = GA(lr=0.05, bn_mode="eval", batch_size=100)
    assert mean_loss(unlearn(original, splits, method, seed=3).model, splits.forget) > mean_loss(
        original, splits.forget
    )


def test_weight_decay_still_shrinks_under_ascent(original, splits):
    pulled = unlearn(original, splits, GA(lr=0.1, weight_decay=0.5, clip=1e-9, bn_mode="eval"), seed=3).model
    assert pulled.fc.weight.norm() < original.fc.weight.norm()


def test_a_larger_beta_forgets_more(original, splits):
    losses = [
        mean_loss(unlearn(original, splits, NegGrad(**SAME_LOOP, beta=beta), seed=3).model, splits.forget)
        for beta in (0.0, 0.2, 0.5)
    ]
    assert losses[0] < losses[1] < losses[2]


def test_the_cap_stops_the_forget_term(original, splits, same_weights):
    capped = NegGrad(**SAME_LOOP, beta=0.5, cap=1e-6, bn_mode="eval")
    gd = GD(**SAME_LOOP, bn_mode="eval")
    assert same_weights(unlearn(original, splits, capped, seed=3).model, unlearn(original, splits, gd, seed=3).model)


def test_rurk_lowers_recognition_of_perturbed_copies_and_keeps_the_retain_set(original, splits):
    noise = torch.Generator().manual_seed(0)
    x = (splits.forget.x + 0.1 * torch.randn(splits.forget.x.shape, generator=noise)).clamp(0, 1)
    copies = dataclasses.replace(splits.forget, x=x)
    losses, retain = [], []
    for lambda_a in (0.0, 0.1, 0.2):
        method = RURK(**SAME_LOOP, lambda_f=0.0, lambda_a=lambda_a, tau=0.1)
        model = unlearn(original, splits, method, seed=3).model
        losses.append(mean_loss(model, copies))
        retain.append(mean_loss(model, splits.retain))
    assert losses[0] < losses[1] < losses[2]
    assert retain[1] < math.log(3)  # better than guessing: the box's sign would have climbed the retain loss


def test_more_copies_are_averaged_not_summed(original, splits):
    one, many = (RURK(lambda_f=0, lambda_a=1.0, tau=0.0, v=v) for v in (1, 4))
    model = copy.deepcopy(original).eval()
    batch = (splits.forget.x, splits.forget.y, torch.arange(len(splits.forget)))
    losses = [m.loss(model, Batch(*batch), Batch(*batch), torch.Generator()).item() for m in (one, many)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_passes_count_every_forward_that_is_trained_through(original, splits):
    retain, forget = len(splits.retain), len(splits.forget)
    expected = {
        GD(epochs=2): 2 * retain,
        GA(epochs=3): 3 * forget,
        NegGrad(epochs=1, batch_size=200): retain + forget,
        RURK(epochs=1, batch_size=200, v=2): retain + forget + 2 * forget,
    }
    for method, passes in expected.items():
        done = unlearn(original, splits, method, seed=3)
        assert done.passes == passes, method


@pytest.mark.parametrize("method", ALL, ids=lambda m: m.name)
def test_same_seed_same_result_other_seed_other_result(method, original, splits, same_weights):
    first, again, other = (unlearn(original, splits, method, seed=seed).model for seed in (3, 3, 4))
    assert same_weights(first, again)
    assert not same_weights(first, other)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("ga", {"lr": -1}, r"ga: lr: .*0 or more, got -1"),
        ("rurk", {"v": 0}, r"rurk: v: .*1 or more, got 0"),
        ("gd", {"momentum": 1.0}, r"gd: momentum: .*less than 1\.0, got 1\.0"),
        ("gd", {"lr": "fast"}, r"gd: lr: .*a number.*got 'fast'"),
        ("gd", {"rate": 1}, r"unknown setting of gd 'rate'"),
        ("ngd", {"noise": "pink"}, r"ngd: noise: .*'grad' or 'langevin', got 'pink'"),
        ("rukr", {}, r"unknown method 'rukr'; did you mean rurk"),
    ],
)
def test_wrong_hyper_parameters_are_refused(name, settings, message):
    with pytest.raises(InputError, match=message):
        make_method(name, settings)


def test_a_warning_of_a_method_is_shown_once(original, splits):
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        for k in range(2):
            warnings.filterwarnings("default", message=f"a library touches the filters {k}")
            Context(1).training()
    assert sum("how the original was trained is not known" in str(one.message) for one in caught) <= 1


def test_a_field_that_is_a_setting_of_the_recipe_is_refused():
    with pytest.raises(TypeError, match=r"Mine\.epochs is a setting of the method's recipe; write recipe: Recipe"):

        class Mine(GradientMethod):
            epochs: int = 3


def test_settings_are_flat_outside_and_values_inside():
    method = GD(lr=0.2, recipe=Recipe(epochs=3, weight_decay=0.1), keep=0.5)
    assert method.recipe == Recipe(lr=0.2, epochs=3, weight_decay=0.1)
    assert method.settings == {**vars(method.recipe), "keep": 0.5}
    assert dataclasses.replace(method, lr=0.3) == GD(lr=0.3, epochs=3, weight_decay=0.1, keep=0.5)
    assert GD.configured(method.settings) == method
