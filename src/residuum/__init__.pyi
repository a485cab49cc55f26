"""Types of the public names, which load on first use."""

from residuum import perturbations as perturbations
from residuum.auditing import ResidualKnowledge as ResidualKnowledge
from residuum.auditing import audit as audit
from residuum.data import Dataset as Dataset
from residuum.data import load_dataset as load_dataset
from residuum.data import make_splits as make_splits
from residuum.execution import run as run
from residuum.execution import run_requests as run_requests
from residuum.experiments import Experiment as Experiment
from residuum.methods import unlearn as unlearn
from residuum.metrics import evaluate as evaluate
from residuum.models import build_model as build_model
from residuum.models import wrap as wrap
from residuum.reporting import report as report
from residuum.reporting import to_frame as to_frame
from residuum.request import Request as Request
from residuum.runs import Run as Run
from residuum.training import Recipe as Recipe
from residuum.training import train as train
from residuum.tuning import tune as tune
from residuum.types import InputError as InputError
from residuum.types import Samples as Samples
from residuum.types import Splits as Splits

__version__: str
