"""Other witnesses: attacks, searches and comparisons of many models that look for what an audit may miss."""

from residuum import components
from residuum.auditing.witnesses.attacks import Depth, RecoveryRadius, WorstCase
from residuum.auditing.witnesses.base import Witness
from residuum.auditing.witnesses.ensembles import RMIA, KLoM, ULiRA
from residuum.plugins import Registry

WITNESSES: Registry[type[Witness]] = components.PROBES


def is_witness(spec: str) -> bool:
    """Tell whether `NAME[:key=value...]` names one of the witnesses.

    >>> is_witness("rmia:c=0.5"), is_witness("rmi")
    (True, False)
    """
    return spec.partition(":")[0] in WITNESSES
