"""The record of a run, results.json, typed once."""

from residuum.record.audits import (
    Audit,
    Curve,
    Estimates,
    ResidualKnowledge,
    SampleSet,
    over_seeds,
    refuse_no_file_name,
)
from residuum.record.results import (
    METRICS,
    ForgetRequest,
    Metrics,
    NoiseFloor,
    ProbeRow,
    ProbeValues,
    RelearnSummary,
    RequestPlace,
    Results,
    Row,
    ScenarioRecord,
    SeedResult,
    Spread,
    Summary,
    sealed,
)
from residuum.record.verdicts import (
    Bounds,
    Chips,
    Column,
    ConfidenceChip,
    Difference,
    Difficulty,
    Finding,
    Gate,
    MemoryChip,
    Place,
    Quantity,
    RowJudgment,
    UtilityChip,
    Verdict,
)
