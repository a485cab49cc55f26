"""The record of a run (results.json) and of a sequence of requests (requests.json), typed once.

Everything under `metrics` and `summary` is a percentage (epochs are counts), everything under `audits` a fraction or a
ratio. Lists follow `taus`; a value that does not exist is None.
"""

import json
import os
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from residuum.errors import InputError

Values = list[float | None]
Kind = Literal["original", "retrain", "control", "method"]
SampleSet = Literal["forgotten", "kept", "heldout"]
METRICS = ("retain_accuracy", "unlearn_accuracy", "test_accuracy", "mia_accuracy")


LONGEST_NAME = 240  # bytes: file systems take 255, and some names get an ending


def refuse_no_file_name(text: str, what: str = "a name") -> str:
    """Return a text that can be the name of a file; anything else, such as a path, is an error.

    >>> refuse_no_file_name("digits")
    'digits'
    """
    usable = text.isprintable() and not text.startswith(".") and not {"/", "\\"} & set(text)
    if not text or not usable or len(os.fsencode(text)) > LONGEST_NAME:
        raise InputError(f"expected {what} that can name a file, got {text[:LONGEST_NAME]!r}")
    return text


def _below(path: str) -> str:
    """Return a path, empty or below the record's own folder."""
    for part in path.split("/") if path else ():
        refuse_no_file_name(part, "a path below the record's folder, each part of it")
    return path


FileName = Annotated[str, AfterValidator(refuse_no_file_name)]
Below = Annotated[str, AfterValidator(_below)]


class _Part(BaseModel):
    """A part of a record: fields that this version does not know are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())


class Curve(_Part):
    """A measure over the radii with its interval; `low` and `high` are empty where it has none.

    >>> Curve(value=[1.0], low=[0.5], high=[2.0]).at(0)
    (1.0, 0.5, 2.0)
    """

    value: Values
    low: Values = []
    high: Values = []

    def at(self, k: int) -> tuple[float | None, float | None, float | None]:
        """Return value, low and high at the k-th radius."""
        return self.value[k], self.low[k] if self.low else None, self.high[k] if self.high else None


class ResidualKnowledge(_Part):
    """r over the radii: the pooled ratio with its interval over draws, and the literature's mean of ratios."""

    pooled: Values
    low: Values
    high: Values
    bootstrap_low: Values = []
    bootstrap_high: Values = []
    mean_of_ratios: Values = []
    smoothed: Values = []
    infinite: list[int] = []
    undefined: list[int] = []

    @property
    def curve(self) -> Curve:
        """The pooled ratio."""
        return Curve(value=self.pooled, low=self.low, high=self.high)


class SampledCurve(Curve):
    """A measure with a second interval, over samples: what other samples of the same kind could have shown."""

    sample_low: Values = []
    sample_high: Values = []


class Completeness(Curve):
    """kappa = (p_o - p_m) / (p_o - p_a): 0 as the original, 1 as re-train; `low` and `high` are over samples.

    Null unless `gap_low`, the low end of p_o - p_a, lies above `floor`, the largest difference of a control.
    """

    draw_low: Values = []
    draw_high: Values = []
    gap_low: Values = []
    floor: Values = []


class Nearer(Curve):
    """The relative test D(F) - D(H), below 0 nearer to re-train, above 0 to the original; ends are over samples."""

    forgotten: Values = []
    heldout: Values = []


class KeptShares(_Part):
    """How often model and reference are right on forgotten samples of the classes that held-out ones can stand for."""

    samples: int
    right: Values
    reference_right: Values


class HeldOut(_Part):
    """The same perturbations of held-out samples of the forgotten classes, weighted to the forgotten class mix.

    `right` and `reference_right` are the shares of draws on which the model and the reference are right. Classes of
    which too few samples were held out (`left_out`) leave both sets: `forgotten` are the shares on what stays of the
    forgotten samples, None where all stay.
    """

    samples: int
    right: Values = []
    reference_right: Values = []
    forgotten: KeptShares | None = None
    counts: Below = ""
    left_out: list[str] = []
    notes: list[str] = []


class OwnCurve(Curve):
    """A measure of the user's own with the words it is shown with."""

    title: str
    meaning: str = ""
    neutral: float | None = None


