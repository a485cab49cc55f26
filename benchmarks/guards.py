"""What the guards cost: whole runs with and without them in turn, and the time spent in them.

Guards are the private splits of a method, the check of what it returns, and the second look at the files that a stage
read. Runs have one process, where they can be taken away for the comparison; CPU time (user and system) is fair on a
machine that others use too. What follows -- are options of `residuum run`.

    python benchmarks/guards.py --pairs 4 -- digits --seeds 131
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from residuum.core.samples import Splits
    from residuum.unlearning import Method

ANSWER = "guards took"


def run_once(guards: str, options: list[str]) -> None:
    """Run the command in this process, with its guards timed or taken away; print the seconds spent in them."""
    from residuum import unlearning
    from residuum.cli import run_command
    from residuum.studies import store

    spent, real = [0.0], (unlearning.guarded, unlearning.check_answer, store.refuse_changed_files)

    @contextmanager
    def timed() -> Iterator[None]:
        start = time.process_time()
        yield
        spent[0] += time.process_time() - start

    @contextmanager
    def guarded(method: Method, splits: Splits) -> Iterator[Splits]:
        guard = real[0](method, splits)
        with timed():
            own = guard.__enter__()
        try:
            yield own
        except BaseException as error:
            if not guard.__exit__(type(error), error, error.__traceback__):
                raise
        else:
            with timed():
                guard.__exit__(None, None, None)

    def checked(*given: object) -> object:
        with timed():
            return real[1](*given)

    def looked(dataset: object) -> None:
        with timed():
            real[2](dataset)

    @contextmanager
    def open_door(method: Method, splits: Splits) -> Iterator[Splits]:
        yield splits

    if guards == "on":
        unlearning.guarded, unlearning.check_answer, store.refuse_changed_files = guarded, checked, looked
    else:
        unlearning.guarded, store.refuse_changed_files = open_door, lambda dataset: None
        unlearning.check_answer = lambda method, given, answer, splits, context: answer
    code = run_command(["run", *options])
    print(f"{ANSWER} {spent[0]}", file=sys.stderr)
    sys.exit(code)


def measured(guards: str, options: list[str]) -> tuple[float, float, float]:
    """Return CPU seconds, seconds by the clock, and CPU seconds in guards of one run into a fresh store."""
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "said", "w+") as said:
        places = ["--workers", "1", "--store", f"{folder}/store", "--out", f"{folder}/out"]
        start = time.monotonic()
        command = [sys.executable, __file__, "--one", guards, "--", *options, *places]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        clock = time.monotonic() - start
        said.seek(0)
        lines = said.read().splitlines()
        if status:
            raise SystemExit("\n".join(lines[-3:]))
        return usage.ru_utime + usage.ru_stime, clock, float(lines[-1].removeprefix(ANSWER))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--one", choices=["on", "off"], help="run once in this process")
    parser.add_argument("options", nargs="*", default=["digits"])
    given = parser.parse_args()
    if given.one:
        run_once(given.one, given.options)
    ratios, shares = [], []
    for pair in range(given.pairs):
        order = ("on", "off") if pair % 2 == 0 else ("off", "on")
        found = {guards: measured(guards, given.options) for guards in order}
        (on, on_clock, inside), (off, off_clock, _) = found["on"], found["off"]
        ratios.append(on / off)
        shares.append(inside / on)
        clocks = f"by the clock {on_clock:.1f} s and {off_clock:.1f} s"
        print(f"CPU {on:.2f} s with, {off:.2f} s without guards, ratio {ratios[-1]:.4f}; {clocks}", flush=True)
    print(
        f"ratio {statistics.median(ratios):.4f} (median of {len(ratios)}, {min(ratios):.4f} to {max(ratios):.4f}); "
        f"inside the guards {100 * statistics.median(shares):.3f} % of the CPU time (at most {100 * max(shares):.3f} %)"
    )


if __name__ == "__main__":
    main()
