"""The one loop against hand-written steps and torch's own schedules."""

from __future__ import annotations

import copy
import dataclasses
import math
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed, generator
from residuum.models import build_model
from residuum.training import Hooks, Recipe, TrainingPhase, counting_passes, cross_entropy, fit, generators_kept, train
from residuum.training.checkpoint import Checkpoint
from residuum.training.minibatches import cropped, draw_crops
from residuum.unlearning.start import reinitialize


def hand_written(model, samples, recipe, seed):
    """Plain SGD with momentum, written out."""
    model = copy.deepcopy(model)
    weights, velocity = list(model.parameters()), [torch.zeros_like(p) for p in model.parameters()]
    order = generator(child_seed(seed, "train"))
    for epoch in range(recipe.epochs):
        for indices in torch.randperm(len(samples), generator=order).split(recipe.batch_size):
            loss = F.cross_entropy(model(samples.x[indices]), samples.y[indices])
            gradients = torch.autograd.grad(loss, weights)
            norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
            scale = min(1.0, recipe.clip / (norm + 1e-6))
            with torch.no_grad():
                for w, v, g in zip(weights, velocity, gradients, strict=True):
                    v.mul_(recipe.momentum).add_(scale * g + recipe.weight_decay * w)
                    w.sub_(recipe.rate(epoch) * v)
    return model


def test_the_loop_is_sgd_with_momentum_clipping_decay_and_schedule(splits, same_weights):
    start = build_model("mlp", splits.train.shape, 3, width=7, seed=1)
    recipe = Recipe(epochs=3, lr=0.1, momentum=0.8, weight_decay=0.01, batch_size=16, clip=0.5, schedule="cosine")
    trained = train(start, splits.train, recipe, seed=4)
    assert same_weights(trained, hand_written(start, splits.train, recipe, seed=4), atol=1e-6)
    assert not same_weights(trained, start)


@pytest.mark.parametrize("horizon", [None, 200])
def test_cosine_schedule_is_torchs(horizon):
    recipe = Recipe(epochs=7, lr=0.3, schedule="cosine", schedule_epochs=horizon)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=horizon or 7)
    for epoch in range(7):
        assert recipe.rate(epoch) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()


def test_triangular_schedule_rises_and_falls_with_every_step(splits):
    recipe = Recipe(epochs=5, lr=0.3, schedule="triangle", batch_size=16)
    peak = 0.2 * recipe.epochs
    rates = [recipe.rate(k / 10) for k in range(51)]
    assert rates == pytest.approx([0.3 * min(k / 10 / peak, (5 - k / 10) / (5 - peak)) for k in range(51)])
    seen = []

    class Optimizer(torch.optim.SGD):
        def step(self):
            seen.append(self.param_groups[0]["lr"])
            super().step()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recipe, "optimizer_of", lambda self, values: Optimizer(values, lr=self.lr))
        model = build_model("logistic", splits.train.shape, 3, seed=1)
        fit(model, {"train": splits.train}, recipe, [TrainingPhase(cross_entropy, "train")], seed=4)
    steps = math.ceil(len(splits.train) / 16)
    assert seen == pytest.approx([recipe.rate(k / steps) for k in range(5 * steps)])


def test_nesterov_and_label_smoothing_are_torchs_and_the_last_epochs_are_clean(splits, same_weights):
    start = build_model("mlp", splits.train.shape, 3, width=7, seed=1)
    recipe = Recipe(epochs=4, lr=0.1, batch_size=16, optimizer="nesterov", label_smoothing=0.2, clean=0.4)
    assert [recipe.is_clean(epoch) for epoch in range(4)] == [False, False, True, True]  # 1.6 epochs, rounded up
    expected = copy.deepcopy(start)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    order = generator(child_seed(4, "train"))
    for epoch in range(4):
        for indices in torch.randperm(len(splits.train), generator=order).split(16):
            loss = nn.CrossEntropyLoss(label_smoothing=0.2 if epoch < 2 else 0.0)
            optimizer.zero_grad()
            loss(expected(splits.train.x[indices]), splits.train.y[indices]).backward()
            optimizer.step()
    assert same_weights(train(start, splits.train, recipe, seed=4), expected, atol=1e-6)


