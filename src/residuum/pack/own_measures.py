"""Measures of the holder's own: a pack has their numbers, and whoever derives these again needs the functions."""

from collections.abc import Sequence

from residuum.auditing.own_measures import OWN_MEASURES
from residuum.auditing.witnesses import is_witness
from residuum.errors import InputError
from residuum.plugins import described_plugins
from residuum.record import Results


def add_measures(record: Results, sources: Sequence[str]) -> list[str]:
    """Add the functions, FILE.py:FUNCTION each, and return which of them stand in another file than the run used.

    Refuse a record with a measure that is not there.
    """
    for source in sources:
        OWN_MEASURES.named(source)
    wanted = [spec for spec in record.scenario.settings.measures if not is_witness(spec)]
    for name in wanted:
        if name not in OWN_MEASURES:
            raise InputError(f"measure {name} is none of Residuum's; give its function with --measures FILE.py:{name}")
    now, then = described_plugins(wanted).get("measure", {}), record.scenario.plugins.get("measure", {})
    other = [name for name in now if name in then and now[name].get("sha256") != then[name].get("sha256")]
    return [f"measure {name}: its file is not the one that the run used" for name in other]
