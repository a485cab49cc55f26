"""The audit: what a model still knows about samples it should have forgotten."""

from residuum.auditing.auditor import AuditResult as AuditResult
from residuum.auditing.auditor import audit as audit
from residuum.auditing.budget import Cost as Cost
from residuum.auditing.budget import estimate_cost as estimate_cost
from residuum.auditing.counts import Counts as Counts
from residuum.auditing.gallery import Gallery as Gallery
from residuum.auditing.gallery import make_gallery as make_gallery
from residuum.auditing.measures import first_radius as first_radius
from residuum.auditing.measures import measure as measure
from residuum.auditing.measures import noise_floor as noise_floor
from residuum.models import Manifest as Manifest
from residuum.models import read_manifest as read_manifest
