"""Audits with gradient attacks and users' own perturbations."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.auditing.conftest import counted
from torch import nn

import residuum.auditing.crafting as crafting
from residuum.auditing import Draws
from residuum.auditing.predictor import Predictor
from residuum.core.errors import InputError
from residuum.perturbations import FGSM, PGD, InputSpace, Randomness, UserPerturbation, block_generator
from residuum.perturbations.gradient import wrong_label

TAUS = (0.0, 0.05, 0.2)
ATTACKS = [
    FGSM(target="untargeted"),
    FGSM(target="random"),
    PGD(steps=3, alpha=0.05, target="true"),
    PGD(steps=2, alpha=0.05, target="random"),
    PGD(steps=2, alpha=0.05, random_start=False),
]
pytestmark = pytest.mark.filterwarnings("ignore::residuum.core.errors.ResiduumWarning")  # test_doubts.py is about them


def run(models, reference, samples, attack, draws=26, **more):
    return counted(models, reference, samples, attack, taus=TAUS, draws=draws, seed=5, **more)


def straightforward(model, reference, samples, attack, attacked, draws):
    """One input at a time (beside a copy of itself), float64 predictions, plain models."""
    exact = [copy.deepcopy(module).double() for module in (model, reference)]
    found = np.zeros((3, len(samples), len(TAUS)), int)
    listed = attack.outcomes(4)
    for i, sample_id in enumerate(samples.ids):
        x, y = samples.x[i : i + 1].repeat(2, 1, 1, 1), samples.y[i : i + 1].repeat(2)
        if listed is None:
            blocks = [attack.draw(block_generator(5, sample_id, block), 25, samples.shape) for block in range(2)]
            rows = [block.rows(slice(j, j + 1)) for block in blocks for j in range(25)][:draws]
        else:
            rows = [listed.rows(slice(j, j + 1)) for j in range(len(listed.uniform))]
        for t, tau in enumerate(TAUS):
            for row in rows if tau else rows[:1]:
                both = type(row)(*(None if part is None else torch.cat([part, part]) for part in row))
                aimed = attack.aim(attacked, x, y, both)
                near = attack.apply(attacked, x, y, aimed, InputSpace(), tau) if tau else x
                moved = near[:1].double()
                m, a = (module(moved).argmax(1) == y[:1] for module in exact)
                found[:, i, t] += [1, int(m), int(a)]
    return found


@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_counts_agree_with_the_straightforward_protocol(networks, reference, samples, attack):
    few = samples.subset(range(4))
    result = run({"m": networks["m"]}, reference, few, attack)
    slow = straightforward(networks["m"], reference, few, attack, networks["m"], 26)
    counts = result.counts["m"]
    assert np.array_equal(counts.draws, slow[0])
    assert np.array_equal(counts.method_right, slow[1])
    assert np.array_equal(counts.reference_right, slow[2])


def test_crafting_on_the_reference_or_on_a_third_model(networks, reference, samples):
    few, attack = samples.subset(range(4)), FGSM(target="random")
    for crafted_on, attacked in (("reference", reference), (networks["n"], networks["n"])):
        result = run({"m": networks["m"]}, reference, few, attack, crafted_on=crafted_on)
        slow = straightforward(networks["m"], reference, few, attack, attacked, 26)
        assert np.array_equal(result.counts["m"].method_right, slow[1])
        assert np.array_equal(result.counts["m"].reference_right, slow[2])
    assert result.settings["crafted_on"] == "another model"
    assert run({"m": networks["m"]}, reference, few, attack).counts["m"] != result.counts["m"]


@pytest.fixture(scope="module")
def wholes(networks, reference, samples):
    return {repr(attack): run(networks, reference, samples, attack) for attack in ATTACKS}


@settings(deadline=None, max_examples=12)
@given(
    attack=st.sampled_from(ATTACKS),
    batch_size=st.integers(1, 300),
    order=st.permutations(range(9)),
    cut=st.integers(1, 9),
)
def test_any_batch_size_order_subset_and_split_gives_the_same_counts(
    wholes, networks, reference, samples, attack, batch_size, order, cut
):
    parts = [samples.subset(order[:cut]), samples.subset(order[cut:])]
    found = [run(networks, reference, part, attack, batch_size=batch_size) for part in parts if len(part)]
    for name in networks:
        joined = found[0].counts[name]
        for other in found[1:]:
            joined = joined.concat(other.counts[name])
        whole = wholes[repr(attack)].counts[name]
        assert joined.subset(whole.ids) == whole


def test_rows_are_separated_when_they_influence_each_other(monkeypatch, wholes, networks, reference, samples):
    for invariance in ("fixed", "alone"):
        monkeypatch.setattr(crafting, "batch_invariance", lambda *_, invariance=invariance: invariance)
        assert run(networks, reference, samples, ATTACKS[1]).counts == wholes[repr(ATTACKS[1])].counts


def test_the_trial_notices_rows_that_influence_each_other(samples):
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(36, 4)

        def forward(self, x):
            flat = x.flatten(1)
            return self.head(flat * (1 + 1e-3 * flat.mean()))

    assert crafting.batch_invariance(Mixing(), samples.x) == "alone"
    additive = nn.Sequential(nn.Flatten(), Scale(36), nn.Unflatten(1, (4, 9)), Total())
    assert crafting.batch_invariance(additive, samples.x) == "free"


class Scale(nn.Module):
    """Elementwise: rows cannot influence each other."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, size))

    def forward(self, x):
        return x * self.weight


