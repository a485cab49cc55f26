"""NTK: exact where it must be, matrix-free equal to explicit, guarded where it could collapse (T8)."""

from __future__ import annotations

import copy
import resource
import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from residuum.core.errors import InputError, ResiduumWarning
from residuum.core.samples import Samples, Splits
from residuum.core.seeds import generator
from residuum.models import build_model, forward
from residuum.unlearning import NTK, Origin, make_method, unlearn
from residuum.unlearning.ntk import Jacobian, RidgeDescent, Solution, inner, predicted_scale


def drawn(n: int, shape: tuple[int, ...], classes: int, seed: int, dtype=torch.float64) -> Samples:
    made = generator(seed)
    x = torch.rand(n, *shape, generator=made, dtype=dtype)
    return Samples(x, torch.randint(classes, (n,), generator=made), tuple(f"{seed}/{i}" for i in range(n)))


def joined(a: Samples, b: Samples) -> Samples:
    return Samples(torch.cat([a.x, b.x]), torch.cat([a.y, b.y]), a.ids + b.ids)


def cut(retain: Samples, forget: Samples, classes: int) -> Splits:
    nothing = retain.subset([])
    names = tuple(str(label) for label in range(classes))
    return Splits(joined(retain, forget), retain, forget, nothing, nothing, nothing, names)


def ridge_training(model: nn.Linear, samples: Samples, weight_decay: float) -> nn.Linear:
    """Minimize sum |W x + b - t|^2 / 2 + n * wd / 2 * |(W, b) - (W_0, b_0)|^2 exactly, t = +-1."""
    x = torch.cat([samples.x, torch.ones(len(samples), 1, dtype=samples.x.dtype)], 1)
    start = torch.cat([model.weight, model.bias[:, None]], 1).detach()
    target = 2 * F.one_hot(samples.y, len(start)).to(x) - 1
    system = x.T @ x + len(samples) * weight_decay * torch.eye(x.shape[1], dtype=x.dtype)
    solved = torch.linalg.solve(system, x.T @ target + len(samples) * weight_decay * start.T).T
    trained = copy.deepcopy(model)
    with torch.no_grad():
        trained.weight.copy_(solved[:, :-1])
        trained.bias.copy_(solved[:, -1])
    return trained


@pytest.fixture(scope="module")
def linear() -> tuple[nn.Linear, Splits]:
    model = nn.Linear(6, 3).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator(5), dtype=torch.float64))
    return model, cut(drawn(40, (6,), 3, 1), drawn(7, (6,), 3, 2), 3)


@pytest.mark.parametrize("memory_mib", [256, 0.005])
def test_linear_model_reproduces_exact_ridge_retraining(memory_mib, linear):
    initial, splits = linear
    original, retrained = (ridge_training(initial, part, 0.3) for part in (splits.train, splits.retain))
    method = NTK(
        weight_decay=0.3, scale=1, linearize_at="init", loss="mse", guard=None, tolerance=1e-12, memory_mib=memory_mib
    )
    origin = Origin(initial=initial.state_dict())
    done = unlearn(original, splits, method, seed=1, origin=origin)
    after = done.model
    assert done.notes["explicit"] == (memory_mib == 256)
    assert not torch.allclose(original.weight, retrained.weight, atol=1e-3)
    for a, b in zip(after.parameters(), retrained.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_explicit_solve_uses_the_smaller_system_with_the_same_answer(linear):
    initial, splits = linear
    wide = cut(splits.retain.subset(range(4)), splits.forget.subset(range(2)), 3)  # 18 rows, 21 parameters
    for part in (wide, splits):  # 141 rows
        original, retrained = (ridge_training(initial, samples, 0.3) for samples in (part.train, part.retain))
        method = NTK(weight_decay=0.3, scale=1, linearize_at="init", loss="mse", guard=None)
        after = unlearn(original, part, method, seed=1, origin=Origin(initial=initial.state_dict())).model
        assert torch.allclose(after.weight, retrained.weight, atol=1e-6)


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)
        self.fc = nn.Linear(3 * 16, 3)

    def forward(self, x):
        return self.fc(F.max_pool2d(F.relu(self.bn(self.conv(x))), 2).flatten(1))


@pytest.fixture(scope="module")
def tiny() -> tuple[nn.Module, Splits]:
    torch.manual_seed(0)
    return Tiny().double(), cut(drawn(20, (1, 8, 8), 3, 1), drawn(5, (1, 8, 8), 3, 2), 3)


