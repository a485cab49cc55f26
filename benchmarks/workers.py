"""How much faster two worker processes are than one on the demo grid; prints JSON.

    python benchmarks/workers.py [--scenario digits] [--repeats 2]

Runs `residuum run SCENARIO --workers 1` and `--workers 2` in turn, `repeats` times each, every time in a fresh
interpreter on an empty store with one torch thread per process. Two times are taken of each run:

- grid: from the moment the plan is made and workers are asked for to the last finished stage, all stages, the wait for
  worker processes included. One worker is the command's own process, which has nothing to wait for; two are forked off
  a server, which starts with the command and loads the libraries while the command loads its own and plans.
- command: the whole command on the wall clock, with interpreter, imports, plan, grid, results, page and figures.

The figure is the ratio of the medians. Results must be equal but for times, or nothing is printed. Other work on the
machine disturbs it: `load` is the system's load average before the first run.
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


def run_once(scenario: str, workers: int) -> dict[str, Any]:
    """Return both times and the record of one run in a fresh interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "grid.txt"
        arguments = ["run", scenario, "--workers", str(workers), "--store", f"{folder}/store", "--out", f"{folder}/out"]
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, __file__, "--inside", str(times), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        command = time.perf_counter() - begin
        record = json.loads((Path(folder) / "out" / "results.json").read_text(encoding="utf-8"))
        return {"grid": float(times.read_text()), "command": command, "record": without_times(record)}


def run_inside(times: Path, arguments: list[str]) -> None:
    """Run the command in this process and leave the seconds that its grid took in a file."""
    from residuum.cli import main, run

    plain = run.load_libraries

    def load_and_watch(*given: Any) -> None:  # noqa: ANN401 (whatever the command gives)
        plain(*given)
        watch_grid(times)

    run.load_libraries = load_and_watch
    main(arguments)


def watch_grid(times: Path) -> None:
    """Wrap the step of the command that starts workers and runs the stages."""
    from residuum.cli import execution

    plain, begun = execution.engine, []

    def engine(*given: Any) -> Any:  # noqa: ANN401 (a context manager of any executor)
        begun.append(time.perf_counter())
        return plain(*given)

    run_all = execution.run_all

    def timed(*given: Any, **named: Any) -> Any:  # noqa: ANN401 (as it is)
        results = run_all(*given, **named)
        times.write_text(str(time.perf_counter() - begun[0]), encoding="utf-8")
        return results

    execution.engine, execution.run_all = engine, timed  # type: ignore[assignment]


def without_times(value: Any) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if key not in ("created", "seconds")}
    return value


def main() -> None:
    if sys.argv[1:2] == ["--inside"]:
        run_inside(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", default="digits")
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    runs: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    for _ in range(asked.repeats):
        for workers, done in runs.items():
            done.append(run_once(asked.scenario, workers))
    if any(run["record"] != runs[1][0]["record"] for done in runs.values() for run in done):
        raise SystemExit("the runs gave different results")
    seconds = {
        what: {f"{workers} workers": [round(run[what], 1) for run in done] for workers, done in runs.items()}
        for what in ("grid", "command")
    }
    ratios = {
        what: round(statistics.median(both["1 workers"]) / statistics.median(both["2 workers"]), 2)
        for what, both in seconds.items()
    }
    print(json.dumps({"scenario": asked.scenario, "load": load, "seconds": seconds, "times as fast": ratios}, indent=1))


if __name__ == "__main__":
    main()