class AuditSettings(_Part):
    """How an audit was made; the perturbation's own settings stand beside these."""

    confidence: float = 0.95
    enumerated: bool = False
    noise_check: str | None = None
    crafted_on: str | None = None
    seen: dict[str, int] = {}  # how many of the forgotten samples the reference has seen, by where it did


class Audit(_Part):
    """What one model shows under one perturbation, and where the counts behind it stand."""

    settings: AuditSettings = AuditSettings()
    taus: list[float]
    draws: list[int]
    samples: int = 0
    residual_knowledge: ResidualKnowledge
    difference: Curve
    heldout: HeldOut | None = None
    class_knowledge: SampledCurve | None = None
    memory: SampledCurve | None = None
    memory_difference: SampledCurve | None = None
    completeness: Completeness | None = None
    nearer: Nearer | None = None
    notes: list[str] = []
    disagreement: Curve | None = None
    unlearn_accuracy: Curve | None = None
    prevalence: Curve | None = None
    prevalence_defined: Values = []
    prevalence_significant: Values = []
    first_radius: dict[str, float | None] = {}
    measures: dict[str, OwnCurve] = {}
    counts: Below = ""

    @model_validator(mode="after")
    def _follow_the_radii(self) -> Self:
        parts: list[_Part] = [self, *(value for _, value in self if isinstance(value, _Part))]
        for part in parts:
            for name, field in type(part).model_fields.items():
                length = len(getattr(part, name)) if field.annotation in (Values, list[int]) else 0
                if length not in (0, len(self.taus)):
                    raise ValueError(f"{name}: expected {len(self.taus)} values, one for each radius, got {length}")
        return self

    def right_shares(self, on: SampleSet = "forgotten") -> tuple[int, Values, Values]:
        """Return on how many samples, and for each radius how often, the model and the reference are right.

        "kept" are the forgotten samples of classes that stay where held-out samples are compared.
        """
        part = self.heldout if on == "heldout" else self.heldout and on == "kept" and self.heldout.forgotten
        if part or on == "heldout":
            return (part.samples, part.right, part.reference_right) if part else (0, [], [])
        own = [1 - (wrong or 0.0) for wrong in self.curve("unlearn_accuracy").value]
        more = [excess or 0.0 for excess in self.difference.value]
        return self.samples, list(own), [mine - excess for mine, excess in zip(own, more, strict=True)]

    def curve(self, measure: str) -> Curve:
        """Return a measure by its name: pooled, mean_of_ratios, difference, memory, ...; Nones if not taken."""
        if measure == "pooled":
            return self.residual_knowledge.curve
        if measure == "mean_of_ratios":
            return Curve(value=self.residual_knowledge.mean_of_ratios)
        if measure in self.measures:
            return self.measures[measure]
        nothing: Values = [None] * len(self.taus)
        return cast(Curve | None, getattr(self, measure, None)) or Curve(value=nothing, low=nothing, high=nothing)


class Metrics(_Part):
    """The literature's measures of one model, in per cent."""

    retain_accuracy: float
    unlearn_accuracy: float
    test_accuracy: float
    mia_accuracy: float
    mia_entropy_accuracy: float | None = None
    relearn_epochs: dict[str, Any] | None = None  # value (None beyond the cap), censored, threshold


class WitnessValues(_Part):
    """What one of the other witnesses found in one model; what each has beside its value differs."""

    value: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None  # over samples: not more than the reference, or the control, of the seed


class WitnessRow(WitnessValues):
    """What a witness found in a row: the mean over seeds with the ends of their intervals.

    `p` is of "no more than re-trained models show" and `found` whether it is at most 5 %; `floor` is the range of what
    so many `innocents` show. `note` says why there is no value.
    """

    meaning: str = ""
    found: bool | None = None
    floor: tuple[float, float] | None = None
    innocents: int | None = None
    note: str | None = None


class SeedResult(_Part):
    """One row with one seed."""

    metrics: Metrics | None = None
    seconds: float = 0.0
    passes: int = 0
    audits: dict[Below, Audit] = {}
    notes: dict[str, Any] = {}
    warnings: list[str] = []
    unchanged: bool = False  # the method left every weight as it was
    witnesses: dict[str, WitnessValues] = {}


