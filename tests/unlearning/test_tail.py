"""EU-k and CF-k: the frozen part stays, the tail is the one that was asked for (T2, T3, T11)."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.models import build_model, forward
from residuum.unlearning import GD, CFk, EUk, make_method, unlearn
from residuum.unlearning.layers import last_layers, last_share, owners

TAIL = ("bn3", "conv3", "fc")


def changed(before: nn.Module, after: nn.Module) -> set[str]:
    """Names of the top-level modules whose weights or buffers differ in any bit."""
    pairs = zip(before.state_dict().items(), after.state_dict().values(), strict=True)
    return {name.split(".")[0] for (name, old), new in pairs if not torch.equal(old, new)}


def same(one: nn.Module, other: nn.Module) -> bool:
    return not changed(one, other)


@pytest.mark.parametrize("method", [EUk, CFk])
def test_the_frozen_part_is_bit_identical_after_weight_decay_and_training(method, original, splits):
    after = unlearn(original, splits, method(epochs=2, weight_decay=0.1, blocks=TAIL), seed=1).model
    assert changed(original, after) == set(TAIL)


@pytest.mark.parametrize("method", [EUk, CFk])
def test_only_statistics_of_the_frozen_part_move_when_they_are_not_kept(method, original, splits):
    after = unlearn(original, splits, method(epochs=1, blocks=TAIL, freeze_bn_stats=False), seed=1).model
    moved = [n for n, v in original.state_dict().items() if not torch.equal(v, after.state_dict()[n])]
    outside = {n for n in moved if n.split(".")[0] not in TAIL}
    assert outside == {
        f"{bn}.{b}" for bn in ("bn1", "bn2") for b in ("running_mean", "running_var", "num_batches_tracked")
    }


def test_cf_k_without_epochs_is_the_original(original, splits):
    assert same(original, unlearn(original, splits, CFk(epochs=0), seed=1).model)


def test_eu_k_without_epochs_differs_exactly_on_the_tail_and_knows_nothing(original, splits):
    resets = [unlearn(original, splits, EUk(epochs=0, blocks=TAIL), seed=seed).model for seed in range(12)]
    assert all(changed(original, reset) == set(TAIL) for reset in resets)
    right = [forward(reset, splits.train).argmax(1).eq(splits.train.y).double().mean().item() for reset in resets]
    assert abs(sum(right) / len(right) - 1 / 3) < 0.15
    assert forward(original, splits.train).argmax(1).eq(splits.train.y).double().mean() > 0.9


def test_eu_k_resets_batch_norm_of_the_tail(original, splits):
    bn = unlearn(original, splits, EUk(epochs=0, blocks=TAIL), seed=1).model.bn3
    expected = {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1, "num_batches_tracked": 0}
    assert all(bool(value.eq(expected[name]).all()) for name, value in bn.state_dict().items())
    assert not torch.equal(original.bn3.running_var, bn.running_var)


def test_cf_k_of_all_layers_is_gd_bit_for_bit(original, splits):
    common = {"epochs": 2, "lr": 0.02, "batch_size": 32}
    gd = unlearn(original, splits, GD(**common), seed=5).model
    assert same(gd, unlearn(original, splits, CFk(share=1.0, **common), seed=5).model)
    assert same(gd, unlearn(original, splits, CFk(k=4, **common), seed=5).model)
    assert not same(gd, unlearn(original, splits, CFk(k=3, **common), seed=5).model)


@pytest.mark.parametrize("method", [EUk, CFk])
def test_the_forget_set_is_never_read(method, original, splits):
    nan = replace(splits, forget=Samples(splits.forget.x * float("nan"), splits.forget.y, splits.forget.ids))
    assert same(*(unlearn(original, part, method(epochs=1), seed=1).model for part in (splits, nan)))


def names(model: nn.Module, tail: list[nn.Module]) -> list[str]:
    return [name for name, module in model.named_modules() if module in tail]


def test_default_tail_of_a_resnet_is_the_last_stage_and_the_head():
    model = build_model("resnet18", (3, 8, 8), 5, width=4, seed=0)
    tail = CFk().layers.of(model)
    assert {name.split(".")[0] for name in names(model, tail)} == {"layer4", "fc"}
    assert set(owners(model.layer4)) | {model.fc} == set(tail)


def test_published_size_of_the_default_tail():
    model = build_model("resnet18", (3, 32, 32), 10, seed=0)
    held = sum(p.numel() for module in CFk().layers.of(model) for p in module.parameters(recurse=False))
    assert held == sum(p.numel() for p in model.layer4.parameters()) + 5130
    assert 0.74 < held / 11_173_962 < 0.76


def test_counting_layers_counts_the_shortcut_as_the_reference_code_does():
    model = build_model("resnet18", (3, 8, 8), 5, width=4, seed=0)
    counted = [n for n in names(model, last_layers(model, 5)) if "bn" not in n and not n.endswith("downsample.1")]
    assert counted == ["layer4.0.conv2", "layer4.0.downsample.0", "layer4.1.conv1", "layer4.1.conv2", "fc"]
    assert "layer4.0.conv1" in names(model, last_layers(model, 6))


def test_the_tail_by_share_is_the_shortest_that_suffices():
    model = build_model("vgg11", (1, 8, 8), 10, width=4, seed=0)
    total = sum(p.numel() for p in model.parameters())
    for share in (0.05, 0.5, 0.9, 1.0):
        tail = last_share(model, share)
        sizes = [sum(p.numel() for p in module.parameters(recurse=False)) for module in tail]
        assert sum(sizes) >= share * total > sum(sizes[1:])


def test_default_tail_of_a_network_without_stages_goes_by_share(original):
    assert names(original, CFk().layers.of(original)) == ["conv3", "bn3", "fc"]


def test_flags_of_the_result_are_those_of_the_original(original, splits):
    model = copy.deepcopy(original)
    model.bn1.weight.requires_grad_(False)
    model.bn2.eval()
    after = unlearn(model, splits, CFk(epochs=1), seed=1).model
    assert [p.requires_grad for p in after.parameters()] == [p.requires_grad for p in model.parameters()]
    assert [m.training for m in after.modules()] == [m.training for m in model.modules()]


def test_notes_say_how_much_was_trained(original, splits):
    done = unlearn(original, splits, CFk(epochs=2, blocks=("fc",)), seed=1)
    assert done.notes["trained_parameters"] == 32 * 3 + 3
    assert done.passes == 2 * len(splits.retain)


def test_layers_of_any_kind_are_reinitialized_without_touching_the_global_generator(splits):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    state = torch.get_rng_state()
    once, again = (unlearn(model, splits, EUk(epochs=0, share=1.0), seed=2).model for _ in range(2))
    assert torch.equal(state, torch.get_rng_state())
    assert same(once, again)
    assert changed(model, once) == {"1", "3"}


def test_a_layer_that_cannot_be_reinitialized_is_named(splits):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * self.factor

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3), Scale())
    with pytest.raises(InputError, match="Scale has no reset_parameters"):
        unlearn(model, splits, EUk(epochs=0), seed=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"blocks": "layer9"}, "unknown block 'layer9'.*Known: bn1, bn2, bn3, conv1, conv2, conv3, fc"),
        ({"k": 9}, "expected k from 1 to 4, .*got k=9"),
    ],
)
def test_tails_that_the_model_does_not_have_are_refused(settings, message, original, splits):
    with pytest.raises(InputError, match=message):
        unlearn(original, splits, make_method("cf_k", settings), seed=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "k: .*1 or more, got 0"),
        ({"share": 0}, "share: .*more than 0, got 0"),
        ({"share": 1.5}, "share: .*1 or less, got 1.5"),
        ({"lr": -0.1}, "lr: .*0 or more, got -0.1"),
        ({"blocks": "fc", "k": 1}, "give blocks or k, not both"),
        ({"bloks": "fc"}, "did you mean blocks"),
    ],
)
@pytest.mark.parametrize("name", ["eu_k", "cf_k"])
def test_wrong_settings_are_refused_with_the_range(name, settings, message):
    with pytest.raises(InputError, match=message):
        make_method(name, settings)


def test_blocks_from_the_command_line():
    assert make_method("cf_k", {"blocks": "layer4+fc"}).layers.blocks == ("layer4", "fc")
    assert make_method("cf_k", {"blocks": ["layer4", "fc"]}).layers.blocks == ("layer4", "fc")