def step(model: nn.Module, splits: Splits, **settings) -> torch.Tensor:
    """Return w_new - w_o as one vector, with scale 1 and no guard."""
    done = unlearn(model, splits, NTK(scale=1, guard=None, **settings), seed=1)
    after = done.model
    assert done.notes["explicit"] == ("memory_mib" not in settings)
    return torch.cat([(a - b).flatten() for a, b in zip(after.parameters(), model.parameters(), strict=True)]).detach()


@pytest.mark.parametrize("loss", ["ce", "mse"])
def test_matrix_free_equals_explicit_on_a_convolutional_network(loss, tiny):
    explicit = step(*tiny, loss=loss, weight_decay=0.05)
    free = step(*tiny, loss=loss, weight_decay=0.05, memory_mib=0.05, tolerance=1e-8, max_iterations=500)
    assert explicit.norm() > 1e-3
    assert (free - explicit).norm() < 1e-4 * explicit.norm()


@pytest.mark.long
def test_matrix_free_equals_explicit_in_single_precision(original, splits):
    few = cut(splits.retain.subset(range(0, 100, 5)), splits.forget.subset(range(6)), 3)
    explicit = step(original, few, weight_decay=0.5)
    free = step(original, few, weight_decay=0.5, memory_mib=0.3, tolerance=2e-4)  # what any torch reaches
    assert (free - explicit).norm() < 3e-4 * explicit.norm()  # weights round in float32, too
    with pytest.warns(ResiduumWarning, match="the step may be off by .*, more than 1e-06; .* or set double"):
        step(original, few, weight_decay=0.5, memory_mib=0.3, tolerance=1e-6)
    step(original, few, weight_decay=0.5, memory_mib=0.3, tolerance=1e-6, double=True)  # a warning would be an error


def test_products_equal_the_matrix_which_equals_a_slow_loop(tiny):
    model, splits = tiny
    jacobian = Jacobian(model, [splits.retain, splits.forget], None, 4)
    rows = []
    frozen = copy.deepcopy(model).eval()
    for x in torch.cat([splits.retain.x, splits.forget.x]):
        for logit in frozen(x[None])[0]:
            gradients = torch.autograd.grad(logit, list(frozen.parameters()), retain_graph=True)
            rows.append(torch.cat([g.flatten() for g in gradients]))
    slow, fast = torch.stack(rows), jacobian.matrix()
    assert torch.allclose(fast, slow, atol=1e-10)
    u = torch.randn(25, 3, generator=generator(0), dtype=torch.float64)
    pulled = jacobian.transposed(u)
    assert torch.allclose(torch.cat([v.flatten() for v in pulled.values()]), slow.T @ u.flatten(), atol=1e-9)
    assert torch.allclose(jacobian.times(pulled).flatten(), slow @ (slow.T @ u.flatten()), atol=1e-8)
    assert all(
        torch.equal(v, jacobian.as_weights(torch.cat([w.flatten() for w in pulled.values()]))[n])
        for n, v in pulled.items()
    )


def test_the_step_does_not_depend_on_the_order_of_samples(tiny):
    model, splits = tiny
    order = torch.randperm(20, generator=generator(3)).numpy()
    shuffled = cut(splits.retain.subset(order), splits.forget.subset([4, 2, 0, 1, 3]), 3)
    assert torch.allclose(step(model, splits), step(model, shuffled), atol=1e-10)


@pytest.mark.parametrize("memory_mib", [256, 0.005])
def test_nothing_to_forget_means_no_step(memory_mib, tiny):
    model, splits = tiny
    empty = cut(splits.retain, splits.forget.subset([]), 3)
    after = unlearn(model, empty, NTK(memory_mib=memory_mib), seed=1, origin=Origin(initial=model.state_dict())).model
    assert all(torch.equal(a, b) for a, b in zip(after.parameters(), model.parameters(), strict=True))


def test_predicted_scale_by_hand():
    delta, missing = {"w": torch.tensor([0.0, 2.0])}, {"w": torch.tensor([1.0, -3.0])}
    cosine = abs(-6) / (2 * 10**0.5)
    assert predicted_scale(delta, missing) == pytest.approx((2 + 2 * cosine * 10**0.5) / 2)


