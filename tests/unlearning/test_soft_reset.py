"""The softened start: soft_reset and `keep` of every gradient method (U1-U8)."""

from __future__ import annotations

import copy
from dataclasses import asdict, fields, replace

import pytest
import torch
from torch import nn

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.core.seeds import generator
from residuum.models import build_model, forward
from residuum.models.weights import state_hash
from residuum.training import Batch, Hooks, Recipe, TrainingPhase, cross_entropy, fit
from residuum.unlearning import GA, GD, RURK, SCRUB, CFk, Context, EUk, NegGrad, Origin, SalUn, SoftReset, unlearn
from residuum.unlearning.base import DECIDED, InheritedRecipe
from residuum.unlearning.scrub import teacher_of
from residuum.unlearning.start import Start, trainable_parts

RECIPE = Recipe(epochs=6, lr=0.05, batch_size=32, weight_decay=1e-3, clip=1.0)
LOOP = {"epochs": 2, "lr": 0.05, "weight_decay": 1e-3, "batch_size": 32, "clip": 1.0, "schedule": "cosine"}


def same(one, other) -> bool:
    return state_hash(one.state_dict()) == state_hash(other.state_dict())


def reset(original, splits, seed=3, **settings):
    origin = Origin(RECIPE)
    return unlearn(original, splits, SoftReset(**{"epochs": 2, **settings}), seed=seed, origin=origin).model


def test_u1_keep_1_is_gd_with_the_originals_recipe_bit_for_bit(original, splits):
    ours = unlearn(original, splits, SoftReset(keep=1, epochs=2), seed=3, origin=Origin(RECIPE))
    gd = unlearn(original, splits, GD(**LOOP), seed=3)
    assert same(ours.model, gd.model)
    assert ours.passes == gd.passes == 2 * len(splits.retain)
    assert ours.notes == {}


def test_u2_keep_0_does_not_read_the_original(original, splits):
    broken = copy.deepcopy(original)
    with torch.no_grad():
        for value in broken.state_dict().values():
            value.fill_(torch.nan if value.is_floating_point() else 99)
    after = [
        SoftReset(keep=0, epochs=1).edit(copy.deepcopy(m), splits, Context(3, Origin(RECIPE)))
        for m in (broken, original)
    ]
    assert same(*after)
    assert all(torch.isfinite(value).all() for value in after[0].state_dict().values())


@pytest.mark.parametrize("keep", [0.3, 0.5, 0.9])
def test_u3_without_epochs_the_start_is_the_mixture_bit_for_bit(keep, original, splits):
    mixed, whole, fresh = (reset(original, splits, keep=k, epochs=0).state_dict() for k in (keep, 1, 0))
    for name, value in mixed.items():
        expected = keep * whole[name] + (1 - keep) * fresh[name] if value.is_floating_point() else torch.tensor(0)
        assert torch.equal(value, expected), name
    assert not torch.equal(whole["conv1.weight"], fresh["conv1.weight"])
    assert fresh["bn1.running_var"].eq(1).all()


def test_u4_it_reads_the_retain_set_only_and_repeats_itself(original, splits):
    nan = replace(splits, forget=Samples(splits.forget.x * torch.nan, splits.forget.y, splits.forget.ids))
    first, again, poisoned = reset(original, splits), reset(original, splits), reset(original, nan)
    assert same(first, again)
    assert same(first, poisoned)
    assert not same(first, reset(original, splits, seed=4))


def test_u5_a_whole_start_calls_no_initialization(original, splits, monkeypatch):
    monkeypatch.setattr(Start, "soften", lambda *_: pytest.fail("softened"))
    for method in (
        GD(**LOOP),
        NegGrad(**LOOP),
        SCRUB(epochs=1),
        CFk(epochs=1),
        RURK(**LOOP),
        SoftReset(keep=1, **LOOP),
    ):
        unlearn(original, splits, method, seed=3, origin=Origin(RECIPE))


@pytest.mark.parametrize("keep", [0.0, 0.4])
def test_u6_rurk_without_weights_is_soft_reset(keep, original, splits):
    rurk = RURK(**{**LOOP, "schedule_epochs": None}, lambda_f=0, lambda_a=0, keep=keep)
    assert same(unlearn(original, splits, rurk, seed=3).model, reset(original, splits, keep=keep))


@pytest.mark.parametrize("settings", [{"blocks": ("conv3", "bn3", "fc")}, {"k": 1}, {}])
def test_u7_eu_k_and_cf_k_are_two_ends_of_one_dial(settings, original, splits):
    common = {"epochs": 1, "lr": 0.05, **settings}
    for left, right in ((CFk(**common, keep=0), EUk(**common)), (EUk(**common, keep=1), CFk(**common))):
        assert same(*(unlearn(original, splits, method, seed=3).model for method in (left, right)))
    between = unlearn(original, splits, CFk(epochs=0, keep=0.5, **settings), seed=3).model.state_dict()
    start, end = (
        unlearn(original, splits, CFk(epochs=0, keep=k, **settings), seed=3).model.state_dict() for k in (1, 0)
    )
    for name, value in between.items():
        if value.is_floating_point() and not torch.equal(start[name], end[name]):
            assert torch.equal(value, 0.5 * start[name] + 0.5 * end[name])
    assert torch.equal(between["conv1.weight"], original.conv1.weight)


