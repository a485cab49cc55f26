"""SSD: mask, cap and importances against slow loops (T6)."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from residuum.core.errors import InputError, ResiduumWarning
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed, generator
from residuum.unlearning import SSD, Context, make_method, unlearn
from residuum.unlearning.ssd import batch_importance, dampening_factor

IMPORTANCE = st.floats(0, 1e3, width=32)


def weights(model) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters())


@given(st.lists(st.tuples(IMPORTANCE, IMPORTANCE), min_size=1, max_size=20), st.floats(0, 100), st.floats(0, 10))
def test_factor_equals_the_published_rule_weight_by_weight(pairs, alpha, dampening):
    forget, rest = torch.tensor(pairs, dtype=torch.float64).T
    factor = dampening_factor(forget, rest, alpha=alpha, dampening=dampening)
    for computed, f, d in zip(factor.tolist(), forget.tolist(), rest.tolist(), strict=True):
        expected = min(dampening * d / f, 1.0) if f > alpha * d else 1.0
        assert computed == pytest.approx(expected, rel=1e-12)
        assert 0 <= computed <= 1


def test_infinite_alpha_leaves_every_weight():
    forget, rest = torch.tensor([0.0, 1.0, 5.0]), torch.tensor([0.0, 0.0, 1.0])
    assert dampening_factor(forget, rest, alpha=float("inf"), dampening=0.0).tolist() == [1, 1, 1]


def test_huge_alpha_is_the_identity(original, splits):
    method = SSD(alpha=1e30, dampening=0.0, reference="full")
    with pytest.warns(ResiduumWarning, match="no weight was dampened"):
        after = weights(unlearn(original, splits, method, seed=1).model)
    before = weights(original)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_zero_alpha_and_dampening_zero_exactly_the_weights_that_matter(original, splits):
    done = unlearn(original, splits, SSD(alpha=0, dampening=0), seed=1)
    after = weights(done.model)
    forget = batch_importance(original, splits.forget, size=len(splits.forget), seed=0)
    for name, weight in weights(original).items():
        assert torch.equal(after[name], torch.where(forget[name] > 0, torch.zeros_like(weight), weight))
    assert done.notes["dampened_weights"] == sum(int(f.gt(0).sum()) for f in forget.values()) > 0


def test_scaling_the_loss_changes_nothing(original, splits):
    forget, rest = (batch_importance(original, part, size=20, seed=0) for part in (splits.forget, splits.train))
    for name in forget:  # a loss times 8 has squared gradients times 64: a power of two, no rounding
        one, other = (dampening_factor(c * forget[name], c * rest[name], alpha=2.0, dampening=1.0) for c in (1, 64))
        assert torch.equal(one, other)
    assert any(bool((forget[name] > 2 * rest[name]).any()) for name in forget)


def test_no_weight_grows_and_buffers_stay(original, splits):
    after = unlearn(original, splits, SSD(alpha=0.5, dampening=3.0), seed=1).model
    for name, weight in weights(original).items():
        assert bool((weights(after)[name].abs() <= weight.abs()).all())
    assert any(not torch.equal(w, weights(after)[n]) for n, w in weights(original).items())
    assert all(torch.equal(a, b) for a, b in zip(original.buffers(), after.buffers(), strict=True))


def test_batch_importance_squares_the_mean_gradient(original, splits):
    model = copy.deepcopy(original).eval()
    gradients = torch.autograd.grad(F.cross_entropy(model(splits.forget.x), splits.forget.y), list(model.parameters()))
    whole = batch_importance(model, splits.forget, size=999, seed=0)
    for value, gradient in zip(whole.values(), gradients, strict=True):
        assert torch.allclose(value, gradient**2, rtol=1e-4, atol=1e-10)


def test_both_sets_have_batches_of_one_size(original, splits):
    done = unlearn(original, splits, SSD(batch_size=128), seed=1)
    assert done.notes["batch_size"] == len(splits.forget) < 128
    assert done.passes == len(splits.forget) + len(splits.train)


def test_reference_batching_cuts_both_sets_alike_with_a_smaller_last_batch(original, splits):
    done = unlearn(original, splits, SSD(alpha=2, batch_size=50, batching="reference"), seed=1)
    after = done.model
    seed = child_seed(Context(1).batch_seed, "ssd")
    importances = []
    for samples in (splits.forget, splits.train):
        assert len(samples) % 50  # 20 forgotten samples are one batch of 20, 120 are two of 50 and one of 20
        model, total = copy.deepcopy(original).eval(), dict.fromkeys(weights(original), 0.0)
        order = torch.randperm(len(samples), generator=generator(seed))
        for start in range(0, len(samples), 50):
            rows = order[start : start + 50]
            loss = F.cross_entropy(model(samples.x[rows]), samples.y[rows])
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            for name, gradient in zip(total, gradients, strict=True):
                total[name] = total[name] + gradient**2
        importances.append({name: value / -(-len(samples) // 50) for name, value in total.items()})
    forget, rest = importances
    for name, weight in weights(original).items():
        factor = torch.where(forget[name] > 2 * rest[name], rest[name] / forget[name], 1.0)
        assert torch.allclose(weights(after)[name], weight * factor, rtol=1e-4, atol=1e-7)
    assert done.notes["batch_size"] == 50
    equal = unlearn(original, splits, SSD(alpha=2, batch_size=50), seed=1).model
    assert any(not torch.allclose(w, weights(equal)[name]) for name, w in weights(after).items())


def test_a_row_that_is_the_original_says_so(original, splits):
    with pytest.warns(ResiduumWarning, match="no weight was dampened"):
        done = unlearn(original, splits, SSD(alpha=1e30), seed=1)
    assert done.unchanged
    changed = unlearn(original, splits, SSD(alpha=0.5), seed=1)
    assert not changed.unchanged


def test_reference_may_be_the_retain_set(original, splits):
    def after(reference: str, part):
        return weights(unlearn(original, part, SSD(alpha=1, reference=reference), seed=1).model)

    canary = replace(splits, train=Samples(splits.train.x * float("nan"), splits.train.y, splits.train.ids))
    kept = after("retain", canary)
    assert all(bool(w.isfinite().all()) for w in kept.values())
    full = after("full", splits)
    assert any(not torch.equal(kept[name], full[name]) for name in full)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": -1}, "alpha: .*0 or more, got -1"),
        ({"dampening": -1}, "dampening: .*0 or more"),
        ({"alpha": float("inf")}, "alpha: .*finite"),
        ({"reference": "forget"}, "reference: .*'full' or 'retain'"),
        ({"batch_size": 0}, "batch_size: .*1 or more"),
        ({"lr": 0.1}, "unknown setting of ssd 'lr'"),
    ],
)
def test_wrong_settings_are_refused_with_the_range(settings, message):
    with pytest.raises(InputError, match=message):
        make_method("ssd", settings)
