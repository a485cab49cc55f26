"""Soft reset with the user's own training function works on the first try: four networks, four optimizers' habits.

Of each: held-out accuracy within two points of retrained models, nothing found, at most half the cost of retraining.
The forgotten samples are those that a network trained on others is least sure of, so that there is something to find.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_breast_cancer
from torch import nn

from residuum import InputError, Request, load_dataset, wrap
from residuum.core.errors import ResiduumWarning
from residuum.core.roles import Role
from residuum.data import read_data
from residuum.data.read import Reading
from residuum.models import forward
from residuum.record.verdicts import Verdict

LENGTH, WORDS = 12, 80
FORGOTTEN, CONTROLS = 20, 4


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.drop, self.fc1, self.fc2 = nn.Dropout(0.25), nn.Linear(128, 64), nn.Linear(64, 10)

    def forward(self, x):
        for layer in (self.conv1, self.conv2):
            x = nn.functional.max_pool2d(layer(x).relu(), 2)
        return self.fc2(self.drop(self.fc1(x.flatten(1)).relu()))


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.skip = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        return (self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())) + self.skip(x)).relu()


def resnet():
    stem = [nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    body = [Block(16, 16, 1), Block(16, 32, 2), Block(32, 32, 1)]
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def mlp():
    return nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def distilbert():
    transformers = pytest.importorskip("transformers")
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
    config = transformers.DistilBertConfig(vocab_size=WORDS, max_position_embeddings=LENGTH, num_labels=3, **sizes)
    return transformers.DistilBertForSequenceClassification(config)


def asked_by_name(net, x):
    return net(input_ids=x[:, 0].long(), attention_mask=x[:, 1].long()).logits


def descend(net, samples, optimizer, epochs, logits=nn.Module.__call__, batch=32):
    """Her training loop: her optimizer, a cosine over the epochs that she is told, batches of two or more."""
    steps = epochs * sum(1 for _ in torch.arange(len(samples)).split(batch))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(samples)).split(batch):
            if len(rows) > 1:
                x, y = samples.batch(rows)
                optimizer.zero_grad()
                nn.functional.cross_entropy(logits(net, x), y).backward()
                optimizer.step()
                schedule.step()
    return net.eval()


def train_cnn(samples, seed, model=None, epochs=40):
    torch.manual_seed(seed)
    net = model or Cnn()
    return descend(net, samples, torch.optim.AdamW(net.parameters(), lr=5e-3), epochs)


def train_resnet(samples, seed, model=None, epochs=30):
    torch.manual_seed(seed)
    net = model or resnet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    return descend(net, samples, optimizer, epochs, batch=64)


def train_mlp(samples, seed, model=None, epochs=40):
    torch.manual_seed(seed)
    net = model or mlp()
    return descend(net, samples, torch.optim.AdamW(net.parameters(), lr=1e-3), epochs)


def train_mlp_well(samples, seed, model=None, epochs=80):
    """Train until 30 % of the epochs are enough: after 12 of 40 even a training that saw nothing is found."""
    return train_mlp(samples, seed, model, epochs)


def train_distilbert(samples, seed, model=None, epochs=40):
    torch.manual_seed(seed)
    net = model or distilbert()
    return descend(net, samples, torch.optim.AdamW(net.parameters(), lr=2e-3), epochs, asked_by_name)


def digits(first, last):
    return load_dataset("digits").train.batch(torch.arange(first, last))


def gray_folder(folder, first, last):
    """The digits as gray PNGs in class folders."""
    for row, (x, y) in enumerate(zip(*digits(first, last), strict=True)):
        path = folder / str(int(y)) / f"{row:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((x[0] * 255).round().byte().numpy()).save(path)
    return folder


def table(first, last):
    x, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    x = (x - x[-100:].mean(0)) / x[-100:].std(0)  # by patients that no model is trained on
    return x[first:last], y[first:last]


def texts(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    topic = 3 + 25 * y[:, None] + rng.integers(0, 25, (n, LENGTH))
    ids = np.where(rng.random((n, LENGTH)) < 0.6, topic, rng.integers(3, WORDS, (n, LENGTH)))
    mask = np.arange(LENGTH) < rng.integers(6, LENGTH + 1, (n, 1))
    return np.stack([ids * mask, mask], 1), y


@dataclass(frozen=True)
class Case:
    """Training, held-out and other data below a folder, and how her network is trained and wrapped."""

    data: Callable[[Path], tuple[object, object, object]]
    train: Callable[..., nn.Module]
    wrapping: dict[str, object]
    reading: Reading | None = None


def gray_pngs(folder):
    return tuple(gray_folder(folder / str(first), first, last) for first, last in ((0, 500), (500, 1100), (1100, 1797)))


CASES = {
    "mlp": Case(lambda folder: (table(0, 250), table(250, 460), table(460, 569)), train_mlp_well, {"bounds": None}),
    "cnn": Case(gray_pngs, train_cnn, {}, Reading(channels=1)),
    "resnet": Case(lambda folder: (digits(0, 1000), digits(1000, 1500), digits(1500, 1797)), train_resnet, {}),
    "distilbert": Case(
        lambda folder: (texts(400, 1), texts(400, 2), texts(300, 3)),
        train_distilbert,
        {"batch": ("input_ids", "attention_mask")},
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "mlp" else pytest.mark.long) for name in CASES]
)
def test_soft_reset_works_on_the_first_try(name, tmp_path):
    case = CASES[name]
    data, held_out, others = case.data(tmp_path)
    samples, strange = (read_data(part, reading=case.reading).samples for part in (data, others))
    stranger = wrap(case.train(strange, 9), **case.wrapping)
    sure = forward(stranger, samples).softmax(1)[torch.arange(len(samples)), samples.y]
    hard = [samples.ids[row] for row in sure.argsort()[:FORGOTTEN].tolist()]
    request = Request(data, forget=hard, held_out=held_out, retrain=case.train, reading=case.reading)
    model = wrap(case.train(samples, 0), **case.wrapping)

    done = request.unlearn(model)

    assert done.warnings == ()
    run = request.audit(model, done, controls=CONTROLS, draws=50, out=tmp_path / "run", store=tmp_path / "store")
    verdicts = {label: judgment.verdict for label, judgment in run.verdicts.items()}
    assert verdicts == {"original": Verdict.FOUND, "soft_reset": Verdict.NOT_DETECTED}
    retrained = [row for row in run.rows.values() if row.role in (Role.REFERENCE, Role.CONTROL)]
    level = np.mean([row.per_seed["1"].metrics.test_accuracy for row in retrained])
    assert abs(done.after["held_out"] - level) < 2
    row = run.rows["soft_reset"]
    assert 0 < run.record.cost(list(row.per_seed.values())) <= 50


def told(lengths, learns=lambda epochs: epochs):
    """Return a training function of 20 epochs that writes down what it is told, and trains for as many as it learns."""

    def train(samples, seed, model=None, epochs=20):
        lengths.append((model is not None, epochs))
        return train_mlp(samples, seed, model, learns(epochs))

    return train


def small_request(retrain, **options):
    request = Request(table(0, 250), forget=["3", "4", "5"], held_out=table(250, 460), retrain=retrain, **options)
    return request, wrap(train_mlp(request.source.samples, 0), bounds=None)


def test_it_trains_on_where_accuracy_is_lost_until_its_budget_is_spent():
    lengths = []
    request, model = small_request(told(lengths, learns=lambda epochs: 0))
    with pytest.warns(ResiduumWarning, match=r"soft_reset lost .*; try soft_reset:keep=0\.8$"):
        done = request.unlearn(model)
    assert lengths == [(True, 6), (True, 4)]
    assert done.notes["second_start_epochs"] == 4
    assert "started a second time, from 0.5 of the original" in str(done)
    assert done.passes == 10 * 247
    lengths.clear()
    with pytest.warns(ResiduumWarning, match="try"):
        request.unlearn(model, budget=0.2)
    assert lengths == [(True, 4)]
    lengths.clear()
    with pytest.warns(ResiduumWarning, match=r"try soft_reset:epochs=6$"):
        request.unlearn(model, "soft_reset:epochs=3")
    assert lengths == [(True, 3)]


def test_it_stops_where_nothing_is_lost():
    lengths = []
    request, model = small_request(told(lengths, learns=lambda epochs: 40))
    done = request.unlearn(model)
    assert lengths == [(True, 6)]
    assert done.warnings == ()
    assert not any("second" in name or "further" in name for name in done.notes)


def test_a_start_with_half_of_the_original_is_trained_on_and_the_better_of_two_is_kept():
    lengths = []
    request, model = small_request(told(lengths, learns=lambda epochs: 0))
    with pytest.warns(ResiduumWarning, match=r"soft_reset lost"):
        done = request.unlearn(model, "soft_reset:keep=0.5")
    assert (lengths, done.notes["further_epochs"]) == ([(True, 6), (True, 4)], 4)
    calls = []

    def worse(samples, seed, model=None, epochs=20):
        calls.append(model)
        return train_mlp(samples, seed, model if len(calls) == 1 else None, 2 if len(calls) == 1 else 0)

    request, _ = small_request(worse)
    with pytest.warns(ResiduumWarning, match=r"soft_reset lost"):
        done = request.unlearn(model, "soft_reset:keep=0.02")
    assert done.passes == 10 * 247
    assert done.notes["second_start_rejected"] == 1


def test_further_training_that_helps_asks_for_more_of_it():
    steps = iter([0, 1])
    request, model = small_request(told([], learns=lambda epochs: next(steps)))
    with pytest.warns(ResiduumWarning, match=r"lost .* retain accuracy .*; try budget=0\.75$"):
        request.unlearn(model)


def test_held_out_samples_decide_nothing_but_validation_samples_do():
    lengths = []
    retrain = told(lengths, learns=lambda epochs: 40)
    request, model = small_request(retrain)
    x, y = table(250, 460)
    harder = Request(request.source.samples, forget=["3"], held_out=(x, 1 - y), validation=(x, y), retrain=retrain)
    harder.unlearn(model)
    assert lengths == [(True, 6)]
    assert list(harder.unlearn(model).before) == ["retain", "validation", "held_out"]


@pytest.mark.parametrize("epochs", [None, 30])
def test_the_length_of_a_training_is_said_once(epochs):
    lengths = []

    def train(samples, seed, model=None, epochs=None):
        lengths.append(epochs)
        return train_mlp(samples, seed, model, 40)

    request, model = small_request(train, epochs=epochs)
    if epochs is None:
        with pytest.raises(
            InputError,
            match=r"not known: give Request\(epochs=\), a default in train\(samples, seed, model=None, epochs=",
        ):
            request.unlearn(model)
        request.unlearn(model, "soft_reset:epochs=9")
        assert lengths == [9]
    else:
        request.unlearn(model)
        assert lengths == [9]
        assert request.retrained(model, 0).passes == 30 * 247


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "30"])
def test_what_is_no_length_is_refused(wrong):
    with pytest.raises(InputError, match=r"^epochs: expected a whole number of 1 or more, got"):
        small_request(train_mlp, epochs=wrong)


@pytest.mark.parametrize("wrong", [0, 1.5, -0.1])
def test_what_is_no_budget_is_refused(wrong):
    request, model = small_request(train_mlp)
    with pytest.raises(InputError, match=r"^budget: expected a share of the original's epochs"):
        request.unlearn(model, budget=wrong)


def test_a_budget_that_her_function_cannot_keep_is_refused():
    request, model = small_request(lambda samples, seed, model=None: train_mlp(samples, seed, model))
    with pytest.raises(InputError, match=r"^budget: expected 0.3 or more, .* let it take epochs= as well"):
        request.unlearn(model, budget=0.2)


def test_a_softened_network_is_mixed_with_her_own_initialization():
    """Layers of transformers start at a standard deviation of 0.02, torch's embeddings at one."""
    net = distilbert()
    model = wrap(net, batch=("input_ids", "attention_mask"))
    request = Request(texts(60, 1), forget=["0"], retrain=lambda samples, seed, model=None: model)
    start = request.unlearn(model, "soft_reset:keep=0").model
    table = start.distilbert.embeddings.word_embeddings.weight
    assert table.std().item() == pytest.approx(net.config.initializer_range, rel=0.1)
    assert not torch.equal(table, net.distilbert.embeddings.word_embeddings.weight)
    conv = wrap(nn.Sequential(nn.Conv2d(1, 64, 3), nn.Flatten(), nn.Linear(64 * 36, 10)))
    start = Request(digits(0, 60), forget=["0"], retrain=lambda samples, seed, model=None: model).unlearn(
        conv, "soft_reset:keep=0"
    )
    assert start.model[0].weight.abs().max().item() <= 1 / 3  # torch's own bound for nine inputs, uniform
