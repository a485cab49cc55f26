"""ReGUn (U25-U27) and the teacher (U28-U30)."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from residuum.core.errors import InputError, ResiduumWarning
from residuum.core.samples import Samples
from residuum.core.seeds import generator
from residuum.models import forward
from residuum.training import Batch, Recipe
from residuum.unlearning import GD, Context, Origin, ReGUn, Teacher, unlearn
from residuum.unlearning.regun import divergence

RECIPE = Recipe(epochs=8, lr=0.05, batch_size=32, weight_decay=1e-3, clip=1.0)
LOOP = {"epochs": 2, "lr": 0.05, "weight_decay": 1e-3, "batch_size": 32}


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def taught(original, splits, seed=3, **settings):
    return unlearn(original, splits, Teacher(**settings), seed=seed, origin=Origin(RECIPE)).model


def test_u25_without_the_forget_term_it_is_gd(original, splits):
    gd = unlearn(original, splits, GD(**LOOP), seed=3).model
    assert same(gd, unlearn(original, splits, ReGUn(**LOOP, lambda_f=0), seed=3).model)
    assert not same(gd, unlearn(original, splits, ReGUn(**LOOP), seed=3).model)


def test_u26_the_goal_is_a_distribution_and_has_no_pull_where_it_is_met(original, splits):
    q = ReGUn().goals(original, splits)[splits.forget.y]
    assert torch.allclose(q.sum(1), torch.ones(len(q), dtype=q.dtype))
    logits = q.log().float().requires_grad_(True)
    divergence(q, logits).backward()
    assert logits.grad.abs().max() < 1e-7
    moved = (q.log().float() + torch.randn(q.shape, generator=generator(1))).requires_grad_(True)
    divergence(q, moved).backward()
    assert moved.grad.abs().max() > 1e-4


def test_u26_the_goal_of_a_class_is_the_originals_mean_answer_to_unseen_samples(original, splits):
    q = ReGUn().goals(original, splits)[splits.forget.y[:3]]
    held = splits.validation.subset((splits.validation.y == 2).nonzero().flatten().numpy())
    expected = forward(original, held).double().softmax(1).mean(0)
    assert torch.allclose(q, expected.expand(3, -1))


def test_u26_divergence_by_hand():
    q, p = torch.tensor([[0.25, 0.75]]), torch.tensor([[0.5, 0.5]])
    by_hand = (q * (q / p).log()).sum().item()
    assert divergence(q, p.log()).item() == pytest.approx(by_hand, rel=1e-5)


def test_u27_the_order_of_validation_changes_nothing(original, splits):
    order = torch.randperm(len(splits.validation), generator=generator(1)).numpy()
    shuffled = replace(splits, validation=splits.validation.subset(order))
    assert same(*(unlearn(original, part, ReGUn(**LOOP), seed=3).model for part in (splits, shuffled)))


def test_u27_a_class_without_validation_is_refused(original, splits, class_splits):
    rest = splits.validation.subset((splits.validation.y != 2).nonzero().flatten().numpy())
    for part in (class_splits, replace(splits, validation=rest)):
        with pytest.raises(InputError, match=r"regun needs validation samples of the forgotten classes.* none of '8'"):
            unlearn(original, part, ReGUn(), seed=3)


def test_one_step_by_hand(original, splits):
    method = ReGUn(epochs=1, lr=0.1, momentum=0, batch_size=999, lambda_r=0.7, lambda_f=0.4, bn_mode="eval")
    after = unlearn(original, splits, method, seed=3).model
    slow = copy.deepcopy(original).eval()
    q = method.goals(original, splits)[splits.forget.y].float()
    log_p = F.log_softmax(slow(splits.forget.x), 1)
    loss = 0.7 * F.cross_entropy(slow(splits.retain.x), splits.retain.y) + 0.4 * (q * (q.log() - log_p)).sum(1).mean()
    for p, gradient in zip(after.parameters(), torch.autograd.grad(loss, list(slow.parameters())), strict=True):
        before = next(old for old, new in zip(original.parameters(), after.parameters(), strict=True) if new is p)
        torch.testing.assert_close(p, before - 0.1 * gradient, rtol=0, atol=1e-5)


def test_u28_without_weight_it_is_gd_and_no_teacher_is_trained(original, splits, monkeypatch):
    monkeypatch.setattr(Teacher, "trained_teacher", lambda *_: pytest.fail("a teacher was trained"))
    gd = unlearn(original, splits, GD(**LOOP, clip=1.0, schedule="cosine"), seed=3).model
    done = unlearn(original, splits, Teacher(epochs=2, weight=0), seed=3, origin=Origin(RECIPE))
    assert same(gd, done.model)
    assert done.passes == 2 * len(splits.retain)


@pytest.mark.filterwarnings("ignore:teacher")
def test_u29_labels_of_the_forget_samples_are_never_read(original, splits):
    other = replace(splits, forget=Samples(splits.forget.x, (splits.forget.y + 1) % 3, splits.forget.ids))
    assert same(taught(original, splits), taught(original, other))
    images = replace(splits, forget=Samples(1 - splits.forget.x, splits.forget.y, splits.forget.ids))
    assert not same(taught(original, splits), taught(original, images))


def test_u30_a_teacher_that_is_the_original_has_nothing_to_teach_at_first(original, splits, monkeypatch):
    model, frozen = copy.deepcopy(original).eval(), copy.deepcopy(original).eval().requires_grad_(False)
    batch = Batch(splits.forget.x, splits.forget.y, torch.arange(len(splits.forget)))
    retain = Batch(splits.retain.x, splits.retain.y, torch.arange(len(splits.retain)))
    gradients = []
    monkeypatch.setattr(Teacher, "trained_teacher", lambda *_: frozen)
    (phase,) = Teacher(tau=0.0).phases(model, splits, Context(3))
    for paired in (None, batch):
        loss = phase.loss(model, retain, paired, generator(0))
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    assert max((a - b).abs().max().item() for a, b in zip(*gradients, strict=True)) < 1e-6


def test_the_teacher_never_sees_the_forget_samples_and_has_its_own_seed(original, splits):
    method = Teacher(share=0.5)
    nan = replace(splits, forget=Samples(splits.forget.x * torch.nan, splits.forget.y, splits.forget.ids))
    context = Context(3, Origin(RECIPE))
    one, two = (method.trained_teacher(original, part, replace(context)) for part in (splits, nan))
    assert same(one, two)
    assert not one.training
    assert not any(p.requires_grad for p in one.parameters())
    assert not same(one, method.trained_teacher(original, splits, Context(4, Origin(RECIPE))))


@pytest.mark.filterwarnings("ignore:teacher")
def test_passes_count_the_teachers_training(original, splits):
    method = Teacher(share=0.5, epochs=1, batch_size=999)
    done = unlearn(original, splits, method, seed=3, origin=Origin(RECIPE))
    assert done.passes == 4 * len(splits.retain) + len(splits.retain) + len(splits.forget)


def test_a_poor_teacher_is_noticed(original, splits):
    with pytest.warns(ResiduumWarning, match="teacher: its validation accuracy is .* points below the original's"):
        taught(original, splits, share=0.05)


@pytest.mark.parametrize("share", [1, 1.5])
def test_as_long_as_training_is_refused(share):
    with pytest.raises(InputError, match=r"teacher: share: expected less than 1.*retrain instead, got"):
        Teacher.configured({"share": share})


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_the_teacher_is_trained_for_one_epoch_at_least(share, original, splits):
    context = Context(3, Origin(RECIPE))
    Teacher(share=share).trained_teacher(original, splits, context)
    assert round(share * RECIPE.epochs) == 0
    assert context.passes == len(splits.retain)
