"""A shift of a layer's output: zero is the model, and a shift is what editing the layer by hand gives."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from residuum.core.errors import InputError
from residuum.core.inputs import space_of
from residuum.core.samples import Samples
from residuum.models import ShiftedAt, with_shift, wrap


@pytest.fixture
def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).eval()


@pytest.fixture
def points():
    torch.manual_seed(2)
    return Samples(torch.rand(300, 3), torch.arange(300) % 4, tuple(map(str, range(300))))


def flat(points, shift):
    return torch.cat([points.x, shift.flatten(1)], 1)


def test_a_shift_is_added_to_the_layer_and_zero_is_the_model(net, points):
    shifted, shift = ShiftedAt(net, "1", points), torch.randn(300, 5)
    by_hand = net[2](net[1](net[0](points.x)) + shift)
    assert torch.equal(shifted(flat(points, shift)), by_hand)
    assert torch.equal(shifted(with_shift(points, 5).batch(torch.arange(300))[0]), net(points.x))


def test_the_unit_is_the_standard_deviation_of_the_models_own_layer(net, points):
    shifted, shift = ShiftedAt(net, "0", points, "std"), torch.randn(300, 5)
    spread = net[0](points.x[:256]).double().std().item()
    assert torch.allclose(shifted(flat(points, shift)), net[1:](net[0](points.x) + spread * shift), atol=1e-6)


def test_the_model_given_has_no_hook_and_plain_takes_it_off(net, points):
    before = copy.deepcopy(net.state_dict())
    shifted = ShiftedAt(net, "0", points)
    assert not net[0]._forward_hooks
    plain = shifted.plain()
    assert not plain[0]._forward_hooks
    assert all(torch.equal(value, before[key]) for key, value in plain.state_dict().items())


def test_the_shift_is_gone_after_an_error(net, points):
    class Failing(nn.Module):
        def forward(self, x):
            raise RuntimeError("broken")

    shifted = ShiftedAt(net, "0", points)
    broken = copy.deepcopy(shifted)
    broken.model[2] = Failing()
    x = flat(points, torch.ones(300, 5))
    with pytest.raises(RuntimeError, match="broken"):
        broken(x)
    assert torch.equal(shifted.model(points.x), net(points.x))


def test_threads_that_ask_one_model_do_not_see_each_others_shifts(net, points):
    shifted = ShiftedAt(net, "0", points)
    inputs = [flat(points, torch.full((300, 5), float(k))) for k in range(8)]
    alone = [shifted(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(shifted, inputs * 10))
    assert all(torch.equal(found, alone[k % 8]) for k, found in enumerate(together))


def test_only_the_shift_may_be_moved(net, points):
    shifted = ShiftedAt(net, "0", points)
    x = flat(points, torch.zeros(300, 5))
    moved = space_of(shifted).move(x, torch.ones_like(x))
    assert torch.equal(moved[:, :3], points.x)
    assert bool((moved[:, 3:] == 1).all())


def test_token_ids_cannot_be_moved():
    model = wrap(nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 2)), tokens=True)
    with pytest.raises(InputError, match="token ids cannot be moved by noise"):
        space_of(model).move(torch.zeros(1, 4), torch.ones(1, 4))


@pytest.mark.parametrize(("layer", "words"), [("7", "unknown layer '7'"), ("", "unknown layer")])
def test_layers_that_are_not_there_are_refused(net, points, layer, words):
    with pytest.raises(InputError, match=words):
        ShiftedAt(net, layer, points)


def test_layers_that_are_called_twice_or_return_no_tensor_are_refused(points):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(self.layer(x))

    with pytest.raises(InputError, match="got 2 calls"):
        ShiftedAt(Twice(), "layer", points)
