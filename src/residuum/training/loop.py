"""The one gradient loop: the original, retrained models and every gradient method go through `fit`."""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Annotated, Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from residuum.core import devices
from residuum.core.errors import DivergedError, InputError
from residuum.core.samples import Samples
from residuum.core.seeds import child_seed, generator
from residuum.core.settings import refused_booleans
from residuum.models import device_of, forward, module_flags, private_copy
from residuum.training.checkpoint import Checkpoint, Position, resume_training, training_state
from residuum.training.minibatches import Augmentation, Batch, MiniBatches

Progress = Callable[[int, int], None]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Epochs = Annotated[int, Field(ge=0, le=1_000_000)]
STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
WARM_UP = 0.2  # share of the training in which the rate of the triangular schedule rises


class PlainSGD(SGD):
    """SGD without torch.compile's wrappers, whose import takes longer than a short training."""

    add_param_group = inspect.unwrap(SGD.add_param_group)
    zero_grad = inspect.unwrap(SGD.zero_grad)
    step = torch.no_grad()(inspect.unwrap(SGD.step))


class PlainAdamW(AdamW):
    """AdamW without torch.compile's wrappers."""

    add_param_group = inspect.unwrap(AdamW.add_param_group)
    zero_grad = inspect.unwrap(AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(AdamW.step))


Loss = Callable[[nn.Module, Batch, Batch | None, torch.Generator], Tensor]


class TrainingPhase(NamedTuple):
    """One pass over `main_stream`, with a batch of the cycled `paired_stream` next to each of its batches."""

    loss: Loss
    main_stream: str = "retain"
    paired_stream: str | None = None


class Hooks(NamedTuple):
    """What a caller of `fit` decides during a training.

    `rate` gives the learning rate of an epoch, counted from 0 (default: the recipe's). `after_step` is called with the
    model and the rate after each step, for instance to put weights back that must not move. `stop_after_epoch` is
    called with each finished epoch, counted from 0; True ends the training.
    """

    rate: Callable[[int], float] | None = None
    after_step: Callable[[nn.Module, float], None] = lambda model, rate: None
    stop_after_epoch: Callable[[int], bool] | None = None


NO_HOOKS = Hooks()


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Recipe:
    """How to descend: w <- w - lr * (clipped gradient + weight_decay * w), with momentum, for some epochs.

    Attributes:
        epochs: Passes over the samples.
        lr: Learning rate.
        momentum: Momentum of SGD, or beta_1 of AdamW.
        weight_decay: Shrinks the weights in every step; AdamW decouples it from the gradient.
        batch_size: Samples in a step.
        drop_last: Leave out an incomplete last batch. With batch-norm, a last batch of a few samples spoils statistics
            and steps.
        schedule: constant; cosine, lr * (1 + cos(pi * epoch / schedule_epochs)) / 2, changed once per epoch; triangle,
            which rises from 0 in the first fifth of the training and falls back to 0, changed in every step.
        schedule_epochs: Epochs over which the rate falls; none means the whole training.
        clip: Largest norm of the gradient; none means no clipping.
        bn_mode: train updates batch-norm statistics, eval freezes them. In train mode every batch moves them, even at
            lr = 0, so batches of forgotten samples are an unlearning mechanism by themselves.
        augment: true shifts images by up to an eighth of their side with zero padding, reflect by up to a sixteenth
            with reflected padding; both mirror half of them.
        label_smoothing: Share of every label that is spread evenly over the classes, where the loss is the plain
            cross-entropy.
        clean: Share of the epochs, the last ones, without augmentation and label smoothing.
        optimizer: sgd; nesterov, which looks ahead by the momentum; adamw.

    >>> Recipe(lr=0.1, epochs=4, schedule="cosine").rate(2)
    0.05
    >>> Recipe(lr=0.1, epochs=5, schedule="triangle").rate(0.5)
    0.05
    """

    epochs: Epochs = 10
    lr: NonNegative = 0.01
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NonNegative = 0.0
    batch_size: Annotated[int, Field(ge=1)] = 128
    drop_last: bool = False
    schedule: Literal["constant", "cosine", "triangle"] = "constant"
    schedule_epochs: Annotated[int, Field(ge=1)] | None = None
    clip: Positive | None = None
    bn_mode: Literal["train", "eval"] = "train"
    augment: Augmentation = False
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    clean: Fraction = 0.0
    optimizer: Literal["sgd", "nesterov", "adamw"] = "sgd"

    _numbers = refused_booleans

    def optimizer_of(self, weights: Sequence[Tensor]) -> Optimizer:
        """Return the optimizer of these weights."""
        if self.optimizer == "adamw":
            betas = (self.momentum, 0.999)
            return PlainAdamW(weights, lr=self.lr, betas=betas, weight_decay=self.weight_decay)
        nesterov = self.optimizer == "nesterov" and self.momentum > 0
        return PlainSGD(weights, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay, nesterov=nesterov)

    def rate(self, epoch: float) -> float:
        """Return the learning rate after so many epochs, a fraction of one included."""
        if self.schedule == "constant":
            return self.lr
        horizon = self.schedule_epochs or max(self.epochs, 1)
        if self.schedule == "triangle":
            done = epoch / horizon
            return self.lr * max(0.0, min(done / WARM_UP, (1 - done) / (1 - WARM_UP)))
        return self.lr * (1 + math.cos(math.pi * math.floor(epoch) / horizon)) / 2

    def is_clean(self, epoch: int) -> bool:
        """Return whether an epoch, counted from 0, is one of the last, without augmentation and label smoothing."""
        return epoch >= self.epochs - math.ceil(self.clean * self.epochs)