def test_predicted_scale_is_used_and_needs_the_initial_weights(original, initial, splits):
    settings = {"guard": None, "weight_decay": 0.5, "tolerance": 1e-4}
    origin, moved, notes = Origin(initial=initial.state_dict()), {}, {}
    for scale in ("predicted", 1):
        done = unlearn(original, splits, NTK(scale=scale, **settings), seed=1, origin=origin)
        after, notes[scale] = done.model, done.notes
        moved[scale] = torch.cat(
            [(a - b).flatten() for a, b in zip(after.parameters(), original.parameters(), strict=True)]
        )
    scale = notes["predicted"]["scale"]
    assert scale > 1
    assert torch.allclose(moved["predicted"], scale * moved[1], rtol=1e-2, atol=1e-5)
    assert notes[1]["step_norm"] == pytest.approx(moved[1].norm().item(), rel=1e-3)
    with pytest.warns(ResiduumWarning, match="initial weights are not known"):
        done = unlearn(original, splits, NTK(**settings), seed=1)
    assert done.notes["scale"] == 1


def test_guard_halves_the_scale_until_the_retain_loss_is_bearable(original, splits):
    def loss(model: nn.Module) -> float:
        return F.cross_entropy(forward(model, splits.retain).double(), splits.retain.y).item()

    done = unlearn(original, splits, NTK(scale=1e4, guard=3.0), seed=1)
    guarded = done.model
    halvings = 1e4 / done.notes["scale"]
    assert halvings == 2 ** round(torch.tensor(halvings).log2().item()) > 1
    assert loss(guarded) <= 3 * loss(original)
    twice = unlearn(original, splits, NTK(scale=2 * done.notes["scale"], guard=None), seed=1).model
    assert loss(twice) > 3 * loss(original)


def test_not_converged_is_said_and_noted(original, splits):
    method = NTK(scale=1, max_iterations=2, memory_mib=1)
    with pytest.warns(ResiduumWarning, match=r"stopped after 2 steps; the step may be off by \d.* of its length"):
        done = unlearn(original, splits, method, seed=1)
    assert done.notes["converged"] is False
    assert done.notes["iterations"] == 2
    assert done.passes == (2 * 2 + 2) * (len(splits.retain) + len(splits.train))


