"""Export a run to TensorBoard, MLflow or Weights & Biases.

Each row of a run (a method with its settings) becomes one run of the tracker, so you can compare methods there.
A logger is any object with `log_row`; its package is imported when the logger is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from residuum.core.errors import InputError, unknown_name
from residuum.record.run import Run
from residuum.reporting.exports import csv_lines
from residuum.reporting.glossary import MEASURES
from residuum.reporting.summary import summary_of


@dataclass(frozen=True)
class LoggedRow:
    """One row of a run as trackers see it: settings, words, single values, and curves over the radii.

    `curves` has the radii ("gaussian/radius") and the measures of each perturbation, means over seeds; the k-th value
    belongs to the k-th radius and is None where it does not exist.
    """

    run: str
    name: str
    settings: Mapping[str, Any]
    words: Mapping[str, str]
    values: Mapping[str, float]
    curves: Mapping[str, list[float | None]]

    def points(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield the position of each radius (the step) with the values of all curves that exist there."""
        for step in range(max(map(len, self.curves.values()), default=0)):
            at = {key: values[step] for key, values in self.curves.items() if step < len(values)}
            yield step, {key: value for key, value in at.items() if value is not None}


class Logger(Protocol):
    """A tracker that receives one row after the other."""

    def log_row(self, row: LoggedRow) -> None:
        """Log one row of a run."""


def log_run(run: Run, logger: Logger) -> None:
    """Give every row of a run to a logger.

    Example:
        >>> class Printer:
        ...     def log_row(self, row):
        ...         print(row.name, row.words["verdict"])
        >>> log_run(Run.load("runs/digits"), Printer())  # doctest: +SKIP
    """
    for row in logged_rows(run):
        try:
            logger.log_row(row)
        except OSError as error:
            place = error.filename or getattr(logger, "place", "the tracker's folder")
            raise InputError(f"cannot write to {place}: {error.strerror or error}; give another place") from error


def logged_rows(run: Run) -> Iterator[LoggedRow]:
    """Yield the rows of a run with their values from results.json."""
    for row, line in zip(summary_of(run).rows, csv_lines(run), strict=True):
        words = {key: str(line[key]) for key in ("method", "role", "verdict") if line[key] is not None}
        values = {key: float(value) for key, value in line.items() if isinstance(value, int | float)}
        curves: dict[str, list[float | None]] = {}
        for perturbation, taus in summary_of(run).taus.items():
            if row.row.audits(perturbation):
                curves[f"{perturbation}/radius"] = list(taus)
                for measure in MEASURES:
                    curve = row.curve(perturbation, measure.key)
                    if any(value is not None for value in curve.value):
                        curves[f"{perturbation}/{measure.key}"] = curve.value
        yield LoggedRow(run.name, row.label, row.row.settings, words, values, curves)


class TensorBoardLogger:
    """Writes event files below a folder, one sub-folder per row; needs the package tensorboard."""

    def __init__(self, place: Path | str = "runs/tensorboard") -> None:
        self.place = Path(place)
        self.writer = _imported("torch.utils.tensorboard", "tensorboard").SummaryWriter

    def log_row(self, row: LoggedRow) -> None:
        """Write scalars for values (step 0) and curves (a step for each radius), texts for words and settings."""
        with self.writer(str(self.place / row.run / row.name)) as writer:
            for key, text in {**row.words, "settings": json.dumps(row.settings, default=str)}.items():
                writer.add_text(key, text)
            for key, value in row.values.items():
                writer.add_scalar(key, value, 0)
            for step, values in row.points():
                for key, value in values.items():
                    writer.add_scalar(key, value, step)


class MLflowLogger:
    """Writes a run for each row into an experiment named after the run; `place` is a tracking URI or a folder."""

    def __init__(self, place: Path | str = "mlruns") -> None:
        uri = str(place) if "://" in str(place) else Path(place).resolve().as_uri()
        self.client = _imported("mlflow", "mlflow").MlflowClient(tracking_uri=uri)

    def log_row(self, row: LoggedRow) -> None:
        """Write settings as parameters, words as tags, values and curves as metrics."""
        experiment = self.client.get_experiment_by_name(row.run)
        experiment_id = experiment.experiment_id if experiment else self.client.create_experiment(row.run)
        tags = {f"residuum.{key}": text for key, text in row.words.items()} | {"mlflow.runName": row.name}
        run_id = self.client.create_run(experiment_id, tags=tags).info.run_id
        for name, value in row.settings.items():
            self.client.log_param(run_id, name, value)
        for name, number in row.values.items():
            self.client.log_metric(run_id, metric_name(name), number)
        for step, values in row.points():
            for name, number in values.items():
                self.client.log_metric(run_id, metric_name(name), number, step=step)
        self.client.set_terminated(run_id)


def metric_name(text: str) -> str:
    """Return a name that MLflow accepts: letters, digits, spaces and _ - . / : only.

    >>> metric_name("fgsm:target=random/pooled")
    'fgsm:target_random/pooled'
    """
    return re.sub(r"[^\w\-./: ]", "_", text, flags=re.ASCII)


class WandbLogger:
    """Writes a run for each row into a project; with `mode="offline"`, only into the folder `place`."""

    def __init__(self, place: Path | str = ".", *, project: str = "residuum", mode: str | None = None) -> None:
        self.wandb = _imported("wandb", "wandb")
        self.options = {"dir": str(place), "project": project, "mode": mode}

    def log_row(self, row: LoggedRow) -> None:
        """Write settings as configuration, words and values as summary, curves as history."""
        tracked = self.wandb.init(**self.options, group=row.run, name=row.name, config=dict(row.settings))
        for step, values in row.points():
            tracked.log(values, step=step)
        tracked.summary.update({**row.words, **row.values})
        tracked.finish()


LOGGERS: dict[str, type[TensorBoardLogger] | type[MLflowLogger] | type[WandbLogger]] = {
    "tensorboard": TensorBoardLogger,
    "mlflow": MLflowLogger,
    "wandb": WandbLogger,
}


def make_logger(name: str, place: Path | str | None = None) -> Logger:
    """Return the logger of a tracker by name: tensorboard, mlflow or wandb."""
    if name not in LOGGERS:
        raise unknown_name("tracker", name, LOGGERS)
    return LOGGERS[name]() if place is None else LOGGERS[name](place)


def _imported(module: str, package: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"the package {package} is missing ({error}); pip install {package}") from None
