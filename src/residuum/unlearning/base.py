"""What a method is: a frozen dataclass of hyper-parameters that makes an unlearned model of the original."""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, get_type_hints

import torch
from pydantic import ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs
from torch import Tensor, nn

from residuum.core.errors import InputError, expected, unknown_name
from residuum.core.samples import Samples, Splits
from residuum.core.settings import refused_booleans
from residuum.training import NO_HOOKS, STRICT, Batch, Hooks, Recipe, TrainingPhase, cross_entropy, fit
from residuum.unlearning.context import Context
from residuum.unlearning.start import Parts, Start, keeps_statistics, trainable_parts

Phases = Sequence[TrainingPhase] | Callable[[int], Sequence[TrainingPhase]]
Kind = TypeVar("Kind", bound=type)


def component(kind: Kind) -> Kind:
    """Make a class a frozen dataclass whose fields are checked and may be given as texts."""
    return cast(Kind, dataclass(frozen=True, kw_only=True, config=STRICT)(kind))


DECIDED = ("epochs", "schedule", "schedule_epochs", "bn_mode")  # by the method itself
NEEDED = ("lr", "momentum", "weight_decay", "batch_size", "optimizer")  # no value of these suits every network
TYPES = ("bool", "int", "float", "str")  # by which a complaint names an alternative of a field


def with_open_settings(kind: Kind) -> Kind:
    """Let every setting of a recipe be None, and make that its default, except those that a method decides."""
    hints = get_type_hints(Recipe, include_extras=True)
    kind.__annotations__ = {name: hint | None for name, hint in hints.items() if name not in DECIDED}
    for name in kind.__annotations__:
        setattr(kind, name, None)
    return kind


@component
@with_open_settings
class InheritedRecipe(Recipe):
    """A `Recipe` to train as the original was trained: settings that are None take its values.

    Every setting of `Recipe` is open, new ones included, except how long to train and how the rate falls.

    >>> InheritedRecipe(epochs=3).resolved(Recipe(lr=0.2, epochs=30)).lr
    0.2
    """

    def resolved(self, original: Recipe) -> Recipe:
        """Return the recipe with the original's values in place of None."""
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(Recipe)}
        return Recipe(**{k: getattr(original, k) if v is None and k not in DECIDED else v for k, v in settings.items()})


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Method(ABC):
    """A way to unlearn. Fields are its hyper-parameters; subclasses write `edit`.

    `name` is what the command line says, `title` what the literature says, `reads` which of "retain", "forget" and
    "validation" the method looks at with its defaults (a promise that tests check). `accelerated` methods are given a
    model that may be on a GPU, and bring their inputs to it; the others compute on the CPU. Methods that `moves_inputs`
    look at perturbed copies of samples, as far as the model's inputs allow (`residuum.models.space_of`).

    A field may be a value of several settings, such as `recipe: Recipe = Recipe(epochs=3)`. You set and read these
    settings like those of the method itself: `GD(lr=0.1)` is `GD(recipe=Recipe(lr=0.1, ...))`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reads: ClassVar[frozenset[str]] = frozenset({"retain", "forget"})
    accelerated: ClassVar[bool] = False
    moves_inputs: ClassVar[bool] = False

    if TYPE_CHECKING:

        def __init__(self, **settings: object) -> None: ...  # pydantic checks them

    def __init_subclass__(cls) -> None:
        """Refuse a field that is a setting of one of the method's values already."""
        for part, value in cls.values().items():
            for field in dataclasses.fields(value):
                if field.name in inspect.get_annotations(cls):
                    kind = type(value).__name__
                    how = f"write {part}: {kind} = {kind}({field.name}=...) instead"
                    raise TypeError(f"{cls.__name__}.{field.name} is a setting of the method's {part}; {how}")

    _numbers = refused_booleans

    @model_validator(mode="before")
    @classmethod
    def _fold(cls, arguments: ArgsKwargs) -> ArgsKwargs:
        """Put settings that belong to the method's values into these."""
        settings = arguments.kwargs or {}
        for part, default in cls.values().items():
            names = [field.name for field in dataclasses.fields(default)]
            inside = {name: settings.pop(name) for name in names if name in settings}
            value = settings.get(part, default)
            if inside and isinstance(value, type(default)):
                settings[part] = {name: getattr(value, name) for name in names} | inside
        return arguments

    @classmethod
    def values(cls) -> dict[str, Any]:
        """Return the fields that are values of several settings, with their defaults."""
        fields = {field.name: field.default for field in getattr(cls, "__dataclass_fields__", {}).values()}
        return {name: default for name, default in fields.items() if dataclasses.is_dataclass(default)}

    @classmethod
    def setting_owners(cls) -> dict[str, type]:
        """Return every setting by name, and the class that declares it: the method's, or that of one of its values."""
        owners: dict[str, type] = {}
        values = cls.values()
        for field in dataclasses.fields(cls):
            if field.name in values:
                value = values[field.name]
                owners |= {setting.name: type(value) for setting in dataclasses.fields(value)}
            else:
                owners[field.name] = cls
        return owners

    @property
    def settings(self) -> dict[str, Any]:
        """The hyper-parameters as plain values, those of the method's values among them."""
        settings: dict[str, Any] = {}
        for name, content in dataclasses.asdict(self).items():
            settings |= content if name in self.values() else {name: content}
        return settings

    @classmethod
    def configured(cls, settings: Mapping[str, Any]) -> Method:
        """Return the method with these hyper-parameters, texts accepted, wrong ones refused with the allowed range.

        >>> from residuum.unlearning import GA
        >>> GA.configured({"lr": "0.001"}).recipe.lr
        0.001
        """
        names = cls.setting_owners()
        for key in settings:
            if key not in names:
                raise unknown_name(f"setting of {cls.name}", key, names)
        try:
            return cls(**settings)
        except ValidationError as error:
            raise InputError(f"{cls.name}: {first_problem(error, inside=cls.values())}") from None

    @abstractmethod
    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Return the unlearned model; `model` is a private copy of the original and may be changed."""

    def refusal(self, splits: Splits) -> str | None:
        """Return why the method cannot carry out this request, if so; called before anything is computed."""
        return None

    @property
    def parts_read(self) -> frozenset[str]:
        """What the method looks at with these hyper-parameters."""
        return self.reads

    @property
    def needs_recipe(self) -> bool:
        """Whether these hyper-parameters leave something to the original's recipe."""
        return False


