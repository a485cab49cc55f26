"""The audit: what a model still knows about samples it should have forgotten."""

from residuum.auditing.auditor import Auditor, AuditResult, audit
from residuum.auditing.budget import Draws
from residuum.auditing.gallery import make_gallery
from residuum.auditing.heldout import of_unaffected_classes
from residuum.auditing.measures import first_radius, measure
from residuum.auditing.metric import ResidualKnowledge
from residuum.core.counts import Counts
from residuum.core.gallery import Gallery
from residuum.models import Manifest, read_manifest