class Total(nn.Module):
    def forward(self, x):
        return x.sum(2)


def test_random_starts_can_be_extended_and_listed_outcomes_are_not_repeated(networks, reference, samples, wholes):
    attack = ATTACKS[2]
    parts = [run(networks, reference, samples, attack, draws=Draws(d, first=f)) for f, d in ((0, 7), (7, 19))]
    assert parts[0].counts["m"] + parts[1].counts["m"] == wholes[repr(attack)].counts["m"]
    fgsm = run(networks, reference, samples, FGSM(target="random"), draws=Draws(26, first=5))
    assert fgsm.counts["m"].draws.sum() == 0


def test_enumeration_is_what_many_draws_converge_to(networks, reference, samples):
    exact = run({"m": networks["m"]}, reference, samples, FGSM(target="random"))
    assert exact.exact
    assert exact.counts["m"].draws.tolist() == [[1, 3, 3]] * 9
    uniform = torch.from_numpy(np.random.default_rng(0).random(30_000))
    shares = torch.bincount(wrong_label(torch.zeros(30_000, dtype=torch.long), uniform, 4), minlength=4) / 30_000
    assert torch.allclose(shares, torch.tensor([0, 1 / 3, 1 / 3, 1 / 3]), atol=0.01)
    found = exact.measures("m")
    assert found["residual_knowledge"]["low"] == found["residual_knowledge"]["high"]


def test_gradient_of_fgsm_is_computed_once_for_all_radii(networks, reference, samples, monkeypatch):
    calls = []
    original = FGSM.aim
    monkeypatch.setattr(FGSM, "aim", lambda self, *rest: calls.append(1) or original(self, *rest))
    run(networks, reference, samples, FGSM())
    assert len(calls) == 2  # one group of samples, two models, however many radii


def test_the_reference_against_itself_is_one_under_every_attack(reference, samples):
    for attack in ATTACKS[:3]:
        found = run({"a": reference}, reference, samples, attack).measures("a")
        assert found["disagreement"]["value"] == [0.0, 0.0, 0.0]


def brighter(model, x, y, generator, tau):
    return (x + tau * torch.rand(x.shape, generator=generator)).clamp(max=1)


class Darker:
    def __call__(self, model, x, y, generator, tau):
        assert model(x).shape == (1, 4)
        return (x - tau * torch.rand(x.shape, generator=generator)).clamp(min=0)


@pytest.mark.parametrize("own", [brighter, Darker()])
def test_a_users_own_perturbation(networks, reference, samples, own):
    whole = run(networks, reference, samples, own, draws=6)
    parts = [
        run(networks, reference, samples, own, draws=Draws(d, first=f), batch_size=b)
        for f, d, b in ((0, 2, 3), (2, 4, 50))
    ]
    assert parts[0].counts["n"] + parts[1].counts["n"] == whole.counts["n"]
    assert whole.settings["name"] in ("brighter", "Darker")


