"""What tests/test_parallel.py lets two processes do together; the leader writes what one and what both found.

python two_processes.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from residuum.auditing import Auditor, Draws
from residuum.core import devices
from residuum.data import Dataset, make_splits
from residuum.metrics import evaluate
from residuum.models import build_model, forward
from residuum.perturbations import PGD, make_perturbation
from residuum.training import Hooks, Recipe, TrainingPhase, cross_entropy, fit
from residuum.training.checkpoint import Checkpoint
from residuum.unlearning import METHODS, Origin, make_method, unlearn

RECIPE = Recipe(epochs=4, lr=0.05, batch_size=8, weight_decay=1e-3)
CHANCE_IN_THE_LOSS = {
    "rurk": {"tau": 0.0, "clip": None},
    "teacher": {"tau": 0.0},
}  # without chance, the processes compute what one would
SETTINGS = {"lr": 0.05, "batch_size": 8, "epochs": 2}
SPECIAL = {
    "ssd": {"batch_size": 4, "alpha": 1.0},
    "fisher": {"memory_mib": 0.01},
    "ntk": {},
    "cr": {},
    "msg": {"layers": "all"},
}


def cut():
    """Return 45 training samples: the last of the batches of 8 has 5, which two processes cannot share equally."""
    chance = torch.Generator().manual_seed(0)
    patterns = torch.rand(3, 1, 6, 6, generator=chance)
    y = torch.arange(100) % 3
    x = (0.6 * patterns[y] + 0.4 * torch.rand(100, 1, 6, 6, generator=chance)).clamp(0, 1)
    dataset = Dataset.from_arrays(x.numpy(), y.numpy())
    return make_splits(
        dataset, forget_class=0, forget_fraction=0.6, train_size=45, validation_size=20, test_size=35, seed=7
    )


def trained(splits, *, network="mlp", **changes):
    """Return the model, the loss of every step as the processes have it together, and the passes."""
    model, losses = build_model(network, splits.train.shape, splits.classes, seed=1), []

    def noted(model, batch, paired, noise):
        loss = cross_entropy(model, batch, paired, noise)
        losses.append(devices.all_reduce(loss.detach(), "mean").item())
        return loss

    recipe = Recipe(**{**vars(RECIPE), **changes})
    passes = fit(model, {"train": splits.train}, recipe, [TrainingPhase(noted, "train")], seed=3)
    return {"weights": model.state_dict(), "losses": losses, "passes": passes}


def idle_weight(splits):
    """Return a weight that no loss uses, after a training with weight decay, and what chance gave this process."""
    model, drawn = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3)), []
    model.register_parameter("idle", torch.nn.Parameter(torch.ones(2)))

    def noted(model, batch, paired, noise):
        drawn.append(float(torch.rand((), generator=noise)))
        return cross_entropy(model, batch, paired, noise)

    fit(model, {"train": splits.train}, RECIPE, [TrainingPhase(noted, "train")], seed=3)
    return {"idle": model.idle.detach(), "drawn": devices.gather(drawn)}


def resumed(splits, folder):
    """Return what `trained` does when it stops after two epochs and is taken up again from its checkpoint."""
    model, phases = (
        build_model("mlp", splits.train.shape, splits.classes, seed=1),
        [TrainingPhase(cross_entropy, "train")],
    )
    file = folder / f"{devices.world_size()}.pt"
    fit(
        model,
        {"train": splits.train},
        RECIPE,
        phases,
        seed=3,
        checkpoint=Checkpoint(file, every=0),
        hooks=Hooks(stop_after_epoch=lambda epoch: epoch == 1),
    )
    devices.broadcast(None)  # in a real run, the processes that go on start after the file was written
    model = build_model("mlp", splits.train.shape, splits.classes, seed=9)
    passes = fit(model, {"train": splits.train}, RECIPE, phases, seed=3, checkpoint=Checkpoint(file))
    return {"weights": model.state_dict(), "passes": passes}


def unlearned(splits, original, name):
    """Return the weights after one method."""
    settings = SPECIAL.get(name, SETTINGS) | CHANCE_IN_THE_LOSS.get(name, {})
    origin = Origin(RECIPE, build_model("mlp", splits.train.shape, 3, seed=1).state_dict())
    done = unlearn(original, splits, make_method(name, settings), seed=5, origin=origin)
    return {"weights": done.model.state_dict(), "notes": done.notes}


class StoppingCheckpoint(Checkpoint):
    """Stops the audit when the samples as they are and a first group of perturbed ones have been counted."""

    saves = 0

    def save(self, state):
        super().save(state)
        self.saves += 1
        if self.saves == 2:
            raise StopIteration


def audited(splits, models, folder):
    """Return the counts under each perturbation, plain tensors; every audit is stopped once and goes on."""
    asked = [("gaussian", {"draws": 13}), ("fgsm", {"draws": 1}), (PGD(steps=2), {"draws": 6})]
    asked.append(("gaussian", {"draws": Draws(half_width=0.03, maximum=400)}))
    found = []
    for number, (perturbation, how) in enumerate(asked):
        attack = make_perturbation(perturbation)
        auditor = Auditor(models, models["b"], attack, [0, 0.05, 0.2], seed=11, original=models["a"])
        how |= {"samples": splits.forget, "heldout": splits.test}
        file = folder / f"audit-{number}-rank-{devices.rank()}-of-{devices.world_size()}.pt"
        try:
            auditor.count(checkpoint=StoppingCheckpoint(file, every=0), **how)
        except StopIteration:
            assert file.is_file()
        result = auditor.count(checkpoint=Checkpoint(file), **how)
        assert len(result.heldout["a"]) > 10  # else this would compare nothing
        for label, counts in [*result.counts.items(), *result.heldout.items()]:
            fields = {field: torch.from_numpy(value) for field, value in vars(counts).items() if field != "ids"}
            found.append(fields | {"label": label, "ids": counts.ids, "warnings": result.warnings})
    return found


def everything(folder):
    """Return all that is compared."""
    splits = cut()
    original = build_model("mlp", splits.train.shape, 3, seed=1)
    with devices.alone():  # the same original in both comparisons
        fit(original, {"train": splits.train}, RECIPE, [TrainingPhase(cross_entropy, "train")], seed=3)
    other = build_model("cnn", splits.train.shape, 3, width=2, seed=2)
    return {
        "plain": trained(splits),
        "augmented": trained(splits, augment=True),
        "clipped": trained(splits, clip=0.5, schedule="cosine"),
        "idle": idle_weight(splits),
        "resumed": resumed(splits, folder),
        "batch_norm": trained(splits, network="cnn"),
        "methods": {name: unlearned(splits, original, name) for name in METHODS},
        "counts": audited(splits, {"a": original, "b": other}, folder),
        "logits": forward(original, splits.train, batch_size=4),
        "metrics": evaluate(original, splits, original_loss=1e-3, seed=2),
    }


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    fabric, shares = devices.make_fabric(2), []
    with devices.launched(fabric):
        with devices.shares_reported(shares.append):
            together = everything(folder)
        found = {"together": together, "shares": devices.gather(shares)}
        found["weights"] = devices.gather(together["batch_norm"])
        if devices.leads():
            with devices.alone():
                found["alone"] = everything(folder)
            torch.save({**found, "compute": vars(devices.compute_of(fabric))}, folder / "found.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
