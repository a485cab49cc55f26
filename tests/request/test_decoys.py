"""Decoys are unlearned with a request, recorded, and audited without a retrained model."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.request.conftest import HerNet

from residuum import Request, load_dataset, wrap
from residuum.cli import run_command
from residuum.core.errors import InputError
from residuum.data.coin import toss
from residuum.models.weights import unlearned_ids
from residuum.pack import pack
from residuum.pack.derivation import derived_record
from residuum.pack.verifying import verify
from residuum.record.decoys import DecoyConclusion
from residuum.reporting import report
from residuum.reporting.page import page_text
from residuum.request.decoys import drawn_decoys, plain_features
from residuum.request.models import saved_unlearned
from residuum.studies.decoys import judged_decoys
from residuum.training import Recipe, train
from residuum.unlearning import METHODS
from residuum.verify_pack import Members, Verifier, decoy_audit

RECIPE = Recipe(epochs=30, lr=0.05, batch_size=64)


@pytest.fixture(scope="module")
def data():
    """Digits in a random order: 500 for training, the others held out."""
    digits = load_dataset("digits").train
    shuffled = digits.subset(np.random.default_rng(4).permutation(len(digits)))
    return shuffled.subset(np.arange(500)), shuffled.subset(np.arange(500, 1797))


@pytest.fixture(scope="module")
def request_(data):
    return Request(data[0], data[0].ids[:20], held_out=data[1], recipe=RECIPE)


@pytest.fixture(scope="module")
def original(data):
    torch.manual_seed(0)
    return train(wrap(HerNet()), data[0], RECIPE, seed=0).eval()


@pytest.fixture(scope="module")
def hardly(request_, original):
    """Trained on for an epoch: it forgot nothing."""
    return request_.unlearn(original, "gd:lr=0.001:epochs=1", decoys=150)


def test_decoys_are_drawn_from_what_is_retained_by_the_seed(request_):
    ids = drawn_decoys(request_, 150, 1)
    assert len(set(ids)) == 150
    assert not set(ids) & set(request_.forget_ids)
    assert ids == drawn_decoys(request_, 150, 1) != drawn_decoys(request_, 150, 2)
    once = [name for seed in range(60) for name in drawn_decoys(request_, 48, seed)]
    times = np.unique(once, return_counts=True)[1]
    assert len(times) > 470  # of 480 retained samples
    assert times.max() < 6 + 5 * np.sqrt(60 * 0.1 * 0.9)


def test_a_method_forgets_request_and_decoys_together(request_, original, monkeypatch):
    seen, kind = {}, METHODS["gd"]
    edit = kind.edit

    def watched(self, model, splits, *rest):
        seen.update(forget=set(splits.forget.ids), retain=set(splits.retain.ids))
        return edit(self, model, splits, *rest)

    monkeypatch.setattr(kind, "edit", watched)
    made = request_.unlearn(original, "gd:epochs=1", decoys=150, seed=3)
    decoys = set(drawn_decoys(request_, 150, 3))
    assert seen["forget"] == decoys | set(request_.forget_ids)
    assert not seen["retain"] & seen["forget"]
    assert all(name in made.decoys for name in decoys)
    assert not any(name in made.decoys for name in request_.forget_ids)
    assert all(name in unlearned_ids(made.model) for name in seen["forget"])


def test_the_original_is_recognized_and_a_retrained_model_is_not(request_, original, hardly):
    audit = request_.decoy_audit(hardly, original)
    assert audit.conclusion is DecoyConclusion.FOUND
    assert audit.p <= 0.05
    assert audit.original_p <= 0.05
    assert audit.difference > 0
    assert "decoys recognized: the model gives 150 decoys" in str(audit)
    assert "It says nothing of one person" in str(audit)
    assert audit.passes == 2 * (150 + 600)
    retrained = request_.with_decoys(drawn_decoys(request_, 150, 1)).retrained(original, 0)
    exact = request_.decoy_audit(replace(hardly, model=retrained.model), original)
    assert exact.p > 0.05
    assert exact.conclusion in (DecoyConclusion.NOT_DETECTED, DecoyConclusion.INCONCLUSIVE)


def test_numbers_follow_from_the_recorded_scores(request_, original, hardly):
    audit = request_.decoy_audit(hardly, original)
    assert judged_decoys(audit) == audit
    side, labels = np.array(audit.scores.decoy), np.array(audit.scores.labels)
    unlearned, first = np.array(audit.scores.unlearned), np.array(audit.scores.original)
    with torch.no_grad():
        decoys = request_.source.samples
        rows = [row for row, name in enumerate(decoys.ids) if name in hardly.decoys]
        x, y = decoys.batch(torch.tensor(rows))
        expected = hardly.model(x).double().softmax(1)[torch.arange(150), y]
    assert np.allclose(unlearned[side], np.sort(expected), atol=1e-6)
    faint = audit.model_copy(update={"scores": audit.scores.model_copy(update={"unlearned": [0.5] * len(side)})})
    assert judged_decoys(faint).p == 1.0
    hidden = audit.scores.model_copy(update={"unlearned": [0.5] * len(side), "original": [0.5] * len(side)})
    assert judged_decoys(audit.model_copy(update={"scores": hidden})).conclusion is DecoyConclusion.INCONCLUSIVE
    assert first[side].mean() > first[~side].mean()
    assert len(labels) == 750


def test_without_the_original_nothing_is_concluded_from_a_large_p(request_, hardly, original):
    retrained = request_.with_decoys(drawn_decoys(request_, 150, 1)).retrained(original, 0)
    audit = request_.decoy_audit(replace(hardly, model=retrained.model))
    assert audit.original_p is None
    assert audit.conclusion is DecoyConclusion.INCONCLUSIVE
    assert "without the original nobody knows" in str(audit)


def test_digits_in_the_order_of_their_file_are_refused(original):
    digits = load_dataset("digits").train
    first, rest = digits.subset(np.arange(900)), digits.subset(np.arange(900, 1797))
    request = Request(first, first.ids[:20], held_out=rest, recipe=RECIPE)
    audit = request.decoy_audit(request.unlearn(original, "gd:epochs=1", decoys=100), original)
    assert audit.conclusion is DecoyConclusion.REFUSED
    assert audit.p is None
    assert audit.exchangeability.p <= 0.05
    assert "residuum split --decoys" in str(audit)


def test_a_recorded_coin_takes_the_place_of_the_test(data, original, tmp_path):
    samples = load_dataset("digits").train.subset(np.arange(700))
    coin = toss(samples, 100, 200, seed=5)
    record = {"schema": "residuum.split/1", "seed": 5, "decoys": coin.decoys, "held_out": coin.held_out}
    (tmp_path / "split.json").write_text(json.dumps(record))
    apart = np.isin(samples.ids, coin.held_out)
    parts = [samples.subset(np.flatnonzero(mask)) for mask in (~apart, apart)]
    forget = [name for name in parts[0].ids if name not in coin.decoys][:10]
    request = Request(parts[0], forget, held_out=parts[1], recipe=RECIPE, split=tmp_path / "split.json")
    made = request.unlearn(original, "gd:epochs=1", decoys=100)
    assert all(name in made.decoys for name in coin.decoys)
    audit = request.decoy_audit(made, original)
    assert audit.exchangeability.split_sha256 == request.split.sha256
    assert audit.exchangeability.p is None
    assert (audit.decoys, audit.held_out) == (100, 200)
    with pytest.raises(InputError, match="at most the 100 retained samples of the recorded split"):
        request.unlearn(original, "gd:epochs=1", decoys=101)
    plain = Request(parts[0], forget, held_out=parts[1], recipe=RECIPE)
    with pytest.raises(InputError, match="for which no coin was tossed"):
        request.decoy_audit(plain.unlearn(original, "gd:epochs=1", decoys=100), original)


@pytest.mark.parametrize(
    ("number", "said"), [(9, "10 or more"), (481, "at most the 480"), (480, "take fewer"), (2.5, "whole number")]
)
def test_numbers_of_decoys_that_cannot_be(request_, original, number, said):
    with pytest.raises(InputError, match=said):
        request_.unlearn(original, "gd:epochs=1", decoys=number)


def test_what_the_audit_needs(data, request_, original, hardly):
    with pytest.raises(InputError, match="give held_out="):
        Request(data[0], data[0].ids[:20], recipe=RECIPE).unlearn(original, "gd:epochs=1", decoys=50)
    with pytest.raises(InputError, match="the model forgot no decoys"):
        request_.decoy_audit(request_.unlearn(original, "gd:epochs=1"), original)
    other = Request(data[1], data[1].ids[:5], held_out=data[0], recipe=RECIPE)
    with pytest.raises(InputError, match="expected the 150 decoys of the model among the data, got 0"):
        other.decoy_audit(hardly, original)
    with pytest.raises(InputError, match="forgot the same decoys"):
        request_.audit(original, {"a": hardly, "b": original})


def test_weights_keep_their_decoys_as_hashes(hardly, tmp_path):
    path = hardly.save(tmp_path / "new.safetensors")
    note = json.loads(Path(f"{path}.unlearned.json").read_text())
    assert len(note["made"]["decoys"]) == 150
    again = saved_unlearned(wrap(HerNet(), path), path)
    assert again.decoys == hardly.decoys


def test_an_audit_by_retraining_leaves_decoys_out_and_its_record_page_and_pack_have_them(
    request_, original, hardly, tmp_path
):
    run = request_.audit(
        original, {"mine": hardly}, draws=3, controls=2, out=tmp_path / "run", store=tmp_path / "store"
    )
    label = "mine"
    assert run.record.scenario.sizes["retain"] == 500 - 20 - 150
    assert run.record.decoys[label] == request_.decoy_audit(hardly, original)
    assert any(note.startswith("150 decoys") for note in run.record.notes)
    assert derived_record(run.record, run.folder).decoys == run.record.decoys
    page = page_text([run])
    assert "Decoy audit of" in page
    assert "decoys recognized" in page
    assert "could not be told apart" in page
    audit = run.record.decoys[label]
    renumbered = {"labels": [(7 * number + 3) % 10 for number in audit.scores.labels]}
    assert judged_decoys(audit.model_copy(update={"scores": audit.scores.model_copy(update=renumbered)})).p == audit.p
    report(run)
    packed = pack(run, tmp_path / "evidence.zip")
    assert verify(packed.file).differences == []
    with zipfile.ZipFile(packed.file) as archive:
        private = json.loads(archive.read("results.json"))["decoys"]
    assert private["row 1"]["p"] == audit.p  # neither her word for the row, nor which class is which
    assert private["row 1"]["scores"]["labels"] != audit.scores.labels
    alone = Verifier(Members(packed.file))
    assert alone.differences == []
    assert "p-values and conclusions of 1 decoy audits follow from scores" in alone.checked
    assert len([text for text in alone.not_checked if "scores of decoys" in text]) == 1
    better = run.record.decoys[label].model_copy(update={"p": 0.5, "conclusion": DecoyConclusion.NOT_DETECTED})
    lied = run.record.model_copy(update={"decoys": {label: better}})
    assert derived_record(lied, run.folder).decoys != lied.decoys


@pytest.mark.parametrize(
    ("unlearned_shift", "original_shift", "conclusion"),
    [(1.5, 1.5, "FOUND"), (0.0, 1.5, "NOT_DETECTED"), (0.0, 0.1, "INCONCLUSIVE"), (0.0, None, "INCONCLUSIVE")],
)
def test_the_stand_alone_verifier_derives_the_same(request_, hardly, unlearned_shift, original_shift, conclusion):
    audit, rng = request_.decoy_audit(hardly, seed=5), np.random.default_rng(2)
    side, difficulty = np.array(audit.scores.decoy), rng.normal(size=len(audit.scores.decoy)).round(1)
    shifted = {
        "unlearned": (difficulty + unlearned_shift * side).tolist(),
        "original": None if original_shift is None else (difficulty + original_shift * side).tolist(),
    }
    audit = judged_decoys(audit.model_copy(update={"scores": audit.scores.model_copy(update=shifted)}))
    stated = json.loads(audit.model_dump_json())
    derived = decoy_audit(stated)
    assert derived == pytest.approx({key: stated[key] for key in derived}, abs=1e-12)
    assert derived["conclusion"] == conclusion
    refused = decoy_audit({**stated, "exchangeability": {"passed": False}})
    assert refused == {**dict.fromkeys(derived), "conclusion": "REFUSED"}


def test_tokens_are_counted():
    class Space:
        tokens = True

    samples = load_dataset("digits").train.subset(range(2))
    tokens = replace(samples, x=torch.tensor([[1, 1, 513], [7, 0, 7]]))
    counts = plain_features(tokens, Space())
    assert counts.sum(1).tolist() == [3, 3]
    assert (counts[0, 1], counts[1, 7], counts[1, 0]) == (3, 2, 1)


FILE = """
[model]
source = "net.py:HerNet"
weights = "w.pt"
[data]
train = "split/train.npz"
held_out = "split/held_out.npz"
split = "split/split.json"
[forget]
ids = "ids.txt"
[retrain]
recipe = { lr = 0.05, epochs = 20 }
[unlearn]
method = "gd:epochs=1"
"""


def test_the_commands_of_the_guide(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    digits = load_dataset("digits").train
    x, y = digits.batch(torch.arange(400))
    np.savez("all.npz", x=x.flatten(1).numpy(), y=y.numpy())
    assert run_command(["split", "all.npz", "--decoys", "60", "--held-out", "120", "--out", "split"]) == 0
    assert "60 possible decoys in training, 120 held out" in capsys.readouterr().out
    Path("net.py").write_text(
        "from torch import nn\n\n\nclass HerNet(nn.Sequential):\n"
        "    def __init__(self):\n        super().__init__(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))\n"
    )
    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    with np.load("split/train.npz") as arrays:
        from residuum.data import read_data

        samples = read_data((arrays["x"], arrays["y"], arrays["ids"])).samples
    torch.save(train(wrap(network), samples, RECIPE, seed=0).state_dict(), "w.pt")
    coin = json.loads(Path("split/split.json").read_text())
    Path("ids.txt").write_text("\n".join([name for name in samples.ids if name not in coin["decoys"]][:5]) + "\n")
    Path("deletion.toml").write_text(FILE)
    assert run_command(["audit", "deletion.toml", "--decoys"]) == 2  # nothing was unlearned yet
    assert run_command(["unlearn", "deletion.toml", "--set", "unlearn.decoys=60"]) == 0
    capsys.readouterr()
    assert run_command(["audit", "deletion.toml", "--decoys", "--json"]) == 0
    audit = json.loads(capsys.readouterr().out)["gd:epochs=1"]
    assert (audit["decoys"], audit["held_out"]) == (60, 120)
    assert audit["exchangeability"]["passed"] is True
    stored = json.loads(Path("runs/deletion/decoys.json").read_text())
    assert stored["audits"]["gd:epochs=1"] == audit
    assert "An audit without retraining" in Path("runs/deletion/decoys.html").read_text()
    assert run_command(["audit", "deletion.toml", "--decoys", "--fail-if", "residual"]) == 2
