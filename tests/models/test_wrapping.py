"""A network of the user's own keeps its names and weights; what stands before and after it is right."""

import copy
import pickle

import pytest
import torch
from torch import nn

from residuum.auditing.predictor import Predictor
from residuum.core.errors import InputError
from residuum.core.inputs import space_of
from residuum.models import load_state, save_state, wrap, wrap_like


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.fc = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x):
        return self.fc(self.bn(self.conv(x)).relu().mean((2, 3)))


class Answer:
    def __init__(self, logits):
        self.logits = logits


class TextNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 6), nn.Linear(6, 3)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask[..., None].to(self.head.weight.dtype)
        return Answer(self.head((self.embedding(input_ids) * mask).sum(1) / mask.sum(1)))


@pytest.fixture
def net():
    torch.manual_seed(0)
    net = Net()
    net.bn.running_mean.normal_()
    net.bn.running_var.uniform_(0.5, 2)
    return net.eval()


def test_normalization_stands_before_the_network_and_its_names_stay(net):
    x, mean, std = torch.rand(7, 3, 6, 6), [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    model = wrap(net, mean=mean, std=std)
    by_hand = (x - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    assert torch.allclose(model(x), net(by_hand), atol=1e-6)
    assert list(model.state_dict()) == list(net.state_dict())
    assert [name for name, _ in model.named_modules()] == [name for name, _ in net.named_modules()]
    assert type(model) is Net


def test_the_given_network_stays_as_it_is_and_copies_keep_the_normalization(net):
    before, x = copy.deepcopy(net.state_dict()), torch.rand(2, 3, 6, 6)
    model = wrap(net, mean=0.5, std=0.25)
    assert not torch.allclose(net(x), model(x))
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not net._forward_pre_hooks


def test_the_engine_folds_batch_norm_of_a_wrapped_network_without_losing_its_normalization(net):
    x = torch.rand(16, 3, 6, 6)
    model = wrap(net, mean=0.5, std=0.25)
    predictor = Predictor(model, x)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in predictor.fast.modules())
    assert torch.allclose(predictor.logits(x), model(x), atol=1e-5)


def test_several_tensors_are_unpacked_and_logits_found_in_an_answer():
    torch.manual_seed(0)
    net, ids = TextNet(), torch.randint(20, (4, 8))
    mask = (torch.arange(8) < 5).long().expand(4, 8)
    model = wrap(net, batch=("input_ids", "attention_mask"))
    stacked = torch.stack([ids, mask], 1).float()
    assert torch.equal(model(stacked), net(input_ids=ids, attention_mask=mask).logits)
    assert torch.equal(model(input_ids=ids, attention_mask=mask), model(stacked))
    assert space_of(model).at == "embedding"
    with pytest.raises(InputError, match="one part for each of input_ids, attention_mask"):
        model(stacked[:, :1])


@pytest.mark.parametrize(
    ("output", "logits"),
    [
        (lambda z: {"logits": z}, None),
        (lambda z: (z, 1), None),
        (lambda z: {"scores": z}, "scores"),
        (lambda z: [0, z], lambda out: out[1]),
    ],
)
def test_logits_are_found_where_they_are(output, logits):
    class Odd(nn.Linear):
        def forward(self, x):
            return output(super().forward(x))

    net = Odd(2, 3)
    x = torch.rand(4, 2)
    assert torch.equal(wrap(net, logits=logits)(x), nn.functional.linear(x, net.weight, net.bias))


def test_a_network_without_logits_is_refused():
    class Strange(nn.Linear):
        def forward(self, x):
            return "cat"

    with pytest.raises(InputError, match="say where they are with logits="):
        wrap(Strange(2, 2))(torch.rand(1, 2))


@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_weights_come_back_under_their_own_keys(net, name, tmp_path):
    save_state(wrap(net, mean=0.5, std=0.5), tmp_path / name)
    other = Net()
    load_state(other, tmp_path / name)
    assert all(torch.equal(value, net.state_dict()[key]) for key, value in other.state_dict().items())
    if name.endswith(".pt"):
        assert list(torch.load(tmp_path / name, weights_only=True)) == list(net.state_dict())


def test_a_state_dict_inside_a_checkpoint_of_a_parallel_model_is_found(net, tmp_path):
    parallel = {f"module.{key}": value for key, value in net.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": parallel}, tmp_path / "c.pt")
    assert torch.equal(wrap(Net(), tmp_path / "c.pt").fc.weight, net.fc.weight)


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("name", ["w.safetensors", "w.pt"])
def test_prefixes_of_compiled_and_parallel_models_are_taken_off(net, prefix, name, tmp_path):
    wrapped = net
    for part in reversed(prefix.split(".")[:-1]):
        wrapped = nn.ModuleDict({part: wrapped})
    save_state(wrapped, tmp_path / name)
    assert torch.equal(wrap(Net(), tmp_path / name).fc.weight, net.fc.weight)
    load_state(wrapped, tmp_path / name)  # her network may have the prefix itself


def test_what_is_no_network_is_refused_with_what_to_give(net):
    with pytest.raises(InputError, match=r"got Net; build it first: Net\(\)"):
        wrap(Net)
    with pytest.raises(InputError, match=r"got str; give a torch.nn.Module"):
        wrap("net.pt")


class Malicious:
    def __reduce__(self):
        return (exec, ("import pathlib; pathlib.Path('ran').touch()",))


def test_a_malicious_pickle_is_one_line_and_does_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Malicious()}, "evil.pt")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Malicious()))
    for name in ("evil.pt", "raw.pt"):
        with pytest.raises(InputError, match="could run code") as error:
            wrap(nn.Linear(1, 1), name)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()


def test_a_whole_model_in_a_file_and_other_weights_are_refused(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "model.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "other.pt")
    for name, words in (("model.pt", "save model.state_dict"), ("list.pt", "no state dict"), ("other.pt", "shape")):
        with pytest.raises(InputError, match=words):
            wrap(nn.Linear(2, 2), tmp_path / name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mean": 0.5}, "together"),
        ({"mean": 0.5, "std": 0}, "above 0"),
        ({"mean": "a", "std": "b"}, "numbers"),
        ({"bounds": (1, 0)}, "low < high"),
        ({"scale": -1}, "0 or more"),
        ({"tokens": True}, "no nn.Embedding"),
        ({"tokens": True, "at": "nowhere"}, "unknown layer"),
    ],
)
def test_what_cannot_be_used_is_refused(options, words):
    with pytest.raises(InputError, match=words):
        wrap(nn.Linear(2, 2), **options)


def test_categories_have_no_scale():
    space = space_of(wrap(nn.Linear(3, 2), bounds=None, scale=[1.0, 2.0, 3.0], categorical=[1]))
    assert space.scale_of((3,)).tolist() == [1.0, 0.0, 3.0]
    with pytest.raises(InputError, match="inputs of shape"):
        space.scale_of((5,))


def test_a_network_made_elsewhere_is_wrapped_as_the_model_is(net):
    model, x = wrap(net, mean=0.5, std=0.25), torch.rand(2, 3, 6, 6)
    assert torch.equal(wrap_like(copy.deepcopy(net), model)(x), model(x))
    assert wrap_like(model, model) is model
    with pytest.raises(InputError, match="must return its model"):
        wrap_like(None, model)
