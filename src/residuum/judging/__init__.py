"""The judge: could a model pass for one that was retrained without the forget set? Pure functions of a record."""

from residuum.judging.conditions import gate_failures, parse_condition
from residuum.judging.stopping import controls_missing, undecided
from residuum.judging.verdict import judge, judged_record

__all__ = ["controls_missing", "gate_failures", "judge", "judged_record", "parse_condition", "undecided"]
