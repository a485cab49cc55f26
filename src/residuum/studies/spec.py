"""A study: everything needed to compute a comparison. A scenario with its rows is one, and so is a request."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, Self

from torch import nn

from residuum.auditing.probes import probe_kind
from residuum.core.devices import Compute
from residuum.core.errors import MethodError
from residuum.core.roles import Role
from residuum.core.samples import Splits
from residuum.metrics import Relearning
from residuum.record import ScenarioRecord
from residuum.studies.pretrained import Pretrained
from residuum.studies.settings import AuditSettings, Subject
from residuum.studies.store import Stage
from residuum.training import Recipe

Fields = dict[str, Any]  # of settings, that the stages of a study have in common


class RowFacts(NamedTuple):
    """What a row is, beside what was measured: role, method, hyper-parameters, and which of them were left open."""

    role: Role
    method: str
    settings: Mapping[str, Any]
    left_open: Sequence[str] = ()


class RowError(MethodError):
    """A row's method failed; the other rows can do without it."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(f"row {label}: {reason}")
        self.label, self.reason = label, reason


@contextmanager
def row_named(label: str) -> Iterator[None]:
    """Say in a method's error which row it was."""
    try:
        yield
    except MethodError as error:
        raise RowError(label, str(error)) from error


class StudySpec(Protocol):
    """What `plan` makes stages of, and `results_record` a record.

    `failed` says why rows that were asked for are gone.
    """

    @property
    def name(self) -> str: ...
    @property
    def seeds(self) -> Sequence[int]: ...
    @property
    def audit(self) -> AuditSettings: ...
    @property
    def measures(self) -> Sequence[str]: ...
    @property
    def recipe(self) -> Recipe: ...
    @property
    def threads(self) -> int: ...
    @property
    def compute(self) -> Compute: ...
    @property
    def pretrained(self) -> Pretrained | None: ...
    @property
    def warnings(self) -> Sequence[str]: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def failed(self) -> Mapping[str, str]: ...

    def rows_by_label(self) -> dict[str, RowFacts]:
        """Return what is known of every row before anything is computed, the trained models first."""

    def without(self, label: str, reason: str) -> Self:
        """Return the study without a row that failed."""

    def computed_on(self, compute: Compute) -> Self:
        """Return the study for these devices."""

    def check(self) -> None:
        """Raise an error if data, splits, network and rows do not fit together."""

    def subject(self) -> Subject:
        """Return where samples and networks come from."""

    def splits(self, *, combined: bool = True) -> Splits:
        """Return the splits of all requests together, or of the last one alone."""

    def network(self, seed: int = 0) -> nn.Module:
        """Return a network of the study to estimate times with."""

    def model_stages(self, shared: Fields) -> tuple[dict[str, Stage], tuple[Stage, ...]]:
        """Return the stages that make the models of one seed by label, and those that come before them."""

    def further_references(self, shared: Fields) -> dict[int, Stage]:
        """Return the stages that train further retrained models, which all rows and seeds are compared with."""

    def relearning(self, label: str) -> Relearning | None:
        """Return how the re-learn time of a row is measured; None where it is not defined."""

    def facts(self) -> ScenarioRecord:
        """Return what the record says of data, request and settings."""


def probes_of(study: StudySpec, reads: str | None = None) -> list[str]:
    """Return the probes among the measures, all or those that read "models" or "margins"."""
    kinds = {spec: probe_kind(spec) for spec in study.measures}
    return [spec for spec, kind in kinds.items() if kind is not None and reads in (None, kind.reads)]
