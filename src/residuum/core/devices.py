"""The device of this process, and the Fabric that connects it with the other processes of a run.

A single process needs none of this. Several processes, accelerators and mixed precision go through lightning-fabric
(extra `dist`). The command that starts a run launches Fabric once, with `launched`. The training loop and the counting
loop find it here and share their work; all other code runs alike in every process.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

import torch
from torch import Tensor

from residuum.core.console import RANK
from residuum.core.errors import InputError, LostProcessError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Precision = Literal["32-true", "bf16-mixed"]
T = TypeVar("T")

CONNECTION = timedelta(minutes=5)  # for all processes to come; RESIDUUM_CONNECTION has other seconds
PATIENCE = timedelta(days=1)  # the leader may wait for another run's lock; a dead process is noticed at once anyway

_FABRIC: ContextVar[Fabric | None] = ContextVar("fabric", default=None)
_REPORT_SHARE: ContextVar[Callable[[str], None] | None] = ContextVar("report_share", default=None)


@dataclass(frozen=True)
class Compute:
    """What trainings run on; their results differ in rounding with it, so it belongs to a stage's key."""

    processes: int = 1
    accelerator: str = "cpu"
    precision: Precision = "32-true"


def make_fabric(devices: int | None, nodes: int = 1, precision: str = "32-true") -> Fabric | None:
    """Return the Fabric of `devices` processes on each of `nodes` machines; None for this process alone.

    Devices are GPUs where there are any, else processes on the CPU. `launched` starts them.
    """
    if precision not in get_args(Precision):
        raise InputError(f"expected a precision of {' or '.join(get_args(Precision))}, got {precision!r}")
    if devices is None and nodes == 1 and precision == "32-true":
        return None
    devices = devices or 1
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.strategies.ddp import DDPStrategy
    except ImportError:
        raise InputError(
            '--devices, --nodes and --precision need lightning-fabric; run pip install ".[dist]" in a clone'
        ) from None
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    os.environ.setdefault("USE_LIBUV", "0")  # with it, some builds of torch abort when the processes disconnect
    strategy: DDPStrategy | Literal["auto"] = "auto"
    if devices * nodes > 1:
        strategy = DDPStrategy(timeout=_connection(), find_unused_parameters=True)  # a loss need not use all weights
    try:
        return Fabric(devices=devices, num_nodes=nodes, strategy=strategy, precision=precision)  # type: ignore[arg-type]
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"cannot use {devices} devices on {nodes} nodes with {precision}: {reason}") from None


@contextmanager
def launched(fabric: Fabric | None) -> Iterator[None]:
    """Start the other processes, which run the same command, and connect to all of them for the body.

    All processes wait for each other at the end, unless there was an error. Without a Fabric nothing happens.
    """
    if fabric is None:
        yield
        return
    try:
        fabric.launch()
        if fabric.world_size > 1:
            torch.distributed.distributed_c10d._set_pg_timeout(PATIENCE)  # the work may take longer than the start
    except RuntimeError as error:  # torch's DistError is one
        place = f"{os.environ.get('MASTER_ADDR', 'localhost')}:{os.environ.get('MASTER_PORT', '?')}"
        waited = f"waited {_connection().total_seconds():.0f} s for {fabric.world_size} processes at {place}"
        text = f"{waited}; start the command on every node with the same MASTER_ADDR and MASTER_PORT"
        raise LostProcessError(text) from error
    if fabric.world_size > 1:
        os.environ[RANK] = str(fabric.global_rank)
    with _set(_FABRIC, fabric):
        yield
    if fabric.world_size > 1:
        with connected():
            fabric.barrier()
        torch.distributed.destroy_process_group()


@contextmanager
def _set(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a variable of the context another value in the body."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def alone() -> AbstractContextManager[None]:
    """Let this process train and count by itself in the body, which the others do not run."""
    return _set(_FABRIC, None)


def current() -> Fabric | None:
    """Return the launched Fabric; None where this process is alone."""
    return _FABRIC.get()


def compute_of(fabric: Fabric | None) -> Compute:
    """Return what trainings run on with this Fabric, launched or not.

    >>> compute_of(None)
    Compute(processes=1, accelerator='cpu', precision='32-true')
    """
    if fabric is None:
        return Compute()
    return Compute(fabric.world_size, fabric.device.type, fabric._precision.precision)  # type: ignore[arg-type]


def rank() -> int:
    """Return this process's number among those that share the work, from 0."""
    return fabric.global_rank if (fabric := current()) else 0


def world_size() -> int:
    """Return how many processes share the work."""
    return fabric.world_size if (fabric := current()) else 1


def share_of(number: int) -> range:
    """Return which of so many things this process takes: rank, rank + world size, ...

    >>> share_of(3)
    range(0, 3)
    """
    return range(rank(), number, world_size())


def leads() -> bool:
    """Return whether this process writes the artifacts and speaks to the user."""
    return rank() == 0


def device() -> torch.device:
    """Return where this process computes."""
    return fabric.device if (fabric := current()) else torch.device("cpu")


def all_reduce(values: Tensor, reduce_op: Literal["sum", "mean"]) -> Tensor:
    """Return the sum or mean over the processes, on the device of `values`, which stay as they are."""
    if (fabric := current()) is None or fabric.world_size == 1:
        return values
    with connected():
        reduced: Tensor = fabric.all_reduce(values.to(fabric.device, copy=True), reduce_op=reduce_op)  # type: ignore[assignment]
    return reduced.to(values.device)


def broadcast(value: T) -> T:
    """Return the leader's value, once the leader makes the same call."""
    if (fabric := current()) is None:
        return value
    with connected():
        return fabric.broadcast(value)


def gather(value: T) -> list[T]:
    """Return the values of all processes, by rank."""
    values: list[T | None] = [value] * world_size()
    if len(values) > 1:
        with connected():
            torch.distributed.all_gather_object(values, value)
    return values  # type: ignore[return-value]


def shares_reported(report: Callable[[str], None]) -> AbstractContextManager[None]:
    """Call `report` with the share of the work that this process takes in every training and audit of the body."""
    return _set(_REPORT_SHARE, report)


def report_share(share: str) -> None:
    """Pass the share of a training or audit that this process takes to the function of `shares_reported`, if any."""
    if report := _REPORT_SHARE.get():
        report(share)


@contextmanager
def connected(*, computing: bool = False) -> Iterator[None]:
    """Turn the many ways in which a broken connection shows into one error.

    Where the body is `computing` too, it may fail for other reasons, so there the error has to name the connection.
    """
    try:
        yield
    except RuntimeError as error:  # gloo raises it, and torch's DistError is one
        if computing and not re.search("gloo|nccl|connection", str(error), re.IGNORECASE):
            raise
        text = "another process of this run ended or cannot be reached"
        raise LostProcessError(f"{text}; finished stages are in the store, and the same command resumes") from error


def _connection() -> timedelta:
    text = os.environ.get("RESIDUUM_CONNECTION")
    try:
        seconds = float(text) if text else CONNECTION.total_seconds()
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= PATIENCE.total_seconds():
        most = f"{PATIENCE.total_seconds():.0f}"
        raise InputError(f"RESIDUUM_CONNECTION: expected seconds above 0, at most {most}, got {text!r}")
    return timedelta(seconds=seconds)
