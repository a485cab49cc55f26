"""Requests in a row on one model: each is unlearned from the result before, and audited on all samples so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from torch import nn

from residuum.core.console import say
from residuum.core.errors import InputError
from residuum.record.folder import OWN_RUN, note_written
from residuum.record.run import Run
from residuum.request.models import Unlearned
from residuum.request.request import Request
from residuum.request.steps import unlearned_once
from residuum.request.study import AuditOptions, References, request_study, with_missing_controls
from residuum.studies.execution import STORE, Resources, run_requests
from residuum.studies.maintenance import remove_subject
from residuum.studies.study import Study
from residuum.studies.subjects import LiveSubject

if TYPE_CHECKING:
    from residuum.request.file import RequestFile

MOST_REQUESTS = 100  # each needs another reference and other controls


def audit_requests(
    requests: Sequence[Request],
    model: nn.Module,
    unlearned: Sequence[Unlearned],
    options: AuditOptions | None = None,
    *,
    controls: int | Literal["auto"] = "auto",
    out: Path | str = "runs/requests",
    store: Path | str = STORE,
    resources: Resources | None = None,
    progress: bool = False,
) -> list[Run]:
    """Audit requests in a row, each on all samples that were forgotten so far; return the run of each.

    The runs are written to request-1, request-2, ... below `out`. `report(out)` writes index.html above them: a chart
    over the requests, and when to retrain.

    Args:
        requests: The first request and what `then` made of it, in order.
        model: The model before the first request.
        unlearned: What `unlearn` returned for each request, the second from the model of the first, and so on.
        options: How to measure.
        controls: How many retrained models to make for each request, in addition to the reference; "auto" makes three,
            then more where the original would not be detected, at most eight.
        out: Folder of all runs.
        store: Folder of finished stages: the same call again computes only what is missing.
        resources: How many days of one core the audits may take.
        progress: Say on standard error how long it takes and what is done.

    Example:
        >>> import torch
        >>> from residuum import Recipe
        >>> x, y = torch.rand(60, 4), torch.arange(60) % 3
        >>> first = Request((x[:40], y[:40]), ["3"], held_out=(x[40:], y[40:]), recipe=Recipe(epochs=1))
        >>> second = first.then(["17", "21"])
        >>> [len(request.forget_ids) for request in (first, second)], second.earlier_ids
        ([1, 2], ('3',))
    """
    references, options = References(controls=controls), options or AuditOptions()
    studies = sequence_studies(requests, model, unlearned, references, options)
    return audited_sequence(studies, Path(out), Path(store), resources, options.gallery, progress=progress)


def sequence_studies(
    requests: Sequence[Request],
    model: nn.Module,
    unlearned: Sequence[Unlearned],
    references: References,
    options: AuditOptions,
    *,
    workers: int = 1,
) -> list[Study]:
    """Return the study of each request: its forget set is everything that was forgotten so far."""
    if not 0 < len(requests) <= MOST_REQUESTS or len(requests) != len(unlearned):
        numbers = f"{len(requests)} with {len(unlearned)} unlearned models"
        raise InputError(f"expected 1 to {MOST_REQUESTS} requests with an unlearned model each, got {numbers}")
    studies = []
    for number, done in enumerate(unlearned, start=1):
        ids = [request.forget_ids for request in requests[:number]]
        so_far = requests[number - 1].for_ids(tuple(chain(*ids)), requests[0].earlier_ids)
        study = request_study(so_far, model, {done.label: done}, references, options, workers=workers)
        live = replace(cast(LiveSubject, study.live), listed=tuple(map(len, ids)))
        studies.append(study.model_copy(update={"live": live}))
    return studies


def audited_sequence(
    studies: Sequence[Study],
    out: Path,
    store: Path,
    resources: Resources | None,
    gallery: bool | None,
    *,
    progress: bool,
) -> list[Run]:
    """Return the runs of the studies; what no other process could use again is removed from the store.

    Each study gets more controls until its original would be detected, as `audited` makes them for one request.
    """
    subjects = [cast(LiveSubject, study.live) for study in studies]
    for number in range(1, len(studies) + 1):
        note_written(out / f"request-{number}", OWN_RUN)
    if any(subject.unnamed for subject in subjects):
        resources = replace(resources or Resources(), workers=1)  # no other process has the same objects
    try:
        while True:
            runs = run_requests(studies, store=store, out=out, resources=resources, gallery=gallery, progress=progress)
            larger = [with_missing_controls(*pair, progress=progress) for pair in zip(studies, runs, strict=True)]
            if all(one is study for one, study in zip(larger, studies, strict=True)):
                return runs
            studies = larger
    finally:
        for subject in subjects:
            if subject.unnamed:
                remove_subject(store, subject.identity)


def ticket_files(folder: Path) -> list[Path]:
    """Return the lists of ids in a folder, in the order of their names."""
    if not folder.is_dir():
        raise InputError(f"--requests: expected a folder of lists of ids, one file for each request, got {folder}")
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    if other := next((path for path in files if not path.is_file()), None):
        raise InputError(f"--requests: expected files with one id per line in {folder}, got {other.name}")
    if not 0 < len(files) <= MOST_REQUESTS:
        raise InputError(f"--requests: expected 1 to {MOST_REQUESTS} lists of ids in {folder}, got {len(files)}")
    return files


def file_studies(
    file: RequestFile, lists: Sequence[Path], first: Request | None = None, *, workers: int = 1, progress: bool = False
) -> list[Study]:
    """Return the studies of a file's requests, one for each list of ids; their unlearned models are saved.

    `first` is the request of the file, if it is loaded already. A worker process makes its own studies.
    """
    if file.unlearn.decoys:
        raise InputError("decoys are forgotten with a single request, and this is a sequence; leave unlearn.decoys out")
    first = first or file.load()
    requests, unlearned, model = [first], list[Unlearned](), first.model
    for ids in lists[1:]:
        requests.append(requests[-1].then(ids))
    places = [file.output.folder / f"unlearned-{number}.safetensors" for number in range(1, len(requests) + 1)]
    for weights in places:
        file.refuse_unusable_place(weights)
    for number, (request, weights) in enumerate(zip(requests, places, strict=True), start=1):
        unlearned.append(unlearned_once(file, request, model, weights))
        if progress:
            say(f"request {number}: {unlearned[-1]}")
        model = request.network(weights)  # as another process would start from it
    references = file.references(first.network)
    studies = sequence_studies(requests, first.model, unlearned, references, file.audit.options, workers=workers)
    return [
        study.model_copy(
            update={"live": replace(cast(LiveSubject, study.live), build=partial(_subject, file, lists, k, workers))}
        )
        for k, study in enumerate(studies)
    ]


def _subject(file: RequestFile, lists: Sequence[Path], position: int, workers: int) -> LiveSubject:
    """Return in a worker process what the audit of one request works on."""
    return cast(LiveSubject, file_studies(file, lists, workers=workers)[position].live)
