"""Mistakes of users that an audit notices, each made once; and how many controls it makes by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from residuum import Request, wrap
from residuum.core.errors import InputError
from residuum.core.samples import Samples, Splits
from residuum.data.copies import near_copies
from residuum.judging import controls_missing
from residuum.record import Verdict
from residuum.reporting.terminal import verdict_table

NAMES = tuple(f"p{row:03d}" for row in range(400))
FORGET = NAMES[:30]


def data(seed=3, rows=400):
    """Noisy labels: who is right on such a sample remembers it."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 12, generator=generator)
    noise = torch.rand(rows, generator=generator) < 0.3
    y = torch.where(noise, torch.randint(0, 2, (rows,), generator=generator), (x[:, 0] > 0).long())
    return x, y


def fitted(samples, seed, *, epochs=60):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    x, y = samples.batch(torch.arange(len(samples)))
    for _ in range(epochs):
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()
    return network


def counted(samples, seed):
    """A list in memory would be part of what identifies the training."""
    with Path(os.environ["SEEDS"]).open("a", encoding="utf-8") as file:
        file.write(f"{seed}\n")
    return fitted(samples, seed)


class Case:
    """A request, the model before it, and an audit of that model itself."""

    def __init__(self, folder, retrain=fitted, *, rows=range(200), held_out=range(200, 400), forget=FORGET):
        x, y = data()
        rows, held = list(rows), list(held_out)
        train = (x[rows], y[rows], NAMES[: len(rows)])
        self.folder, self.request = folder, Request(train, forget, held_out=(x[held], y[held]), retrain=retrain)
        self.model = wrap(fitted(self.request.source.samples, 99), bounds=None)

    def audit(self, model=None, **options):
        chosen = {"controls": 3, "draws": 10, "out": self.folder / "run", "store": self.folder / "store"} | options
        return self.request.audit(self.model, {"row": model or self.model}, **chosen)


def failed(run):
    return {gate.name for gate in run.record.gates if gate.passed is False}


def test_an_honest_audit_finds_the_original_and_an_unlearned_model_that_is_the_original(tmp_path):
    run = Case(tmp_path).audit(controls=5)
    assert failed(run) == set()
    assert {judgment.verdict for judgment in run.verdicts.values()} == {Verdict.FOUND}
    assert run.verdicts["row"].chips == run.verdicts["original"].chips


def test_a_training_function_that_ignores_its_seed_is_refused(tmp_path):
    run = Case(tmp_path, lambda samples, seed: fitted(samples, 1)).audit()
    assert failed(run) == {"seeds"}
    assert {judgment.verdict for judgment in run.verdicts.values()} == {Verdict.NOT_COMPARABLE}
    (gate,) = (gate for gate in run.record.gates if gate.name == "seeds")
    assert "retrain (seed 1) and control (seed 1)" in gate.text


def test_a_training_function_that_trains_on_everything_is_refused(tmp_path):
    everything = []
    case = Case(tmp_path, lambda samples, seed: fitted(everything[0], seed))
    everything.append(case.request.source.samples)
    run = case.audit()
    assert "leak" in failed(run)
    assert run.verdicts["row"].verdict is Verdict.NOT_COMPARABLE


def test_a_reference_that_is_the_original_is_refused(tmp_path):
    case = Case(tmp_path)
    with pytest.raises(InputError, match=r"never saw the forgotten samples, got the original's weights; give models"):
        case.audit(reference=case.model, controls=0)


def test_a_network_of_another_shape_is_said_to_be_the_functions(tmp_path):
    case = Case(tmp_path, lambda samples, seed: nn.Linear(samples.shape[0], 7))
    with pytest.raises(InputError, match=r"^retrain: the model returns 7 outputs per sample"):
        case.audit()


def test_an_undertrained_reference_is_refused(tmp_path):
    run = Case(tmp_path, lambda samples, seed: fitted(samples, seed, epochs=2)).audit()
    assert "retain fit" in failed(run)


def test_copies_are_counted_said_first_and_left_out(tmp_path):
    """Five of the samples to forget stand twice in the data; ten held-out samples are training data."""
    case = Case(tmp_path, rows=[*range(200), *range(5)], held_out=[*range(25, 35), *range(200, 400)])
    with (
        pytest.warns(UserWarning, match="10 held-out samples are training data as well"),
        pytest.warns(UserWarning, match="5 forgotten samples have equal copies .* add the copies to the request"),
    ):
        run = case.audit()
    assert run.record.scenario.left_out == {"forgotten": 5, "held-out": 10}
    assert run.record.scenario.sizes["forget"] == 25
    assert run.record.scenario.settings.forget.listed == 30
    said = str(verdict_table(run).caption)
    assert "Not judged: 5 forgotten samples that are training data as well." in said
    assert "10 held-out samples" in said


