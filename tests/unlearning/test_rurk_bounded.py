"""RURK with a bound on what is subtracted, radii from 0 to tau, and an aim that is a negative control (U31-U34)."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F

from residuum.core.errors import InputError
from residuum.core.seeds import generator
from residuum.metrics import mean_loss
from residuum.perturbations import FGSM
from residuum.training import Batch
from residuum.unlearning import GD, RURK, NegGrad, make_method, unlearn
from residuum.unlearning.rurk import forget_loss

COMMON = {"lr": 0.02, "epochs": 2, "batch_size": 32, "clip": 1.0, "weight_decay": 1e-4, "schedule": "constant"}
PENALTIES = [{"penalty": "capped", "cap": 0.5}, {"penalty": "capped"}]


def same(one, other, atol=None) -> bool:
    pairs = list(zip(one.state_dict().values(), other.state_dict().values(), strict=True))
    return all(torch.equal(a, b) if atol is None else torch.allclose(a, b, rtol=0, atol=atol) for a, b in pairs)


def whole(samples) -> Batch:
    return Batch(samples.x, samples.y, torch.arange(len(samples)))


@pytest.mark.parametrize("cap", [math.inf, None])
def test_u31_no_cap_is_the_published_form(cap, original, splits):
    published = unlearn(original, splits, RURK(**COMMON), seed=3).model
    capped = RURK(**COMMON, penalty="capped", cap=cap)
    assert same(published, unlearn(original, splits, capped, seed=3).model)
    assert RURK(cap=math.inf).settings["cap"] is None


def test_u33_nothing_to_gain_is_gd(original, splits):
    gd = unlearn(original, splits, GD(**COMMON, bn_mode="eval"), seed=3).model
    assert same(gd, unlearn(original, splits, RURK(**COMMON, bn_mode="eval", penalty="capped", cap=0), seed=3).model)


def test_u34_spread_radii_of_zero_are_neggrad_with_both_weights(original, splits):
    rurk = RURK(**COMMON, lambda_f=0.1, lambda_a=0.2, tau=0, spread="uniform", bn_mode="eval")
    neggrad = NegGrad(**COMMON, beta=0.3, bn_mode="eval")
    assert same(*(unlearn(original, splits, method, seed=3).model for method in (rurk, neggrad)), atol=1e-6)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_cap_by_a_loop_over_samples(penalty, original, splits):
    method, model, batch = RURK(**penalty), copy.deepcopy(original).eval(), whole(splits.train)
    logits = model(batch.x)
    losses = []
    for z, y in zip(logits.tolist(), batch.y.tolist(), strict=True):
        losses.append(math.log(sum(math.exp(v) for v in z)) - z[y])
    cap = penalty.get("cap", math.log(3))
    expected = sum(min(loss, cap) for loss in losses) / len(losses)
    caps = method.caps(original, splits)
    assert forget_loss(logits, batch.y, caps).item() == pytest.approx(expected, abs=1e-5)


def test_caps_from_validation_are_the_originals_mean_losses_there(original, splits):
    method = RURK(penalty="capped", cap="validation")
    held = splits.validation.subset((splits.validation.y == 2).nonzero().flatten().numpy())
    caps = method.caps(original, splits)
    assert caps[2].item() == pytest.approx(mean_loss(original, held), rel=1e-5)
    assert caps[:2].isnan().all()
    assert method.parts_read == {"retain", "forget", "validation"}
    assert RURK().parts_read == {"retain", "forget"}


def test_caps_from_validation_need_some(original, class_splits):
    with pytest.raises(InputError, match="rurk: cap=validation needs validation samples of the forgotten classes"):
        unlearn(original, class_splits, RURK(penalty="capped", cap="validation"), seed=3)


def test_a_bound_keeps_the_forget_loss_where_the_published_form_runs_away(original, splits):
    settings = {**COMMON, "epochs": 20, "lr": 0.05, "lambda_f": 0.5, "lambda_a": 0.5, "tau": 0.1}
    free, bounded = (unlearn(original, splits, RURK(**settings, penalty=p), seed=3).model for p in ("ce", "capped"))
    assert mean_loss(bounded, splits.forget) < 0.5 * mean_loss(free, splits.forget)
    assert mean_loss(bounded, splits.forget) > mean_loss(original, splits.forget)


def test_untargeted_raises_the_loss_of_the_label_and_is_subtracted(original, splits):
    method, batch = RURK(attack="fgsm", aim="untargeted", tau=0.1), whole(splits.forget)
    model = copy.deepcopy(original).eval()
    moved = FGSM()(model, batch.x, batch.y, generator(1), 0.1)
    expected = F.cross_entropy(model(moved), batch.y)
    assert expected > F.cross_entropy(model(batch.x), batch.y)
    assert torch.equal(method.vulnerable_loss(model, batch, generator(1)), -expected)


def test_published_wrong_labels_are_added_whatever_the_penalty(original, splits):
    model, batch = copy.deepcopy(original).eval(), whole(splits.forget)
    losses = [
        RURK(attack="fgsm", aim="random_wrong_label", **p).vulnerable_loss(model, batch, generator(1))
        for p in ({}, *PENALTIES)
    ]
    assert all(torch.equal(loss, losses[0]) for loss in losses)
    assert losses[0] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"penalty": "hinge"}, "penalty: .*'ce' or 'capped', got 'hinge'"),
        ({"cap": -1}, "cap.*: .*got -1"),
        ({"spread": "uniform", "attack": "pgd"}, "spread=uniform is for attack=gaussian; pgd searches at one radius"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        make_method("rurk", settings)
