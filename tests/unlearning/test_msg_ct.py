"""MSG (U16-U18) and CT (U19-U21): which weights change, which do not, and when nothing is left but GD."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from residuum.core.errors import InputError, ResiduumWarning
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed
from residuum.models import build_model, forward
from residuum.training import Hooks
from residuum.unlearning import CT, GD, MSG, Context, unlearn
from residuum.unlearning.msg import a_sample_of

CONVOLUTIONS = ("conv1.weight", "conv2.weight", "conv3.weight")


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


class Triangular(GD):
    """GD at MSG's rates, written out for five epochs."""

    def edit(self, model, splits, context):
        rates = (1 / 3, 2 / 3, 3 / 3, 2 / 3, 1 / 3)
        self.descend(model, splits, context, hooks=Hooks(rate=lambda epoch: self.recipe.lr * rates[epoch]))
        return model


def test_u16_nothing_drawn_and_nothing_damped_is_gd_at_that_schedule(original, splits):
    common = {"epochs": 5, "lr": 0.05, "weight_decay": 5e-4, "batch_size": 32}
    gd = unlearn(original, splits, Triangular(**common), seed=3).model
    assert same(gd, unlearn(original, splits, MSG(**common, share=0, damp=1), seed=3).model)
    assert not same(gd, unlearn(original, splits, MSG(**common, share=0, damp=0.5), seed=3).model)


@pytest.mark.parametrize("layers", ["conv", "all"])
def test_u17_exactly_the_weights_with_the_smallest_gradients_are_drawn_anew(layers, original, splits):
    method = MSG(epochs=0, share=0.3, layers=layers)
    done = unlearn(original, splits, method, seed=3)
    after = done.model.state_dict()
    some = a_sample_of(splits.retain, len(splits.forget), child_seed(Context(3).batch_seed, "msg"))
    slow = copy.deepcopy(original).eval()
    for samples, sign in ((some, 1), (splits.forget, -1)):
        for rows in torch.arange(len(samples)).split(64):
            (sign * F.cross_entropy(slow(samples.x[rows]), samples.y[rows])).backward()
    changed = set(CONVOLUTIONS) | ({"fc.weight"} if layers == "all" else set())
    for name, before in original.state_dict().items():
        different = after[name].ne(before)
        if name not in changed:
            assert not different.any(), name
            continue
        g = slow.get_parameter(name).grad.abs()
        assert int(different.sum()) == round(0.3 * g.numel()), name
        assert g[different].max() <= g[~different].min() + 1e-6, name
    assert done.passes == 2 * len(splits.forget)
    assert len(some) == len(splits.forget)


def test_u17_drawn_weights_are_those_of_a_fresh_network(splits):
    model = build_model("cnn", (1, 8, 8), 3, width=64, seed=1)
    with torch.no_grad():
        model.conv1.weight.zero_()
    drawn = unlearn(model, splits, MSG(epochs=0, share=1.0), seed=3).model.conv1.weight
    assert drawn.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.1)


def test_u18_without_gradient_and_weight_decay_the_other_weights_stay(original, splits):
    method = MSG(epochs=3, lr=0.05, damp=0, weight_decay=0, batch_size=32)
    after = unlearn(original, splits, method, seed=3).model
    start = unlearn(original, splits, MSG(epochs=0), seed=3).model
    for name in CONVOLUTIONS:
        untouched = start.state_dict()[name].eq(original.state_dict()[name])
        assert torch.equal(after.state_dict()[name][untouched], original.state_dict()[name][untouched])
        assert after.state_dict()[name][~untouched].ne(start.state_dict()[name][~untouched]).any()
    assert not torch.equal(after.fc.weight, original.fc.weight)


def test_a_network_without_convolutions_is_refused_or_its_linear_layers_are_taken(splits):
    model = build_model("mlp", splits.train.shape, 3, width=8, seed=1)
    with pytest.raises(InputError, match="msg: expected a network with convolutions, got MLP; set layers=all"):
        unlearn(model, splits, MSG(), seed=3)
    assert not same(model, unlearn(model, splits, MSG(layers="all", epochs=0), seed=3).model)


def test_u19_turning_twice_is_the_identity(original, splits):
    once = unlearn(original, splits, CT(epochs=0), seed=3).model
    assert not same(once, original)
    assert same(unlearn(once, splits, CT(epochs=0), seed=3).model, original)
    assert torch.equal(once.conv2.weight, original.conv2.weight.transpose(2, 3))


def test_u20_the_turned_network_does_to_transposed_images_what_the_original_does_to_images(splits):
    model = build_model("resnet18", (1, 8, 8), 3, width=8, seed=1)
    turned = unlearn(model, splits, CT(epochs=0), seed=3).model
    mirrored = Samples(splits.forget.x.transpose(2, 3).contiguous(), splits.forget.y, splits.forget.ids)
    torch.testing.assert_close(forward(turned, mirrored), forward(model, splits.forget), rtol=0, atol=1e-5)
    assert not torch.allclose(forward(turned, splits.forget), forward(model, splits.forget), atol=1e-3)


@pytest.mark.parametrize("kind", ["1x1", "none"])
def test_u21_without_spatial_kernels_it_is_gd(kind, splits):
    common = {"epochs": 2, "lr": 0.05, "weight_decay": 5e-4, "schedule": "cosine"}
    body = [nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(128, 3)] if kind == "1x1" else [nn.Flatten(), nn.Linear(64, 3)]
    model = nn.Sequential(*body)
    gd = unlearn(model, splits, GD(**common), seed=3).model
    with pytest.warns(ResiduumWarning, match="no kernel to transpose"):
        assert same(gd, unlearn(model, splits, CT(**common), seed=3).model)


def test_kernels_that_are_not_square_are_refused(splits):
    model = nn.Sequential(nn.Conv2d(1, 2, (3, 1)), nn.Flatten(), nn.Linear(96, 3))
    with pytest.raises(InputError, match=r"ct: expected square kernels, got \(3, 1\)"):
        unlearn(model, splits, CT(), seed=3)


def test_a_softened_start_is_softened_before_weights_are_drawn_or_turned(original, splits):
    soft = unlearn(original, splits, GD(epochs=0, keep=0.5), seed=3).model
    turned = unlearn(original, splits, CT(epochs=0, keep=0.5), seed=3).model
    assert torch.equal(turned.conv2.weight, soft.conv2.weight.transpose(2, 3))
    drawn = unlearn(original, splits, MSG(epochs=0, keep=0.5), seed=3).model
    assert int(drawn.conv2.weight.ne(soft.conv2.weight).sum()) == round(0.3 * soft.conv2.weight.numel())


def test_frozen_layers_are_left_alone(original, splits):
    frozen = copy.deepcopy(original)
    frozen.conv1.requires_grad_(False)
    done = unlearn(frozen, splits, MSG(epochs=1, lr=0.01, share=0.5), seed=3)
    after = done.model
    assert torch.equal(after.conv1.weight, original.conv1.weight)
    assert not torch.equal(after.conv2.weight, original.conv2.weight)
    assert done.notes["redrawn_weights"] == sum(round(0.5 * getattr(original, c).weight.numel()) for c in CONVS)
    for layer in (frozen.conv2, frozen.conv3):
        layer.requires_grad_(False)
    with pytest.raises(InputError, match="msg: expected a layer with weights to train, got 3 frozen; set layers=all"):
        unlearn(frozen, splits, MSG(), seed=3)


CONVS = ("conv2", "conv3")
