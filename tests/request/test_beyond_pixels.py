"""Text and tables: every method and the audit run on token ids, at an embedding and on standardized features."""

import numpy as np
import pytest
import torch
from torch import nn

from residuum import Recipe, Request, wrap
from residuum.auditing import Counts
from residuum.core.errors import InputError
from residuum.core.seeds import child_seed
from residuum.perturbations import Substitution, block_generator
from residuum.request import AuditOptions
from residuum.training import train
from residuum.unlearning import METHODS, make_method, unlearn

LENGTH, WORDS, WIDTH = 8, 40, 12
SETTINGS = {"msg": "msg:layers=all"}  # no convolution, so the method must be told
RECIPE = Recipe(epochs=15, lr=3e-3, optimizer="adamw", batch_size=32)


class Output:
    """What classes of Hugging Face return: an object with logits."""

    def __init__(self, logits):
        self.logits = logits


class TinyTransformer(nn.Module):
    """A transformer of two heads that takes keyword arguments and returns an object."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, 24, dropout=0.1, batch_first=True)
        self.classifier = nn.Linear(WIDTH, 3)

    def forward(self, input_ids, attention_mask):
        x = self.embeddings(input_ids) + self.positions(torch.arange(LENGTH, device=input_ids.device))
        x = self.encoder(x, src_key_padding_mask=attention_mask == 0)
        mask = attention_mask[..., None].to(x.dtype)
        return Output(self.classifier((x * mask).sum(1) / mask.sum(1)))


class Texts:
    """Generated texts: a class prefers its own words; items as a tokenizer gives them."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 3, n)
        own = 1 + 13 * self.labels[:, None] + rng.integers(0, 13, (n, LENGTH))
        self.ids = np.where(rng.random((n, LENGTH)) < 0.5, own, rng.integers(1, WORDS, (n, LENGTH)))
        self.mask = (np.arange(LENGTH) < rng.integers(4, LENGTH + 1, (n, 1))).astype(int)
        self.ids *= self.mask

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return {"input_ids": self.ids[row], "attention_mask": self.mask[row], "labels": int(self.labels[row])}


def trained(net, request, model_of):
    model = model_of(net)
    return train(model, request.splits.train, RECIPE, seed=3).eval()


@pytest.fixture(scope="module")
def text():
    torch.manual_seed(0)
    request = Request(
        Texts(150, 1),
        forget=[str(k) for k in range(0, 150, 15)],
        held_out=Texts(90, 2),
        validation=Texts(60, 3),
        recipe=RECIPE,
    )
    model = trained(TinyTransformer(), request, lambda net: wrap(net, batch=("input_ids", "attention_mask")))
    return request, model


