"""A run's record and tables stay what they were: compared with files that an earlier version wrote.

The golden files were written by `residuum run` with the arguments below. Where the numbers are meant to change, run
`python -m tests.test_golden` on a machine with AVX512 and say in the change why. Weights of methods are compared bit
for bit, on machines whose arithmetic is that of `rounding.txt`; elsewhere, write them with the unchanged code first.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch
from tests.conftest import rounding

from residuum.cli import run_command
from residuum.models.weights import state_hash
from residuum.record import Results, sealed
from residuum.reporting import write_report
from residuum.studies.study import parse_row
from residuum.testing import Trial

GOLDEN = Path(__file__).parent / "golden"
ARGUMENTS = {
    "tiny": ["run", "tiny"],
    "digits": ["run", "digits", "--seeds", "131", "--set", "train.epochs=8", "--perturbations", "gaussian,fgsm",
               "--draws", "10"],
}  # fmt: skip
TABLES = ("table.csv", "table.tex")
TIMES = ("created", "seconds", "versions", "files", "record_sha256")  # and hashes of what is compared itself


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def run_once(name, folder):
    arguments = [*ARGUMENTS[name], "--out", str(folder / name), "--store", str(folder / "store"), "--workers", "1"]
    assert run_command(arguments) == 0
    return folder / name


def assert_same(value, golden, place=""):
    """Compare two records; functions such as the arcsine differ in the last digit between processors."""
    if isinstance(golden, dict):
        assert list(value) == list(golden), place
        for key, item in golden.items():
            assert_same(value[key], item, f"{place}.{key}")
    elif isinstance(golden, list):
        assert len(value) == len(golden), place
        for position, (item, expected) in enumerate(zip(value, golden, strict=True)):
            assert_same(item, expected, f"{place}[{position}]")
    elif isinstance(golden, float):
        assert value == pytest.approx(golden, rel=1e-12, abs=1e-12), place
    else:
        assert value == golden, place


def assert_same_table(folder, name):
    table, golden = ((place / file).read_text().split() for place, file in
                     ((folder, "table.csv"), (GOLDEN, f"{name}-table.csv")))  # fmt: skip
    for line, expected in zip(table, golden, strict=True):
        for cell, wanted in zip(line.split(","), expected.split(","), strict=True):
            assert cell == wanted or float(cell) == pytest.approx(float(wanted), rel=1e-12, abs=1e-12)


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="other processors round otherwise")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_run_writes_the_golden_record_and_tables(name, tmp_path, capsys):
    out = run_once(name, tmp_path)
    record = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert_same(without_times(record), json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8")))
    assert (out / "table.tex").read_bytes() == (GOLDEN / f"{name}-table.tex").read_bytes()
    assert_same_table(out, name)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_golden_record_gives_the_golden_tables_on_any_machine(name, tmp_path):
    record = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    for row in record["methods"].values():
        for seed in row["per_seed"].values():
            seed["seconds"] = 1.0
    (tmp_path / "results.json").write_text(
        json.dumps(sealed(record | {"created": "", "versions": {}})), encoding="utf-8"
    )
    write_report(tmp_path)
    assert (tmp_path / "table.tex").read_bytes() == (GOLDEN / f"{name}-table.tex").read_bytes()
    assert_same_table(tmp_path, name)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_noise_floor_of_the_record_is_the_one_that_every_row_is_judged_by(name):
    record = Results.model_validate_json((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    for perturbation, floor in record.noise_floor.items():
        assert floor.pairs == len(record.seeds) * len(record.controls)
        for judgment in record.verdicts.values():
            columns = judgment.finding_of(perturbation).columns[1:]
            drawn = [column.floor for column in columns]
            if record.scenario.form == "sample" and None not in drawn:
                assert list(zip(floor.low, floor.high, strict=True)) == [pytest.approx(ends) for ends in drawn]


WEIGHTS = json.loads((GOLDEN / "method-weights.json").read_text(encoding="utf-8"))


def method_weights(row):
    return state_hash(Trial.of(parse_row(row).build()).run().state_dict())


@pytest.mark.parametrize("row", list(WEIGHTS))
def test_every_method_makes_the_golden_weights(row, golden_machine):
    assert method_weights(row) == WEIGHTS[row]


def write_golden_files():
    import tempfile

    (GOLDEN / "rounding.txt").write_text(rounding() + "\n", encoding="utf-8")
    weights = {row: method_weights(row) for row in WEIGHTS}
    (GOLDEN / "method-weights.json").write_text(json.dumps(weights, indent=2) + "\n", encoding="utf-8")

    for name in ARGUMENTS:
        with tempfile.TemporaryDirectory() as folder:
            out = run_once(name, Path(folder))
            record = without_times(json.loads((out / "results.json").read_text(encoding="utf-8")))
            (GOLDEN / f"{name}.json").write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")
            for table in TABLES:
                shutil.copyfile(out / table, GOLDEN / f"{name}-{table}")


if __name__ == "__main__":
    write_golden_files()
