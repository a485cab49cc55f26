"""Decoy audits on pages, and their files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from residuum.core.files import write_whole
from residuum.record import sealed
from residuum.record.decoys import DecoyAudit
from residuum.record.folder import DECOY_AUDIT, DECOYS, note_written

SCHEMA = "residuum.decoys/1"


def decoy_rows(label: str, audit: DecoyAudit) -> Iterator[tuple[str, float, float, tuple[float, float]]]:
    """Yield for the unlearned model and the original their difference, p, and means of decoys and held-out samples."""
    side = np.array(audit.scores.decoy)
    rows = (
        (label, audit.difference, audit.p, audit.scores.unlearned),
        ("original", audit.original_difference, audit.original_p, audit.scores.original),
    )
    for name, difference, p, scores in rows:
        if difference is not None and p is not None and scores is not None:
            means = float(np.array(scores)[side].mean()), float(np.array(scores)[~side].mean())
            yield name, difference, p, means


def decoy_basis(audit: DecoyAudit) -> str:
    """Return why decoys and held-out samples may be compared; nothing where they may not."""
    basis = audit.exchangeability
    if basis.split_sha256 is not None:
        return f"A coin tossed before training made them comparable (record {basis.split_sha256[:12]})."
    if not basis.passed or basis.p is None:
        return ""
    return (
        f"Without any model, {basis.training} training and {basis.held_out} held-out samples could not be told apart "
        f"(AUC {basis.auc:.2f}, p = {basis.p:.2g})."
    )


def write_decoy_audits(audits: Mapping[str, DecoyAudit], folder: Path, name: str) -> list[Path]:
    """Write decoys.json, sealed by its own hash, and decoys.html; return both."""
    from residuum.reporting.page import policy, rendered, stylesheet

    content = {label: audit.model_dump(mode="json") for label, audit in audits.items()}
    style = stylesheet()
    page = rendered("decoys_page.html.j2", title=name, audits=audits, style=style, policy=policy("", style))
    record = json.dumps(sealed({"schema": SCHEMA, "audits": content}), indent=1) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / file for file in DECOYS]
    for file, text in zip(files, (record, page), strict=True):
        write_whole(file, text)
        note_written(file, DECOY_AUDIT)
    return files
