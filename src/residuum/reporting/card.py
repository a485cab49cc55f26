"""A model card (Hugging Face's format) for an unlearned model: what was forgotten, how, and what the audit found."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from residuum.errors import InputError, unknown_name
from residuum.files import write_whole
from residuum.reporting import wording
from residuum.reporting.glossary import METRICS
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
    head = "\n".join(
        f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in _head(run, rows[label]).items()
    )
    return f"---\n{head}\n---\n\n" + "\n\n".join(_sections(run, rows[label])) + "\n"


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


def _sections(run: Run, row: RowSummary) -> Iterator[str]:
    yield f"# {run.name}: {row.label}"
    samples = (
        next((audit.samples for audit in row.row.audits(run.perturbations[0])), None) if run.perturbations else None
    )
    yield f"A model ({wording.model_words(run)}) that was made to forget {wording.forgotten(run, samples)}."
    if row.verdict:
        sentences = [row.verdict.word.capitalize() + ".", wording.verdict_sentence(run, row.verdict)]
        notes = [f"Note: {note}." for note in wording.unchanged_note(run, row.label)]
        yield "## What the audit found\n\n" + " ".join([*sentences, *notes])
    yield "## Measured\n\n" + "\n".join(_metric_lines(run, row))
    yield "## What this does not prove\n\n" + "\n".join(f"- {text}" for text in wording.not_proved(run))
    settings = json.dumps(row.row.settings, indent=1, ensure_ascii=False)
    yield f"## How it was made\n\nMethod `{row.row.method}`, settings:\n\n```json\n{settings}\n```"
    versions = ", ".join(f"{name} {version}" for name, version in run.record.versions.items())
    code = f'from residuum.models import load_weights\n\nmodel = load_weights("{WEIGHTS}")'
    yield f"## How to load it\n\n```python\n{code}\n```"
    yield f"Made with {versions or 'residuum'}. Outputs are logits; images are pixels in [0, 1]."


def _metric_lines(run: Run, row: RowSummary) -> Iterator[str]:
    reference = next((each for each in run.summary.rows if each.kind == "retrain"), None)
    yield "| measure | this model | re-train | good is |\n|---|---|---|---|"
    for column in METRICS:
        beside = reference.cells[column.key].text if reference else "–"
        yield f"| {column.title} (%) | {row.cells[column.key].text} | {beside} | {column.direction} |"
