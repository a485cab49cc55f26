"""A run is printed and reported whatever is missing in it: no r, no control, no held-out samples, no metrics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from residuum.cli.run import print_run
from residuum.judging import judged_record
from residuum.record import Results
from residuum.record.run import Run
from residuum.reporting import report

RUN = json.loads((Path(__file__).parents[1] / "golden" / "tiny.json").read_text())
RATIOS = {"pooled", "low", "high", "mean_of_ratios", "smoothed", "bootstrap_low", "bootstrap_high"}
SHARES = {"value", "rate", "reference_rate", "prevalence_significant", "prevalence_defined"}
EVERY_LIST = RATIOS | SHARES | {"sample_low", "sample_high", "draw_low", "draw_high", "gap_low", "floor", "forgotten"}
OF_HELD_OUT = {"heldout", "memory", "memory_difference", "class_knowledge", "completeness", "nearer"}


def nulled(node, keys):
    if not isinstance(node, dict):
        return node
    return {k: [None] * len(v) if k in keys and isinstance(v, list) else nulled(v, keys) for k, v in node.items()}


def without(node, keys):
    return {k: without(v, keys) for k, v in node.items() if k not in keys} if isinstance(node, dict) else node


def rows(keep):
    return RUN | {"methods": {label: row for label, row in RUN["methods"].items() if keep(label)}}


CASES = {
    "no ratio": lambda: nulled(RUN, RATIOS),
    "no share": lambda: nulled(RUN, SHARES),
    "no number": lambda: nulled(RUN, EVERY_LIST),
    "no interval": lambda: nulled(RUN, {"low", "high"}),
    "nothing held out": lambda: without(RUN, OF_HELD_OUT),
    "no metrics": lambda: without(RUN, {"metrics", "summary"}),
    "no audit": lambda: without(RUN, {"audits"}) | {"noise_floor": {}},
    "no control": lambda: rows(lambda label: label != "control") | {"noise_floor": {}},
    "no re-train": lambda: rows(lambda label: label != "retrain"),
    "one row": lambda: rows(lambda label: label == "gd"),
}


@pytest.mark.parametrize("form", ["sample", "class"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_missing_is_a_dash(case, form, tmp_path, capsys):
    record = json.loads(json.dumps(CASES[case]()))
    record["scenario"]["form"] = form
    (tmp_path / "results.json").write_text(judged_record(Results.model_validate(record | {"judgments": {}})).text())
    run = Run.load(tmp_path)
    print_run(run, 1.0, as_json=False)
    report(run)
    assert "verdicts" in capsys.readouterr().out
    assert "<html" in (tmp_path / "report.html").read_text()
