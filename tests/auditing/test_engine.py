import copy
import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from tests.auditing.conftest import counted
from torch import nn

from residuum.auditing import Draws, audit
from residuum.auditing.counting import SavedCounts
from residuum.auditing.crafting import Crafter
from residuum.core.errors import InputError
from residuum.core.inputs import space_of
from residuum.core.samples import Samples
from residuum.models import wrap
from residuum.perturbations import FGSM, PGD, Gaussian, InputSpace, block_generator
from residuum.training.checkpoint import Checkpoint

TAUS = (0.0, 0.1, 0.3)
pytestmark = pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")  # test_doubts.py is about them


@pytest.fixture(scope="module")
def whole(networks, reference, samples):
    return audit(networks, reference, samples, "gaussian", taus=TAUS, draws=30, seed=5)


def by_hand(model, reference, samples, taus, draws, seed, original=None):
    """The straightforward protocol: one input at a time, float64, noise made by key."""
    model, reference, original = (copy.deepcopy(module).double() for module in (model, reference, original or model))
    found = {name: np.zeros((len(samples), len(taus)), int) for name in ("draws", "m", "a", "both", "same")}
    found["joint"] = np.zeros((len(samples), len(taus), 8), int)
    for i, (x, y, sample_id) in enumerate(zip(samples.x, samples.y, samples.ids, strict=True)):
        blocks = [
            block_generator(seed, sample_id, block).standard_normal((25, x.numel()), dtype=np.float32)
            for block in range(-(-draws // 25))
        ]
        for t, tau in enumerate(taus):
            for noise in np.concatenate(blocks)[: draws if tau else 1]:
                moved = (x + tau * torch.from_numpy(noise).view_as(x)).clamp(0, 1)[None].double()
                with torch.no_grad():
                    o, m, a = (each(moved).argmax() for each in (original, model, reference))
                found["joint"][i, t, 4 * int(o == y) + 2 * int(m == y) + int(a == y)] += 1
                for name, event in (
                    ("draws", 1),
                    ("m", m == y),
                    ("a", a == y),
                    ("both", m == y == a),
                    ("same", m == a),
                ):
                    found[name][i, t] += int(event)
    return found


def test_counts_agree_with_the_straightforward_protocol(networks, reference, samples, whole):
    few = audit(networks, reference, samples, "gaussian", taus=TAUS, draws=27, seed=5)
    for name, model in networks.items():
        slow = by_hand(model, reference, samples, TAUS, 27, 5)
        counts = few.counts[name]
        assert np.array_equal(counts.draws, slow["draws"])
        assert np.array_equal(counts.method_right, slow["m"])
        assert np.array_equal(counts.reference_right, slow["a"])
        assert np.array_equal(counts.both_right, slow["both"])
        assert np.array_equal(counts.same_prediction, slow["same"])
        assert 0 < counts.method_right[:, 1:].mean() < 27  # else this would compare nothing


@settings(deadline=None, max_examples=25)
@given(batch_size=st.integers(1, 400), order=st.permutations(range(9)), cut=st.integers(1, 9))
def test_any_batch_size_order_subset_and_split_gives_the_same_counts(
    whole, networks, reference, samples, batch_size, order, cut
):
    parts = [samples.subset(order[:cut]), samples.subset(order[cut:])]
    found = [
        counted(networks, reference, part, "gaussian", taus=TAUS, draws=30, seed=5, batch_size=batch_size)
        for part in parts
        if len(part)
    ]
    for name in networks:
        joined = found[0].counts[name]
        for other in found[1:]:
            joined = joined.concat(other.counts[name])
        assert joined.subset(whole.counts[name].ids) == whole.counts[name]


@pytest.mark.parametrize("cut", [1, 10, 25, 29])
def test_draws_can_be_added_later(whole, networks, reference, samples, cut):
    front, back = (
        audit(networks, reference, samples, "gaussian", taus=TAUS, draws=Draws(many, first=first), seed=5)
        for first, many in ((0, cut), (cut, 30 - cut))
    )
    for name in networks:
        assert front.counts[name] + back.counts[name] == whole.counts[name]


@pytest.fixture(scope="module")
def heldout(samples):
    """Twelve of each class of the samples, and their classes."""
    source = torch.Generator().manual_seed(6)
    labels = samples.y.unique().repeat(12)
    return Samples(
        torch.rand((len(labels), 1, 6, 6), generator=source), labels, tuple(f"held/{i}" for i in range(len(labels)))
    )


def test_held_out_samples_and_the_original_agree_with_the_straightforward_protocol(
    networks, reference, samples, heldout
):
    original = networks["n"]
    result = audit(
        networks, reference, samples, "gaussian", taus=TAUS, draws=4, seed=5, heldout=heldout, original=original
    )
    for name, model in networks.items():
        for shown, counts in ((samples, result.counts[name]), (heldout, result.heldout[name])):
            slow = by_hand(model, reference, shown, TAUS, 4, 5, original)
            assert counts.ids == shown.ids
            assert np.array_equal(counts.method_right, slow["m"])
            assert np.array_equal(counts.reference_right, slow["a"])
            assert np.array_equal(counts.joint, slow["joint"])
    assert result.measures("n")["completeness"]["low"] is not None
    assert result.measures("m")["heldout"]["samples"] == len(heldout)


@pytest.mark.parametrize("perturbation", ["gaussian", FGSM(), PGD(steps=2)])
def test_twins_change_no_other_count_and_no_batch_size_changes_theirs(
    networks, reference, samples, heldout, perturbation
):
    asked = {"taus": TAUS, "draws": 6, "seed": 5}
    alone = audit(networks, reference, samples, perturbation, **asked)
    asked |= {"heldout": heldout, "original": networks["n"]}
    first, *others = (
        counted(networks, reference, samples, perturbation, batch_size=size, **asked) for size in (7, 64, 400)
    )
    for other in others:
        assert other.counts == first.counts
        assert other.heldout == first.heldout
    for name, counts in alone.counts.items():
        assert counts == first.counts[name].without_original()
    assert first.counts["n"].joint @ [0, 0, 1, 1, 1, 1, 0, 0] == pytest.approx(0)  # the original is the model itself
    part = audit(networks, reference, samples.subset([0, 1]), perturbation, **asked)
    of_part = part.heldout["m"]
    assert of_part == first.heldout["m"].subset(of_part.ids)


def test_a_pilot_lets_the_twins_be_shown_as_many_inputs_as_the_samples(networks, reference, samples, heldout):
    asked = {"taus": TAUS, "seed": 5, "heldout": heldout, "original": networks["n"]}
    calls = []
    chosen = counted(
        networks, reference, samples, "gaussian", draws=Draws(half_width=0.3, maximum=200), **asked,
        progress=lambda done, total: calls.append((done, total)),
    )  # fmt: skip
    ours, theirs = chosen.counts["m"].draws, chosen.heldout["m"].draws
    assert len(theirs) > len(ours)
    assert ours[:, 0].tolist() == [1] * len(ours)
    assert (ours.sum(0) <= theirs.sum(0)).all()
    assert (theirs.sum(0) < ours.sum(0) + len(theirs)).all()
    assert calls[-1][0] == calls[-1][1]
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    for k, draws in enumerate(theirs[0]):
        again = audit(networks, reference, samples, "gaussian", draws=int(draws), **asked | {"taus": [TAUS[k]]})
        assert np.array_equal(again.heldout["m"].joint[:, 0], chosen.heldout["m"].joint[:, k])


class Stopped(Exception):
    """As a kill, but the test goes on."""


LONG = pytest.mark.long


@pytest.mark.parametrize("share", [pytest.param(0.0, marks=LONG), 0.2, pytest.param(0.6, marks=LONG), 0.95])
@pytest.mark.parametrize("how", [{"draws": 30}, {"draws": Draws(half_width=0.1, maximum=200)}])
@pytest.mark.parametrize("perturbation", ["gaussian", PGD(steps=2)])
def test_a_stopped_audit_goes_on_as_if_it_had_not(
    networks, reference, samples, heldout, perturbation, how, share, tmp_path
):
    options = how | {"taus": TAUS, "seed": 5, "heldout": heldout, "original": networks["n"], "batch_size": 50}
    asked, made, stopped, resumed = (networks, reference, samples, perturbation), [], [], []
    whole = counted(*asked, **options, progress=lambda done, total: made.append(done))

    def stop(done, total):
        stopped.append(done)
        if done >= share * made[-1]:
            raise Stopped

    options["checkpoint"] = Checkpoint(tmp_path / "audit.pt", every=0)
    with pytest.raises(Stopped):
        counted(*asked, **options, progress=stop)
    again = counted(*asked, **options, progress=lambda done, total: resumed.append(done))
    assert again.counts == whole.counts
    assert again.heldout == whole.heldout
    assert stopped + resumed == made


def test_an_audit_does_not_go_on_from_another_one(networks, reference, samples, tmp_path):
    kept = {"checkpoint": Checkpoint(tmp_path / "audit.pt", every=0), "taus": TAUS, "draws": 2, "seed": 5}
    brighter = replace(samples, x=samples.x.clamp(min=0.5))
    first = counted(networks, reference, samples, PGD(steps=2), **kept)
    assert counted(networks, reference, samples, PGD(steps=2), **kept).counts == first.counts
    for asked, changed in [
        ((networks, reference, samples, PGD(steps=2)), {"seed": 6}),
        ((networks, reference, samples, PGD(steps=2)), {"draws": 3}),
        ((networks, reference, samples, PGD(steps=2)), {"crafted_on": "reference"}),
        ((networks, reference, samples, PGD(steps=2)), {"original": networks["m"]}),
        ((networks, reference, samples, PGD(steps=2)), {"heldout": samples.subset([])}),
        ((networks, reference, samples, PGD(steps=3)), {}),
        ((networks, networks["m"], samples, PGD(steps=2)), {}),
        ((dict(zip(networks, reversed(networks.values()), strict=True)), reference, samples, PGD(steps=2)), {}),
        ((networks, reference, brighter, PGD(steps=2)), {}),
    ]:
        with pytest.raises(
            InputError, match=r"expected the checkpoint of the same audit, got that of another audit: .*audit\.pt"
        ):
            counted(*asked, **kept | changed)


def test_an_audit_at_a_layer_does_not_go_on_from_one_at_another(networks, reference, samples, tmp_path):
    kept = {"checkpoint": Checkpoint(tmp_path / "audit.pt", every=0), "taus": [0.1], "draws": 2, "seed": 5}
    counted(networks, reference, samples, "gaussian", space=InputSpace(at="1"), **kept)
    with pytest.raises(InputError, match="expected the checkpoint of the same audit"):
        counted(networks, reference, samples, "gaussian", space=InputSpace(at="2"), **kept)


@pytest.mark.parametrize("attack", ["gaussian", FGSM(), PGD(steps=3)], ids=str)
def test_an_audit_at_a_layer_leaves_the_input_alone(networks, reference, samples, attack, monkeypatch):
    apply, steps = Crafter.apply, []

    def watched(crafter, radius, x, *given):
        moved = apply(crafter, radius, x, *given)
        steps.append((moved - x).abs().split([samples.x[0].numel(), x.shape[1] - samples.x[0].numel()], dim=1))
        return moved

    monkeypatch.setattr(Crafter, "apply", watched)
    run(networks, reference, samples, attack, draws=2, space=InputSpace(at="1"))
    assert steps
    assert all(not bool(of_input.any()) and bool(of_layer.any()) for of_input, of_layer in steps)


def test_the_space_of_a_wrapped_reference_is_the_default():
    table = Samples(torch.randn(6, 4) * 9, torch.arange(6) % 2, tuple("abcdef"))
    wrapped = wrap(nn.Linear(4, 2), bounds=None, scale=[1.0, 2.0, 3.0, 4.0], categorical=[2])
    asked = {"taus": [0, 0.5], "draws": 30, "seed": 1}
    found = audit({"m": wrapped}, wrapped, table, "gaussian", **asked)
    assert (found.settings["bounds"], found.settings["scale"]) == (None, [1.0, 2.0, 0.0, 4.0])
    assert found.counts == audit({"m": wrapped}, wrapped, table, "gaussian", **asked, space=space_of(wrapped)).counts
    with pytest.raises(InputError, match=r"expected inputs within \[0, 1\]"):
        audit({"m": wrapped}, wrapped, table, "gaussian", **asked, space=InputSpace())


def test_counts_of_draws_that_another_pilot_asked_for_are_not_gone_on_from(tmp_path):
    path, begun = tmp_path / "audit.pt", {"spans": [[0, 3]], "batches": 2}
    SavedCounts("x", Checkpoint(path, every=0)).save_if_due(begun)
    for spans, batches in (([[0, 3]], 2), ([[0, 4]], 0)):
        assert SavedCounts("x", Checkpoint(path)).resumed({"spans": spans, "batches": 0})["batches"] == batches


def test_progress_counts_the_twins(networks, reference, samples, heldout):
    calls = []
    asked = {"taus": TAUS, "draws": 6, "heldout": heldout, "original": copy.deepcopy(reference)}
    counted(
        networks, reference, samples, FGSM(target="untargeted"), seed=5, **asked,
        progress=lambda done, total: calls.append((done, total)),
    )  # fmt: skip
    shown = len(samples) + len(heldout)
    assert calls[-1] == (shown * (4 + 2 * 6), shown * (4 + 2 * 6))  # clean: 4 models; each radius: 2 x (m, a, o)
    assert calls == sorted(calls)


def test_held_out_samples_are_checked(networks, reference, samples, heldout):
    with pytest.raises(InputError, match="not forgotten"):
        audit(networks, reference, samples, "gaussian", taus=TAUS, draws=3, seed=5, heldout=samples)
    flat = Samples(heldout.x.flatten(1), heldout.y, heldout.ids)
    with pytest.raises(InputError, match=r"held-out inputs of shape \(1, 6, 6\), got \(36,\)"):
        audit(networks, reference, samples, "gaussian", taus=TAUS, draws=3, seed=5, heldout=flat)
    few = audit(networks, reference, samples, "gaussian", taus=TAUS, draws=3, seed=5, heldout=heldout.subset([0, 1]))
    assert few.measures("m")["heldout"]["samples"] == 0
    seen = counted(
        networks,
        reference,
        samples,
        "gaussian",
        taus=TAUS,
        draws=3,
        seed=5,
        heldout=heldout,
        seen={"files": {"held/0"}},
    )
    assert any("1 of 48 held-out samples in files" in message for message in seen.warnings)


def test_radii_share_their_noise(whole, networks, reference, samples):
    alone = audit(networks, reference, samples, "gaussian", taus=[0.3], draws=30, seed=5)
    assert np.array_equal(alone.counts["m"].method_right[:, 0], whole.counts["m"].method_right[:, 2])


def test_another_seed_gives_other_counts(whole, networks, reference, samples):
    other = audit(networks, reference, samples, "gaussian", taus=TAUS, draws=30, seed=6)
    assert other.counts["m"] != whole.counts["m"]
    assert np.array_equal(other.counts["m"].method_right[:, 0], whole.counts["m"].method_right[:, 0])


def test_a_model_against_itself(reference, samples):  # T14
    result = audit({"a": reference}, reference, samples, "gaussian", taus=TAUS, draws=30, seed=5)
    found = result.measures("a")
    assert found["residual_knowledge"]["pooled"] == [1.0, 1.0, 1.0]
    assert found["disagreement"]["value"] == [0.0, 0.0, 0.0]
    assert found["prevalence"]["value"] == [0.0, 0.0, 0.0]


def test_an_equal_copy_of_the_reference_agrees_with_it(reference, samples):
    result = audit({"a": copy.deepcopy(reference)}, reference, samples, "gaussian", taus=TAUS, draws=30, seed=5)
    assert result.measures("a")["disagreement"]["value"] == [0.0, 0.0, 0.0]


def test_each_distinct_model_sees_a_batch_once(networks, reference, samples):
    calls = []
    result = counted(
        networks | {"again": networks["m"], "reference": reference},
        reference,
        samples,
        "gaussian",
        taus=TAUS,
        draws=30,
        seed=5,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls[-1] == (3 * 9 * 61, 3 * 9 * 61)
    assert calls == sorted(calls)
    assert result.counts["again"] == result.counts["m"]


def linear(weight, bias):
    """Two classes; class 1 where weight . x + bias > 0."""
    model = nn.Linear(len(weight), 2)
    with torch.no_grad():
        model.weight.copy_(torch.stack([torch.zeros_like(weight), weight]))
        model.bias.copy_(torch.tensor([0.0, bias]))
    return model


def test_two_class_linear_models_agree_with_the_closed_form():
    source = torch.Generator().manual_seed(4)
    n, d, taus = 40, 8, [0.01, 0.02, 0.04]
    x = 0.5 + 0.1 * (2 * torch.rand((n, d), generator=source) - 1)
    y = torch.randint(2, (n,), generator=source)
    weights = {name: torch.randn(d, generator=source) for name in ("m", "a")}
    models = {name: linear(w, float(-0.5 * w.sum())) for name, w in weights.items()}
    samples = Samples(x, y, tuple(map(str, range(n))))
    result = audit({"m": models["m"]}, models["a"], samples, "gaussian", taus=taus, draws=500, seed=8, confidence=0.999)
    found = result.measures("m")
    sign = (2 * y - 1).numpy()
    for t, tau in enumerate(taus):
        right = {
            name: norm.cdf(sign * ((x - 0.5) @ w).numpy() / (tau * float(w.norm()))) for name, w in weights.items()
        }
        error = found["unlearn_accuracy"]
        assert error["low"][t] <= 1 - right["m"].mean() <= error["high"][t]
        assert error["high"][t] - error["low"][t] < 0.03
        ratio = found["residual_knowledge"]
        assert ratio["low"][t] <= right["m"].sum() / right["a"].sum() <= ratio["high"][t]
        assert ratio["high"][t] - ratio["low"][t] < 0.08
        per_sample = result.counts["m"].method_right[:, t] / 500
        assert np.abs(per_sample - right["m"]).max() < 4.5 * np.sqrt(0.25 / 500)


def test_models_and_samples_are_left_as_they_were(networks, reference, samples):
    model = copy.deepcopy(networks["m"]).train()
    model[1].eval()
    flags = [module.training for module in model.modules()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    pixels = samples.x.clone()
    audit({"m": model}, reference, samples, "gaussian", taus=TAUS, draws=3, seed=5)
    assert [module.training for module in model.modules()] == flags
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert torch.equal(samples.x, pixels)


def test_settings_tell_how_to_repeat_the_audit(whole):
    recorded = json.loads(json.dumps(whole.settings))
    assert recorded["name"] == "gaussian"
    assert (recorded["draws"], recorded["confidence"], recorded["seed"]) == (30, 0.95, 5)
    assert set(recorded) >= {"bootstrap_seed", "noise_check"}
    assert whole.measures("m")["settings"] == whole.settings
    assert whole.measures("m")["draws"] == [1, 30, 30]


def run(models, reference, samples, perturbation="gaussian", taus=TAUS, draws=3, **more):
    return counted(models, reference, samples, perturbation, taus=taus, draws=draws, seed=5, **more)


def test_bad_requests_are_refused(networks, reference, samples):
    for wrong, message in (
        ({"models": {}}, "at least one model"),
        ({"samples": samples.subset([])}, "at least one sample"),
        ({"draws": 0}, "draws >= 1"),
        ({"batch_size": 0}, "batch_size >= 1"),
        ({"taus": []}, "radii"),
        ({"taus": [0.1, 0.1]}, "radii"),
        ({"taus": [-0.1]}, "radii"),
        ({"perturbation": "gauss"}, "unknown perturbation"),
        ({"reference": nn.Sequential(nn.Flatten(), nn.Linear(36, 5))}, "same number of classes"),
        ({"reference": nn.Flatten(0)}, "expected logits of shape"),
    ):
        arguments = {"models": networks, "reference": reference, "samples": samples} | wrong
        with pytest.raises(InputError, match=message):
            run(**arguments)
    with pytest.raises(InputError, match=r"labels in 0\.\.3"):
        run(networks, reference, Samples(samples.x, samples.y + 1, samples.ids))
    for many in ({"number": 2**31}, {"half_width": 0.1, "maximum": 2**40}):
        with pytest.raises(InputError, match="expected at most 2147483647 draws of each sample"):
            run(networks, reference, samples, draws=Draws(**many))
    with pytest.raises(InputError, match="expected one of the audited models"):
        run(networks, reference, samples).measures("nobody")


def test_a_perturbation_object_is_used_at_the_radii_of_the_audit(whole, networks, reference, samples):
    assert run(networks, reference, samples, Gaussian(), draws=30).counts == whole.counts


def test_several_threads_give_the_same_counts(whole, networks, reference, samples):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert run(networks, reference, samples, draws=30).counts == whole.counts
        attacked = run(networks, reference, samples, FGSM(), draws=30).counts
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert run(networks, reference, samples, FGSM(), draws=30).counts == attacked
    assert torch.get_num_threads() == threads


class Stateful(nn.Module):
    """Keeps what it is asked about on itself while it computes, and gives other threads time to overwrite it."""

    def __init__(self, seed):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 4))

    def forward(self, x):
        self.kept = x
        time.sleep(0.002)
        return self.net(self.kept)


OF_THE_USER = Stateful(9)


def of_the_user(model, x, y, generator, tau):
    with torch.no_grad():
        return (x + tau * OF_THE_USER(x).mean().sign()).clamp(0, 1)


@pytest.mark.parametrize("attack", [FGSM(), PGD(steps=2), of_the_user])
def test_no_network_is_called_from_two_threads_at_the_same_time(attack, samples):
    models, threads = {name: Stateful(seed) for seed, name in enumerate("abcd")}, torch.get_num_threads()
    options = {"taus": [0, 0.05, 0.2], "draws": 2, "seed": 1, "original": Stateful(8)}
    one = audit(models, Stateful(7), samples, attack, **options)
    try:
        torch.set_num_threads(4)
        several = audit(models, Stateful(7), samples, attack, **options)
    finally:
        torch.set_num_threads(threads)
    assert several.counts == one.counts


def test_inputs_are_asked_for_in_batches(networks, reference, samples):
    class Streamed(Samples):
        """Its inputs are never all in memory at once."""

        def batch(self, indices):
            largest.append(len(indices))
            return super().batch(indices)

    largest = []
    streamed = Streamed(samples.x, samples.y, samples.ids)
    run(networks, reference, streamed, draws=30, batch_size=40)
    assert max(largest) <= 40