class Spread(_Part):
    """A mean over n seeds with its standard deviation (ddof 0); None where it is not known."""

    mean: float
    std: float | None = None
    n: int = 1


class RelearnSummary(_Part):
    """The median re-learn time, None beyond the cap, and how many seeds were censored."""

    median: float | None
    censored: int
    n: int


class Summary(_Part):
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


class _OfMethod(_Part):
    method: str

    @property
    def kind(self) -> Kind:
        """What the row is.

        >>> Row(method="control_2", per_seed={}).kind, Row(method="rurk", per_seed={}).kind
        ('control', 'method')
        """
        baselines: dict[str, Kind] = {"original": "original", "retrain": "retrain", "control": "control"}
        return baselines.get(re.sub(r"^control_\d+$", "control", self.method), "method")


class Row(_OfMethod):
    """One line of the results: a method, its settings, and what came out, by seed."""

    settings: dict[str, Any] = {}
    fields_left_open: list[str] = []
    summary: Summary = Summary()
    per_seed: dict[str, SeedResult]
    witnesses: dict[str, WitnessRow] = {}

    @property
    def judged(self) -> bool:
        """Whether the row gets a verdict: re-trained models are what the others are judged by."""
        return self.kind in ("original", "method")

    def audits(self, perturbation: str) -> list[Audit]:
        """Return the row's audits under a perturbation, one for each seed that has one."""
        return [seed.audits[perturbation] for seed in self.per_seed.values() if perturbation in seed.audits]


class NoiseFloor(_Part):
    """The range of r between re-trained models, over the radii; `pairs` comparisons were made."""

    taus: list[float] = []
    low: Values
    high: Values
    pairs: int


class ForgetRequest(_Part):
    """What was to be forgotten: a class or a fraction of it, a random fraction, or a list of ids.

    `listed` is the number of ids where the record does not name them.
    """

    forget_class: str | int | None = None
    forget_fraction: float | None = None
    forget_ids: list[str] | None = None
    listed: int | None = None


class _Chosen(_Part):
    name: str = ""
    width: int | None = None
    perturbations: list[str] = []


class Settings(_Part):
    """The scenario's settings as far as a reader needs them; all others are kept beside these."""

    data: _Chosen = _Chosen()
    forget: ForgetRequest = ForgetRequest()
    earlier: list[ForgetRequest] = []
    model: _Chosen = _Chosen()
    audit: _Chosen = _Chosen()
    picture: dict[str, Any] | None = None
    measures: list[str] = []
    accept_reference: bool = False
    stand_ins: bool = False  # briefly trained models took the place of re-trained ones

    @property
    def requests(self) -> list[ForgetRequest]:
        """All requests, in the order in which they were made."""
        return [*self.earlier, self.forget]


class ScenarioRecord(_Part):
    """Which data, request and network the run was about."""

    name: FileName
    form: Literal["sample", "class"]
    class_names: list[str] = []
    public_data: bool = False
    sizes: dict[str, int] = {}
    settings: Settings = Settings()
    plugins: dict[str, dict[str, dict[str, str]]] = {}  # by kind and name: hash of the file, or module


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


class Stored(_Part):
    """A record that stands in a file of its own, under a schema."""

    SCHEMA: ClassVar[str]
    FILE: ClassVar[str]
    WHAT: ClassVar[str]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the record of this folder; one line says which file and which field is not as expected."""
        path = folder / cls.FILE
        try:
            content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}; expected the folder of {cls.WHAT}") from None
        except (ValueError, RecursionError):
            raise InputError(f"{path}: expected JSON written by residuum run, got something else") from None
        found = content.get("schema") if isinstance(content, dict) else None
        if found != cls.SCHEMA:
            raise InputError(f"{path}: expected schema {cls.SCHEMA!r}, got {found!r}")
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise InputError(f"{path}: {field}: {first['msg']}; expected a record written by residuum run") from None

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values, with what was given and nothing else."""
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True)

    def text(self) -> str:
        """Return the content of the file."""
        return json.dumps(self.as_dict(), indent=1, allow_nan=False) + "\n"