def test_samples_that_are_nearly_copies_are_counted(tmp_path):
    """Two held-out samples are training samples that moved in the third digit, and so is one retained sample."""
    x, y = data()
    x[204:206], x[100] = x[60:62] + 0.003, x[7] - 0.003
    train = (x[:200], y[:200], NAMES[:200])
    request = Request(train, FORGET, held_out=(x[200:], y[200:], NAMES[200:]), retrain=fitted)
    near = near_copies(request.splits, tokens=False)
    assert near == (("p007",), ("held_out/p204", "held_out/p205"))
    assert near_copies(request.splits, tokens=True) == ((), ())
    model = wrap(fitted(request.source.samples, 99), bounds=None)
    with (
        pytest.warns(UserWarning, match="2 held-out samples are nearly equal to training samples; leave copies out"),
        pytest.warns(UserWarning, match="1 forgotten sample is nearly equal to retained samples; add copies to"),
    ):
        run = request.audit(model, model, controls=3, draws=10, out=tmp_path / "run", store=tmp_path / "store")
    assert run.record.scenario.left_out == {}  # nearly equal may be somebody else


def test_a_picture_that_was_saved_once_more_is_nearly_a_copy():
    generator = torch.Generator().manual_seed(0)
    smooth = F.interpolate(torch.rand(120, 3, 4, 4, generator=generator), size=16, mode="bilinear")
    x = (smooth + 0.05 * torch.randn(smooth.shape, generator=generator)).clamp(0, 1)
    x[110] = (x[50] * 63).round() / 63  # in 64 levels
    x[111] = x[51] + 0.1 * torch.randn(x[51].shape, generator=generator)  # another picture of the same
    parts = [
        Samples(x[rows], torch.zeros(len(x[rows]), dtype=torch.int64), tuple(f"p{row}" for row in range(120)[rows]))
        for rows in (slice(0, 100), slice(5, 100), slice(0, 5), slice(100, 120))
    ]
    train, retain, forget, test = parts
    splits = Splits(train, retain, forget, test.subset([]), test, test.subset([]), ("a",))
    assert near_copies(splits, tokens=False) == ((), ("p110",))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": [*range(200), *range(30)]}, "all 30 have equal copies there, the first is 'p000'; add the copies"),
        ({"held_out": range(100)}, "expected held-out samples that no model saw; all 100 are training data"),
        ({"held_out": range(30)}, "expected held-out samples that no model saw; all 30 are training data"),
    ],
)
def test_data_in_which_nothing_is_left_to_audit_are_refused(options, said, tmp_path):
    with pytest.raises(InputError, match=said):
        Case(tmp_path, **options).audit()


def test_most_of_the_data_can_be_forgotten_with_a_verdict(tmp_path):
    x, y = data(rows=2500)
    names = tuple(f"p{row:04d}" for row in range(1500))
    request = Request((x[:1500], y[:1500], names), names[:1400], held_out=(x[1500:], y[1500:]), retrain=fitted)
    model = wrap(fitted(request.source.samples, 99, epochs=200), bounds=None)
    run = request.audit(model, model, controls=3, draws=10, out=tmp_path / "run", store=tmp_path / "store")
    assert failed(run) == set()
    assert run.verdicts["original"].verdict is Verdict.FOUND


def test_one_sample_gets_no_false_reason(tmp_path):
    run = Case(tmp_path, forget=NAMES[3:4]).audit()
    judgment = run.verdicts["original"]
    assert judgment.verdict in (Verdict.INCONCLUSIVE, Verdict.FOUND)
    assert not any("every model recognizes" in text or "seeds" in text for text in judgment.doubts)


def test_controls_are_added_until_the_original_would_be_detected_and_an_audit_resumes(tmp_path, monkeypatch):
    seeds = tmp_path / "seeds.txt"
    monkeypatch.setenv("SEEDS", str(seeds))
    assert len(Case(tmp_path, forget=NAMES[:80]).audit(controls="auto").record.controls) == 3
    few = Case(tmp_path / "few", counted, forget=NAMES[2:5])
    run = few.audit(controls="auto")
    controls = len(run.record.controls)
    assert 3 < controls <= 8
    made = seeds.read_text(encoding="utf-8").split()
    assert len(made) == len(set(made)) == controls + 1  # none is trained twice
    again = few.audit(controls="auto")
    assert seeds.read_text(encoding="utf-8").split() == made
    assert again.record.judgments == run.record.judgments


def test_how_many_controls_are_missing_depends_on_original_and_retrained_models_only(tmp_path):
    record = Case(tmp_path, forget=NAMES[2:5]).audit(controls=3).record
    missing = controls_missing(record, 5)
    assert 0 < missing <= 5
    without = record.model_copy(update={"methods": {k: v for k, v in record.methods.items() if k != "row"}})
    assert controls_missing(without, 5) == missing
    assert controls_missing(record, 0) == 0
    gates = [gate.model_copy(update={"passed": False}) for gate in record.gates[:1]]
    assert controls_missing(record.model_copy(update={"gates": gates}), 5) == 0
