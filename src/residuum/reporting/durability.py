"""The probe `durability` on the page: does it stay forgotten? See `auditing/probes/durability.py`."""

from __future__ import annotations

from collections.abc import Iterator

from residuum.record import ProbeRow, Row
from residuum.record.run import Run
from residuum.reporting.samples import ALPHA
from residuum.reporting.wording import Chip

PROBE = "durability"
TREATMENTS = {
    "finetune": "fine-tuning on the retain set",
    "relearn": "re-learning a tenth of the forget set, on the others",
    "round8": "rounding weights to 8 bits",
    "round4": "rounding weights to 4 bits",
    "prune": "pruning half of the weights",
    "average": "averaging with the original",
}


def durability_chip(row: Row) -> Chip | None:
    """Return whether a row stays forgotten; None where the probe was not measured.

    A row that is above retrained models after a treatment and did not rise by it was not forgotten before, either.
    """
    probe = _probe_of(row)
    if probe is None:
        return None
    numbers = probe.model_extra or {}
    column = numbers.get("column")
    if column is None:
        reason = probe.note or "fewer than three retrained models were treated alike"
        return Chip("durability: cannot tell", "unclear", f"Whether it stays forgotten is not known: {reason}.")
    treatment, measure = str(column).rsplit("_", 1)
    if probe.found:
        words = f"It comes back after {TREATMENTS[treatment]}: {_rise(probe, treatment)} (p = {probe.p:.2g}"
        tail = ", by the ratio to held-out samples)." if measure == "memory" else ")."
        return Chip("comes back", "found", words + tail)
    if any(name.endswith("_end_p") and p <= ALPHA for name, p in numbers.items()):
        text = "No treatment changes it more than a retrained model, but it recognizes the samples before and after."
        return Chip("not forgotten to begin with", "unclear", text)
    rise = f"{_rise(probe, 'finetune')} by fine-tuning"
    return Chip("stays forgotten", "none", f"No treatment brings the samples back: {rise}.")


def _rise(probe: ProbeRow, treatment: str) -> str:
    before, after, others_before, others_after = (
        f"{100 * (probe.model_extra or {})[f'{treatment}_recognition{who}_{when}']:.1f}"
        for who in ("", "_retrained")
        for when in ("before", "after")
    )
    return (
        f"recognition goes from {before} to {after} %, that of retrained models from {others_before} to {others_after}"
    )


def durability_table(run: Run) -> Iterator[tuple[str, list[str]]]:
    """Yield for each treatment its name and, row by row, the recognition before and after in per cent."""
    probes = [_probe_of(row) for row in run.rows.values()]
    if not any(probe and probe.value is not None for probe in probes):
        return
    for treatment, words in TREATMENTS.items():
        yield words, [_cell(probe, f"{treatment}_recognition") for probe in probes]
    for hint, words in (("distance", "distance of the weights to the original's"), ("barrier", "loss barrier to it")):
        numbers = [(probe.model_extra or {}).get(hint) if probe else None for probe in probes]
        yield words, ["–" if number is None else f"{number:.2g}" for number in numbers]


def _probe_of(row: Row) -> ProbeRow | None:
    return next((probe for name, probe in row.probes.items() if name.partition(":")[0] == PROBE), None)


def _cell(probe: ProbeRow | None, column: str) -> str:
    numbers = (probe.model_extra or {}) if probe else {}
    if f"{column}_before" not in numbers:
        return "–"
    treatment = column.rsplit("_", 1)[0]
    back = any(numbers.get(f"{treatment}_{measure}_p", 1.0) <= ALPHA for measure in ("recognition", "memory"))
    return f"{100 * numbers[f'{column}_before']:.1f} → {100 * numbers[f'{column}_after']:.1f}{' *' if back else ''}"
