"""The record of deletion requests carried out one after the other, requests.json."""

from typing import ClassVar, Literal, cast

from pydantic import Field

from residuum.core.roles import Role
from residuum.record.audits import Curve, FileName, Part, ResidualKnowledge
from residuum.record.results import ForgetRequest, NoiseFloor, Stored


class Estimates(Part):
    """r and the difference on one set of forgotten samples."""

    residual_knowledge: ResidualKnowledge
    difference: Curve

    def curve(self, measure: str) -> Curve:
        """Return pooled or difference."""
        return self.residual_knowledge.curve if measure == "pooled" else self.difference


class RequestAudit(Part):
    """What one model shows after a request: on all samples forgotten so far, and on those of the first request."""

    taus: list[float]
    so_far: Estimates
    first_request: Estimates

    def on(self, samples: str) -> Estimates:
        """Return the estimates on "so_far" or on "first_request"."""
        return cast(Estimates, getattr(self, samples))


class RequestRow(Part):
    """One row after one request."""

    role: Role
    method: str
    metrics: dict[str, float]
    average_gap: float | None = None
    per_seed: dict[str, dict[str, RequestAudit]]

    def audits(self, perturbation: str) -> list[RequestAudit]:
        """Return the row's audits under a perturbation, by seed."""
        return [audits[perturbation] for audits in self.per_seed.values()]


class RequestResult(Part):
    """One request of a sequence; `folder` holds its complete run."""

    number: int
    folder: FileName
    request: ForgetRequest
    form: Literal["sample", "class"]
    samples: int
    samples_so_far: int
    warnings: list[str] = []
    noise_floor: dict[str, NoiseFloor]
    rows: dict[str, RequestRow]


class Requests(Stored):
    """requests.json: deletion requests carried out one after the other."""

    SCHEMA: ClassVar[str] = "residuum.requests/1"
    FILE: ClassVar[str] = "requests.json"
    WHAT: ClassVar[str] = "finished requests"

    schema_: str = Field(SCHEMA, alias="schema")
    created: str = ""
    scenario: dict[Literal["name", "data"], str]
    seeds: list[int]
    requests: list[RequestResult]
    failed: dict[str, str] = {}
