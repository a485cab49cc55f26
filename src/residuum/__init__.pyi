"""Types of the public names, which load on first use."""

from residuum import perturbations as perturbations
from residuum.auditing import ResidualKnowledge as ResidualKnowledge
from residuum.auditing import audit as audit
from residuum.core.errors import InputError as InputError
from residuum.core.samples import Samples as Samples
from residuum.core.samples import Splits as Splits
from residuum.data import Dataset as Dataset
from residuum.data import load_dataset as load_dataset
from residuum.data import make_splits as make_splits
from residuum.metrics import evaluate as evaluate
from residuum.models import build_model as build_model
from residuum.models import wrap as wrap
from residuum.record.run import Run as Run
from residuum.reporting import plot as plot
from residuum.reporting import report as report
from residuum.reporting import to_frame as to_frame
from residuum.request import Request as Request
from residuum.studies import Study as Study
from residuum.studies.execution import run as run
from residuum.studies.execution import run_requests as run_requests
from residuum.training import Recipe as Recipe
from residuum.training import train as train
from residuum.tuning import tune as tune
from residuum.unlearning import unlearn as unlearn

__version__: str
