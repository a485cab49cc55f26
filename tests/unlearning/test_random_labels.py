"""SalUn (U9-U12), FaLW and its gate (U22-U24), and the streams they are made of."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from residuum.core.errors import InputError
from residuum.core.inputs import InputSpace
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed, generator
from residuum.metrics import mean_loss
from residuum.models import build_model, forward
from residuum.training import Batch, TrainingPhase, cross_entropy
from residuum.unlearning import GD, Context, FaLW, GradientMethod, SalUn, component, unlearn
from residuum.unlearning.falw import Gate, gate_weights
from residuum.unlearning.gradients import summed_gradient
from residuum.unlearning.relabeling import Labels, Order, random_labels, relabeling_phases, relabeling_streams
from residuum.unlearning.salun import largest_gradients
from residuum.unlearning.streams import joined, noisy_copies

LOOP = {"epochs": 3, "lr": 0.05, "weight_decay": 0.01, "batch_size": 32}


@component
class RandomLabels(GradientMethod):
    """Random labels for the forget set and nothing else."""

    labels: Labels = "uniform"
    order: Order = "alternate"

    def edit(self, model, splits, context):
        phases = relabeling_phases(splits, context.noise_seed, self.labels, self.order)
        self.descend(model, splits, context, phases, streams=relabeling_streams(splits, self.order))
        return model


def same(one, other, atol=None) -> bool:
    pairs = list(zip(one.state_dict().values(), other.state_dict().values(), strict=True))
    return all(torch.equal(a, b) if atol is None else torch.allclose(a, b, rtol=0, atol=atol) for a, b in pairs)


@pytest.mark.parametrize("order", ["alternate", "joint"])
def test_u9_all_weights_selected_is_plain_random_labelling(order, original, splits):
    pair = [unlearn(original, splits, method(**LOOP, order=order), seed=3).model for method in (RandomLabels, SalUn)]
    pair.append(unlearn(original, splits, SalUn(**LOOP, order=order, share=1), seed=3).model)
    assert same(pair[0], pair[2])
    assert not same(pair[0], pair[1])


def test_u9_random_labelling_alternates_one_pass_over_each_set_by_hand(original, splits):
    slow = copy.deepcopy(original).train()
    optimizer = torch.optim.SGD(slow.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    shift = torch.randint(
        0, 3, (len(splits.forget),), generator=generator(child_seed(Context(3).noise_seed, "labels 0"))
    )
    for x, y in ((splits.forget.x, (splits.forget.y + shift) % 3), (splits.retain.x, splits.retain.y)):
        optimizer.zero_grad()
        F.cross_entropy(slow(x), y).backward()
        optimizer.step()
    fast = unlearn(original, splits, RandomLabels(**{**LOOP, "epochs": 1, "batch_size": 999}), seed=3).model
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(slow.parameters(), fast.parameters(), strict=True))


@pytest.mark.parametrize("bn_mode", ["train", "eval"])
def test_u10_nothing_selected_leaves_the_weights(bn_mode, original, splits):
    after = unlearn(original, splits, SalUn(**LOOP, share=0, bn_mode=bn_mode), seed=3).model
    assert all(torch.equal(a, b) for a, b in zip(after.parameters(), original.parameters(), strict=True))
    assert same(after, original) == (bn_mode == "eval")


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_u11_exactly_the_share_is_selected_with_most_gradients_zero(share):
    noise = generator(0)
    weights = [torch.zeros(300), torch.zeros(70, 10)]
    gradients = {
        p: torch.randn(p.shape, generator=noise) * (torch.rand(p.shape, generator=noise) > 0.6) for p in weights
    }
    masks = largest_gradients(gradients, share)
    assert sum(int(mask.sum()) for mask in masks.values()) == round(share * 1000)
    chosen = torch.cat([gradients[p][masks[p]].abs() for p in weights])
    left = torch.cat([gradients[p][~masks[p]].abs() for p in weights])
    assert not len(chosen) or not len(left) or chosen.min() >= left.max()
    scaled = largest_gradients({p: 0.125 * g for p, g in gradients.items()}, share)
    assert all(torch.equal(masks[p], scaled[p]) for p in weights)


def test_u11_the_gradient_is_the_sum_over_batches_in_eval_mode(original, splits):
    model = copy.deepcopy(original).train()
    total = summed_gradient(model, splits.forget, 8)
    assert model.training
    slow = copy.deepcopy(original).eval()
    for rows in torch.arange(len(splits.forget)).split(8):
        F.cross_entropy(slow(splits.forget.x[rows]), splits.forget.y[rows]).backward()
    for p, expected in zip(model.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(total[p], expected.grad, rtol=0, atol=1e-6)


def test_u12_unselected_weights_stay_bit_for_bit_under_weight_decay_and_momentum(original, splits):
    done = unlearn(original, splits, SalUn(**LOOP, share=0.3, clip=1.0), seed=3)
    after = done.model
    model = copy.deepcopy(original)
    masks = largest_gradients(summed_gradient(model, splits.forget, 32), 0.3)
    for p, a, b in zip(model.parameters(), after.parameters(), original.parameters(), strict=True):
        assert torch.equal(a[~masks[p]], b[~masks[p]])
    moved = sum(int(a.ne(b).sum()) for a, b in zip(after.parameters(), original.parameters(), strict=True))
    assert 0.9 * done.notes["selected_weights"] < moved <= done.notes["selected_weights"]
    assert done.passes == len(splits.forget) + 3 * (len(splits.retain) + len(splits.forget))


def test_u12_without_the_forget_phase_it_is_gd(original, splits, monkeypatch):
    phases = lambda *_: lambda epoch: [TrainingPhase(cross_entropy)]  # noqa: E731
    monkeypatch.setattr("residuum.unlearning.salun.relabeling_phases", phases)
    pair = [unlearn(original, splits, method, seed=3).model for method in (SalUn(**LOOP, share=1), GD(**LOOP))]
    assert same(*pair)


def test_masked_gradients_are_masked_before_clipping(original, splits):
    settings = {**LOOP, "epochs": 1, "weight_decay": 0, "momentum": 0, "lr": 1.0, "batch_size": 999, "clip": 1e-3}
    after = unlearn(original, splits, SalUn(**settings, share=0.1, order="joint"), seed=3).model
    step = sum((a - b).square().sum() for a, b in zip(after.parameters(), original.parameters(), strict=True)).sqrt()
    assert step.item() == pytest.approx(1e-3, rel=1e-2)  # the whole length belongs to the selected weights


def test_labels_are_uniform_over_all_or_over_the_wrong_ones():
    y = torch.tensor([0, 1, 2]).repeat(3000)
    uniform, wrong = (random_labels(y, 3, kind, generator(0)) for kind in ("uniform", "wrong"))
    assert not wrong.eq(y).any()
    assert uniform.eq(y).double().mean().item() == pytest.approx(1 / 3, abs=0.03)
    for label in range(3):
        assert wrong[y == label].eq((label + 1) % 3).double().mean().item() == pytest.approx(0.5, abs=0.05)


def test_the_joint_stream_teaches_random_labels_to_the_forget_samples_only(original, splits):
    model = copy.deepcopy(original).eval()
    batch = Batch(splits.retain.x[:4], splits.retain.y[:4], torch.arange(4))
    phase = relabeling_phases(splits, 3, "wrong", "joint")(0)[0]
    assert torch.equal(phase.loss(model, batch, None, generator(0)), F.cross_entropy(model(batch.x), batch.y))
    forgotten = batch._replace(indices=torch.arange(4) + len(splits.retain))
    assert phase.loss(model, forgotten, None, generator(0)) > phase.loss(model, batch, None, generator(0))


def test_labels_are_drawn_anew_in_every_epoch(splits):
    forget = Batch(splits.forget.x, splits.forget.y, torch.arange(len(splits.forget)))
    model = build_model("mlp", splits.train.shape, 3, seed=1)
    phases = relabeling_phases(splits, 3, "uniform", "alternate")
    first, again, second = (phases(epoch)[0].loss(model, forget, None, generator(0)) for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("method", [RandomLabels, SalUn, FaLW])
def test_a_step_with_wrong_labels_raises_the_loss_of_the_true_ones(method, original, splits):
    settings = {"epochs": 1, "lr": 0.1, "batch_size": 999, "labels": "wrong", "bn_mode": "eval"}
    after = unlearn(original, splits, method(**settings), seed=3).model
    tuned = unlearn(original, splits, GD(epochs=1, lr=0.1, batch_size=999, bn_mode="eval"), seed=3).model
    assert mean_loss(after, splits.forget) > max(mean_loss(original, splits.forget), mean_loss(tuned, splits.forget))


class Lazy:
    """Inputs that are read when asked for."""

    def __init__(self, x):
        self.x, self.shape = x, x.shape

    def subset(self, indices):
        return Lazy(self.x[indices])

    def read(self, indices):
        return lambda: self.x[indices]


def test_joined_samples_are_those_of_their_parts_lazy_or_not(splits):
    lazy = Samples(Lazy(splits.retain.x), splits.retain.y, splits.retain.ids)
    rows = torch.tensor([5, len(splits.retain) + 2, 0, len(splits.retain)])
    both = [joined(part, splits.forget) for part in (splits.retain, lazy)]
    for samples in both:
        x, y = samples.batch(rows)
        assert torch.equal(x[1], splits.forget.x[2])
        assert torch.equal(x[2], splits.retain.x[0])
        assert y.tolist() == [
            *splits.retain.y[[5]].tolist(),
            *splits.forget.y[[2]].tolist(),
            *splits.retain.y[[0]].tolist(),
            *splits.forget.y[[0]].tolist(),
        ]
        assert len(samples) == len(splits.train)
    part = both[1].subset([len(splits.retain), 1])
    assert torch.equal(part.batch(torch.arange(2))[0], torch.stack([splits.forget.x[0], splits.retain.x[1]]))


def test_noisy_copies_cover_every_radius_up_to_tau():
    x = torch.full((4000, 1, 5, 5), 0.5)
    moved = noisy_copies(x, 0.1, generator(0), InputSpace()) - 0.5
    lengths = moved.flatten(1).norm(dim=1) / math.sqrt(25)
    assert lengths.mean().item() == pytest.approx(0.05, rel=0.05)
    assert lengths.std().item() == pytest.approx(0.1 / math.sqrt(12), rel=0.1)


def test_u22_the_gates_weights_at_known_points():
    z = torch.tensor([0.0, 1.0, -1.0, 50.0, -50.0], dtype=torch.float64)
    expected = torch.tensor([1, 1.7616, 0.2384, 2, 0], dtype=torch.float64)
    assert torch.allclose(gate_weights(z, torch.ones(5)), expected, atol=5e-5)
    assert gate_weights(torch.tensor([1.0]), torch.tensor([10**-0.15])).item() == pytest.approx(1.6807, abs=5e-5)


def test_u22_the_gate_compares_with_unseen_samples_of_the_class_by_hand(original, splits):
    gate = Gate(FaLW(gate_power=0.15), splits)
    batch = Batch(splits.forget.x, splits.forget.y, torch.arange(len(splits.forget)))
    weights = gate.weights(original, batch, torch.ones(len(batch.y), dtype=torch.bool), 0)
    p = forward(original, splits.forget).double().softmax(1)
    held = splits.validation.subset((splits.validation.y == 2).nonzero().flatten().numpy())
    q = forward(original, held).double().softmax(1)[:, 2].numpy()
    balance = (len(splits.forget) / (3 * len(splits.forget))) ** 0.15
    for row, weight in enumerate(weights.tolist()):
        z = (p[row, splits.forget.y[row]].item() - q.mean()) / max(q.std(), 1e-8)
        assert weight == pytest.approx(1 + math.copysign(math.tanh(abs(z)) ** (1 / balance), z), abs=1e-5)


def test_u23_weights_of_one_are_random_labels(original, splits, monkeypatch):
    gated = unlearn(original, splits, FaLW(**LOOP), seed=3).model
    monkeypatch.setattr("residuum.unlearning.falw.gate_weights", lambda z, balance: torch.ones_like(z))
    free = unlearn(original, splits, SalUn(**LOOP, share=1, order="joint"), seed=3).model
    assert not same(free, gated, atol=1e-6)
    assert same(free, unlearn(original, splits, FaLW(**LOOP), seed=3).model, atol=1e-6)


def test_u24_weights_carry_no_gradient_and_other_classes_are_not_read(original, splits):
    batch = Batch(splits.forget.x, splits.forget.y, torch.arange(len(splits.forget)))
    model = copy.deepcopy(original)
    weights = Gate(FaLW(), splits).weights(model, batch, torch.ones(len(batch.y), dtype=torch.bool), 0)
    assert not weights.requires_grad
    assert all(p.grad is None for p in model.parameters())
    x = splits.validation.x.clone()
    x[splits.validation.y != 2] = torch.nan
    spoilt = replace(splits, validation=Samples(x, splits.validation.y, splits.validation.ids))
    assert same(*(unlearn(original, part, FaLW(**LOOP), seed=3).model for part in (splits, spoilt)))


def test_the_gate_estimates_once_an_epoch(original, splits, monkeypatch):
    times = []
    estimate = Gate.estimate
    monkeypatch.setattr(Gate, "estimate", lambda self, model: times.append(1) or estimate(self, model))
    unlearn(original, splits, FaLW(**LOOP), seed=3)
    assert len(times) == 3


def test_the_gate_leaves_statistics_and_modes_alone(original, splits):
    model = copy.deepcopy(original).train()
    model.bn1.eval()
    before, flags = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    batch = Batch(splits.forget.x, splits.forget.y, torch.arange(len(splits.forget)))
    Gate(FaLW(), splits).weights(model, batch, torch.ones(len(batch.y), dtype=torch.bool), 0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [m.training for m in model.modules()] == flags


def test_a_whole_class_has_no_unseen_samples_to_compare_with(original, class_splits):
    with pytest.raises(InputError, match=r"falw.*needs validation samples of the forgotten classes.*'8'"):
        unlearn(original, class_splits, FaLW(), seed=3)
