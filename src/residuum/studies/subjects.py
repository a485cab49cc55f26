"""The subject of a study: where its samples come from, and what its networks are.

A scenario names both, so that every process can load them. The subject of a request holds the user's objects: the
process that has them computes with them, and worker processes make them again where a request file says how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import nn

from residuum.auditing.probes.base import Further
from residuum.auditing.probes.durability import trained_further
from residuum.core.errors import InputError
from residuum.core.files import read_arrays, write_arrays
from residuum.core.inputs import InputSpace
from residuum.core.samples import Samples, Splits
from residuum.data import Dataset
from residuum.data.loaders import current_dataset, loaded_dataset, states_when_loaded
from residuum.models import forward, load_state, load_weights, private_copy, save_weights
from residuum.perturbations import Perturbation
from residuum.record.decoys import DecoyAudit
from residuum.studies.parsing import build_perturbation
from residuum.studies.retraining import MadeModel, Retraining
from residuum.studies.settings import DataSettings, ForgetSettings, Strict, split_data
from residuum.training import Recipe

MODEL = "model.safetensors"
LOGITS = "logits.npz"  # of a few samples: they show whether weights were loaded into the right network
FEW = 8


class NamedSubject(Strict):
    """A data set by its name and fingerprint, cut by requests; weights files say what their network is."""

    data: DataSettings
    fingerprint: str
    root: Path | None = Field(default=None, exclude=True)
    requests: tuple[ForgetSettings, ...]

    def after(self, requests: tuple[ForgetSettings, ...]) -> NamedSubject:
        """Return the same data set, cut by these requests."""
        return self.model_copy(update={"requests": requests})

    def content(self) -> dict[str, Any]:
        """Return everything but the places of files, which have hashes instead."""
        content = self.model_dump(mode="json", exclude={"data": {"name"}, "requests": True})
        return content | {"requests": [request.content() for request in self.requests]}

    def dataset(self) -> Dataset:
        """Return the data set as it is now, whether or not it is the one that was planned with."""
        return current_dataset(self.data.name, self.root, self.data.size)

    def splits(self, *, combined: bool = True) -> Splits:
        """Return the splits of all requests together, or of the last one alone."""
        if self.dataset().fingerprint != self.fingerprint:  # of an earlier run in this process
            loaded_dataset.cache_clear()
        if (dataset := self.dataset()).fingerprint != self.fingerprint:  # written to, or another machine's
            name = self.data.name
            raise InputError(f"data set {name} is not the one the run was planned with; put it back or start again")
        return split_data(dataset, self.data, self.requests, combined=combined)

    def load(self, label: str, folder: Path) -> nn.Module:
        """Return the network that the weights file describes."""
        return load_weights(folder / MODEL)

    def perturbation(self, spec: str) -> tuple[Perturbation, InputSpace]:
        """Return the perturbation of `NAME[:key=value...]`, and the space that it acts in."""
        return build_perturbation(spec)

    def further_training(self, recipe: Recipe) -> Further:
        """Return what trains a model further, by the original's recipe."""
        splits = self.splits()
        return lambda model, ids, seed: trained_further(model, splits, recipe, ids, seed)


@dataclass(frozen=True, eq=False)
class LiveSubject:
    """The user's own samples and models as objects.

    `supplied` are the models that the user brings, by label, the original among them; `training` makes the others.
    `identity` is a hash of samples, network and perturbations; where it means nothing in another process,
    `unnamed` says why. `build` makes the subject again in a worker process.
    """

    samples: Dataset
    parts: Splits
    perturbations: Mapping[str, tuple[Perturbation, InputSpace]]
    supplied: Mapping[str, MadeModel]
    training: Retraining
    identity: str
    unnamed: str = ""
    warnings: tuple[str, ...] = ()
    late_warnings: Callable[[], Iterable[str]] = tuple  # those that take long to find
    listed: tuple[int, ...] = ()  # how many samples each of several requests in a row named
    build: Callable[[], LiveSubject] | None = None
    retrained: dict[str, nn.Module] = field(default_factory=dict)  # by label, in this process
    requests: tuple[ForgetSettings, ...] = ()
    decoys: Mapping[str, DecoyAudit] = field(default_factory=dict)  # by label, of models that forgot some
    left_out: Mapping[str, int] = field(default_factory=dict)  # copies, of the forgotten and of the held-out samples

    def __post_init__(self) -> None:
        states_when_loaded(self.samples)

    @cached_property
    def all_warnings(self) -> list[str]:
        """What to say before an audit; a check, and processes that help, never ask for it."""
        return [*self.warnings, *self.late_warnings()]

    def __reduce__(self) -> tuple[Any, ...]:
        if self.build is None:
            raise InputError("expected workers=1: models and data that exist in this process only cannot be sent")
        return _built, (self.build, self.identity)

    def content(self) -> dict[str, Any]:
        """Return the identity, and whether it means anything in another process."""
        return {"identity": self.identity, "unnamed": bool(self.unnamed)}

    def dataset(self) -> Dataset:
        """Return training and held-out samples."""
        return self.samples

    def splits(self, *, combined: bool = True) -> Splits:
        """Return the splits as the user gave them."""
        return self.parts

    def save(self, label: str, model: nn.Module, folder: Path) -> None:
        """Write the weights of a retrained model, and its logits on a few samples."""
        save_weights(model, folder / MODEL)
        write_arrays(folder / LOGITS, {"logits": self._logits(model).numpy()})
        self.retrained[label] = model

    def load(self, label: str, folder: Path) -> nn.Module:
        """Return the model that the user brought, or a copy of the original with retrained weights.

        A training function may return another architecture, which only it can make: then it trains once more.
        """
        if label in self.supplied:
            return self.supplied[label].model
        if label not in self.retrained:
            model = private_copy(self.supplied["original"].model)
            try:
                load_state(model, folder / MODEL)
                logits = torch.from_numpy(read_arrays(folder / LOGITS, ["logits"], "logits")["logits"])
                alike = torch.allclose(self._logits(model), logits, rtol=1e-4, atol=1e-5)
            except InputError:
                alike = False
            self.retrained[label] = model.eval() if alike else self.training.retrained(label).model
        return self.retrained[label]

    def _logits(self, model: nn.Module) -> torch.Tensor:
        few: Samples = self.parts.retain.subset(range(min(FEW, len(self.parts.retain))))
        return forward(model, few)

    def further_training(self, recipe: Recipe) -> Further | None:
        """Return what trains a model further, as the user trains; None if the request does not say how."""
        return self.training.further()

    def perturbation(self, spec: str) -> tuple[Perturbation, InputSpace]:
        """Return the perturbation of this name, and the space that it acts in."""
        return self.perturbations[spec]


Subject = NamedSubject | LiveSubject
_subjects: dict[str, LiveSubject] = {}  # of a worker process, by identity


def _built(build: Callable[[], LiveSubject], identity: str) -> LiveSubject:
    """Return the subject in a worker process, which makes it once."""
    if identity not in _subjects:
        subject = build()
        if subject.identity != identity:
            text = "the data, the network or the code changed while the audit ran"
            raise InputError(f"{text}; give the same command again")
        _subjects[identity] = subject
    return _subjects[identity]