def test_clean_epochs_show_images_as_they_are(splits):
    shown = []

    def loss(model, batch, paired, noise):
        shown.append(torch.equal(batch.x, splits.train.x[batch.indices]))
        return cross_entropy(model, batch, paired, noise)

    recipe = Recipe(epochs=3, batch_size=len(splits.train), augment=True, clean=0.3)
    model = build_model("logistic", splits.train.shape, 3, seed=1)
    fit(model, {"train": splits.train}, recipe, [TrainingPhase(loss, "train")], seed=4)
    assert shown == [False, False, True]


def test_reflected_shifts_written_a_second_way():
    x = torch.rand(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    crops = draw_crops(6, x, torch.Generator().manual_seed(1), "reflect")
    assert crops[:, :2].max() <= 4
    padded = F.pad(x, (2, 2, 2, 2), mode="reflect")
    for image, (top, left, mirrored), shown in zip(padded, crops.tolist(), cropped(x, crops, "reflect"), strict=True):
        window = image[:, top : top + 32, left : left + 32]
        assert torch.equal(shown, window.flip(2) if mirrored else window)


def test_weights_are_laid_out_as_usual_after_training():
    x = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    colors = Samples(x, torch.arange(8) % 2, tuple(map(str, range(8))))
    trained = train(build_model("cnn", (3, 16, 16), 2, width=4, seed=1), colors, Recipe(epochs=1), seed=4)
    assert all(p.is_contiguous() for p in trained.parameters())


def test_training_is_deterministic_and_leaves_arguments_and_global_randomness_alone(splits, same_weights):
    start = build_model("cnn", splits.train.shape, 3, width=2, seed=1)
    before, state = copy.deepcopy(start), torch.get_rng_state()
    pair = [train(start, splits.train, Recipe(epochs=2, augment=True), seed=4) for _ in range(2)]
    assert same_weights(*pair)
    assert same_weights(start, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in pair[0].parameters())


def test_batch_norm_statistics_move_in_train_mode_only(splits):
    start = build_model("cnn", splits.train.shape, 3, width=2, seed=1)
    still = train(start, splits.train, Recipe(epochs=1, bn_mode="eval"), seed=4)
    moved = train(start, splits.train, Recipe(epochs=1, bn_mode="train"), seed=4)
    assert torch.equal(still.bn1.running_mean, start.bn1.running_mean)
    assert not torch.equal(moved.bn1.running_mean, start.bn1.running_mean)


def test_flags_of_every_submodule_are_restored(splits):
    model = build_model("cnn", splits.train.shape, 3, width=2, seed=1).train()
    model.bn1.eval()
    trained = train(model, splits.train, Recipe(epochs=1), seed=4)
    assert [m.training for m in trained.modules()] == [m.training for m in model.modules()]


def test_frozen_modules_keep_their_statistics_and_frozen_weights_stay(splits):
    model = build_model("cnn", splits.train.shape, 3, width=2, seed=1)
    model.conv1.weight.requires_grad_(False)
    before = copy.deepcopy(model)
    phases = [TrainingPhase(cross_entropy, "train")]
    recipe = Recipe(epochs=1, weight_decay=0.1)
    fit(model, {"train": splits.train}, recipe, phases, seed=4, frozen=[model.bn1])
    assert torch.equal(model.bn1.running_mean, before.bn1.running_mean)
    assert torch.equal(model.conv1.weight, before.conv1.weight)
    assert not torch.equal(model.fc.weight, before.fc.weight)


def seen_batches(splits, recipe, phases):
    seen = []

    def loss(model, batch, paired, noise):
        seen.append((batch.indices.tolist(), None if paired is None else paired.indices.tolist()))
        return cross_entropy(model, batch, paired, noise)

    model = build_model("logistic", splits.train.shape, 3, seed=1)
    streams = {"retain": splits.retain, "forget": splits.forget}
    named = [TrainingPhase(loss, *phase) for phase in phases]
    steps = []
    fit(model, streams, recipe, named, seed=4, progress=lambda done, total: steps.append((done, total)))
    return seen, steps


def test_streams_do_not_disturb_each_other_and_the_cycled_one_is_reshuffled(splits):
    recipe = Recipe(epochs=3, batch_size=5)
    alone, _ = seen_batches(splits, recipe, [("retain",)])
    paired, steps = seen_batches(splits, recipe, [("retain", "forget")])
    assert [batch for batch, _ in alone] == [batch for batch, _ in paired]
    order = [i for _, beside in paired for i in beside]
    n = len(splits.forget)
    wraps = [order[k : k + n] for k in range(0, len(order) - n + 1, n)]
    assert all(sorted(wrap) == list(range(n)) for wrap in wraps)
    assert wraps[0] != wraps[1]
    assert steps[-1] == (len(paired), len(paired))


def test_every_sample_once_per_epoch(splits):
    whole, _ = seen_batches(splits, Recipe(epochs=1, batch_size=7), [("retain",)])
    assert sorted(i for batch, _ in whole for i in batch) == list(range(len(splits.retain)))


def test_an_incomplete_last_batch_can_be_left_out_but_never_a_single_one(splits):
    def passes(size):
        seen, steps = seen_batches(splits, Recipe(epochs=2, batch_size=size, drop_last=True), [("retain",)])
        assert steps[-1] == (len(seen), len(seen))
        return [batch for batch, _ in seen]

    n = len(splits.retain)
    first, second = passes(n - 1)
    assert len(first) == len(second) == n - 1
    assert {*first} != {*second}  # it is not always the same sample
    assert [len(batch) for batch in passes(n // 2 - 1)] == [n // 2 - 1] * 4
    assert [len(batch) for batch in passes(n + 1)] == [n] * 2


def test_phases_may_change_with_the_epoch(splits):
    recipe = Recipe(epochs=2, batch_size=100)
    seen = []

    def phases(epoch):
        def loss(model, batch, paired, noise):
            seen.append((epoch, len(batch.x)))
            return cross_entropy(model, batch, paired, noise)

        return (
            [TrainingPhase(loss, "forget"), TrainingPhase(loss, "retain")]
            if epoch == 0
            else [TrainingPhase(loss, "retain")]
        )

    model = build_model("logistic", splits.train.shape, 3, seed=1)
    fit(model, {"retain": splits.retain, "forget": splits.forget}, recipe, phases, seed=4)
    assert seen == [(0, len(splits.forget)), (0, len(splits.retain)), (1, len(splits.retain))]


def test_passes_are_counted_with_gradients_only():
    model = nn.Linear(2, 2)
    with counting_passes(model) as passes:
        model(torch.rand(3, 2))
        with torch.no_grad():
            model(torch.rand(5, 2))
    model(torch.rand(7, 2))
    assert passes == [3]


def test_augmented_images_are_shifted_and_mirrored_copies():
    image = torch.arange(1.0, 65.0).reshape(1, 1, 8, 8) / 64
    padded = F.pad(image, (1, 1, 1, 1))
    variants = {
        tuple(v.flatten().tolist())
        for top in range(3)
        for left in range(3)
        for v in [padded[..., top : top + 8, left : left + 8]]
        for v in (v, v.flip(-1))
    }
    images = image.repeat(400, 1, 1, 1)
    copies = cropped(images, draw_crops(400, images, generator(0)))
    assert {tuple(c.flatten().tolist()) for c in copies} == variants


def test_a_diverging_loss_and_a_misplaced_augmentation_are_refused(splits):
    poisoned = dataclasses.replace(splits.train, x=torch.full_like(splits.train.x, torch.nan))
    model = build_model("logistic", splits.train.shape, 3, seed=1)
    with pytest.raises(InputError, match="finite loss, got nan in epoch 1; lower lr or set clip"):
        train(model, poisoned, Recipe(epochs=1), seed=4)
    with pytest.raises(InputError, match="images of shape"):
        draw_crops(3, torch.rand(3, 4), generator(0))


def test_a_training_stopped_at_an_epoch_goes_on_as_if_it_had_not(splits, same_weights, tmp_path):
    start = build_model("cnn", splits.train.shape, 3, width=2, seed=1)
    recipe = Recipe(epochs=6, lr=0.05, batch_size=16, schedule="cosine", augment=True)
    phases, streams = [TrainingPhase(cross_entropy, "train")], {"train": splits.train}
    whole, parts = copy.deepcopy(start), copy.deepcopy(start)
    passes = fit(whole, streams, recipe, phases, seed=4)
    options = {"seed": 4, "checkpoint": Checkpoint(tmp_path / "training.pt", every=0)}
    fit(parts, streams, recipe, phases, **options, hooks=Hooks(stop_after_epoch=lambda epoch: epoch == 2))
    assert not same_weights(parts, whole)
    resumed = copy.deepcopy(start)
    epochs = []
    total = fit(
        resumed, streams, recipe, phases, **options, hooks=Hooks(stop_after_epoch=lambda e: bool(epochs.append(e)))
    )
    assert same_weights(resumed, whole)
    assert total == passes
    assert epochs == [3, 4, 5]


def test_a_young_checkpoint_is_not_written_again(tmp_path):
    Checkpoint(tmp_path / "training.pt", every=1000).save(dict)
    assert not (tmp_path / "training.pt").exists()


def test_generators_of_other_devices_are_neither_seeded_nor_lost(splits, monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    train(build_model("cnn", splits.train.shape, 3, width=2, seed=0), splits.train, Recipe(epochs=1), seed=1)
    layer = nn.GRU(2, 2)  # a layer that draws its weights from torch's generator
    reinitialize([layer], seed=1)
    assert seeded == []


def test_the_generator_of_the_models_own_device_is_seeded_and_put_back(monkeypatch):
    state = {"cuda": 7}
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "manual_seed", lambda seed: state.update(cuda=seed))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: state["cuda"])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda value, device: state.update(cuda=value))
    before = torch.get_rng_state()
    with generators_kept(torch.device("cuda", 0)) as reseed:
        reseed(11)
        assert state == {"cuda": 11}
        assert torch.initial_seed() == 11
    assert state == {"cuda": 7}
    assert torch.equal(torch.get_rng_state(), before)


def test_batch_norm_with_a_last_batch_of_one_says_what_to_do():
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    samples = Samples(torch.rand(5, 2), torch.tensor([0, 1, 0, 1, 0]), tuple("abcde"))
    with pytest.raises(InputError, match="batch of one sample, such as the last one; give drop_last=true"):
        train(net, samples, Recipe(epochs=1, batch_size=2), seed=1)
    train(net, samples, Recipe(epochs=1, batch_size=2, drop_last=True), seed=1)


def test_nothing_is_trained_on_nothing_and_looking_for_labels_draws_no_global_numbers():
    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 0 * torch.rand(1)

    start, before = Noisy(2, 2), torch.get_rng_state()
    samples = Samples(torch.rand(3, 2, generator=generator(1)), torch.tensor([0, 1, 1]), ("a", "b", "c"))
    assert not torch.equal(train(start, samples, Recipe(epochs=1), seed=1).weight, start.weight)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(train(start, samples.subset([]), Recipe(epochs=1), seed=1).weight, start.weight)


def test_a_label_without_an_output_is_named():
    samples = Samples(torch.rand(3, 2), torch.tensor([1, 3, 2]), tuple("abc"))
    with pytest.raises(InputError, match="expected labels 0 to 2, one for each output of the model, got 3 for 'b'"):
        train(nn.Linear(2, 3), samples, Recipe(epochs=1), seed=1)