def test_u8_scrub_leaves_the_zero_gradient_at_once_and_its_teacher_is_the_original(original, splits):
    method, student = SCRUB(keep=0.5, weight_decay=0), copy.deepcopy(original)
    teacher = teacher_of(student, {"forget": splits.forget})
    batch = Batch(splits.forget.x, splits.forget.y, torch.arange(len(splits.forget)))
    method.soften(student, splits, Context(3))
    method.alternation(teacher)(0)[0].loss(student.eval(), batch, None, generator(0)).backward()
    assert max(p.grad.abs().max().item() for p in student.parameters()) > 1e-3
    assert torch.equal(teacher("forget", batch), forward(original, splits.forget))


def test_u8_the_teacher_is_asked_before_the_start_is_softened(original, splits, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "residuum.unlearning.scrub.forward",
        lambda model, s, **_: asked.append(copy.deepcopy(model)) or forward(model, s),
    )
    after = unlearn(original, splits, SCRUB(keep=0.5, epochs=1), seed=3).model
    assert all(same(model, original) for model in asked)
    assert not same(after, original)


def test_salun_mixes_selected_weights_only(original, splits):
    method = SalUn(share=0.2, keep=0.5, epochs=0)
    after = unlearn(original, splits, method, seed=3).model
    pairs = zip(after.parameters(), original.parameters(), strict=True)
    moved = sum(int(a.ne(b).sum()) for a, b in pairs)
    total = sum(p.numel() for p in original.parameters())
    assert 0 < moved <= round(0.2 * total)


def test_ga_refuses_a_softened_start():
    with pytest.raises(InputError, match=r"ga: keep: expected 1, because no retain data .*got 0.5"):
        GA.configured({"keep": 0.5})


@pytest.mark.parametrize("method", [GD, SoftReset, CFk, SalUn])
def test_frozen_statistics_are_refused_with_a_softened_start(method, original, splits):
    with pytest.raises(InputError, match=r"expected bn_mode='train' with keep=0\.5, got 'eval'"):
        unlearn(original, splits, method(keep=0.5, bn_mode="eval", lr=0.01), seed=3, origin=Origin(RECIPE))


def test_frozen_statistics_are_no_matter_without_batch_norm(splits):
    model = build_model("mlp", splits.train.shape, 3, width=8, seed=1)
    assert not same(model, unlearn(model, splits, GD(keep=0.5, bn_mode="eval", epochs=1), seed=3).model)


def test_settings_left_none_are_the_originals_and_given_ones_are_kept(original, splits):
    filled = SoftReset(lr=0.2).recipe.resolved(RECIPE)
    taken = {"momentum": 0.9, "weight_decay": 1e-3, "batch_size": 32, "clip": 1.0, "augment": False}
    assert {**taken, "lr": 0.2}.items() <= vars(filled).items()


def test_the_defaults_are_the_settings_that_were_validated():
    settings = SoftReset().settings
    assert (settings["keep"], settings["share"], settings["batch_share"]) == (0.2, 0.3, "auto")
    assert SoftReset(epochs=4).share is SoftReset(batch_size=8).batch_share is None


def test_batches_are_a_quarter_of_the_originals_and_its_own_with_batch_norm(original, splits):
    assert same(reset(original, splits), reset(original, splits, batch_size=32))
    plain = build_model("mlp", splits.train.shape, 3, width=8, seed=1)
    assert same(reset(plain, splits), reset(plain, splits, batch_size=8))


def test_an_unknown_recipe_is_asked_for_and_never_replaced_by_another(original, splits):
    with pytest.raises(InputError, match=r"soft_reset trains as the original was trained, .*Origin\(recipe=\)"):
        unlearn(original, splits, SoftReset(epochs=0), seed=1)
    whole = {**LOOP, "momentum": 0.9, "optimizer": "sgd"}
    assert same(unlearn(original, splits, SoftReset(**whole), seed=3).model, reset(original, splits))


@pytest.mark.parametrize(("share", "epochs"), [(0.5, 3), (0.49, 2), (0.01, 1), (1, 6)])
def test_a_share_is_a_length_in_the_originals_epochs_rounded_down(share, epochs, original, splits):
    assert same(reset(original, splits, share=share), reset(original, splits, epochs=epochs))


@pytest.mark.parametrize(("share", "size"), [(0.25, 8), (0.01, 1), (1, 32)])
def test_batches_can_be_a_share_of_the_originals(share, size, original, splits):
    assert same(reset(original, splits, batch_share=share), reset(original, splits, batch_size=size))


