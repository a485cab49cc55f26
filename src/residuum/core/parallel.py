"""Several processes that work on one thing together: each has its share, and what they find is summed.

A process alone is a `Team` of one and needs nothing else. Larger teams, accelerators and mixed precision go through
lightning-fabric (extra `dist`), which starts the processes, finds devices and nodes, and carries the sums.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
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


@dataclass(frozen=True)
class Compute:
    """What trainings run on; their results differ in rounding with it, so it belongs to a stage's key."""

    processes: int = 1
    accelerator: str = "cpu"
    precision: Precision = "32-true"


class Team:
    """The processes that share the work, rank 0 leading; without fabric, this one alone. `log` is told each share."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    compute: Compute = Compute()

    def __init__(self, fabric: Fabric | None = None, precision: Precision = "32-true", processes: int = 1) -> None:
        self._fabric = fabric
        if fabric is not None:
            self.compute = Compute(processes, fabric.device.type, precision)
        self.log: Callable[[str], None] = lambda share: None

    def launch(self) -> None:
        """Start the other processes of this node, which run the same command, and connect to all nodes."""
        if self._fabric is None:
            return
        self._connect(self._fabric)
        self.rank, self.size, self.device = self._fabric.global_rank, self._fabric.world_size, self._fabric.device
        if self.size > 1:
            os.environ[RANK] = str(self.rank)

    def _connect(self, fabric: Fabric) -> None:
        """Wait for the other processes no longer than a start may take; the work itself may take longer."""
        try:
            fabric.launch()
            if fabric.world_size > 1:
                torch.distributed.distributed_c10d._set_pg_timeout(PATIENCE)
        except RuntimeError as error:  # torch's DistError is one
            place = f"{os.environ.get('MASTER_ADDR', 'localhost')}:{os.environ.get('MASTER_PORT', '?')}"
            waited = f"waited {_connection().total_seconds():.0f} s for {fabric.world_size} processes at {place}"
            text = f"{waited}; start the command on every node with the same MASTER_ADDR and MASTER_PORT"
            raise LostProcessError(f"{text} ({str(error).splitlines()[0]})") from None

    def end(self) -> None:
        """Wait for all processes, and disconnect."""
        if self.size > 1:
            with _connected():
                self._fabric.barrier()  # type: ignore[union-attr]
            torch.distributed.destroy_process_group()

    @property
    def leads(self) -> bool:
        """Whether this process writes the artefacts and speaks to the user."""
        return self.rank == 0

    def rows(self, n: int) -> Tensor:
        """Return this process's positions among 0..n-1: rank, rank + size, ..."""
        return torch.arange(n)[self.rank :: self.size]

    def shard(self, batch: Tensor) -> Tensor:
        """Return this process's part of a batch's positions, or all of them where they cannot be shared equally.

        A batch's mean is the mean of its parts' means only if they are equal: every process computes an odd last batch.
        """
        return batch if len(batch) % self.size else batch[self.rank :: self.size]

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace floating-point tensors in place by their mean over the processes: one message for all of them."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
        pieces = torch.split(self.all_reduce_sum(flat) / self.size, [tensor.numel() for tensor in tensors])
        with torch.no_grad():
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.copy_(piece.view_as(tensor))

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return the sum over the processes, on the device of `values`."""
        if self._fabric is None:
            return values
        with _connected():
            summed: Tensor = self._fabric.all_reduce(values.to(self.device), reduce_op="sum")  # type: ignore[assignment]
        return summed.to(values.device)

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, by rank."""
        if self.size == 1:
            return [value]
        found: list[T | None] = [None] * self.size
        with _connected():
            torch.distributed.all_gather_object(found, value)
        return found  # type: ignore[return-value]

    def broadcast(self, value: T) -> T:
        """Return the leader's value."""
        if self._fabric is None:
            return value
        with _connected():
            return self._fabric.broadcast(value)

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context in which losses are computed; 32-true has none."""
        return self._fabric.autocast() if self._fabric else nullcontext()


SINGLE_PROCESS = Team()


def make_team(devices: int | None, nodes: int = 1, precision: str = "32-true") -> Team:
    """Return a team of `devices` processes on each of `nodes` machines; without any wish, this process alone.

    Devices are GPUs where there are any, else processes on the CPU. Nothing is started before `launch`.
    """
    if precision not in get_args(Precision):
        raise InputError(f"expected a precision of {' or '.join(get_args(Precision))}, got {precision!r}")
    if devices is None and nodes == 1 and precision == "32-true":
        return SINGLE_PROCESS
    fabric = _make_fabric(devices or 1, nodes, precision)
    return Team(fabric, precision, (devices or 1) * nodes)  # type: ignore[arg-type]


def _make_fabric(devices: int, nodes: int, precision: str) -> Fabric:
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.strategies.ddp import DDPStrategy
    except ImportError:
        raise InputError(
            '--devices, --nodes and --precision need lightning-fabric; run pip install ".[dist]" in a clone'
        ) from None
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    os.environ.setdefault("USE_LIBUV", "0")  # with it, some builds of torch abort when the processes disconnect
    strategy = DDPStrategy(timeout=_connection()) if devices * nodes > 1 else "auto"
    try:
        options = {"strategy": strategy, "precision": precision}
        return Fabric(accelerator="auto", devices=devices, num_nodes=nodes, **options)  # type: ignore[arg-type]
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"cannot use {devices} devices on {nodes} nodes with {precision}: {reason}") from None


def _connection() -> timedelta:
    given = os.environ.get("RESIDUUM_CONNECTION")
    try:
        seconds = float(given) if given else CONNECTION.total_seconds()
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= PATIENCE.total_seconds():
        most = f"{PATIENCE.total_seconds():.0f}"
        raise InputError(f"RESIDUUM_CONNECTION: expected seconds above 0, at most {most}, got {given!r}")
    return timedelta(seconds=seconds)


@contextmanager
def _connected() -> Iterator[None]:
    """Turn the many ways in which a broken connection shows into one error."""
    try:
        yield
    except RuntimeError as error:  # gloo raises it, and torch's DistError is one
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        text = f"another process of this run ended or cannot be reached ({reason})"
        raise LostProcessError(f"{text}; finished stages are in the store, and the same command resumes") from error
