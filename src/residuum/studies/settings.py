"""The settings of a scenario: every number that decides a run, with its type and its range."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt

from residuum.auditing import Draws
from residuum.core.samples import Splits
from residuum.core.settings import refused_booleans
from residuum.data import Dataset, ids_of_ranks, make_splits
from residuum.metrics import Relearning
from residuum.training import Recipe

DEFAULT_PROFILE = "cpu"


def _as_list(value: Any) -> Any:  # noqa: ANN401 (whatever the user wrote)
    return value if isinstance(value, list | tuple | None) else [value]


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_list)]
Radius = Annotated[float, Field(ge=0, le=1e6)]  # of inputs in [0, 1]; squares of larger ones overflow
Radii = Annotated[list[Radius], BeforeValidator(_as_list)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Strict(BaseModel):
    """Frozen settings that refuse unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    _numbers = refused_booleans


class DataSettings(Strict):
    """Which data, and how they are cut; everything random about the cut comes from `split_seed`.

    `size` is the side that the images of a folder are scaled to. `train_ranks` (first, last) restricts training and
    validation to the samples of these ranks within their class, for instance those that pre-training left out.
    """

    name: str = "digits"
    size: Annotated[int, Field(ge=1)] | None = None
    classes: Texts | None = None
    train_ranks: tuple[int, int] | None = None
    train_size: Annotated[int, Field(ge=2)] | None = None
    validation_size: Annotated[int, Field(ge=0)] = 0
    test_size: Annotated[int, Field(ge=1)] | None = None
    split_seed: Seed = 7


class ForgetSettings(Strict):
    """What is forgotten: a class or a fraction of it, a random fraction, or a list of ids."""

    forget_class: str | StrictInt | None = None
    forget_fraction: float | None = None
    forget_ids: Texts | None = None

    def content(self) -> dict[str, Any]:
        """Return the request as plain values; 8 and "8" are the same class, so that they share their stages."""
        forget_class = None if self.forget_class is None else str(self.forget_class)
        return self.model_dump(mode="json") | {"forget_class": forget_class}


class ModelSettings(Strict):
    """Which network."""

    name: str = "cnn"
    width: Annotated[int, Field(ge=1, le=2**20)] | None = None


class AuditSettings(Strict):
    """Perturbations as NAME[:key=value...], radii by name, and how many draws of each sample are made.

    Either `draws` at every radius, or as many (at most `max_draws`) as bring every interval of r to +-`half_width`.
    With `until` "verdict" the draws are made in rounds, and rows and radii stop where more could not change a verdict.
    """

    perturbations: Texts = ("gaussian",)
    taus: dict[str, Radii] = {}
    draws: Annotated[int, Field(ge=1, lt=2**31)] | None = 100  # counts are int32
    half_width: Annotated[float, Field(gt=0)] | None = None
    max_draws: Annotated[int, Field(ge=1, lt=2**31)] = 1000
    until: Literal["verdict"] | None = None
    crafted_on: Literal["unlearned", "reference"] = "unlearned"
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95

    def radii(self, spec: str) -> list[float]:
        """Return the radii of a perturbation: those given for the text itself, else for its name."""
        return self.taus.get(spec) or self.taus.get(spec.partition(":")[0], [])

    def budget(self, first: int = 0) -> Draws:
        """Return the draws of each sample at each radius, from the first on."""
        return Draws(self.draws, self.half_width, self.max_draws, first)

    def of_one(self, spec: str) -> Self:
        """Return the settings of one perturbation's audit in its first round, which the others do not concern."""
        return self.model_copy(
            update={"perturbations": (spec,), "taus": {spec: self.radii(spec)}, "draws": self.rounds[0], "until": None}
        )

    @property
    def search_radii(self) -> tuple[float, ...]:
        """The radii above 0 of searches in the l-infinity ball: PGD's, or else FGSM's."""
        radii = self.radii("pgd") or self.radii("fgsm")
        return tuple(tau for tau in radii if tau > 0)

    @property
    def rounds(self) -> list[int | None]:
        """The draws after each round: an eighth, a quarter, half and all of them, or all at once.

        >>> AuditSettings(until="verdict").rounds, AuditSettings().rounds
        ([13, 25, 50, 100], [100])
        """
        if self.until is None or self.draws is None:
            return [self.draws]
        return list(dict.fromkeys(-(-self.draws // part) for part in (8, 4, 2, 1)))


class ForgettingTask(Strict):
    """What is to be forgotten, and by which model: data, deletion requests, network and training.

    `earlier` are requests that were unlearned before `forget`, in order; each method goes on from its own last result.
    `retrain_epochs` are those of retrained models if they differ from the original's. `pretrained_on` names the
    data of the weights that every model should start from, where the settings are meant for such weights.
    """

    name: str
    profile: str = DEFAULT_PROFILE
    description: str = ""
    data: DataSettings
    forget: ForgetSettings
    earlier: list[ForgetSettings] = []
    model: ModelSettings
    train: Recipe
    retrain_epochs: Annotated[int, Field(ge=1)] | None = None
    pretrained_on: str | None = None

    @property
    def requests(self) -> tuple[ForgetSettings, ...]:
        """All requests in order; the last is the one to unlearn."""
        return (*self.earlier, self.forget)

    def training(self, role: str) -> Recipe:
        """Return the recipe of the original or of a retrained model."""
        if role == "original" or self.retrain_epochs is None:
            return self.train
        return replace(self.train, epochs=self.retrain_epochs)

    def after(self, requests: Sequence[ForgetSettings]) -> Self:
        """Return the same task for these requests, the last of which is the one to unlearn."""
        return self.model_copy(update={"earlier": list(requests[:-1]), "forget": requests[-1]})


class Scenario(ForgettingTask):
    """A task, and how it is unlearned, measured and compared.

    `left_open` lists, by method ("train" for the models trained, "relearn" and "audit" for these measurements), the
    fields for which the publication a profile follows gives no value. `measures` are probes and the user's own;
    `references` are further retrained models that all rows and seeds are compared with.
    """

    relearn: Relearning = Relearning()
    audit: AuditSettings = AuditSettings()
    methods: dict[str, dict[str, Any]] = {}
    left_open: dict[str, list[str]] = {}
    rows: Texts = ()
    seeds: Annotated[list[Seed], BeforeValidator(_as_list)] = [131, 42, 7]
    controls: Annotated[int, Field(ge=0, le=100)] = 1  # a request may have none, a scenario must not
    measures: Texts = ()
    references: Annotated[int, Field(ge=0, le=10_000)] = 0
    accept_reference: bool = False
    threads: Annotated[int, Field(ge=1, le=256)] = 1


@lru_cache(maxsize=2)
def split_data(
    dataset: Dataset, data: DataSettings, requests: tuple[ForgetSettings, ...], *, combined: bool = True
) -> Splits:
    """Return the splits that these settings describe: of all requests together, or of the last one alone."""
    *earlier, forget = (request.model_dump() for request in requests)
    cuts = data.model_dump(include={"classes", "train_size", "validation_size", "test_size"})
    cuts["train_ids"] = None if data.train_ranks is None else ids_of_ranks(dataset.train, *data.train_ranks)
    together = combined or not earlier
    return make_splits(dataset, **forget, earlier=earlier, cumulative=together, **cuts, seed=data.split_seed)
