"""A pool of re-trained and original models on disk, audited in groups: material for `false_alarms.py`.

Everything is made once and resumed where it stopped. Each reference has a group of other re-trained models and of
originals; they are audited against it as a run audits the models of one seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from residuum.auditing import audit
from residuum.experiments import Experiment
from residuum.models import build_model, load_weights, save_weights
from residuum.perturbations import FGSM, PGD, Gaussian, Perturbation
from residuum.training import train
from residuum.types import ResiduumWarning, Samples, child_seed

Floats = NDArray[np.float64]
PERTURBATIONS: dict[str, Perturbation] = {
    "gaussian": Gaussian(),
    "fgsm:target=untargeted": FGSM(),
    "fgsm:target=random": FGSM(target="random"),
    "fgsm:target=true": FGSM(target="true"),
    "pgd": PGD(),
}
SETS = ("forget", "heldout")
PGD_DRAWS = 5  # each is ten gradients; the start moves the result far less than the model does


@dataclass(frozen=True)
class Audited:
    """Shares right of one group, at the radii above 0: of each model, and of the reference on the same inputs."""

    own: dict[str, Floats]
    reference: dict[str, Floats]


@dataclass(frozen=True)
class Pool:
    """Models and shares below `folder`; group i is reference i with some of the others and of the originals."""

    folder: Path
    references: int = 40
    others: int = 150
    originals: int = 40
    group: tuple[int, int] = (12, 5)
    overrides: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def experiment(self) -> Experiment:
        """The digits scenario."""
        return Experiment.create("digits", overrides=self.overrides)

    @cached_property
    def samples(self) -> dict[str, Samples]:
        """The forget set, and the test samples of its classes."""
        splits = self.experiment.splits()
        test = splits.forgotten_test if splits.form == "class" else splits.test
        same = np.isin(test.y.numpy(), splits.forget.y.numpy())
        return {"forget": splits.forget, "heldout": test.subset(np.flatnonzero(same))}

    def members(self, i: int) -> tuple[list[str], list[str]]:
        """Return the other re-trained models and the originals of group i, drawn from the pool."""
        rng = np.random.default_rng(i)
        others, originals = (
            rng.choice(n, take, replace=False)
            for n, take in zip((self.others, self.originals), self.group, strict=True)
        )
        return [f"retrain-{j}" for j in others], [f"original-{j}" for j in originals]

    def audited(self, perturbation: str, part: str, i: int) -> Audited:
        """Return the shares right of group i on the forget set or the held-out samples, counted now or read."""
        path = self.folder / "shares" / perturbation.replace(":target=", "-") / part / f"{i}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            own, reference = self._audit(PERTURBATIONS[perturbation], part, i)
            np.savez(path, names=list(own), own=np.stack(list(own.values())), reference=np.stack(reference))
        with np.load(path) as found:
            names = [str(name) for name in found["names"]]
            own, reference = (dict(zip(names, found[key], strict=True)) for key in ("own", "reference"))
        return Audited(own, reference)

    def _audit(self, perturbation: Perturbation, part: str, i: int) -> tuple[dict[str, Floats], list[Floats]]:
        names = [name for kind in self.members(i) for name in kind]
        settings = self.experiment.scenario.audit
        draws = PGD_DRAWS if perturbation.name == "pgd" else settings.draws
        taus = [tau for tau in settings.taus[perturbation.name] if tau > 0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResiduumWarning)
            models, reference = {name: self.model(name) for name in names}, self.model(f"reference-{i}")
            seed = child_seed(i, "audit")
            result = audit(models, reference, self.samples[part], perturbation, taus=taus, draws=draws, seed=seed)
        counts = result.counts
        own = {name: (counts[name].method_right / counts[name].draws).mean(0) for name in names}
        return own, [(counts[name].reference_right / counts[name].draws).mean(0) for name in names]

    def model(self, name: str) -> torch.nn.Module:
        """Return a model by name, trained now or read from disk."""
        path = self.folder / "models" / f"{name}.safetensors"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            save_weights(self._trained(name), path)
        return load_weights(path).eval()

    def _trained(self, name: str) -> torch.nn.Module:
        scenario, dataset = self.experiment.scenario, self.experiment.dataset()
        splits, seed = self.experiment.splits(), child_seed(0, f"pool/{name}")
        constants = {"width": scenario.model.width, "mean": dataset.mean, "std": dataset.std}
        start = build_model(scenario.model.name, dataset.shape, dataset.classes, seed=seed, **constants)
        part = splits.train if name.startswith("original") else splits.retain
        return train(start, part, scenario.train, seed=seed)
