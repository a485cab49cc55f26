"""Join runs of one study, each with seeds of its own, into a run with all seeds: a study may be computed seed by seed.

    python -m benchmarks.reproduction.join RUN RUN [RUN ...] --out FOLDER

RUN is the folder of a run or an evidence pack. Everything that depends on more than one seed is derived again from the
counts, by the functions of a run: summaries, noise floors, gates and verdicts. The joined run has counts and no models.
"""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from residuum.core.counts import Counts
from residuum.core.errors import InputError
from residuum.pack.derivation import derived_record, differences
from residuum.pack.reading import unpacked
from residuum.record import Results, Row, SeedResult
from residuum.record.folder import hashes
from residuum.studies.results import claim_folder

CODE = ("residuum", "torch", "numpy")  # whose versions decide numbers


def join(folders: Sequence[Path], out: Path) -> Results:
    """Write the counts of all runs, and their common record, below `out`; return the record."""
    runs = [(folder, Results.load(folder)) for folder in folders]
    first = runs[0][1]
    for folder, record in runs[1:]:
        if different := differences(_study(first), _study(record), "", f"{folder} says"):
            raise InputError(f"expected runs of one study, got {different[0]}")
    seeds = [seed for _, record in runs for seed in record.seeds]
    if len(set(seeds)) < len(seeds):
        raise InputError(f"expected runs with seeds of their own, got seeds {', '.join(map(str, seeds))}")
    claim_folder(out)
    rows: dict[str, Row] = {}
    for label, row in first.methods.items():
        per_seed: dict[str, SeedResult] = {}
        for folder, record in runs:
            for seed, result in record.methods[label].per_seed.items():
                audits = {}
                for name, audit in result.audits.items():
                    place = f"counts/{seed}/{label}/{name}"
                    (out / place).parent.mkdir(parents=True, exist_ok=True)
                    Counts.load(folder / audit.counts).save(out / f"{place}.npz")
                    heldout = audit.heldout
                    if heldout and heldout.counts:
                        Counts.load(folder / heldout.counts).save(out / f"{place}.heldout.npz")
                        heldout = heldout.model_copy(update={"counts": f"{place}.heldout.npz"})
                    audits[name] = audit.model_copy(update={"counts": f"{place}.npz", "heldout": heldout})
                per_seed[seed] = result.model_copy(update={"audits": audits})
        rows[label] = row.model_copy(update={"per_seed": per_seed})
    texts = {
        name: list(dict.fromkeys(text for _, record in runs for text in getattr(record, name)))
        for name in ("warnings", "notes")
    }
    settings = first.scenario.settings.model_copy(update={"seeds": seeds})
    scenario = first.scenario.model_copy(update={"settings": settings})
    stated = first.model_copy(update={"scenario": scenario, "methods": rows, "seeds": seeds, **texts})
    record = derived_record(stated, out)
    for label, seed, name, audit in record.each_audit():
        heldout = stated.methods[label].per_seed[seed].audits[name].heldout
        if audit.heldout and heldout:  # counts know classes by number, the runs know their names
            audit.heldout.left_out[:] = heldout.left_out
    record = record.model_copy(update={"files": hashes(out)})
    record = record.model_copy(update={"record_sha256": record.as_dict()["record_sha256"]})
    (out / Results.FILE).write_text(record.text(), encoding="utf-8")
    return record


def _study(record: Results) -> dict[str, object]:
    """Return what must be the same in runs of one study."""
    return {
        "scenario": record.scenario.model_dump(mode="json", exclude={"settings": {"seeds"}}),
        "rows": {label: {"method": row.method, "settings": row.settings} for label, row in record.methods.items()},
        "versions": {name: record.versions.get(name) for name in CODE},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Join the runs and packs that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    with ExitStack() as packs:
        folders = [run if run.is_dir() else packs.enter_context(unpacked(run)).folder for run in options.runs]
        record = join(folders, options.out)
    print(f"{options.out}: seeds {', '.join(map(str, record.seeds))}")


if __name__ == "__main__":
    main()