class VerdictRecord(_Part):
    """What was concluded of a row when the run was written; readers judge again from the numbers.

    `level` is the ratio of shares right over all radii above 0 (in class form the difference) with its 95 % interval:
    r, or under attacks that of the row and of re-train, each attacked itself. `explained` is what re-training
    explains, and `smallest` the power statement: a level below it could well have been missed.
    """

    word: str
    perturbation: str | None = None
    level: tuple[float, float, float] | None = None
    explained: tuple[float, float] | None = None
    smallest: float | None = None
    p_value: float | None = None


class Results(Stored):
    """results.json: everything known of a run."""

    SCHEMA: ClassVar[str] = "residuum.results/1"
    FILE: ClassVar[str] = "results.json"
    WHAT: ClassVar[str] = "a finished run"

    schema_: str = Field(SCHEMA, alias="schema")
    created: str = ""
    versions: dict[str, str] = {}
    scenario: ScenarioRecord
    seeds: list[int]
    warnings: list[str] = []
    notes: list[str] = []
    noise_floor: dict[str, NoiseFloor] = {}
    methods: dict[FileName, Row]
    failed: dict[str, str] = {}  # rows without results, and why
    verdicts: dict[str, VerdictRecord] = {}
    files: dict[Below, str] = {}  # SHA-256 of everything else that the run wrote, by path below its folder

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        if not self.methods:
            raise ValueError("methods: expected at least one row")
        return self

    @property
    def perturbations(self) -> list[str]:
        """What was audited, in the order of the settings."""
        audited = {name for row in self.methods.values() for seed in row.per_seed.values() for name in seed.audits}
        ordered = [name for name in self.scenario.settings.audit.perturbations if name in audited]
        return [*ordered, *sorted(audited - set(ordered))]

    def rows_of(self, kind: Kind) -> list[str]:
        """Return the labels of the rows of one kind."""
        return [label for label, row in self.methods.items() if row.kind == kind]

    def each_audit(self) -> Iterator[tuple[str, str, str, Audit]]:
        """Yield label, seed, perturbation and audit of everything audited."""
        for label, row in self.methods.items():
            for seed, result in row.per_seed.items():
                for perturbation, audit in result.audits.items():
                    yield label, seed, perturbation, audit


class Estimates(_Part):
    """r and the difference on one set of forgotten samples."""

    residual_knowledge: ResidualKnowledge
    difference: Curve

    def curve(self, measure: str) -> Curve:
        """Return pooled or difference."""
        return self.residual_knowledge.curve if measure == "pooled" else self.difference


class RequestAudit(_Part):
    """What one model shows after a request: on all samples forgotten so far, and on those of the first request."""

    taus: list[float]
    so_far: Estimates
    first_request: Estimates

    def on(self, samples: str) -> Estimates:
        """Return the estimates on "so_far" or on "first_request"."""
        return cast(Estimates, getattr(self, samples))


class RequestRow(_OfMethod):
    """One row after one request."""

    metrics: dict[str, float]
    average_gap: float | None = None
    per_seed: dict[str, dict[str, RequestAudit]]

    def audits(self, perturbation: str) -> list[RequestAudit]:
        """Return the row's audits under a perturbation, by seed."""
        return [audits[perturbation] for audits in self.per_seed.values()]


class RequestResult(_Part):
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


def over_seeds(curves: Sequence[Curve]) -> Curve:
    """Return the mean over seeds, with the lowest low and the highest high; None where a seed has no value.

    >>> over_seeds([Curve(value=[1.0], low=[0.5], high=[2.0]), Curve(value=[2.0], low=[1.0], high=[3.0])])
    Curve(value=[1.5], low=[0.5], high=[3.0])
    """

    def reduced(lists: Iterator[Values], reduce: Any) -> Values:  # noqa: ANN401 (min, max or a mean)
        return [None if None in column else float(reduce(column)) for column in zip(*lists, strict=True)]

    return Curve(
        value=reduced((c.value for c in curves), statistics.fmean),
        low=reduced((c.low for c in curves), min),
        high=reduced((c.high for c in curves), max),
    )