def test_progress_counts_the_iterations_of_both_solves(original, splits):
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResiduumWarning)
        method = NTK(scale=1, max_iterations=3, memory_mib=1)
        unlearn(original, splits, method, seed=1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_explicit_counts_one_pass_for_each_row(original, splits):
    done = unlearn(original, splits, NTK(scale=1), seed=1)
    assert done.notes["explicit"]
    assert done.passes == len(splits.train) * 3


def test_conjugate_gradients_against_a_direct_solve_within_their_bound_at_every_iteration(tiny):
    model, splits = tiny
    jacobian = Jacobian(model, [splits.retain], None, 8)
    J, e = jacobian.matrix(), NTK().errors(*jacobian.outputs())
    for ridge in (0.01, 1.0, 100.0):
        exact = -J.T @ torch.linalg.solve(J @ J.T + ridge * torch.eye(len(J)), e.flatten())
        descent = RidgeDescent(jacobian, e, ridge)
        distances = []
        for _ in range(60):
            distances.append((torch.cat([v.flatten() for v in descent.step.values()]) - exact).norm().item())
            assert distances[-1] <= descent.error + 1e-7 * exact.norm()  # the direct solve rounds, too
            descent.advance()
        assert distances[-1] < 1e-4 * distances[0]
        assert descent.verified().error == pytest.approx(descent.error, rel=1e-3, abs=1e-9)


def test_the_bound_of_the_step_holds_where_the_scale_is_predicted():
    made = generator(11)

    def random(size: float, near: torch.Tensor | None = None) -> torch.Tensor:
        drawn = torch.randn(50, generator=made, dtype=torch.float64)
        return (0 if near is None else near) + size * drawn / drawn.norm()

    worst = 0.0
    for _ in range(300):
        exact, travelled = [random(1.0), random(1.0)], {"w": random(30.0)}
        sizes = [10 ** (-4 * torch.rand((), generator=made).item()) for _ in exact]
        found = [random(size, near) for size, near in zip(sizes, exact, strict=True)]
        true, near = (
            NTK().step(*(Solution({"w": w}, size, 0, 0) for w, size in zip(pair, sizes, strict=True)), travelled)
            for pair in (exact, found)
        )
        off = near.scale * near.delta["w"] - true.scale * true.delta["w"]
        if inner(true.delta, travelled) * inner(near.delta, travelled) > 0:  # else the bound is beyond the whole step
            share = off.norm().item() / (near.scale * near.delta["w"].norm().item()) / near.error
            worst = max(worst, share)
        else:
            assert near.error > 0.5
    assert 0.05 < worst <= 1


@pytest.mark.parametrize("weight_decay", [10.0, 1.0])
def test_the_tolerance_bounds_the_error_of_the_step_and_not_of_the_solutions(weight_decay, original, initial, splits):
    moved, notes = {}, {}
    for name, settings in {"exact": {}, "free": {"memory_mib": 2}}.items():
        origin = Origin(initial=initial.state_dict())
        method = NTK(weight_decay=weight_decay, guard=None, **settings)
        done = unlearn(original, splits, method, seed=1, origin=origin)
        pairs = zip(done.model.parameters(), original.parameters(), strict=True)
        moved[name], notes[name] = torch.cat([(a - b).flatten() for a, b in pairs]), done.notes
    assert notes["exact"]["explicit"]
    assert not notes["free"]["explicit"]
    assert notes["exact"]["step_error"] < 1e-6
    off = (moved["free"] - moved["exact"]).norm() / moved["exact"].norm()
    assert off <= notes["free"]["step_error"] <= 0.01
    assert notes["free"]["scale"] == pytest.approx(notes["exact"]["scale"], rel=0.01)
    assert notes["free"]["converged"] is notes["exact"]["converged"] is True


def test_init_needs_matching_initial_weights(original, splits):
    with pytest.raises(InputError, match="needs initial weights"):
        unlearn(original, splits, NTK(linearize_at="init"), seed=1)
    foreign = build_model("mlp", (1, 8, 8), 3, seed=0).state_dict()
    with pytest.raises(InputError, match="another model"):
        unlearn(original, splits, NTK(), seed=1, origin=Origin(initial=foreign))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight_decay": 0}, "weight_decay: .*more than 0, got 0"),
        ({"scale": -1}, "scale"),
        ({"scale": "large"}, "'predicted'"),
        ({"guard": 0.5}, "guard: .*1 or more, got 0.5"),
        ({"tolerance": 0}, "tolerance: .*more than 0"),
        ({"max_iterations": 0}, "max_iterations: .*1 or more"),
    ],
)
def test_wrong_settings_are_refused_with_the_range(settings, message):
    with pytest.raises(InputError, match=message):
        make_method("ntk", settings)


@pytest.mark.long
def test_full_width_resnet_needs_less_than_two_gibibytes(capsys):
    model = build_model("resnet18", (3, 32, 32), 5, seed=0)
    splits = cut(drawn(90, (3, 32, 32), 5, 1, torch.float32), drawn(10, (3, 32, 32), 5, 2, torch.float32), 5)
    forward(model, splits.forget)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    origin = Origin(initial=model.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResiduumWarning)  # three iterations do not converge
        done = unlearn(model, replace(splits), NTK(max_iterations=3), seed=1, origin=origin)
    extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    with capsys.disabled():
        print(f"\nNTK on ResNet-18, 100 samples, 5 classes: {extra:.2f} GiB of extra memory, {done.passes} passes")
    assert not done.notes["explicit"]
    assert extra < 2


@pytest.mark.parametrize("loss", ["ce", "mse"])
def test_errors_are_the_loss_gradient_with_respect_to_the_logits(loss, tiny):
    model, splits = tiny
    jacobian = Jacobian(model, [splits.retain], None, 8)
    logits, labels = jacobian.outputs()
    leaf = logits.clone().requires_grad_(True)
    target = 2 * F.one_hot(labels, 3).to(logits) - 1
    total = F.cross_entropy(leaf, labels, reduction="sum") if loss == "ce" else (leaf - target).square().sum() / 2
    (gradient,) = torch.autograd.grad(total, leaf)
    assert torch.allclose(NTK(loss=loss).errors(logits, labels), gradient, atol=1e-12)


def test_the_step_raises_the_loss_of_the_forget_set(original, splits):
    def loss(model: nn.Module, samples: Samples) -> float:
        return F.cross_entropy(forward(model, samples), samples.y).item()

    after = unlearn(original, splits, NTK(weight_decay=0.5, scale=20, guard=None), seed=1).model
    assert loss(after, splits.forget) > loss(original, splits.forget)
