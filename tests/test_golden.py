"""A run's record and tables stay what they were: compared with files that an earlier version wrote.

The golden files were written by `residuum run` with the arguments below. Where the numbers are meant to change, run
`python tests/test_golden.py` on a machine with AVX512 and say in the change why.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch

from residuum.cli import run_command
from residuum.record import Results, sealed
from residuum.record.run import Run
from residuum.reporting import write_report
from residuum.reporting.summary import summary_of

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


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="other processors round otherwise")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_run_writes_the_golden_record_and_tables(name, tmp_path, capsys):
    out = run_once(name, tmp_path)
    record = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert without_times(record) == json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    for table in TABLES:
        assert (out / table).read_bytes() == (GOLDEN / f"{name}-{table}").read_bytes()


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
    table, golden = ((folder / file).read_text().split() for folder, file in
                     ((tmp_path, "table.csv"), (GOLDEN, f"{name}-table.csv")))  # fmt: skip
    for line, expected in zip(table, golden, strict=True):
        for cell, wanted in zip(line.split(","), expected.split(","), strict=True):
            assert cell == wanted or float(cell) == pytest.approx(float(wanted), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_noise_floor_of_the_record_is_the_one_that_the_page_draws(name):
    run = Run(Path(), name, Results.model_validate_json((GOLDEN / f"{name}.json").read_text(encoding="utf-8")))
    for perturbation, floor in run.record.noise_floor.items():
        drawn = summary_of(run).floors[perturbation]["pooled"]
        assert floor.low == pytest.approx(drawn.low)
        assert floor.high == pytest.approx(drawn.high)
        assert floor.pairs == len(run.seeds) * len(run.record.controls)


def write_golden_files():
    import tempfile

    for name in ARGUMENTS:
        with tempfile.TemporaryDirectory() as folder:
            out = run_once(name, Path(folder))
            record = without_times(json.loads((out / "results.json").read_text(encoding="utf-8")))
            (GOLDEN / f"{name}.json").write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")
            for table in TABLES:
                shutil.copyfile(out / table, GOLDEN / f"{name}-{table}")


if __name__ == "__main__":
    write_golden_files()
