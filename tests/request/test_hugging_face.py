"""A small BERT of random initial weights: audited at its embeddings, unlearned, its counts those of a plain loop."""

import numpy as np
import pytest
import torch

from residuum import Recipe, Request, wrap
from residuum.auditing import Counts
from residuum.core.seeds import child_seed
from residuum.perturbations import block_generator
from residuum.request import AuditOptions
from residuum.unlearning import METHODS, GradientMethod

transformers = pytest.importorskip("transformers")
LENGTH, WORDS, WIDTH = 10, 60, 16
RECIPE = Recipe(epochs=12, lr=2e-3, optimizer="adamw", batch_size=32)


def bert():
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(
        vocab_size=WORDS, max_position_embeddings=LENGTH, num_labels=3, attn_implementation="eager", **sizes
    )
    return transformers.BertForSequenceClassification(config)


def texts(n, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    own = 3 + 19 * labels[:, None] + rng.integers(0, 19, (n, LENGTH))
    ids = np.where(rng.random((n, LENGTH)) < 0.5, own, rng.integers(3, WORDS, (n, LENGTH)))
    mask = np.arange(LENGTH) < rng.integers(5, LENGTH + 1, (n, 1))
    return np.stack([ids * mask, mask], 1), labels


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    request = Request(
        texts(120, 1),
        forget=[str(k) for k in range(0, 120, 15)],
        held_out=texts(90, 2),
        validation=texts(60, 3),
        recipe=RECIPE,
    )
    model = request.retrained(wrap(bert(), batch=("input_ids", "attention_mask"), fresh=bert), 0, seed=9).model
    done = [
        request.unlearn(model, name, seed=1)
        for name in ("gd:epochs=1", "soft_reset:epochs=2", "rurk", "salun:epochs=1")
    ]
    noise = "gaussian:at=bert.embeddings:unit=std"
    out = tmp_path_factory.mktemp("bert")
    options = AuditOptions(perturbations=noise, draws=25, taus=[0, 0.4])
    return request, model, request.audit(model, done, options, controls=2, out=out)


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
def test_the_page_names_the_network_and_every_row_is_there(audited):
    _, _, run = audited
    assert run.record.scenario.settings.model.name == "BertForSequenceClassification"
    assert len(run.rows) == 8


@pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")
@pytest.mark.parametrize("name", METHODS)
def test_every_method_unlearns_it(audited, name):
    request, model, _ = audited
    short = ":epochs=1" if issubclass(METHODS[name], GradientMethod) else ""
    chosen = "msg:epochs=1:layers=all" if name == "msg" else f"{name}{short}"  # it has no convolution
    done = request.unlearn(model, chosen, seed=1)
    x, _ = request.splits.retain.batch(torch.arange(8))
    assert done(x).shape == (8, 3)
    assert done(x).isfinite().all()


def test_counts_are_those_of_a_plain_loop_over_the_layers(audited):
    request, model, run = audited
    counts = Counts.load(run.folder / "counts" / "1" / "original" / f"{run.perturbations[0]}.npz")
    exact = bert().double().eval()
    exact.load_state_dict(model.state_dict())
    forget = request.splits.forget
    x = forget.x.long()
    single = model.bert.embeddings.eval()
    with torch.no_grad():
        spread = single(input_ids=x[:, 0]).double().std()
        for row, name in enumerate(forget.ids):
            block = block_generator(child_seed(1, "audit"), name, 0).standard_normal(
                (25, LENGTH * WIDTH), dtype="float32"
            )
            ids, mask = x[row, 0].expand(25, -1), x[row, 1].expand(25, -1)
            hidden = exact.bert.embeddings(input_ids=ids)
            hidden = hidden + 0.4 * spread * torch.from_numpy(block).double().view(25, LENGTH, WIDTH)
            bias = (1.0 - mask[:, None, None].double()) * torch.finfo(torch.float64).min
            for layer in exact.bert.encoder.layer:
                hidden = layer(hidden, bias)
                hidden = hidden[0] if isinstance(hidden, tuple) else hidden
            logits = exact.classifier(exact.bert.pooler(hidden))
            assert counts.method_right[counts.ids.index(name), 1] == (logits.argmax(1) == forget.y[row]).sum()
