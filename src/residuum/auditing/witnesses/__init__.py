"""Other witnesses: attacks, searches and comparisons of many models that look for what an audit may miss."""

from residuum.auditing.witnesses.attacks import Depth, RecoveryRadius, WorstCase
from residuum.auditing.witnesses.base import Witness
from residuum.auditing.witnesses.ensembles import RMIA, KLoM, ULiRA

KINDS: tuple[type[Witness], ...] = (RecoveryRadius, Depth, WorstCase, RMIA, KLoM, ULiRA)
WITNESSES: dict[str, type[Witness]] = {kind.name: kind for kind in KINDS}


def is_witness(spec: str) -> bool:
    """Tell whether `NAME[:key=value...]` names one of the witnesses.

    >>> is_witness("rmia:c=0.5"), is_witness("rmi")
    (True, False)
    """
    return spec.partition(":")[0] in WITNESSES
