"""The record of a run, results.json: rows, seeds, settings and what was concluded.

Everything under `metrics` and `summary` is a percentage; epochs are counts.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import Field, ValidationError, model_validator

from residuum.core.errors import InputError
from residuum.core.files import canonical, regular_file
from residuum.core.roles import Role
from residuum.record.audits import Audit, Below, FileName, Part, Values
from residuum.record.decoys import DecoyAudit
from residuum.record.verdicts import Difficulty, Finding, Gate, Quantity, RowJudgment

METRICS = ("retain_accuracy", "unlearn_accuracy", "test_accuracy", "mia_accuracy")


class Metrics(Part):
    """The literature's measures of one model, in per cent; margins are differences of logits, an area is a share."""

    retain_accuracy: float
    unlearn_accuracy: float
    test_accuracy: float
    mia_accuracy: float
    mia_entropy_accuracy: float | None = None
    forget_margin: float | None = None  # mean margin, true logit minus the largest other one, of forgotten samples
    margin_gap: float | None = None  # minus that of held-out samples of the same classes
    heldout_auc: float | None = None  # of margins, forgotten against held-out samples of the same classes
    heldout_auc_error: float | None = None  # its standard deviation if both were alike
    relearn_epochs: dict[str, Any] | None = None  # value (None beyond the cap), censored, threshold


class ProbeValues(Part):
    """What a probe measured of one model; further fields differ from probe to probe."""

    value: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None  # over samples: not more than the reference, or the control, of the seed


class ProbeRow(ProbeValues):
    """What a probe says of a row: the mean over seeds with the ends of their intervals.

    `p` is of "no more than retrained models show" and `found` whether it is at most 5 %; `floor` is the noise floor,
    the range over so many `retrained` models. `note` says why there is no value.
    """

    meaning: str = ""
    found: bool | None = None
    floor: tuple[float, float] | None = None
    retrained: int | None = None
    note: str | None = None


class SeedResult(Part):
    """One row with one seed."""

    metrics: Metrics | None = None
    seconds: float = 0.0
    passes: int = 0
    audits: dict[Below, Audit] = {}
    notes: dict[str, Any] = {}
    warnings: list[str] = []
    weights: str = ""  # a hash of all weights and buffers
    unchanged: bool = False  # the method left every weight as it was
    probes: dict[str, ProbeValues] = {}


class Spread(Part):
    """A mean over n seeds with its standard deviation (ddof 0); None where it is not known."""

    mean: float
    std: float | None = None
    n: int = 1


class RelearnSummary(Part):
    """The median re-learn time, None beyond the cap, and how many seeds were censored."""

    median: float | None
    censored: int
    n: int


class Summary(Part):
    """One row over its seeds."""

    retain_accuracy: Spread | None = None
    unlearn_accuracy: Spread | None = None
    test_accuracy: Spread | None = None
    mia_accuracy: Spread | None = None
    mia_entropy_accuracy: Spread | None = None
    relearn_epochs: RelearnSummary | None = None
    average_gap: float | None = None
    average_gap_per_seed: float | None = None

    def metric(self, name: str) -> Spread | None:
        """Return one of the accuracies by its name."""
        return cast(Spread | None, getattr(self, name))


class Row(Part):
    """One line of the results: its role, the method that made it, its settings, and what came out, by seed."""

    role: Role
    method: str
    settings: dict[str, Any] = {}
    fields_left_open: list[str] = []
    summary: Summary = Summary()
    per_seed: dict[FileName, SeedResult]
    probes: dict[str, ProbeRow] = {}

    @property
    def judged(self) -> bool:
        """Whether the row gets a verdict: retrained models are what the others are judged by."""
        return not self.role.retrained

    def audits(self, perturbation: str) -> list[Audit]:
        """Return the row's audits under a perturbation, one for each seed that has one."""
        return [seed.audits[perturbation] for seed in self.per_seed.values() if perturbation in seed.audits]


class NoiseFloor(Part):
    """The range of r between retrained models, over the radii; `pairs` comparisons were made."""

    taus: list[float] = []
    low: Values
    high: Values
    pairs: int


class ForgetRequest(Part):
    """What was to be forgotten: a class or a fraction of it, a random fraction, or a list of ids.

    `listed` is the number of ids where the record does not name them.
    """

    forget_class: str | int | None = None
    forget_fraction: float | None = None
    forget_ids: list[str] | None = None
    listed: int | None = None


class _Component(Part):
    """A data set, a network or an audit, as far as a reader needs its settings."""

    name: str = ""
    width: int | None = None
    perturbations: list[str] = []


class Settings(Part):
    """The scenario's settings as far as a reader needs them; a record keeps all others, too."""

    data: _Component = _Component()
    forget: ForgetRequest = ForgetRequest()
    earlier: list[ForgetRequest] = []
    model: _Component = _Component()
    audit: _Component = _Component()
    measures: list[str] = []
    accept_reference: bool = False
    surrogates: bool = False  # briefly trained models took the place of retrained ones

    @property
    def requests(self) -> list[ForgetRequest]:
        """All requests, in the order in which they were made."""
        return [*self.earlier, self.forget]