def test_what_a_user_returns_is_seeded_by_row():
    own, x = UserPerturbation(function=brighter), torch.full((3, 1, 2, 2), 0.5)
    near = own(nn.Identity(), x, torch.zeros(3), torch.Generator().manual_seed(0), 0.1)
    assert not torch.equal(near[0], near[1])


def test_what_a_user_returns_is_checked_and_not_changed():
    def swapped(model, x, y, generator, tau):
        return torch.where(torch.rand(x.shape, generator=generator) < tau, torch.full_like(x, 900.0), x)

    tokens = torch.tensor([[17.0, 4.0, 256.0]])
    call = (nn.Identity(), tokens, torch.zeros(1), torch.Generator().manual_seed(0))
    swap = UserPerturbation(function=swapped)
    assert swap(*call, 1.0, InputSpace(None)).tolist() == [[900.0] * 3]
    assert swap(*call, 0.0, InputSpace((0, 1000))).tolist() == tokens.tolist()
    with pytest.raises(InputError, match=r"swapped: expected it to return inputs within \[0, 500\], got 900; clamp"):
        swap(*call, 1.0, InputSpace((0, 500)))
    with pytest.raises(InputError, match=r"user: expected inputs within \[0, 1\], got 17; .*bounds=None"):
        swap(*call, 1.0)


def test_wrong_perturbations_are_refused(networks, reference, samples):
    def flat(model, x, y, generator, tau):
        return x.flatten()

    def broken(model, x, y, generator, tau):
        return x * float("nan")

    def fixed(model, x, y, generator):
        return x

    for own, message in ((flat, "flat: expected a tensor"), (broken, "without NaN"), (fixed, "takes its radius")):
        with pytest.raises(InputError, match=message):
            run(networks, reference, samples, own)
    with pytest.raises(InputError, match="expected a perturbation"):
        run(networks, reference, samples, 7)

    class Hard(nn.Module):
        def forward(self, x):
            return torch.nn.functional.one_hot(x.flatten(1).argmax(1) % 4, 4).float()

    with pytest.raises(InputError, match="differentiable"):
        run({"m": Hard()}, reference, samples, FGSM())


def test_a_diverged_model_neither_moves_inputs_nor_spoils_the_others(networks, reference, samples):
    diverged = copy.deepcopy(networks["m"])
    nn.init.constant_(diverged[-1].bias, float("nan"))
    result = run({"bad": diverged, **networks}, reference, samples, ATTACKS[1])
    assert result.counts["bad"].method_right.sum() == 0
    clean = result.counts["bad"].reference_right[:, 0]
    assert (result.counts["bad"].reference_right[:, 1] == 3 * clean).all()  # the reference saw unmoved inputs
    assert result.counts["n"] == run(networks, reference, samples, ATTACKS[1]).counts["n"]


def test_each_model_is_attacked_by_its_own_gradient(networks, reference, samples):
    together = run(networks, reference, samples, FGSM(target="true")).counts
    for name, model in networks.items():
        assert run({name: model}, reference, samples, FGSM(target="true")).counts[name] == together[name]


@pytest.mark.parametrize(
    ("invariance", "rows", "sizes"),
    [("free", 3, [8]), ("free", 70, [64, 8]), ("fixed", 70, [64, 64]), ("alone", 2, [2, 2])],
)
def test_batches_are_filled_to_safe_sizes(networks, samples, invariance, rows, sizes):
    crafter = crafting.Crafter(Predictor(networks["m"], samples.x), PGD(), InputSpace(), samples.x, invariance)
    chosen = torch.arange(rows) % 9
    parts = crafter.split(samples.x[chosen], samples.y[chosen], Randomness(uniform=torch.arange(rows)))
    assert [len(part[0]) for part, _ in parts] == [len(part[2].uniform) for part, _ in parts] == sizes
    kept = torch.cat([part[2].uniform[:wanted] for part, wanted in parts])
    assert torch.equal(kept, torch.arange(rows))
