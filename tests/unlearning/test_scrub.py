"""SCRUB: divergence by hand, phases in the right order, the zero gradient at the start (T10)."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from residuum.core.errors import InputError
from residuum.core.seeds import generator
from residuum.models import forward
from residuum.training import Batch
from residuum.unlearning import GD, SCRUB, make_method, unlearn
from residuum.unlearning.scrub import distillation, teacher_of


def states_equal(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def whole(samples) -> Batch:
    return Batch(samples.x, samples.y, torch.arange(len(samples)))


def test_divergence_of_two_logits_by_hand():
    # T = 2: teacher softmax(1, 0), student softmax(0, 0.5)
    p = 1 / (1 + math.exp(-1))
    q = 1 / (1 + math.exp(0.5))
    by_hand = 4 * (p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)))
    computed = distillation(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 1.0]]), 2.0)
    assert computed.item() == pytest.approx(by_hand, rel=1e-6)
    swapped = distillation(torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 0.0]]), 2.0)
    assert swapped.item() != pytest.approx(by_hand, rel=1e-3)  # the direction matters and is the one above


def test_divergence_is_a_mean_over_the_batch():
    teacher, student = torch.randn(2, 5, 4, generator=generator(0))
    rows = [distillation(t[None], s[None], 3.0).item() for t, s in zip(teacher, student, strict=True)]
    assert distillation(teacher, student, 3.0).item() == pytest.approx(np.mean(rows), rel=1e-5)


def test_without_epochs_it_is_the_original(original, splits):
    assert states_equal(original, unlearn(original, splits, SCRUB(epochs=0), seed=1).model)


def test_without_climb_and_teacher_it_is_gd_bit_for_bit(original, splits):
    common = {"epochs": 2, "lr": 0.02, "batch_size": 32, "weight_decay": 1e-4}
    gd = unlearn(original, splits, GD(**common), seed=5).model
    assert states_equal(gd, unlearn(original, splits, SCRUB(msteps=0, alpha=0, gamma=1, **common), seed=5).model)
    assert not states_equal(gd, unlearn(original, splits, SCRUB(msteps=1, alpha=0, gamma=1, **common), seed=5).model)


def gradient_of_first_climb(model, splits, *, training: bool) -> float:
    student = copy.deepcopy(model).train(training)
    climb = SCRUB().alternation(teacher_of(model, {"forget": splits.forget}))(0)[0]
    assert climb.main_stream == "forget"
    climb.loss(student, whole(splits.forget), None, generator(0)).backward()
    return max(p.grad.abs().max().item() for p in student.parameters())


def test_the_first_climb_has_zero_gradient_in_eval_mode_only(original, splits):
    assert gradient_of_first_climb(original, splits, training=False) < 1e-6
    assert gradient_of_first_climb(original, splits, training=True) > 1e-2


def test_the_climb_does_nothing_in_eval_mode_without_weight_decay(original, splits):
    frozen = SCRUB(epochs=1, lr=0.1, gamma=0, alpha=0, bn_mode="eval", weight_decay=0, batch_size=256)
    after = unlearn(original, splits, frozen, seed=1).model
    assert torch.allclose(forward(after, splits.forget), forward(original, splits.forget), atol=1e-4)


def test_the_climb_raises_the_divergence_on_the_forget_set_in_train_mode(original, splits):
    after = unlearn(original, splits, SCRUB(epochs=4, msteps=4, lr=0.02, gamma=0.01, alpha=0), seed=1).model
    without = unlearn(original, splits, SCRUB(epochs=4, msteps=0, lr=0.02, gamma=0.01, alpha=0), seed=1).model
    teacher = forward(original, splits.forget)
    climbed, drifted = (distillation(teacher, forward(model, splits.forget), 4.0) for model in (after, without))
    assert climbed > 2 * drifted


def test_obeying_keeps_the_student_near_the_teacher_on_the_retain_set(original, splits):
    teacher = forward(original, splits.retain)

    def distance(alpha: float) -> float:
        after = unlearn(original, splits, SCRUB(epochs=3, lr=0.02, alpha=alpha, gamma=0), seed=1).model
        return distillation(teacher, forward(after, splits.retain), 4.0).item()

    assert distance(1.0) < 0.5 * distance(0.0)


@pytest.mark.parametrize("copied", [False, True])
def test_the_teacher_stays_the_original_whatever_becomes_of_the_student(copied, original, splits):
    student = copy.deepcopy(original)
    teacher = teacher_of(student, {"forget": splits.forget}, copied=copied)
    with torch.no_grad():
        for p in student.parameters():
            p.add_(1.0)
    batch = Batch(splits.forget.x[[3, 1]], splits.forget.y[[3, 1]], torch.tensor([3, 1]))
    assert torch.allclose(teacher("forget", batch), forward(original, splits.forget)[[3, 1]], atol=1e-6)
    assert not teacher("forget", batch).requires_grad


def test_augmented_inputs_ask_a_copy_of_the_teacher(original, splits):
    after = unlearn(original, splits, SCRUB(epochs=1, lr=0.02, augment=True), seed=1).model
    assert not states_equal(original, after)


def test_one_step_of_each_phase_by_hand(original, splits):
    method = SCRUB(
        epochs=1, msteps=1, lr=0.05, alpha=0.3, gamma=0.7, temperature=2.0, weight_decay=0.01, batch_size=999
    )
    slow = copy.deepcopy(original).train()
    optimizer = torch.optim.SGD(slow.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    for samples, climbing in ((splits.forget, True), (splits.retain, False)):
        teacher, logits = forward(original, samples), slow(samples.x)
        kl = (
            4
            / len(samples)
            * (F.softmax(teacher / 2, 1) * (F.log_softmax(teacher / 2, 1) - F.log_softmax(logits / 2, 1))).sum()
        )
        loss = -kl if climbing else 0.7 * F.cross_entropy(logits, samples.y) + 0.3 * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    fast = unlearn(original, splits, method, seed=1).model
    for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_passes_count_both_phases_and_small_forget_batches(original, splits):
    method = SCRUB(epochs=3, msteps=2, forget_batch_size=5)
    done = unlearn(original, splits, method, seed=1)
    assert done.passes == 3 * len(splits.retain) + 2 * len(splits.forget)
    steps = []
    unlearn(original, splits, method, seed=1, progress=lambda done, total: steps.append(total))
    assert steps == [3 * 1 + 2 * math.ceil(len(splits.forget) / 5)] * len(steps)


def test_rates_drop_after_the_named_epochs():
    method = SCRUB(epochs=6, lr=1.0, decay_epochs=(3, 5), decay_rate=0.1)
    assert [round(method.rate(epoch), 6) for epoch in range(6)] == [1, 1, 1, 0.1, 0.1, 0.01]


@pytest.mark.parametrize(
    "settings", [{"alpha": -1}, {"gamma": -1}, {"temperature": 0}, {"msteps": -1}, {"decay_epochs": [0]}, {"lr": -1}]
)
def test_wrong_settings_are_refused_with_the_range(settings):
    with pytest.raises(InputError, match=r"expected (more than 0|[01] or more), got"):
        make_method("scrub", settings)