def cross_entropy(model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
    """Return the mean cross-entropy of the main batch: the loss of plain training."""
    return F.cross_entropy(model(batch.x), batch.y, label_smoothing=batch.label_smoothing)


def train(model: nn.Module, samples: Samples, recipe: Recipe, *, seed: int) -> nn.Module:
    """Return a copy of the model trained on the samples: argmin_w mean_i CE(h_w(x_i), y_i).

    >>> from residuum.models import build_model
    >>> points = Samples(torch.tensor([[0.1], [0.9]]), torch.tensor([0, 1]), ("a", "b"))
    >>> start = build_model("logistic", (1,), 2, seed=0)
    >>> end = train(start, points, Recipe(epochs=50, lr=0.5), seed=1)
    >>> end(points.x).argmax(1).tolist()
    [0, 1]
    """
    trained = private_copy(model)
    with generators_kept(device_of(trained)):
        outputs = forward(trained, samples.subset([0])).shape[-1] if len(samples) else 0
    highest = max(samples.y.tolist(), default=-1)
    if highest >= outputs:
        labels = f"labels 0 to {outputs - 1}, one for each output of the model"
        raise InputError(f"expected {labels}, got {highest} for {samples.ids[int(samples.y.argmax())]!r}")
    fit(trained, {"train": samples}, recipe, [TrainingPhase(cross_entropy, "train")], seed=seed)
    return trained


def fit(
    model: nn.Module,
    streams: Mapping[str, Samples],
    recipe: Recipe,
    phases: Sequence[TrainingPhase] | Callable[[int], Sequence[TrainingPhase]],
    *,
    seed: int,
    noise_seed: int | None = None,
    batch_sizes: Mapping[str, int] | None = None,
    frozen: Iterable[nn.Module] = (),
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    hooks: Hooks = NO_HOOKS,
) -> int:
    """Train `model` in place and return the number of single-sample forward-backward passes.

    Where processes were launched together (`core.devices`) and the model is on their device, each computes a shard of
    every batch. Fabric averages the gradients before every step, so the steps are those of one process up to rounding.
    Batch-norm is the exception: it normalizes by the process's own rows, and its running statistics are the first
    process's. Chance within a loss differs between the processes.

    Args:
        model: The model to train. Parameters with `requires_grad=False` are left alone.
        streams: Samples by the names that phases use. Each stream has its own order, fixed by `seed` and its name, so
            two methods that read the same stream see the same batches whatever else they read.
        recipe: Epochs, learning rate and all other settings of the descent.
        phases: What is done in an epoch, one phase after the other, or a function of the epoch that says it.
        seed: Seed of orders and crops.
        noise_seed: Seed of chance within the losses (default: a child of `seed`).
        batch_sizes: Batch sizes of streams that do not have the recipe's.
        frozen: Modules that keep their batch-norm statistics.
        progress: Called with steps done and steps to do.
        checkpoint: Saves the training after epochs and resumes it; for phases with one stream each.
        hooks: What the caller decides during the training.
    """
    phases_of = phases if callable(phases) else lambda epoch: phases
    sizes = dict.fromkeys(streams, recipe.batch_size) | dict(batch_sizes or {})
    _lay_out(model, torch.channels_last)
    shared = SharedTraining(model)
    options: dict[str, Any] = {"augment": recipe.augment, "label_smoothing": recipe.label_smoothing, "seed": seed}
    options |= {"drop_last": recipe.drop_last, "device": device_of(model)}
    options |= {"rank": shared.rank, "world_size": shared.world_size}
    batches = {name: MiniBatches(name, part, sizes[name], **options) for name, part in streams.items()}
    noise_seed = child_seed(seed, "noise") if noise_seed is None else noise_seed
    noise = generator(noise_seed if shared.world_size == 1 else child_seed(noise_seed, f"rank {shared.rank}"))
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = recipe.optimizer_of(weights)
    steps = [sum(batches[phase.main_stream].count for phase in phases_of(epoch)) for epoch in range(recipe.epochs)]
    total = sum(steps)
    generators = {"noise": noise}
    generators |= {f"{name}/{key}": g for name, stream in batches.items() for key, g in stream.generators.items()}
    state = checkpoint.restore() if checkpoint else None
    start = resume_training(state, model, optimizer, generators)
    done = start.steps
    with module_flags(model), counting_passes(model) as passes, generators_kept(device_of(model)) as reseed:
        passes[0] = start.passes
        for epoch in range(start.epoch, recipe.epochs):
            reseed(child_seed(seed, f"dropout/{epoch}"))  # layers such as dropout draw from torch's generators
            before = done
            for stream in batches.values():
                stream.clean = recipe.is_clean(epoch)
            for phase in phases_of(epoch):
                cycled = batches[phase.paired_stream].cycled if phase.paired_stream else repeat(None)
                for batch, paired in zip(batches[phase.main_stream].one_pass(), cycled, strict=False):
                    model.train(recipe.bn_mode == "train")
                    for module in frozen:
                        module.eval()
                    epochs_done = epoch + (done - before) / steps[epoch]
                    lr = hooks.rate(epoch) if hooks.rate else recipe.rate(epochs_done)
                    with _batch_norm_advised():
                        loss = shared.loss(partial(phase.loss, model, batch, paired, noise))
                    _step(optimizer, loss, recipe, lr, shared, where=f"epoch {epoch + 1}")
                    hooks.after_step(model, lr)
                    done += 1
                    if progress:
                        progress(done, total)
            shared.take_buffers()
            if checkpoint and shared.rank == 0:
                position = Position(epoch + 1, done, passes[0])
                checkpoint.save(partial(training_state, position, model, optimizer, generators))
            if hooks.stop_after_epoch and hooks.stop_after_epoch(epoch):
                break
    optimizer.zero_grad(set_to_none=True)
    _lay_out(model, torch.contiguous_format)
    return shared.sum(passes[0])


def _lay_out(model: nn.Module, memory_format: torch.memory_format) -> None:
    """Order the weights of convolutions in memory; their values stay."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data = module.weight.data.contiguous(memory_format=memory_format)


class SharedTraining:
    """Training of a model by all processes that were launched together with Fabric, or by this one alone.

    It is shared if the model is on the device of these processes; every process computes a method for the CPU by
    itself. Make it after deciding which weights are trained.
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
        if self.fabric is None:
            return compute()
        with devices.connected(computing=True):  # DDP first exchanges the running statistics
            loss: Tensor = self._loss(compute)
        return loss

    def backward(self, loss: Tensor) -> float:
        """Set the gradients of the weights to those of the mean loss over the processes; return that loss."""
        if self.fabric is None:
            torch.autograd.backward(loss)
            return loss.item()
        with devices.connected(computing=True):
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


@contextmanager
def _batch_norm_advised() -> Iterator[None]:
    """Explain what to do when a last batch of one sample is too small for batch-norm."""
    try:
        yield
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        hint = "give drop_last=true, another batch_size, or bn_mode=eval"
        raise InputError(f"batch-norm cannot learn from a batch of one sample, such as the last one; {hint}") from error


def _step(optimizer: Optimizer, loss: Tensor, recipe: Recipe, rate: float, shared: SharedTraining, where: str) -> None:
    optimizer.zero_grad(set_to_none=True)
    value = shared.backward(loss)
    if not math.isfinite(value):
        raise DivergedError(f"expected a finite loss, got {value} in {where}; lower lr or set clip")
    if recipe.clip is not None:
        torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], recipe.clip)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()


@contextmanager
def generators_kept(device: torch.device) -> Iterator[Callable[[int], None]]:
    """Yield a function that seeds torch's generators of the CPU and of the device; restore both on exit.

    `torch.manual_seed` would seed those of all other devices, too.
    """
    mps = torch.mps.get_rng_state() if device.type == "mps" else None

    def reseed(seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        elif mps is not None:
            torch.mps.manual_seed(seed)

    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield reseed
    finally:
        if mps is not None:
            torch.mps.set_rng_state(mps)


@contextmanager
def counting_passes(model: nn.Module) -> Iterator[list[int]]:
    """Count the samples that go through `model` with gradients on, in element 0 of the yielded list."""
    passes = [0]

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if torch.is_grad_enabled():
            passes[0] += len(output)

    handle = model.register_forward_hook(count)
    try:
        yield passes
    finally:
        handle.remove()
