"""What a method is: a frozen dataclass of hyper-parameters that makes an unlearned model of the original."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, ClassVar

import torch
from pydantic import ValidationError
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from residuum.methods.fresh import Parts, keeps_statistics, reinitialise, soften, trainable_parts
from residuum.parallel import SINGLE_PROCESS, Team
from residuum.training import STRICT, Batch, Fraction, Progress, Recipe, TrainingPhase, fit
from residuum.types import InputError, Splits, child_seed, unknown_name, warn

Phases = Callable[[int], Sequence[TrainingPhase]]


@dataclasses.dataclass
class Context:
    """What a method is given beside model and data, and where it notes what it did.

    `seed` is the run's seed; batches come from its child "unlearn", injected noise from its child "noise".
    `initial` holds the weights the original started from, where they are known, and `initial_saw` the ids of samples
    that these were trained on: none for a random start, None where nobody says. `recipe` is the original's training.
    `team` are the processes that share the work; a method that does not know of it does everything in each of them,
    with the same result.
    """

    seed: int
    initial: Mapping[str, Tensor] | None = None
    progress: Progress | None = None
    team: Team = SINGLE_PROCESS
    passes: int = 0
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
    recipe: Recipe | None = None
    initial_saw: Container[str] | None = frozenset()

    @property
    def batch_seed(self) -> int:
        """Seed of the mini-batches: the same for every method of a run."""
        return child_seed(self.seed, "unlearn")

    @property
    def noise_seed(self) -> int:
        """Seed of injected noise."""
        return child_seed(self.seed, "noise")

    @property
    def reset_seed(self) -> int:
        """Seed of fresh weights: the same for every method of a run."""
        return child_seed(self.batch_seed, "reset")

    def training(self) -> Recipe:
        """Return the recipe of the original; where it is not known, GD's values, with a warning."""
        if self.recipe is None:
            text = "how the original was trained is not known, so GD's values serve; give its recipe: recipe="
            warn(text)
        return self.recipe or Recipe(weight_decay=1e-4)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Method(ABC):
    """A way to unlearn. Fields are its hyper-parameters; subclasses write `edit`.

    `name` is what the command line says, `title` what the literature says, `reads` which of "retain", "forget" and
    "validation" the method looks at with its defaults (a promise that tests check). `accelerated` methods are given a
    model that may be on a GPU, and bring their inputs to it; the others compute on the CPU. Methods that `moves_inputs`
    look at perturbed copies of samples, as far as the model's inputs allow (`residuum.models.space_of`).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reads: ClassVar[frozenset[str]] = frozenset({"retain", "forget"})
    accelerated: ClassVar[bool] = False
    moves_inputs: ClassVar[bool] = False

    @abstractmethod
    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Return the unlearned model; `model` is a private copy of the original and may be changed."""

    def refusal(self, splits: Splits) -> str | None:
        """Return why the method cannot carry out this request, if so; asked before anything is computed."""
        return None

    @property
    def parts_read(self) -> frozenset[str]:
        """What the method looks at with these hyper-parameters."""
        return self.reads

    @property
    def settings(self) -> dict[str, Any]:
        """The hyper-parameters as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def configured(cls, settings: Mapping[str, Any]) -> Method:
        """Return the method with these hyper-parameters, texts accepted, wrong ones refused with the allowed range.

        >>> from residuum.methods import GA
        >>> GA.configured({"lr": "0.001"}).lr
        0.001
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for key in settings:
            if key not in known:
                raise unknown_name(f"setting of {cls.name}", key, known)
        try:
            return cls(**settings)
        except ValidationError as error:
            raise InputError(f"{cls.name}: {first_problem(error)}") from None


def first_problem(error: ValidationError) -> str:
    """Return the first complaint of a pydantic error as one line: where, what was expected, what came.

    A field with alternatives (a number or a word) has one complaint for each of them, named by a tag such as
    "constrained-float": they are one complaint here.
    """
    problem, *others = error.errors()
    place = problem["loc"]
    tagged = len(place) > 1 and isinstance(place[-1], str) and not place[-1].isidentifier()
    place = place[:-1] if tagged else place
    complaints = [problem, *(other for other in others if tagged and other["loc"][:-1] == place)]
    words = " or ".join(dict.fromkeys(each["msg"].removeprefix("Value error, ") for each in complaints))
    where = ".".join(map(str, place)) or "settings"
    return f"{where}: {words.replace(' or Input should be', ' or')}, got {problem['input']!r}"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class GradientMethod(Recipe, Method):
    """A method that descends a loss with the shared loop; subclasses write `loss`.

    `keep` < 1 softens the start, once before the loop: w <- keep * w + (1 - keep) * fresh, weights and batch-norm
    statistics alike, with fresh ones from the network's own initialisation.
    """

    accelerated: ClassVar[bool] = True
    main_stream: ClassVar[str] = "retain"

    keep: Fraction = 1.0

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
        """Return the loss of one step."""

    @property
    def paired_stream(self) -> str | None:
        """Name of the stream cycled next to the main one; None where one is enough for these hyper-parameters."""
        return None

    def phases(self, epoch: int) -> Sequence[TrainingPhase]:
        """Return the passes of an epoch; one, unless a method alternates."""
        return [TrainingPhase(self.loss, self.main_stream, self.paired_stream)]

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Run the shared loop on the copy."""
        self.descend(model, splits, context, self.phases)
        return model

    def descend(
        self,
        model: nn.Module,
        splits: Splits,
        context: Context,
        phases: Phases,
        *,
        prepare: Callable[[nn.Module], None] | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        """Soften the copy, `prepare` it and train it in place, with `fit` and its options; count the passes.

        The streams are "retain" and "forget", and those in the options.
        """
        if self.keep < 1:
            self.soften(model, splits, context)
        if prepare:
            prepare(model)
        streams = {"retain": splits.retain, "forget": splits.forget} | options.pop("streams", {})
        options |= {"seed": context.batch_seed, "noise_seed": context.noise_seed}
        context.passes += fit(model, streams, self, phases, progress=context.progress, team=context.team, **options)

    def soften(self, model: nn.Module, splits: Splits, context: Context) -> None:
        """Mix the copy's weights with fresh ones, and note how far each layer turned."""
        parts = self.softened_parts(model)
        self.refuse_frozen_statistics(parts)
        if cosines := soften(parts, self.keep, lambda fresh: self.renew(fresh, splits, context)):
            context.notes["cosines"] = cosines

    def refuse_frozen_statistics(self, parts: Parts) -> None:
        """Refuse to keep batch-norm statistics that do not belong to the softened weights."""
        if self.bn_mode == "eval" and keeps_statistics(parts):
            raise InputError(
                f"{self.name}: expected bn_mode='train' with keep={self.keep:g}, got 'eval': mixed batch-norm "
                "statistics are not those of the mixed weights, so they must be learned again"
            )

    def softened_parts(self, model: nn.Module) -> Parts:
        """Return the modules that `keep` acts on, by name."""
        return trainable_parts(model)

    def renew(self, parts: Parts, splits: Splits, context: Context) -> None:
        """Write fresh values over those of the modules."""
        reinitialise(parts.values(), context.reset_seed)
