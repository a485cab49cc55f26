"""Logits of any module without a trace, and trials that refuse what cannot be used."""

import warnings

import pytest
import torch
from torch import nn

from residuum.core.errors import InputError, ResiduumWarning
from residuum.core.samples import Samples
from residuum.models import build_model, check_model, evaluating, forward, head_of, module_flags


@pytest.fixture
def model():
    """A model whose flags are mixed: frozen batch-norm inside a network in train mode."""
    network = build_model("resnet18", (1, 8, 8), 3, width=2, seed=1).train()
    network.layer1[0].bn2.eval()
    return network


@pytest.fixture
def samples():
    x = torch.rand(11, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return Samples(x, torch.zeros(11, dtype=torch.int64), tuple(map(str, range(11))))


def flags(model):
    return {name: module.training for name, module in model.named_modules()}


@pytest.mark.parametrize("manager", [module_flags, evaluating])
def test_every_flag_is_restored_even_after_an_error(model, manager):
    before = flags(model)
    assert before["bn1"]
    assert not before["layer1.0.bn2"]
    with pytest.raises(RuntimeError, match=r"size of tensor|channels"), manager(model):  # noqa: PT012
        model.eval()
        model.layer1[0].bn2.train()
        model(torch.rand(2, 5, 8, 8))
    assert flags(model) == before


def test_evaluating_is_eval_mode_everywhere(model):
    with evaluating(model):
        assert not any(flags(model).values())


def test_flags_are_restored_although_a_module_overrides_train():
    class Frozen(nn.Sequential):
        def train(self, mode=True):
            return super().train(False)

    model = Frozen(nn.Dropout()).eval()
    model[0].training = True
    with evaluating(model):
        assert not model[0].training
    assert model[0].training


@pytest.mark.parametrize("batch_size", [1, 4, 11, 512])
def test_logits_do_not_depend_on_the_batch_size_and_change_nothing(model, samples, batch_size):
    before, state = flags(model), {k: v.clone() for k, v in model.state_dict().items()}
    logits = forward(model, samples, batch_size=batch_size)
    assert flags(model) == before
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert not logits.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(logits, model.eval()(samples.x))


def test_no_samples_give_no_logits(model, samples):
    assert forward(model, samples.subset([])).shape == (0, 3)


def test_batch_size_zero_is_refused(model, samples):
    with pytest.raises(InputError, match=r"batch_size must be 1 or more, got 0"):
        forward(model, samples, batch_size=0)


@pytest.mark.parametrize(
    ("name", "head"), [("cnn", "fc"), ("mlp", "fc"), ("logistic", "fc"), ("resnet18", "fc"), ("vgg11", "classifier")]
)
def test_head_of_every_model(name, head):
    model = build_model(name, (1, 8, 8), 3, width=2, seed=1)
    found, layer = head_of(model)
    assert found == head
    assert layer is getattr(model, head)
    assert layer.out_features == 3


def test_a_model_without_linear_layer_has_no_head():
    with pytest.raises(InputError, match=r"Sequential has no nn.Linear layer"):
        head_of(nn.Sequential(nn.Conv2d(1, 2, 3)))


SAMPLES = Samples(
    torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0)),
    torch.zeros(20).long(),
    tuple("abcdefghijklmnopqrst"),
)


def linear(outputs, *more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, outputs), *more)


class Broken(nn.Module):
    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, x):
        return self.output(x)


def poisoned(x):
    out = torch.randn(len(x), 3)
    out[2, 1] = float("nan")
    return out


@pytest.mark.parametrize("model", [linear(3), build_model("cnn", (1, 4, 4), 3, seed=1)])
def test_good_models_pass_in_silence(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_model(model, SAMPLES, 3)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (linear(4), r"returns 4 outputs per sample, but there are 3 classes; build it with 3 outputs"),
        (Broken(lambda x: x), r"must return logits \(16, 3\) for 16 samples, got \(16, 1, 4, 4\)"),
        (Broken(lambda x: torch.zeros(1, 3)), r"for 16 samples, got \(1, 3\)"),
        (Broken(poisoned), r"NaN or infinite logits for 'c'"),
        (Broken(lambda x: torch.full((len(x), 3), torch.inf)), r"NaN or infinite logits for 'a'"),
        (Broken(lambda x: {"logits": x}), r"cannot take inputs of shape \(1, 4, 4\)"),
        (nn.Linear(16, 3), r"cannot take inputs of shape \(1, 4, 4\) \(.*\)$"),
    ],
)
def test_unusable_models_are_refused(model, message):
    with pytest.raises(InputError, match=message) as caught:
        check_model(model, SAMPLES, 3)
    assert "\n" not in str(caught.value)


def test_probabilities_are_noticed():
    with pytest.warns(ResiduumWarning, match="returns probabilities"):
        check_model(linear(3, nn.Softmax(1)), SAMPLES, 3)


@pytest.mark.parametrize(
    "last", [nn.ReLU(), nn.LogSoftmax(1), nn.Sigmoid(), Broken(lambda x: x - x.mean(1, keepdim=True) + 1 / 3)]
)
def test_other_outputs_are_not_taken_for_probabilities(last):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_model(linear(3, last), SAMPLES, 3)


def test_the_model_is_left_as_it_was():
    model = build_model("cnn", (1, 4, 4), 3, seed=1).train()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    check_model(model, SAMPLES, 3)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("shape", [(11, 1), (11,)])
def test_one_logit_for_two_classes_is_refused_with_a_way_out(shape, samples):
    from residuum import wrap

    class One(nn.Module):
        def forward(self, x):
            return x.flatten(1).sum(1).reshape(len(x), *shape[1:])

    with pytest.raises(
        InputError, match=r"returns one logit z for 2 classes; make it two: wrap\(\.\.\., logits="
    ) as said:
        check_model(One(), samples, 2)
    advice = str(said.value).rpartition("logits=")[2][:-1]
    two = wrap(One(), logits=eval(advice))
    check_model(two, samples, 2)
    assert torch.equal(forward(two, samples)[:, 1], forward(One(), samples).flatten())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_of_another_dtype_is_refused_with_what_to_do(samples, dtype):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    with pytest.raises(InputError, match=rf"its weights are {dtype} and inputs are float32: give model.float\(\)"):
        check_model(model.to(dtype), samples, 3)
    check_model(model.float(), samples, 3)
