"""A deletion request on the user's own model and data: check, unlearn, audit."""

from residuum.request.request import Request
from residuum.request.unlearned import Unlearned
