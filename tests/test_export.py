"""Trackers hold what the record holds: each is read back from its own files."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from residuum.cli import run_command
from residuum.core.errors import InputError
from residuum.export import LOGGERS, MLflowLogger, TensorBoardLogger, WandbLogger, log_run, logged_rows, make_logger
from residuum.record import sealed
from residuum.record.run import Run

GOLDEN = json.loads((Path(__file__).parent / "golden" / "digits.json").read_text(encoding="utf-8"))


@pytest.fixture
def run(tmp_path):
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "results.json").write_text(json.dumps(sealed(GOLDEN)))
    return Run.load(tmp_path / "digits")


class Kept:
    def __init__(self):
        self.rows = []

    def log_row(self, row):
        self.rows.append(row)


def test_rows_are_those_of_the_record(run):
    log_run(run, kept := Kept())
    assert [row.name for row in kept.rows] == list(GOLDEN["methods"])

    for row in kept.rows:
        entry = GOLDEN["methods"][row.name]
        assert row.settings == entry["settings"]
        assert row.values["test_accuracy"] == entry["summary"]["test_accuracy"]["mean"]
        audits = [seed["audits"]["gaussian"] for seed in entry["per_seed"].values()]
        assert row.curves["gaussian/radius"] == audits[0]["taus"]
        pooled = [audit["residual_knowledge"]["pooled"] for audit in audits]
        means = [sum(values) / len(values) for values in zip(*pooled, strict=True)]
        assert row.curves["gaussian/pooled"] == pytest.approx(means, rel=1e-12)
    assert "verdict" in kept.rows[0].words
    assert all(math.isfinite(value) for row in kept.rows for _, values in row.points() for value in values.values())


def test_tensorboard_files_hold_values_curves_and_settings(run, tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard")
    log_run(run, TensorBoardLogger(tmp_path / "board"))
    for row in logged_rows(run):
        board = events.EventAccumulator(str(tmp_path / "board" / "digits" / row.name))
        board.Reload()
        assert set(board.Tags()["scalars"]) == {*row.values, *row.curves}
        for key, value in row.values.items():
            assert [event.value for event in board.Scalars(key)] == pytest.approx([value], rel=1e-6)
        for key, curve in row.curves.items():
            known = {step: value for step, value in enumerate(curve) if value is not None}
            assert {event.step: event.value for event in board.Scalars(key)} == pytest.approx(known, rel=1e-6)
        (stored,) = board.Tensors("settings/text_summary")
        assert json.loads(stored.tensor_proto.string_val[0]) == row.settings


def test_mlflow_files_hold_values_curves_and_settings(run, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow, which the locked versions do not allow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    log_run(run, logger := MLflowLogger(tmp_path / "ml"))
    assert isinstance(logger.client, mlflow.MlflowClient)
    study = logger.client.get_experiment_by_name("digits")
    stored = {each.info.run_name: each for each in logger.client.search_runs([study.experiment_id])}
    for row in logged_rows(run):
        kept = stored[row.name]
        assert kept.data.params == {key: str(value) for key, value in row.settings.items()}
        assert {key: kept.data.metrics[key] for key in row.values} == row.values
        assert kept.data.tags["residuum.method"] == row.words["method"]
        history = logger.client.get_metric_history(kept.info.run_id, "gaussian/pooled")
        assert [(each.step, each.value) for each in history] == list(enumerate(row.curves["gaussian/pooled"]))


def wandb_records(file):
    """Yield the records of a W&B file: a head of 7 bytes, then LevelDB's log format, blocks of 32 KiB."""
    data, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def test_wandb_files_hold_values_curves_and_settings(run, tmp_path):
    pytest.importorskip("wandb", reason="needs wandb, which is not in the development environment")
    from wandb.proto.wandb_internal_pb2 import Record

    log_run(run, WandbLogger(tmp_path, mode="offline"))
    rows = {row.name: row for row in logged_rows(run)}
    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == len(rows)
    for file in files:
        records = [Record.FromString(data) for data in wandb_records(file)]
        (name,) = {record.run.display_name for record in records if record.HasField("run")}
        row = rows[name]
        config = {item.key: json.loads(item.value_json) for record in records for item in record.run.config.update}
        assert {key: config[key] for key in row.settings} == row.settings
        steps = [record.history.item for record in records if record.HasField("history")]
        history = [{item.key or item.nested_key[0]: json.loads(item.value_json) for item in step} for step in steps]
        assert [line["gaussian/pooled"] for line in history] == row.curves["gaussian/pooled"]
        changes = [item for record in records for item in record.summary.update]
        summary = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in changes}
        assert {key: summary[key] for key in row.values} == row.values


def test_a_tracker_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("residuum.export.import_module", lambda name: (_ for _ in ()).throw(ImportError("no module")))
    for name in LOGGERS:
        with pytest.raises(InputError, match=rf"pip install {name}"):
            make_logger(name)
    with pytest.raises(InputError, match="unknown tracker 'board'"):
        make_logger("board")


def test_the_command_logs_a_stored_run(run, tmp_path, capsys):
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    assert run_command(["export", "tensorboard", str(run.folder), "--out", str(tmp_path / "board")]) == 0
    assert sorted(each.name for each in (tmp_path / "board" / "digits").iterdir()) == sorted(GOLDEN["methods"])
    assert f"{len(GOLDEN['methods'])} rows of digits" in capsys.readouterr().out


class FakeMlflow:
    """The part of MLflow that is used, with its rule on names of metrics."""

    def __init__(self, tracking_uri):
        self.metrics = []

    def get_experiment_by_name(self, name):
        return None

    def create_experiment(self, name):
        return "1"

    def create_run(self, study, tags):
        return SimpleNamespace(info=SimpleNamespace(run_id="r"))

    def log_param(self, run, name, value):
        pass

    def log_metric(self, run, name, value, step=0):
        assert re.fullmatch(r"[\w\-./: ]+", name, re.ASCII), name
        self.metrics.append(name)

    def set_terminated(self, run):
        pass


def test_mlflow_gets_names_that_it_takes(tmp_path, monkeypatch):
    crafted = json.loads(json.dumps(GOLDEN).replace('"gaussian"', '"fgsm:target=random"'))
    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "results.json").write_text(json.dumps(sealed(crafted)))
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=FakeMlflow))
    log_run(Run.load(tmp_path / "digits"), logger := MLflowLogger(tmp_path / "ml"))
    assert "fgsm:target_random/pooled" in logger.client.metrics


def test_a_place_that_cannot_be_written_is_one_line(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_command(["export", "tensorboard", "digits", "--out", "/proc/x"]) == 2
    assert "cannot write to /proc/x" in capsys.readouterr().err