class ScenarioRecord(Part):
    """Which data, request and network the run was about."""

    name: FileName
    form: Literal["sample", "class"]
    class_names: list[str] = []
    public_data: bool = False
    interface: Literal["scenario", "file", "python"] = "scenario"  # by which the run was asked for
    sizes: dict[str, int] = {}
    left_out: dict[str, int] = {}  # copies, of the forgotten and of the held-out samples, that are not judged
    settings: Settings = Settings()
    plugins: dict[str, dict[str, dict[str, str]]] = {}  # by kind and name: hash of the file, or module


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's content with `record_sha256`, the hash of all the rest, by which an edit is noticed.

    >>> first, second = sealed({"r": 1.0}), sealed({"r": 1.1, "record_sha256": "of something else"})
    >>> sealed(first) == first, first["record_sha256"] == second["record_sha256"]
    (True, False)
    """
    rest = {name: value for name, value in content.items() if name != "record_sha256"}
    return rest | {"record_sha256": hashlib.sha256(canonical(rest)).hexdigest()}


class RequestPlace(Part):
    """Which request of a sequence a run carried out, counted from 1, and how many the sequence has."""

    number: int
    of: int


class RunFacts(Part):
    """What was run: when, with which versions, data, request and seeds, and what to know before reading the rows."""

    SCHEMA: ClassVar[str] = "residuum.results/4"

    schema_: str = Field(SCHEMA, alias="schema")
    created: str = ""
    versions: dict[str, str] = {}
    scenario: ScenarioRecord
    seeds: list[int]
    warnings: list[str] = []
    notes: list[str] = []


class Results(RunFacts):
    """results.json: everything known of a run, under a schema and with its own hash."""

    FILE: ClassVar[str] = "results.json"

    noise_floor: dict[str, NoiseFloor] = {}
    methods: dict[FileName, Row]
    failed: dict[str, str] = {}  # rows without results, and why
    rule_version: int | None = None  # of the rule by which the rows were judged; None before they are
    gates: list[Gate] = []
    difficulty: Difficulty | None = None  # of held-out samples, for retrained models
    blind: list[str] = []  # perturbations that do not tell even the original from a retrained model: not judged
    judgments: dict[FileName, RowJudgment] = {}
    decoys: dict[FileName, DecoyAudit] = {}  # of rows that forgot decoys with the request
    files: dict[Below, str] = {}  # SHA-256 of everything else that the run wrote, by path below its folder
    sequence: RequestPlace | None = None  # of a run that is one of several requests, carried out one after the other
    record_sha256: str = ""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the record of this folder; one line says which file and which field is not as expected."""
        path = folder / cls.FILE
        try:
            content = json.loads(regular_file(path).read_text(encoding="utf-8"), parse_constant=_refuse_constant)
            canonical(content)  # refuses texts that are none
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}; expected the folder of a finished run") from None
        except (ValueError, RecursionError):
            raise InputError(f"{path}: expected JSON written by residuum run, got something else") from None
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != cls.SCHEMA:
            raise InputError(f"{path}: expected schema {cls.SCHEMA!r}, got {schema!r}")
        try:
            record = cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise InputError(f"{path}: {field}: {first['msg']}; expected a record written by residuum run") from None
        if content != sealed(content):
            raise InputError(f"{path}: expected the record as it was written, got one that was edited; run it again")
        return record

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values, with what was given and its hash, and nothing else."""
        return sealed(self.model_dump(mode="json", exclude_unset=True, by_alias=True))

    def text(self) -> str:
        """Return the content of the file."""
        return json.dumps(self.as_dict(), indent=1, allow_nan=False) + "\n"

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        if not self.methods:
            raise ValueError("methods: expected at least one row")
        if empty := next((label for label, row in self.methods.items() if not row.per_seed), None):
            raise ValueError(f"methods.{empty}.per_seed: expected the results of at least one seed")
        return self

    @property
    def perturbations(self) -> list[str]:
        """What was audited, in the order of the settings."""
        audited = {name for row in self.methods.values() for seed in row.per_seed.values() for name in seed.audits}
        ordered = [name for name in self.scenario.settings.audit.perturbations if name in audited]
        return [*ordered, *sorted(audited - set(ordered))]

    def rows_of(self, role: Role) -> list[str]:
        """Return the labels of the rows of one role."""
        return [label for label, row in self.methods.items() if row.role is role]

    @property
    def original(self) -> Row | None:
        """The row of the original, if there is one."""
        return next((row for row in self.methods.values() if row.role is Role.ORIGINAL), None)

    @property
    def reference(self) -> Row | None:
        """The row of the reference, if there is one."""
        return next((row for row in self.methods.values() if row.role is Role.REFERENCE), None)

    @property
    def controls(self) -> list[Row]:
        """The rows of the controls."""
        return [row for row in self.methods.values() if row.role is Role.CONTROL]

    @property
    def verdicts(self) -> dict[str, RowJudgment]:
        """The judgment of each row that has a verdict."""
        return {label: judgment for label, judgment in self.judgments.items() if judgment.verdict is not None}

    def finding(self, label: str, perturbation: str, quantity: Quantity = "r") -> Finding | None:
        """Return what the rule says of a quantity of a row under a perturbation, if it says anything."""
        return self.judgments[label].finding_of(perturbation, quantity) if label in self.judgments else None

    def cost(self, results: Sequence[SeedResult], unit: Literal["passes", "seconds"] = "passes") -> float | None:
        """Return the forward-backward passes of these seeds in per cent of what retraining takes for as many."""
        retrainings = list(self.reference.per_seed.values()) if self.reference else []
        full = sum(getattr(retraining, unit) for retraining in retrainings)
        if not full:
            return None
        share = len(results) / len(retrainings)
        return float(100 * sum(getattr(result, unit) for result in results) / (share * full))

    def each_audit(self) -> Iterator[tuple[str, str, str, Audit]]:
        """Yield label, seed, perturbation and audit of everything audited."""
        for label, row in self.methods.items():
            for seed, result in row.per_seed.items():
                for perturbation, audit in result.audits.items():
                    yield label, seed, perturbation, audit
