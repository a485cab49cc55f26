"""The data of a run, from the settings in its record."""

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from residuum.data import load_dataset
from residuum.errors import InputError
from residuum.experiments.settings import DataSettings, ForgetSettings, split_data
from residuum.record import Results
from residuum.types import Splits


def splits_of(record: Results, root: Path | None = None) -> Splits:
    """Return the splits of a scenario's run; data that a record does not name are given in Python, as `splits`."""
    settings: Any = record.scenario.settings.model_dump(mode="json", exclude_unset=True)
    requests = [*settings.get("earlier", []), settings.get("forget", {})]
    if not record.scenario.public_data or any(request.get("listed") for request in requests):
        raise InputError("the pack does not name its data or its ids: give them in Python, verify(..., splits=...)")
    try:
        data = DataSettings.model_validate(settings["data"])
        wanted = tuple(ForgetSettings.model_validate(request) for request in requests)
    except (ValidationError, KeyError):
        raise InputError("the record does not say how its data were cut: give splits=... in Python") from None
    return split_data(load_dataset(data.name, root=root, size=data.size), data, wanted)
