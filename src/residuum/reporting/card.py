"""A model card (Hugging Face's format) for an unlearned model: what was forgotten, how, and what the audit found."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from residuum.errors import InputError, unknown_name
from residuum.files import write_whole
from residuum.reporting.glossary import METRICS
from residuum.reporting.page import rendered
from residuum.reporting.run import Run
from residuum.reporting.summary import RowSummary

WEIGHTS = "model.safetensors"
CARD = "README.md"


def write_model(run: Run, label: str, folder: Path | str, *, seed: int | None = None) -> list[Path]:
    """Write the weights of a row (default: of the first seed) and their model card into a folder; return the files.

    The folder is what a model hub takes: `model.safetensors`, which `residuum.models.load_weights` reads, and
    `README.md`.
    """
    text = model_card(run, label)
    chosen = str(run.record.seeds[0] if seed is None else seed)
    if chosen not in run.rows[label].per_seed:
        raise unknown_name(f"seed of {label}", chosen, run.rows[label].per_seed)
    weights, target = run.folder / "models" / chosen / f"{label}.safetensors", Path(folder)
    if not weights.is_file():
        raise InputError(f"expected the weights of {label} in {weights}, there are none; carry the run out again")
    try:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(weights, target / WEIGHTS)
        write_whole(target / CARD, text)
    except OSError as error:
        raise InputError(f"cannot write to {target}: {error.strerror}; choose another folder") from None
    return [target / WEIGHTS, target / CARD]


def model_card(run: Run, label: str) -> str:
    """Return the card of one row: a head that machines read (JSON is YAML), then words.

    Reference: the model card guide of the Hugging Face hub (`model-index` has the results).
    """
    rows = {row.label: row for row in run.summary.rows}
    if label not in rows:
        raise unknown_name("row", label, rows)
    return rendered(
        "card.md.j2",
        run=run,
        row=rows[label],
        reference=next((row for row in rows.values() if row.kind == "retrain"), None),
        head=_head(run, rows[label]),
        columns=METRICS,
        weights=WEIGHTS,
        json=partial(json.dumps, ensure_ascii=False),
    )


def _head(run: Run, row: RowSummary) -> dict[str, Any]:
    data = run.record.scenario.settings.data.name or "unknown"
    metrics = [
        {"type": column.key, "name": f"{column.title} (%)", "value": round(value, 4)}
        for column in METRICS
        if (value := row.cells[column.key].value) is not None
    ]
    if row.verdict and row.verdict.finding:
        level = round(row.verdict.finding.value(), 4)
        metrics.append({"type": "residual_knowledge", "name": "Residual knowledge, all radii", "value": level})
    found = {"task": {"type": "image-classification"}, "dataset": {"name": data, "type": data}, "metrics": metrics}
    return {
        "library_name": "residuum",
        "tags": ["machine-unlearning", "residuum", row.row.method],
        "model-index": [{"name": f"{run.name}-{row.label}", "results": [found]}],
    }
