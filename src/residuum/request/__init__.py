"""A deletion request on the user's own model and data: check, unlearn, audit."""

from residuum.data.read import Reading
from residuum.request.models import Unlearned
from residuum.request.request import Request
from residuum.request.sequence import audit_requests
from residuum.request.study import AuditOptions
