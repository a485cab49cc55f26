"""Weights files: what is saved comes back, equal models give equal bytes, foreign files get one clear line."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from residuum.core.errors import InputError
from residuum.models import build_model, init_from, load_state, load_weights, save_weights


@pytest.fixture
def model():
    network = build_model("cnn", (3, 8, 8), 4, width=3, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), seed=1)
    network(torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(0)))  # moves batch-norm statistics
    return network


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def test_what_is_saved_comes_back(model, tmp_path):
    file = tmp_path / "m.safetensors"
    save_weights(model, file)
    loaded = load_weights(str(file))
    assert equal(loaded.state_dict(), model.state_dict())
    assert loaded.architecture == model.architecture
    x = torch.rand(5, 3, 8, 8)
    assert torch.equal(loaded.eval()(x), model.eval()(x))


def test_equal_models_give_equal_bytes_and_no_other_file(model, tmp_path):
    for name in ("a", "b"):
        save_weights(model, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_failed_write_leaves_nothing(model, tmp_path):
    with pytest.raises(InputError, match=r"cannot write .*absent"):
        save_weights(model, tmp_path / "absent" / "m.safetensors")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"cannot write"):
        save_weights(model, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_init_from_takes_all_but_the_head(model, tmp_path):
    save_weights(model, tmp_path / "w")
    fresh = build_model("cnn", (3, 8, 8), 7, width=3, seed=2)
    before = {key: value.clone() for key, value in fresh.state_dict().items()}
    new = init_from(fresh, tmp_path / "w")
    assert equal(fresh.state_dict(), before)
    for key, value in new.state_dict().items():
        source = before if key.startswith("fc.") else model.state_dict()
        assert torch.equal(value, source[key]), key
    assert new.architecture["mean"] == pytest.approx([0.1, 0.2, 0.3])
    assert fresh.architecture["mean"] == [0.5]


def test_the_constants_loaded_are_kept_by_a_second_file(model, tmp_path):
    save_weights(model, tmp_path / "w")
    new = init_from(build_model("cnn", (3, 8, 8), 7, width=3, seed=2), tmp_path / "w")
    save_weights(new, tmp_path / "again")
    assert equal(load_weights(tmp_path / "again").state_dict(), new.state_dict())


def test_a_file_without_normalization_leaves_the_models_own(model, tmp_path):
    weights = {key: value for key, value in model.state_dict().items() if not key.startswith("normalize")}
    save_file(weights, tmp_path / "bare.safetensors", {"architecture": "cnn", "width": "3"})
    fresh = build_model("cnn", (3, 8, 8), 4, width=3, mean=(0.7,), seed=2)
    new = init_from(fresh, tmp_path / "bare.safetensors")
    assert new.architecture == fresh.architecture
    assert torch.equal(new.hidden.weight, model.hidden.weight)
    with pytest.raises(InputError, match=r"does not say its architecture; build the model with build_model"):
        load_weights(tmp_path / "bare.safetensors")


def test_modules_of_ones_own(tmp_path):
    own, other = (nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)) for _ in range(2))
    save_weights(own, tmp_path / "own")
    new = init_from(other, tmp_path / "own")
    assert torch.equal(new[0].weight, own[0].weight)
    assert torch.equal(new[2].weight, other[2].weight)
    with pytest.raises(InputError, match=r"does not say its architecture"):
        load_weights(tmp_path / "own")


def test_weights_shared_by_two_layers_can_be_saved(tmp_path):
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    save_weights(tied, tmp_path / "tied")
    assert torch.equal(load_file(tmp_path / "tied")["1.weight"], tied[0].weight)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "cnn",
            {"width": 4},
            r"conv1.weight has shape \(3, 3, 3, 3\), the model needs \(4, 3, 3, 3\); build the model",
        ),
        (
            "resnet18",
            {"width": 3},
            r"lacks weights 'layer1.0.conv1.weight' and \d+ more; it belongs to another architecture",
        ),
        ("logistic", {}, r"has the unknown weights 'bn1.bias' and 7 more"),
    ],
)
def test_other_architectures_are_refused(model, tmp_path, name, options, message):
    save_weights(model, tmp_path / "w")
    with pytest.raises(InputError, match=message):
        init_from(build_model(name, (3, 8, 8), 4, seed=1, **options), tmp_path / "w")


def test_damaged_files_are_refused(model, tmp_path):
    file = tmp_path / "m.safetensors"
    save_weights(model, file)
    raw = file.read_bytes()
    for damaged in (raw[:-10], raw[:5], b"", b"no weights at all"):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=r"is truncated or not a safetensors file"):
            load_weights(file)
    with pytest.raises(InputError, match=r"does not exist"):
        load_weights(tmp_path / "absent")


@pytest.mark.parametrize("architecture", [{"name": "mlp", "depth": 3}, {"name": "mlp"}])
def test_a_strange_architecture_is_refused(tmp_path, architecture):
    record = json.dumps({"architecture": architecture})
    save_file({"a": torch.zeros(1)}, tmp_path / "w", {"residuum": record})
    with pytest.raises(InputError, match=r"holds an architecture that cannot be built"):
        load_weights(tmp_path / "w")


def test_weights_that_contradict_their_architecture_are_refused(model, tmp_path):
    weights = {key: value for key, value in model.state_dict().items() if key != "fc.bias"}
    record = json.dumps({"architecture": model.architecture})
    save_file(weights, tmp_path / "w", {"residuum": record})
    with pytest.raises(InputError, match=r"lacks weights 'fc.bias'"):
        load_weights(tmp_path / "w")


@pytest.mark.parametrize("head", ["model.", "net.", "model._orig_mod.", "module.net."])
def test_weights_below_one_attribute_belong_to_the_network(tmp_path, head):
    """A Lightning module saves the network that it holds under the name of the attribute."""
    made, other = (build_model("mlp", (4,), 3, seed=seed) for seed in (1, 2))
    torch.save({"state_dict": {head + name: values for name, values in made.state_dict().items()}}, tmp_path / "l.ckpt")
    load_state(other, tmp_path / "l.ckpt")
    assert all(map(torch.equal, other.state_dict().values(), made.state_dict().values()))
    torch.save({"a.weight": torch.ones(1), "b.bias": torch.ones(1)}, tmp_path / "other.pt")
    with pytest.raises(InputError, match="belongs to another architecture"):
        load_state(other, tmp_path / "other.pt")
