"""A pool of re-trained and original models on disk, audited in groups: material for `false_alarms.py`.

Everything is made once and resumed where it stopped. Each reference has a group of other re-trained models and of
originals; they are audited against it as a run audits the models of one seed.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from residuum.auditing import Counts, Draws, audit
from residuum.auditing.statistics import paired_variance, share_variance
from residuum.core.errors import ResiduumWarning
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed
from residuum.metrics import evaluate
from residuum.models import build_model, load_weights, save_weights
from residuum.perturbations import FGSM, PGD, Gaussian, Perturbation
from residuum.studies import Study
from residuum.training import train

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
    """Shares right of one group, at the radii above 0: of each model, the reference among them, on its inputs.

    `reference` has the share of the reference on the same inputs, which an attack crafts on the model.
    """

    own: dict[str, Floats]
    reference: dict[str, Floats]


@dataclass(frozen=True)
class Rounds:
    """One group after each round of draws, (rounds, models, T): shares right, errors of the difference and of `own`."""

    names: list[str]
    own: Floats
    reference: Floats
    errors: Floats
    own_errors: Floats


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
    def study(self) -> Study:
        """The digits scenario."""
        return Study.create("digits", overrides=self.overrides)

    @cached_property
    def samples(self) -> dict[str, Samples]:
        """The forget set, and the test samples of its classes."""
        splits = self.study.splits()
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
            own, reference = self._audit(perturbation, part, i)
            np.savez(path, names=list(own), own=np.stack(list(own.values())), reference=np.stack(reference))
        with np.load(path) as found:
            names = [str(name) for name in found["names"]]
            own, reference = (dict(zip(names, found[key], strict=True)) for key in ("own", "reference"))
        return Audited(own, reference)

    def rounds(self, perturbation: str, i: int, draws: list[int]) -> Rounds:
        """Return the shares of group i on the forget set after so many draws each, counted now or read."""
        path = self.folder / "rounds" / perturbation / f"{'-'.join(map(str, draws))}" / f"{i}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            spans = pairwise([0, *draws])
            parts = [self._counts(perturbation, "forget", i, *span) for span in spans]
            tables = [list(accumulate([part[name] for part in parts])) for name in parts[0]]
            sums = list(zip(*tables, strict=True))
            own, reference = ([[shares(c)[k] for c in each] for each in sums] for k in (0, 1))
            errors = [[np.sqrt(paired_variance(c, 1.0)) / len(c) for c in each] for each in sums]
            own_errors = [[np.sqrt(share_variance(c.method_right, c)[1]) for c in each] for each in sums]
            arrays = {"own": own, "reference": reference, "errors": errors, "own_errors": own_errors}
            np.savez(path, names=list(parts[0]), **arrays)
        with np.load(path) as found:
            return Rounds(**{k: found[k].tolist() if k == "names" else found[k] for k in found.files})

    def _audit(self, perturbation: str, part: str, i: int) -> tuple[dict[str, Floats], list[Floats]]:
        draws = PGD_DRAWS if perturbation == "pgd" else self.study.scenario.audit.draws or 0
        counts = self._counts(perturbation, part, i, 0, draws)
        return {name: shares(own)[0] for name, own in counts.items()}, [shares(own)[1] for own in counts.values()]

    def _counts(self, perturbation: str, part: str, i: int, first: int, last: int) -> dict[str, Counts]:
        """Return the counts of draws first..last-1 of group i, by model."""
        names = [f"reference-{i}", *(name for kind in self.members(i) for name in kind)]
        models = {name: self.model(name) for name in names}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResiduumWarning)
            return audit(
                models,
                models[f"reference-{i}"],
                self.samples[part],
                PERTURBATIONS[perturbation],
                taus=self.taus(perturbation),
                draws=Draws(last - first, first=first),
                seed=child_seed(i, "audit"),
            ).counts

    def taus(self, perturbation: str) -> list[float]:
        """Return the radii above 0."""
        return [tau for tau in self.study.scenario.audit.radii(perturbation) if tau > 0]

    def metrics(self, name: str) -> dict[str, float]:
        """Return the accuracies of a model, measured now or read."""
        if name not in self._metrics:
            self._metrics[name] = evaluate(self.model(name), self.study.splits())
            (self.folder / "metrics.json").write_text(json.dumps(self._metrics, indent=1))
        return self._metrics[name]

    @cached_property
    def _metrics(self) -> dict[str, dict[str, float]]:
        path = self.folder / "metrics.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def model(self, name: str) -> torch.nn.Module:
        """Return a model by name, trained now or read from disk."""
        path = self.folder / "models" / f"{name}.safetensors"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            save_weights(self._trained(name), path)
        return load_weights(path).eval()

    def _trained(self, name: str) -> torch.nn.Module:
        scenario, dataset = self.study.scenario, self.study.dataset()
        splits, seed = self.study.splits(), child_seed(0, f"pool/{name}")
        constants = {"width": scenario.model.width, "mean": dataset.mean, "std": dataset.std}
        start = build_model(scenario.model.name, dataset.shape, dataset.classes, seed=seed, **constants)
        part = splits.train if name.startswith("original") else splits.retain
        return train(start, part, scenario.train, seed=seed)


def shares(counts: Counts) -> tuple[Floats, Floats]:
    """Return the shares right of the model and of the reference at each radius."""
    return (counts.method_right / counts.draws).mean(0), (counts.reference_right / counts.draws).mean(0)
