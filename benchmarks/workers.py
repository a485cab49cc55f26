"""How much faster two worker processes are than one on the demo grid; prints JSON.

    python benchmarks/workers.py [--scenario digits] [--repeats 2]

Runs `residuum run SCENARIO --workers 1` and `--workers 2` in turn, `repeats` times each, every time in a fresh
interpreter on an empty store with one torch thread per process, and takes the whole command on the wall clock:
interpreter, imports, plan, stages, results, page and figures. The figure is the ratio of the medians. Results must be
equal but for times, or nothing is printed. Other work on the machine disturbs it: `load` is the system's load average
before the first run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def run_once(scenario: str, workers: int) -> tuple[float, Any]:
    """Return the seconds and the record of one run in a fresh interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        where = ["--store", f"{folder}/store", "--out", f"{folder}/out", "--workers", str(workers)]
        command = [sys.executable, "-m", "residuum", "run", scenario, *where]
        begin = time.perf_counter()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, **quiet)
        seconds = time.perf_counter() - begin
        return seconds, without_times(json.loads((Path(folder) / "out/results.json").read_text(encoding="utf-8")))


def without_times(value: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, dict):
        return {
            key: without_times(part)
            for key, part in value.items()
            if key not in ("created", "seconds", "record_sha256")
        }
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", default="digits")
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    runs: dict[int, list[tuple[float, Any]]] = {1: [], 2: []}
    for _ in range(asked.repeats):
        for workers, done in runs.items():
            done.append(run_once(asked.scenario, workers))
    if any(record != runs[1][0][1] for done in runs.values() for _, record in done):
        raise SystemExit("the runs gave different results")
    seconds = {f"{workers} workers": [round(took, 1) for took, _ in done] for workers, done in runs.items()}
    one, two = (statistics.median(took for took, _ in runs[workers]) for workers in (1, 2))
    print(
        json.dumps({"scenario": asked.scenario, "load": load, "seconds": seconds, "times as fast": round(one / two, 2)})
    )


if __name__ == "__main__":
    main()
