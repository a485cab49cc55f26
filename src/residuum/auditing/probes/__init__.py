"""Probes, which an audit does not include: searches, membership attacks and comparisons of many models.

Each is a frozen dataclass with one method, `measure(evidence) -> {row: Value}`.
"""

from residuum.auditing.probes.base import FURTHER, Evidence, Probe, Value, log_odds
from residuum.auditing.probes.boundary import Depth, RecoveryRadius
from residuum.auditing.probes.durability import Durability
from residuum.auditing.probes.features import Features
from residuum.auditing.probes.klom import KLoM
from residuum.auditing.probes.rmia import RMIA
from residuum.auditing.probes.ulira import ULiRA
from residuum.auditing.probes.worst_case import WorstCase
from residuum.core import components
from residuum.core.registry import Registry

PROBES: Registry[type[Probe]] = components.PROBES


def probe_kind(spec: str) -> type[Probe] | None:
    """Return the class of `NAME[:key=value...]`, None where it names no probe.

    >>> probe_kind("rmia:c=0.5").reads, probe_kind("rmi")
    ('margins', None)
    """
    return PROBES.get(spec.partition(":")[0])
