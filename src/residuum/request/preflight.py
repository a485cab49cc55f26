"""Check a request before anything is computed: the model, copies of samples, and the cost of an audit."""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from residuum.core.errors import InputError, plural
from residuum.core.inputs import space_of
from residuum.core.samples import Splits
from residuum.data.copies import NEIGHBORS, near_copies
from residuum.request.checking import Check
from residuum.request.copies import copied_ids
from residuum.request.file import RequestFile, in_file_words
from residuum.request.request import Request
from residuum.request.study import with_controls
from residuum.studies.estimates import duration, speed_of, work_left
from residuum.studies.planning import plan
from residuum.studies.study import Study
from residuum.studies.subjects import LiveSubject

FEW = 5  # samples to forget below which an audit rarely tells anything
MOST_PAIRS = 10**8  # of samples that a check compares: about a second
MOST_VALUES = 10**8  # of inputs that a check reads for it: about a second in memory, some seconds in files of images
LARGE = 20.0  # per cent of the training data above which retraining is likely to be the better way
COPIES = 3  # of a model's weights that an audit holds: as they are, in float64 to decide near-ties, and to predict


@dataclass(frozen=True)
class Preflight:
    """What `residuum check` found: facts, and problems to solve before an audit means anything, in sentences."""

    request: str
    check: Check
    copied: tuple[str, ...]
    leaked: tuple[str, ...]
    near: str
    audit: str
    problems: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether nothing looks wrong."""
        return not self.problems

    def __str__(self) -> str:
        """Say all of it, one line each."""
        lines = [
            f"request: {self.request}",
            f"model: {str(self.check).splitlines()[0]}",
            f"copies: {_number(self.copied, 'sample to forget', 'samples to forget')} among the retained samples",
            f"leaks: {_number(self.leaked, 'held-out sample', 'held-out samples')} among the training data",
            f"near copies: {self.near}",
            *([f"audit: {self.audit}"] if self.audit else []),
        ]
        return "\n".join([*lines, *(f"does not fit: {text}" for text in self.problems)] + ["fits"] * self.fits)


def preflight(file: RequestFile) -> Preflight:
    """Check a request file: data and models are read, nothing is trained and nothing written."""
    request = file.load()
    model = request.model
    check, splits = request.check(model), request.splits
    copied, leaked = copied_ids(splits)
    near = _near(splits, space_of(model).tokens, {*copied, *leaked})
    try:
        study = file.study_of(request, {"unlearned": model})
        audit, refused = audit_words(study, file, model), []
    except InputError as error:
        audit, refused = "", [f"an audit is not possible: {in_file_words(str(error))}"]
    problems = [in_file_words(text) for text in (*check.problems, *_copies(copied, leaked), *_size(request), *refused)]
    return Preflight(_size_words(splits, request), check, copied, leaked, near, audit, tuple(problems))


def audit_words(study: Study, file: RequestFile, model: nn.Module) -> str:
    """Return what an audit costs: retrained models, time, and memory as far as reading and timing have shown it.

    Where it may add controls, it also says what it costs with as many as there may be.
    """
    models, most = len(study.labels), cast(LiveSubject, study.live).training.most_controls
    speed, store = speed_of(study), file.output.store
    work = work_left([study], store, [plan(study)], speed)
    words = str(work) if work.seconds else "everything is in the store"
    if most > study.scenario.controls:
        largest = with_controls(study, most)
        models, more = len(largest.labels), work_left([largest], store, [plan(largest)], speed)
        trainings = f" and {plural(more.untimed, 'training')} by your function" if more.untimed else ""
        words += f"; at most {models} models, about {duration(sum(more.seconds.values()))}{trainings}"
        words += ", if fewer do not detect the original"
    weights = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    needed = peak_memory() + COPIES * models * weights
    return f"{plural(len(study.labels), 'model')}, {words}; memory about {needed / 2**20:,.0f} MiB"


def peak_memory() -> int:
    """Return how many bytes of memory this process has held at most."""
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held if sys.platform == "darwin" else held * 1024


def _size_words(splits: Splits, request: Request) -> str:
    forgotten, total = len(splits.forget), len(request.source.samples)
    classes = len(torch.unique(splits.forget.y))
    earlier = f", {len(request.earlier_ids):,} forgotten earlier" if request.earlier_ids else ""
    share = f"forget {forgotten:,} of {total:,} training samples ({100 * forgotten / total:.2g} %)"
    return f"{share} in {classes} of {splits.classes} classes{earlier}, {len(splits.test):,} held out"


def _size(request: Request) -> Iterator[str]:
    forgotten, total = len(request.splits.forget), len(request.source.samples)
    if forgotten < FEW:
        yield f"{plural(forgotten, 'sample')} to forget: an audit of fewer than {FEW} rarely tells anything"
    if 100 * forgotten > LARGE * total:
        share = f"{100 * forgotten / total:.0f} % of the training data"
        yield f"the request asks for {share}: above {LARGE:.0f} %, retraining is likely to be better than unlearning"


def _copies(copied: tuple[str, ...], leaked: tuple[str, ...]) -> Iterator[str]:
    if copied:
        yield (
            f"{_number(copied, 'sample to forget has', 'samples to forget have')} equal copies among the retained "
            f"samples, which keep what is to be forgotten, the first is {copied[0]!r}: add the copies to the request"
        )
    if leaked:
        yield (
            f"{_number(leaked, 'held-out sample is', 'held-out samples are')} training data as well, the first is "
            f"{leaked[0]!r}: leave them out of data.held_out"
        )


def _near(splits: Splits, tokens: bool, equal: Set[str]) -> str:
    """Return how many samples are nearly equal to others, with the first of them, so that somebody can look."""
    compared, retained = len(splits.forget) + len(splits.test), len(splits.retain)
    values = (compared + retained) * math.prod(splits.retain.shape)
    if (NEIGHBORS + compared) * retained > MOST_PAIRS or values > MOST_VALUES:
        return "not searched here, because that would take long; an audit counts them"
    forgotten, held_out = (
        tuple(name for name in names if name not in equal) for names in near_copies(splits, tokens=tokens)
    )
    parts = [
        f"{_number(names, one, several)}" + (f", the first is {names[0]!r}" if names else "")
        for names, one, several in (
            (forgotten, "sample to forget", "samples to forget"),
            (held_out, "held-out sample", "held-out samples"),
        )
    ]
    return "; ".join(parts)


def _number(names: tuple[str, ...], one: str, several: str) -> str:
    return f"{len(names) or 'no'} {one if len(names) == 1 else several}"
