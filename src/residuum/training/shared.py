"""What the training loop does with Fabric: its wrapper around the loss, its backward pass and its sums."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from residuum.core import devices
from residuum.models import device_of


class SharedTraining:
    """One training of a model by all processes that were launched together, or by this one alone.

    It is shared if the model is on the device of these processes: a method for the CPU is computed by each of them
    alike. Make it when it is decided which weights are trained.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, fabric = model, devices.current()
        self.fabric = fabric if fabric and fabric.device.type == device_of(model).type else None
        self.rank, self.world_size = (self.fabric.global_rank, self.fabric.world_size) if self.fabric else (0, 1)
        self._loss: nn.Module = LossModule(model)
        if self.fabric:
            with devices.connected():
                self._loss = self.fabric.setup_module(self._loss)

    def loss(self, compute: Callable[[], Tensor]) -> Tensor:
        """Return the loss of this process's shard, computed in the precision of the run."""
        loss: Tensor = self._loss(compute) if self.fabric else compute()
        return loss

    def backward(self, loss: Tensor) -> float:
        """Leave the gradients of the mean loss over the processes in the weights; return that loss."""
        if self.fabric is None:
            torch.autograd.backward(loss)
            return loss.item()
        with devices.connected(during_backward=True):
            self.fabric.backward(loss)
        return devices.all_reduce(loss.detach().float(), "mean").item()

    def take_buffers(self) -> None:
        """Give every process the first one's running statistics, as DDP does before each step."""
        if self.world_size > 1:
            for buffer in self.model.buffers():
                buffer.copy_(devices.broadcast(buffer.cpu()))

    def sum(self, number: int) -> int:
        """Return the sum of a number over the processes."""
        return int(devices.all_reduce(torch.tensor(number), "sum")) if self.world_size > 1 else number


class LossModule(nn.Module):
    """The computation of a loss as a module, for Fabric to wrap.

    Its wrapper is then entered once per step, however often a loss calls the model, and the loss gets the model itself.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        # DDP warns if a loss uses all weights although it need not; so there is one that no loss uses
        self.unused = nn.Parameter(torch.zeros((), device=device_of(model)))

    def forward(self, compute: Callable[[], Tensor]) -> Tensor:
        """Return what is computed."""
        return compute()
