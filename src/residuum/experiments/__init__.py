"""Scenarios, stages, store and runner: from a name to a record on disk."""

from __future__ import annotations

from residuum.experiments.results import claim_folder, results_record, write_run
from residuum.experiments.runner import Result, plan, run
from residuum.experiments.settings import Experiment, Row, Scenario, load_scenario, parse_row, scenario_names
from residuum.experiments.store import Stage, Store

__all__ = [
    "Experiment",
    "Result",
    "Row",
    "Scenario",
    "Stage",
    "Store",
    "claim_folder",
    "load_scenario",
    "parse_row",
    "plan",
    "results_record",
    "run",
    "scenario_names",
    "write_run",
]