def first_problem(error: ValidationError, inside: Collection[str] = ()) -> str:
    """Return the first complaint of a pydantic error as one line: where, what was expected, what came.

    A field with alternatives (a number or a word) has one complaint for each of them, named by a tag such as "bool" or
    "constrained-float": they are one complaint here. Settings `inside` these fields are named without the field.
    """
    problem, *others = error.errors()
    place = problem["loc"]
    last = place[-1] if len(place) > 1 else None
    tagged = isinstance(last, str) and (last in TYPES or not last.isidentifier())
    place = place[:-1] if tagged else place
    complaints = [problem, *(other for other in others if tagged and other["loc"][:-1] == place)]
    where = ".".join(map(str, place[1:] if place and place[0] in inside else place)) or "settings"
    return f"{where}: {expected(complaints, len(place))}, got {problem['input']!r}"


@component
class GradientMethod(Method):
    """A method that descends a loss, L(w, S_r) unless a subclass writes `loss`, with the shared loop.

    `recipe` says how to descend, `start` from where: with `keep` < 1 the original's weights are mixed with fresh ones,
    once before the loop. A method that needs something of the original itself writes `phases`.
    """

    accelerated: ClassVar[bool] = True
    main_stream: ClassVar[str] = "retain"

    recipe: Recipe = Recipe()
    start: Start = Start()

    @property
    def paired_stream(self) -> str | None:
        """Name of the stream cycled next to the main one; None where one is enough for these hyper-parameters."""
        return None

    @property
    def needs_recipe(self) -> bool:
        """Whether the method's recipe leaves something to the original's."""
        recipe = self.recipe
        return isinstance(recipe, InheritedRecipe) and any(getattr(recipe, name) is None for name in NEEDED)

    def loss(self, model: nn.Module, batch: Batch, paired: Batch | None, noise: torch.Generator) -> Tensor:
        """Return the loss of one step: L(w, S_r), the mean cross-entropy of the batch."""
        return cross_entropy(model, batch, paired, noise)

    def phases(self, model: nn.Module, splits: Splits, context: Context) -> Phases:
        """Return the passes of an epoch, or a function of the epoch; `model` is still the original."""
        return [TrainingPhase(self.loss, self.main_stream, self.paired_stream)]

    def edit(self, model: nn.Module, splits: Splits, context: Context) -> nn.Module:
        """Soften the copy and run the shared loop on it."""
        phases = self.phases(model, splits, context)
        self.soften(model, splits, context)
        self.descend(model, splits, context, phases)
        return model

    def soften(self, model: nn.Module, splits: Splits, context: Context, parts: Parts | None = None) -> None:
        """Mix the copy's weights, or those of some of its modules, with fresh ones, unless `keep` is 1."""
        if self.start.keep == 1:
            return
        parts = trainable_parts(model) if parts is None else parts
        if self.start.keep and self.recipe.bn_mode == "eval" and keeps_statistics(parts):
            raise InputError(
                f"{self.name}: expected bn_mode='train' with keep={self.start.keep:g}, got 'eval': mixed batch-norm "
                "statistics are not those of the mixed weights, so they must be learned again"
            )
        try:
            self.start.soften(parts, splits, context)
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from error

    def training_recipe(self, model: nn.Module, context: Context) -> Recipe:
        """Return the method's recipe, with the original's settings where it leaves them open."""
        recipe = self.recipe
        return recipe.resolved(context.origin.recipe or Recipe()) if isinstance(recipe, InheritedRecipe) else recipe

    def descend(
        self,
        model: nn.Module,
        splits: Splits,
        context: Context,
        phases: Phases | None = None,
        *,
        streams: Mapping[str, Samples] | None = None,
        batch_sizes: Mapping[str, int] | None = None,
        frozen: Iterable[nn.Module] = (),
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        """Train the copy in place and count the passes; the phases default to the method's.

        `streams` are added to "retain" and "forget". The other arguments are those of `fit`.
        """
        context.passes += fit(
            model,
            {"retain": splits.retain, "forget": splits.forget, **(streams or {})},
            self.training_recipe(model, context),
            self.phases(model, splits, context) if phases is None else phases,
            seed=context.batch_seed,
            noise_seed=context.noise_seed,
            batch_sizes=batch_sizes,
            frozen=frozen,
            progress=context.progress,
            hooks=hooks,
        )