def test_the_initial_weights_can_be_walked_back_to(initial, original, splits):
    origin = Origin(RECIPE, initial.state_dict())
    done = unlearn(original, splits, SoftReset(keep=0, epochs=0, fresh="initial"), seed=3, origin=origin)
    start = done.model
    assert all(torch.equal(a, b) for a, b in zip(start.parameters(), initial.parameters(), strict=True))
    done = unlearn(original, splits, SoftReset(keep=0.5, epochs=0, fresh="initial"), seed=3, origin=origin)
    half = done.model
    assert torch.equal(half.fc.weight, 0.5 * original.fc.weight + 0.5 * initial.fc.weight)


@pytest.mark.parametrize("saw", [None, "all"])
def test_initial_weights_that_may_know_the_forget_samples_are_refused(saw, initial, original, splits):
    seen = None if saw is None else frozenset(splits.forget.ids[:1])
    origin = Origin(RECIPE, initial.state_dict(), seen)
    with pytest.raises(InputError, match="have seen samples to forget, or it is not known"):
        unlearn(original, splits, SoftReset(fresh="initial"), seed=3, origin=origin)
    origin = replace(origin, seen=frozenset(splits.retain.ids))
    unlearn(original, splits, SoftReset(fresh="initial", epochs=0), seed=3, origin=origin)


def test_initial_weights_must_be_known_and_the_models_own(original, splits):
    with pytest.raises(InputError, match="soft_reset: fresh='initial' needs initial weights"):
        unlearn(original, splits, SoftReset(fresh="initial"), seed=3, origin=Origin(RECIPE))
    origin = Origin(RECIPE, {"conv1.weight": torch.zeros(2)})
    with pytest.raises(InputError, match=r"no 'conv1\.weight' of shape"):
        unlearn(original, splits, SoftReset(fresh="initial"), seed=3, origin=origin)


def test_every_setting_of_a_recipe_is_inherited_but_those_that_a_method_decides():
    plain, decided = {field.name: field.default for field in fields(Recipe)}, set(DECIDED)
    others = {"optimizer": "adamw", "drop_last": True, "augment": True, "clip": 2.0}
    original = Recipe(**{"lr": 0.3, "momentum": 0.5, "weight_decay": 0.2, "batch_size": 7, "clip": 0.1, **others})
    resolved = InheritedRecipe(epochs=3).resolved(original)
    assert asdict(resolved) == asdict(original) | {name: plain[name] for name in decided} | {"epochs": 3}
    assert InheritedRecipe(lr=0.5).resolved(original).lr == 0.5
    assert {name for name, value in asdict(InheritedRecipe()).items() if value is None} >= plain.keys() - decided
    assert asdict(SoftReset().recipe).keys() == plain.keys()


def test_statistics_are_mixed(original, splits):
    mixed = reset(original, splits, keep=0.3, epochs=0).bn1
    assert torch.equal(mixed.running_var, 0.3 * original.bn1.running_var + 0.7 * torch.ones(4))


def test_notes_say_how_far_each_layer_turned(original, splits):
    origin = Origin(RECIPE)
    done = unlearn(original, splits, SoftReset(epochs=0), seed=3, origin=origin)
    start = done.model
    a, b = start.conv2.weight.flatten(), original.conv2.weight.flatten()
    assert done.notes["cosines"]["conv2"] == pytest.approx((a @ b / a.norm() / b.norm()).item(), abs=1e-5)
    assert set(done.notes["cosines"]) == {"conv1", "bn1", "conv2", "bn2", "conv3", "bn3", "fc"}


def test_shared_weights_are_mixed_once_and_frozen_ones_stay(splits, monkeypatch):
    one, two = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    two.weight = one.weight
    model = nn.Sequential(one, two, nn.Linear(2, 2).requires_grad_(False))
    before = one.weight.detach().clone()
    zeros = lambda start, parts, *_: [part.weight.zero_() for part in parts.values()]  # noqa: E731
    monkeypatch.setattr(Start, "renew", zeros)
    Start(keep=0.5).soften(trainable_parts(model), splits, Context(3))
    assert torch.equal(one.weight, 0.5 * before)
    assert list(trainable_parts(model)) == ["0", "1"]


def test_after_step_is_called_with_the_model_after_every_step(original, splits):
    model, seen = copy.deepcopy(original), []
    recipe = Recipe(epochs=2, lr=0.1, batch_size=50)
    streams = {"retain": splits.retain}
    fit(
        model,
        streams,
        recipe,
        [TrainingPhase(cross_entropy)],
        seed=1,
        hooks=Hooks(after_step=lambda m, rate: seen.append(m.fc.bias.tolist())),
    )
    assert len(seen) == 2 * -(-len(splits.retain) // 50)
    assert len({tuple(bias) for bias in seen}) == len(seen)
    assert seen[-1] == model.fc.bias.tolist()
