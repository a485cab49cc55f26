"""The audit: what a model still knows about samples it should have forgotten."""

from __future__ import annotations

from residuum.auditing.auditor import AuditResult, audit
from residuum.auditing.counts import Counts
from residuum.auditing.measures import measure, noise_floor

__all__ = ["AuditResult", "Counts", "audit", "measure", "noise_floor"]