def table(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    x = rng.normal(size=(n, 5)) + np.eye(5)[y] * 1.5
    x[:, 4] = rng.integers(0, 4, n)  # a category
    return x, y


@pytest.fixture(scope="module")
def features():
    torch.manual_seed(0)
    request = Request(
        table(150, 1),
        forget=[str(k) for k in range(0, 150, 15)],
        held_out=table(90, 2),
        validation=table(60, 3),
        recipe=RECIPE,
    )
    net = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 3))
    scale = [1.0, 1.0, 1.0, 2.0, 1.0]
    return request, trained(net, request, lambda net: wrap(net, bounds=None, scale=scale, categorical=[4]))


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # of torch, on gradients of each sample
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["text", "features"])
def test_every_method_runs(kind, name, request):
    asked, model = request.getfixturevalue(kind)
    done = asked.unlearn(model, SETTINGS.get(name, name), seed=1)
    x, _ = asked.splits.retain.batch(torch.arange(8))
    assert done(x).shape == (8, 3)
    assert done(x).isfinite().all()
    if name != "cr":  # which replaces the head
        assert list(done.model.state_dict()) == list(model.state_dict())
    assert not any(layer._forward_hooks for layer_name, layer in done.model.named_modules() if layer_name)


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
def test_an_audit_at_the_embedding_counts_what_an_independent_loop_counts(text, tmp_path):
    """Shares with the engine only the key of its noise stream."""
    request, model = text
    done, options = request.unlearn(model, "gd:epochs=1"), AuditOptions(draws=30, taus=[0, 0.5])
    run = request.audit(model, done, options, controls=2, out=tmp_path)
    assert run.perturbations == ["gaussian"]
    audit = run.rows["original"].per_seed["1"].audits["gaussian"]
    assert audit.settings.at == "embeddings"
    counts = Counts.load(tmp_path / "counts" / "1" / "original" / "gaussian.npz")
    reference = request.retrained(model, 0).model
    forget = request.splits.forget
    x = forget.x.long()
    for net, column in ((model, "method_right"), (reference, "reference_right")):
        table = net.embeddings.weight.detach().double()
        spread = table[x[:, 0]].std()
        exact = TinyTransformer().double().eval()
        exact.load_state_dict({key: value.double() for key, value in net.state_dict().items()})
        for row, name in enumerate(forget.ids):
            ids, mask = x[row, 0].expand(30, -1), x[row, 1].expand(30, -1)
            blocks = [
                block_generator(child_seed(1, "audit"), name, k).standard_normal((25, LENGTH * WIDTH), dtype="float32")
                for k in range(2)
            ]
            noise = torch.from_numpy(np.concatenate(blocks)[:30]).double().view(30, LENGTH, WIDTH)
            moved = table[ids] + 0.5 * spread * noise + exact.positions.weight
            hidden = exact.encoder(moved, src_key_padding_mask=mask == 0)
            weight = mask[..., None].double()
            right = exact.classifier((hidden * weight).sum(1) / weight.sum(1)).argmax(1) == forget.y[row]
            position = counts.ids.index(name)
            assert getattr(counts, column)[position, 1] == right.sum()


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
def test_an_audit_on_features_counts_what_an_independent_loop_counts(features, tmp_path):
    request, model = features
    done, options = request.unlearn(model, "gd:epochs=1"), AuditOptions(draws=30, taus=[0, 0.5])
    run = request.audit(model, done, options, controls=2, out=tmp_path)
    counts = Counts.load(tmp_path / "counts" / "1" / "original" / "gaussian.npz")
    forget, scale = request.splits.forget, torch.tensor([1.0, 1.0, 1.0, 2.0, 0.0])
    first, last = model[0], model[2]
    for name, x, y in zip(forget.ids, forget.x, forget.y, strict=True):
        blocks = [
            block_generator(child_seed(1, "audit"), name, k).standard_normal((25, 5), dtype="float32") for k in range(2)
        ]
        moved = (x + 0.5 * scale * torch.from_numpy(np.concatenate(blocks)[:30])).double()
        hidden = (moved @ first.weight.double().T + first.bias.double()).relu()
        right = (hidden @ last.weight.double().T + last.bias.double()).argmax(1) == y
        assert counts.method_right[counts.ids.index(name), 1] == right.sum()
    assert run.rows["original"].per_seed["1"].audits["gaussian"].settings.scale[4] == 0


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
def test_texts_are_audited_by_substitution_and_by_attacks_at_a_layer(text, tmp_path):
    request, model = text
    words = Substitution(vocabulary=WORDS, keep=(0,), mask=1)
    chosen = [words, "fgsm:target=true", "gaussian:at=encoder"]
    radii = {"substitution": [0, 0.2, 0.4], "fgsm:target=true": [0, 0.1], "gaussian:at=encoder": [0, 0.5]}
    options = AuditOptions(perturbations=chosen, taus=radii, draws=20)
    run = request.audit(model, model, options, controls=2, out=tmp_path)
    assert run.perturbations == list(radii)
    audits = run.rows["original"].per_seed["1"].audits
    right = {name: audit.recognition_rates()[1] for name, audit in audits.items()}
    assert right["substitution"][-1] < right["substitution"][0]
    assert right["fgsm:target=true"][1] >= right["fgsm:target=true"][0]  # it looks for recognition
    assert audits["gaussian:at=encoder"].settings.at == "encoder"


def test_noise_on_token_ids_themselves_is_refused(text):
    request, model = text
    with pytest.raises(InputError, match="token ids cannot be moved by noise"):
        unlearn(model, request.splits, make_method("rurk", {"lambda_f": 0}), seed=1)


def test_parts_in_another_order_are_refused(text):
    request, _ = text
    model = wrap(TinyTransformer(), batch=("attention_mask", "input_ids"))
    with pytest.raises(InputError, match="in this order, the data have input_ids, attention_mask"):
        request.check(model)


def test_features_outside_their_bounds_are_refused(features):
    request, _ = features
    model = wrap(nn.Linear(5, 3))
    with pytest.raises(InputError, match=r"within \[0, 1\].*give wrap\(\.\.\., bounds=\)"):
        request.check(model)
