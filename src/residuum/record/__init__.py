"""The record of a run (results.json) and of a sequence of requests (requests.json), typed once."""

from residuum.record.audits import Audit, Curve, ResidualKnowledge, SampleSet, over_seeds, refuse_no_file_name
from residuum.record.requests import Estimates, RequestAudit, RequestResult, RequestRow, Requests
from residuum.record.results import (
    METRICS,
    ForgetRequest,
    Metrics,
    NoiseFloor,
    RelearnSummary,
    Results,
    Row,
    ScenarioRecord,
    SeedResult,
    Spread,
    Stored,
    Summary,
    WitnessRow,
    WitnessValues,
    sealed,
)
from residuum.record.verdicts import Bounds, Finding, Gate, Quantity, RowJudgment, Verdict
