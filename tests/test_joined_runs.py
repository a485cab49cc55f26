"""Runs of single seeds, joined, are the run of all seeds."""

import pytest
from benchmarks.reproduction.join import join, main

from residuum import Study, run
from residuum.core.errors import InputError
from residuum.pack import pack
from residuum.pack.derivation import differences
from residuum.record import Results

SEEDS = (131, 42)
OF_ONE_RUN = {"created", "record_sha256", "files"}  # what says when and where, and hashes of it


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run of both seeds, and one run for each seed, from the same store."""
    folder = tmp_path_factory.mktemp("runs")
    folders = {}
    for seeds in (SEEDS, *((seed,) for seed in SEEDS)):
        study = Study.create("tiny", methods="gd", overrides={"seeds": list(seeds), "controls": 1})
        folders[seeds] = folder / "-".join(map(str, seeds))
        run(study, out=folders[seeds], store=folder / "store")
    return folders


def numbers(record):
    return {name: value for name, value in record.as_dict().items() if name not in OF_ONE_RUN}


@pytest.mark.parametrize("packed", [False, True], ids=["folders", "packs"])
def test_joined_runs_are_the_run_of_all_seeds(runs, packed, tmp_path):
    parts = [runs[seed,] for seed in SEEDS]
    if packed:
        parts = [pack(part, tmp_path / f"{part.name}.zip").file for part in parts]
    out = tmp_path / "joined"
    main([*map(str, parts), "--out", str(out)])
    joined, whole = Results.load(out), Results.load(runs[SEEDS])
    assert {label: row.verdict for label, row in joined.judgments.items() if row.verdict}
    if packed:  # a pack has samples in another order, by which resampled intervals and last digits differ
        judged = [record.model_dump(mode="json", include={"judgments", "noise_floor"}) for record in (whole, joined)]
        assert differences(*judged) == []
        assert all(joined.methods[label].summary == row.summary for label, row in whole.methods.items())
    else:
        assert differences(numbers(whole), numbers(joined)) == []


def test_what_cannot_be_joined_is_refused(runs, tmp_path):
    with pytest.raises(InputError, match="seeds of their own"):
        join([runs[131,], runs[SEEDS]], tmp_path / "twice")
    other = Study.create("tiny", methods="gd", overrides={"seeds": [42], "controls": 1, "gd.lr": 0.001})
    run(other, out=tmp_path / "other", store=tmp_path / "store")
    with pytest.raises(InputError, match="runs of one study"):
        join([runs[131,], tmp_path / "other"], tmp_path / "out")
