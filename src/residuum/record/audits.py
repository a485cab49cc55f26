"""What one model shows under one perturbation: measures over the radii with their intervals.

Everything here is a fraction or a ratio. Lists follow `taus`; a value that does not exist is None.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from residuum.core.errors import InputError

Values = list[float | None]
SampleSet = Literal["forgotten", "kept", "heldout"]
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


class Part(BaseModel):
    """A part of a record: fields that this version does not know are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())


class Curve(Part):
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


class ResidualKnowledge(Part):
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
    """kappa = (p_o - p_m) / (p_o - p_a): 0 as the original, 1 as the reference; `low` and `high` are over samples.

    Null unless `gap_low`, the low end of p_o - p_a, lies above `floor`, the largest difference of a control.
    """

    draw_low: Values = []
    draw_high: Values = []
    gap_low: Values = []
    floor: Values = []


class Nearer(Curve):
    """The relative test D(F) - D(H), below 0 nearer to the reference, above 0 to the original; ends over samples."""

    forgotten: Values = []
    heldout: Values = []


class RecognitionRates(Part):
    """The rates p of model and reference on forgotten samples of the classes that held-out ones can stand for."""

    samples: int
    rate: Values
    reference_rate: Values


class HeldOut(Part):
    """The same perturbations of held-out samples of the forgotten classes, weighted to the forgotten class mix.

    `rate` and `reference_rate` are the recognition rates p of the model and of the reference. Classes of which too few
    samples were held out (`left_out`) leave both sets: `forgotten` has the rates on what stays of the forgotten
    samples, None where all stay.
    """

    samples: int
    rate: Values = []
    reference_rate: Values = []
    forgotten: RecognitionRates | None = None
    counts: Below = ""
    left_out: list[str] = []
    notes: list[str] = []


class OwnCurve(Curve):
    """A measure of the user's own with the words it is shown with."""

    title: str
    meaning: str = ""
    neutral: float | None = None


class Estimates(Part):
    """r and the difference on some of the forgotten samples."""

    residual_knowledge: ResidualKnowledge
    difference: Curve

    def curve(self, measure: str) -> Curve:
        """Return "pooled" or "difference"."""
        return self.residual_knowledge.curve if measure == "pooled" else self.difference


class AuditSettings(Part):
    """How an audit was made; a record also keeps the settings of the perturbation."""

    confidence: float = 0.95
    enumerated: bool = False
    noise_check: str | None = None
    crafted_on: str | None = None
    seen: dict[str, int] = {}  # how many of the forgotten samples the reference has seen, by where it did


class Shown(Part):
    """What an audit showed to the models: which perturbation, at which radii, how often."""

    settings: AuditSettings = AuditSettings()
    taus: list[float]
    draws: list[int]
    samples: int = 0


class Knowledge(Shown):
    """r and the difference; where there are held-out samples, class knowledge G and memory M (r = G M).

    Completeness and the relative test (`nearer`) say where the model is between the original and the reference.
    """

    residual_knowledge: ResidualKnowledge
    difference: Curve
    heldout: HeldOut | None = None
    class_knowledge: SampledCurve | None = None
    memory: SampledCurve | None = None
    memory_difference: SampledCurve | None = None
    completeness: Completeness | None = None
    nearer: Nearer | None = None


class Audit(Knowledge):
    """What one model shows under one perturbation, and where the counts behind it stand.

    In a sequence of requests all samples forgotten so far are audited, and `first_request` is about those of the first
    request alone: it says whether what was forgotten stays forgotten.
    """

    notes: list[str] = []
    disagreement: Curve | None = None
    unlearn_accuracy: Curve | None = None
    prevalence: Curve | None = None
    prevalence_defined: Values = []
    prevalence_significant: Values = []
    first_radius: dict[str, float | None] = {}
    measures: dict[str, OwnCurve] = {}
    first_request: Estimates | None = None
    counts: Below = ""

    @model_validator(mode="after")
    def _follow_the_radii(self) -> Self:
        parts: list[Part] = [self, *(value for _, value in self if isinstance(value, Part))]
        for part in parts:
            for name, field in type(part).model_fields.items():
                length = len(getattr(part, name)) if field.annotation in (Values, list[int]) else 0
                if length not in (0, len(self.taus)):
                    raise ValueError(f"{name}: expected {len(self.taus)} values, one for each radius, got {length}")
        return self

    def recognition_rates(self, on: SampleSet = "forgotten") -> tuple[int, Values, Values]:
        """Return the number of samples, and for each radius the rates p of the model and of the reference on them.

        "kept" are the forgotten samples of classes that stay where held-out samples are compared.
        """
        part = self.heldout if on == "heldout" else self.heldout and on == "kept" and self.heldout.forgotten
        if part or on == "heldout":
            return (part.samples, part.rate, part.reference_rate) if part else (0, [], [])
        rates = [1 - (wrong or 0.0) for wrong in self.curve("unlearn_accuracy").value]
        excesses = [excess or 0.0 for excess in self.difference.value]
        return self.samples, list(rates), [rate - excess for rate, excess in zip(rates, excesses, strict=True)]

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


def over_seeds(curves: Sequence[Curve]) -> Curve:
    """Return the mean over seeds, with the lowest low and the highest high; None where a seed has no value.

    >>> over_seeds([Curve(value=[1.0], low=[0.5], high=[2.0]), Curve(value=[2.0], low=[1.0], high=[3.0])])
    Curve(value=[1.5], low=[0.5], high=[3.0])
    """

    def reduced(lists: Iterator[Values], reduce: Callable[[list[float]], float]) -> Values:
        columns = [list(column) for column in zip(*lists, strict=True)]
        return [None if None in column else float(reduce(cast(list[float], column))) for column in columns]

    return Curve(
        value=reduced((c.value for c in curves), statistics.fmean),
        low=reduced((c.low for c in curves), min),
        high=reduced((c.high for c in curves), max),
    )
