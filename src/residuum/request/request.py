"""A deletion request as an object: the user's data, what to forget, and how the model was trained."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from residuum.core.errors import InputError, ResiduumWarning, plural
from residuum.core.inputs import space_of
from residuum.core.roles import retrained_label
from residuum.core.samples import Samples, Splits
from residuum.data.coin import CoinSplit, read_coin
from residuum.data.ids import Ids, matched_ids
from residuum.data.images import ImageFiles
from residuum.data.read import Reading, read_data
from residuum.models import ShiftedAt, check_model, with_shift
from residuum.models.probabilities import refuse_probabilities
from residuum.models.weights import UnlearnedIds, mark_unlearned, unlearned_ids
from residuum.models.wrapping import no_network
from residuum.record.decoys import DecoyAudit
from residuum.request.checking import (
    Check,
    accuracies,
    as_many_names,
    checked,
    class_names_of,
    in_order,
    loss_warning,
    lost_accuracy,
    prefixed,
    renumbered,
)
from residuum.request.decoys import decoy_audit, drawn_decoys
from residuum.request.models import Unlearned, first_channels
from residuum.request.soft_reset import BUDGET, ByFunction, ByRecipe, Reset, Way, soft_reset, training_epochs
from residuum.studies.execution import STORE, Resources
from residuum.studies.retraining import MadeModel, Retraining, TrainingData, TrainingFunction, fresh_network, parameter
from residuum.studies.stages import measured
from residuum.studies.study import parse_row
from residuum.training import Recipe
from residuum.unlearning import Method, Origin, SoftReset, make_method, unlearn

if TYPE_CHECKING:
    from residuum.record.run import Run
    from residuum.request.file import Network, RequestFile
    from residuum.request.study import AuditOptions


class Request:
    """Which samples of a model's training data are to be forgotten, with all that is needed to check that they are.

    Args:
        data: What the model was trained on, all of it: a folder of class folders of images, an .npz or .csv file,
            (x, y) or (x, y, ids) of arrays or tensors, a data frame, or a map-style torch data set without
            augmentation. Samples without ids are named by their row numbers.
        forget: Ids to forget, in a list or a text file with one a line: ids as they are, file names or their stems.
        earlier: Ids that earlier requests asked to forget, as `forget`, where `data` still hold them. They are not
            retained: methods forget them together with this request's, and retrained models do not see them. The audit
            judges this request's samples alone.
        held_out: Samples like those that no model was trained on, in any of these kinds; an audit needs them.
        validation: Held-out samples that methods may read; only some methods need them.
        retrain: Your training function, `retrain(samples, seed) -> model`: trains a new network on the samples it is
            given, map-style and as in `data`, the way the model was trained. If it has a parameter `model` as well,
            `soft_reset` gives it the softened network to train instead of a new one, where there is no recipe; if it
            has a parameter `epochs`, it is told how long.
        recipe: How the model was trained, if there is no such function; retraining and methods follow it.
        epochs: How many epochs the model was trained for, if neither a recipe nor the default of the parameter `epochs`
            of `retrain` says so; `soft_reset` trains for a share of them.
        reading: How the data are read, such as `Reading(label="risk", class_names=["no", "yes"])` of a table or
            `Reading(size=32, channels=1)` of a folder of images.
        name: What reports call the data.
        split: File `split.json` that `residuum split` wrote, where training and held-out data are what it made; decoys
            are then exchangeable with held-out samples by construction.

    Nothing is cut out of the data: training, held-out and validation samples are what you say they are.
    `Request.load("deletion.toml")` takes all of this, the model, the method and the audit from a request file.

    >>> import torch
    >>> x, y = torch.rand(60, 4), torch.arange(60) % 3
    >>> request = Request((x[:40], y[:40]), forget=["3", "17"], held_out=(x[40:], y[40:]), recipe=Recipe(epochs=1))
    >>> request.splits.forget.ids, len(request.splits.retain), request
    (('3', '17'), 38, Request(forget 2 of 40 training samples, 20 held out, 3 classes))
    """

    file: RequestFile | None = None  # that it was loaded from

    def __init__(
        self,
        data: object,
        forget: Ids,
        *,
        earlier: Ids | None = None,
        held_out: object = None,
        validation: object = None,
        retrain: TrainingFunction | None = None,
        recipe: Recipe | None = None,
        epochs: int | None = None,
        reading: Reading | None = None,
        name: str | None = None,
        split: Path | str | None = None,
    ) -> None:
        if retrain is not None and not callable(retrain):
            raise InputError(f"expected retrain to be a function (samples, seed) -> model, got {retrain!r}")
        reading = reading or Reading()
        self.source = in_order(read_data(data, reading=reading, what="data"), reading.class_names)
        self.class_names = class_names_of(reading.class_names, self.source)
        reading = replace(reading, class_names=self.class_names or reading.class_names)
        self.held_out = self._other(held_out, "held_out", reading)
        self.validation = self._other(validation, "validation", reading)
        self.forget_ids = matched_ids(forget, self.source.samples)
        self.earlier_ids = () if earlier is None else _earlier_ids(earlier, self.source.samples, self.forget_ids)
        self.retrain, self.recipe, self.name = retrain, recipe, name or self.source.name
        if epochs is not None and (type(epochs) is not int or epochs < 1):
            raise InputError(f"epochs: expected a whole number of 1 or more, got {epochs!r}")
        self.epochs = training_epochs(retrain, epochs, recipe)
        self.split: CoinSplit | None = None if split is None else read_coin(split)
        self.decoy_ids: tuple[str, ...] = ()  # among the earlier ones
        self._refuse_everything()

    def _refuse_everything(self) -> None:
        if len(self.forget_ids) + len(self.earlier_ids) == len(self.source.samples):
            asks = "the request asks" if not self.earlier_ids else "this and earlier requests ask"
            raise InputError(f"{asks} for all {len(self.source.samples)} training samples; nothing would be retained")

    @classmethod
    def load(cls, path: Path | str, changes: Mapping[str, Any] | None = None) -> Request:
        """Return the request of a file such as deletion.toml, with settings of it changed by their dotted keys.

        Its `model` is the network of the file; `unlearn` and `audit` follow the file where their arguments do not say
        otherwise. Code that the file names is imported: load only files that you trust.
        """
        from residuum.request.file import RequestFile

        return RequestFile.read(path, changes).load()

    def then(self, forget: Ids) -> Request:
        """Return the next request on the same data and model: samples of this one count as forgotten earlier.

        Unlearn it from this one's result; `audit_requests` audits all of them.
        """
        ids = matched_ids(forget, self.source.samples)
        before = {*self.earlier_ids, *self.forget_ids}
        if twice := next((name for name in ids if name in before), None):
            raise InputError(f"forget: {twice!r} was forgotten by an earlier request; leave it out")
        return self.for_ids(ids, (*self.earlier_ids, *self.forget_ids))

    def for_ids(self, forget: tuple[str, ...], earlier: tuple[str, ...]) -> Request:
        """Return a request for other samples of the same data."""
        other = copy.copy(self)
        for name in ("splits", "network", "model"):
            other.__dict__.pop(name, None)
        other.forget_ids, other.earlier_ids = forget, earlier
        other._refuse_everything()
        return other

    def with_decoys(self, ids: tuple[str, ...]) -> Request:
        """Return the request with decoys, which count as forgotten earlier: forgotten as well, and not judged."""
        other = self.for_ids(self.forget_ids, (*self.earlier_ids, *ids))
        other.decoy_ids = ids
        return other

    @cached_property
    def network(self) -> Network:
        """Makes the network of the request file with the weights of a file."""
        if self.file is None:
            raise InputError("expected a model: this request was not loaded from a file that names one; give it")
        return self.file.networks(self.splits.classes)

    @cached_property
    def model(self) -> nn.Module:
        """The model before unlearning, where a request file names it."""
        return self.network(self.file.model.weights if self.file else None)

    def _other(self, data: object, what: str, reading: Reading) -> Samples | None:
        """Return held-out or validation samples, with ids that no training sample has."""
        if data is None:
            return None
        source = read_data(data, what=what, reading=reading)
        if source.class_names and self.class_names and source.class_names != self.class_names:
            return renumbered(source, self.class_names, what)
        if (shape := source.samples.shape) != (expected := self.source.samples.shape):
            raise InputError(f"{what}: expected inputs of shape {expected} as in the training data, got {shape}")
        return prefixed(source.samples, f"{what}/")

    @cached_property
    def splits(self) -> Splits:
        """Training data as retained and forgotten samples, with the held-out ones as test set; nothing is cut.

        Samples of earlier requests are in none of them.
        """
        return self._splits(frozenset(self.forget_ids), without=frozenset(self.earlier_ids))

    def _splits(self, forget: frozenset[str], without: frozenset[str] = frozenset()) -> Splits:
        every = self.source.samples
        train = every.subset([row for row, name in enumerate(every.ids) if name not in without]) if without else every
        rows = np.array([name in forget for name in train.ids])
        none = train.subset([])
        labels = [part.y.max() for part in (every, self.held_out, self.validation) if part is not None]
        return Splits(
            train=train,
            retain=train.subset(np.flatnonzero(~rows)),
            forget=train.subset(np.flatnonzero(rows)),
            validation=none if self.validation is None else self.validation,
            test=none if self.held_out is None else self.held_out,
            forgotten_test=none,
            class_names=self.class_names or tuple(map(str, range(max(2, int(max(labels)) + 1)))),
        )

    def __repr__(self) -> str:
        s = self.splits
        held = f", {len(s.test)} held out" if len(s.test) else ""
        earlier = len(self.earlier_ids) - len(self.decoy_ids)
        before = f", {earlier} forgotten earlier" if earlier else ""
        before += f", {plural(len(self.decoy_ids), 'decoy')}" if self.decoy_ids else ""
        total = len(self.source.samples)
        return f"Request(forget {len(s.forget)} of {total} training samples{before}{held}, {s.classes} classes)"

    def check(self, model: nn.Module | None = None) -> Check:
        """Return what was found of the model on the data, and what does not fit: print it, or ask `.problems`.

        Accuracy on training and held-out samples, order of the classes, normalization, modes of layers.
        """
        model = self.model if model is None else model
        return checked(model, self.fitted(model))

    def fitted(self, model: nn.Module) -> Splits:
        """Return the splits, with as many classes as the model has outputs; refuse a model that cannot take them."""
        splits = self.splits
        if not isinstance(model, nn.Module):
            raise no_network(model, "as the model")
        self._refuse_other_inputs(model)
        if self.class_names is None:
            splits = replace(splits, class_names=as_many_names(model, splits))
        check_model(model, splits.retain, splits.classes)
        return splits

    def _refuse_other_inputs(self, model: nn.Module) -> None:
        space, samples = space_of(model), self.source.samples
        columns = self.source.inputs
        if space.names and columns and space.names != columns:
            listed = f"{', '.join(columns)}; give inputs={list(space.names)}"
            raise InputError(f"expected inputs {', '.join(space.names)}, in this order, the data have {listed}")
        channels, shape_channels = first_channels(model), samples.shape[0]
        if isinstance(samples.x, ImageFiles) and channels in (1, 3) and channels != shape_channels:
            text = f"the network takes images of {plural(channels, 'channel')}, those of the folder were read with"
            hint = f"give Reading(channels={channels}), in a request file data.channels = {channels}"
            raise InputError(f"{text} {shape_channels}; {hint}")
        hint = "give wrap(..., bounds=) those of your data, None if they have none"
        first = samples.subset(range(min(512, len(samples))))
        space.check(first.batch(torch.arange(len(first)))[0], "expected inputs", hint, first.ids)

    def unlearn(
        self,
        model: nn.Module | None = None,
        method: str | Method | None = None,
        *,
        seed: int | None = None,
        budget: float | None = None,
        decoys: int | None = None,
    ) -> Unlearned:
        """Return what a method makes of the model, which stays as it is, with its accuracy before and after.

        `method` is a name, NAME:key=value..., or a configured method such as `RURK(tau=0.02)`; the default is that of
        the request file, or soft_reset with seed 1. Samples of earlier requests are forgotten as well. Where
        `soft_reset` loses more than a point of accuracy on retained or validation samples, it starts a second time,
        from half of the original, and trains until it has taken the `budget`, a share of the original's epochs
        (default: that of the file, or 0.5). What the method warns of, and a loss on retained samples that is left, are
        Python warnings and in the result's `warnings`. A loss on other samples alone is a Python warning only, because
        an audit compares these accuracies with those of retrained models, which lose some, too.

        With `decoys`, so many retained samples, chosen at random by the seed, are forgotten together with the request;
        `decoy_audit` compares them with held-out samples.
        """
        model = self.model if model is None else model
        method = method or (self.file.unlearn.method if self.file else "soft_reset")
        seed = (self.file.unlearn.seed if self.file else 1) if seed is None else seed
        budget = (self.file.unlearn.budget if self.file else BUDGET) if budget is None else budget
        if not 0 < budget <= 1:
            raise InputError(f"budget: expected a share of the original's epochs, above 0 and at most 1, got {budget}")
        decoys = (self.file.unlearn.decoys if self.file else 0) if decoys is None else decoys
        ids = drawn_decoys(self, decoys, seed) if decoys else ()
        request = self.with_decoys(ids) if decoys else self
        refit = "fit it again without the samples and audit the result"
        refuse_probabilities(model, "methods change the weights of a network", refit)
        judged = request.fitted(model)
        everything = request._splits(frozenset({*request.forget_ids, *request.earlier_ids}))
        splits = replace(everything, class_names=judged.class_names)
        row = parse_row(method) if isinstance(method, str) else None
        configured = make_method(row.method, row.settings) if row else method
        if not isinstance(configured, Method):
            raise InputError(f"expected a method or its name, got {method!r}")
        before = accuracies(model, judged)

        def lost(network: nn.Module) -> dict[str, float]:
            points = lost_accuracy(before, accuracies(network, judged), judged)
            return {name: points[name] for name in points if name != "held_out"}  # which must decide nothing

        reset: Reset | None = None
        with measured(1) as record:
            if isinstance(configured, SoftReset):
                way = request._way(model, splits, configured)
                reset = soft_reset(way, model, configured, seed=seed, budget=budget, lost=lost)
                done = reset.done
            else:
                request._refuse_unknown_recipe(configured)
                movable, parts = request._movable(model, splits, configured)
                done = unlearn(movable, parts, configured, seed=seed, origin=request._origin(movable, configured))
        network = (done.model.plain() if isinstance(done.model, ShiftedAt) else done.model).eval()
        mark_unlearned(network, model, splits.forget.ids)
        noted = unlearned_ids(network)
        after = accuracies(network, judged)
        texts, passing = [*request.returning(model), *record["warnings"]], list[str]()
        if points := lost_accuracy(before, after, judged):
            gentler = "gentler settings (a smaller lr, fewer epochs), or soft_reset"
            advice = reset.advice(configured, points) if reset and isinstance(configured, SoftReset) else gentler
            of_audit = texts if "retain" in points else passing
            of_audit.append(loss_warning(configured, before, after, points, advice))
        for text in (*texts, *passing):
            warnings.warn(text, ResiduumWarning, stacklevel=2)
        return Unlearned(
            network,
            method=configured.name,
            settings=configured.settings,
            label=row.label if row else configured.name,
            seed=seed,
            seconds=record["seconds"],
            passes=done.passes,
            notes=done.notes,
            warnings=tuple(texts),
            unchanged=done.unchanged,
            before=before,
            after=after,
            decoys=UnlearnedIds(noted.salt).extended(ids) if noted and decoys else None,
        )

    def returning(self, *models: nn.Module) -> list[str]:
        """Return a warning if one of the models has unlearned samples that this request retains."""
        noted = [ids for model in models if (ids := unlearned_ids(model)) is not None]
        again = sum(any(name in ids for ids in noted) for name in self.splits.retain.ids)
        if not again:
            return []
        which = plural(again, "sample")
        return [
            f"the model has unlearned {which} that this request retains, to be learned again; give them as earlier="
        ]

    def _way(self, model: nn.Module, splits: Splits, method: SoftReset) -> Way:
        """Return how a soft reset trains: by the user's function where it takes a model, or by the recipe."""
        origin = self._origin(model, method)
        by_function = self.retrain is not None and self.recipe is None and method.needs_recipe
        if by_function and self.retrain is not None and parameter(self.retrain, "model") is not None:
            return ByFunction(splits, self.epochs, self.retrain, self._training_data().retained(), origin)
        self._refuse_unknown_recipe(method)
        return ByRecipe(splits, self.recipe.epochs if self.recipe else None, origin)

    def _refuse_unknown_recipe(self, method: Method) -> None:
        """Refuse a method that trains as the model was trained if there is no recipe."""
        if self.recipe is None and method.needs_recipe:
            softened = isinstance(method, SoftReset)
            other = ", or a retrain= function that takes model= to start from" if softened else ""
            raise InputError(f"{method.name} trains as the model was trained, which is not known: give recipe={other}")

    def _origin(self, model: nn.Module, method: Method) -> Origin:
        """Return how the model was made: its recipe, and how a new one starts."""
        network, prefix = (model.model, "model.") if isinstance(model, ShiftedAt) else (model, "")
        if getattr(network, "fresh_network", None) is None and not isinstance(method, SoftReset):
            return Origin(self.recipe)  # methods that renew some layers need no others that can be renewed

        def fresh(seed: int) -> dict[str, Tensor]:
            return {f"{prefix}{name}": value for name, value in fresh_network(network, seed).state_dict().items()}

        return Origin(self.recipe, fresh=fresh)

    def _movable(self, model: nn.Module, splits: Splits, method: Method) -> tuple[nn.Module, Splits]:
        """Return model and splits such that the method can move inputs: token ids cannot be, their embedding can."""
        space = space_of(model)
        if not (space.tokens and method.moves_inputs):
            return model, splits
        shifted = ShiftedAt(model, str(space.at), splits.train, "std")
        parts = ("train", "retain", "forget", "validation", "test", "forgotten_test")
        moved: dict[str, Any] = {part: with_shift(getattr(splits, part), shifted.size) for part in parts}
        return shifted, replace(splits, **moved)

    def retraining(self, model: nn.Module, *, seed: int = 1, surrogates: bool = False) -> Retraining:
        """Return how models like this one are retrained without the forgotten samples."""
        return Retraining(
            original=model,
            splits=self.fitted(model),
            data=self._training_data(),
            function=self.retrain,
            recipe=self.recipe,
            epochs=self.epochs,
            seed=seed,
            surrogates=surrogates,
        )

    def _training_data(self) -> TrainingData:
        left_out = frozenset({*self.forget_ids, *self.earlier_ids})
        return TrainingData(self.source.samples, self.source.items, left_out)

    def retrained(self, model: nn.Module, number: int, *, seed: int = 1) -> MadeModel:
        """Return the `number`-th model that never saw the forgotten samples, the first as reference."""
        return self.retraining(model, seed=seed).retrained(retrained_label(number))

    def audit(
        self,
        model: nn.Module,
        unlearned: Unlearned | nn.Module | Mapping[str, Any] | Sequence[Unlearned],
        options: AuditOptions | None = None,
        *,
        reference: nn.Module | None = None,
        controls: int | Literal["auto"] | Sequence[nn.Module] | None = None,
        surrogates: bool = False,
        draws: int | None = None,
        out: Path | str | None = None,
        store: Path | str | None = None,
        resources: Resources | None = None,
        progress: bool = False,
    ) -> Run:
        """Compare unlearned models with the original and with models that never saw the samples; return the run.

        What is not given is as the request file says, if there is one.

        Args:
            model: The model before unlearning.
            unlearned: What `unlearn` returned, a model unlearned elsewhere, or several by the names of their rows.
            options: How to measure: perturbations, radii, probes, seed.
            reference: A model retrained without the forgotten samples; default: made by `retrain` or `recipe`.
            controls: Further ones: how many to make (two at least for a verdict), or the models themselves. The
                default "auto" makes three, then more until the original would be detected, at most eight. If you give
                a reference and neither `retrain` nor `recipe`, none are made.
            surrogates: Let cheap surrogates take their place: what is found is then weaker, and marked so everywhere.
            draws: Perturbed copies of each sample at each radius, in place of those of `options`.
            out: Folder of the run: results.json, counts and weights; default runs/request.
            store: Folder of finished stages: the same audit again computes only what is missing.
            resources: How many days of one core the audit may take, as for `residuum.run`. Your objects exist in
                this process only, which computes everything; `residuum audit` has --workers.
            progress: Say on standard error how long it takes and what is done.
        """
        from residuum.request.study import AuditOptions, References, audited, request_study

        file = self.file
        options = options or (file.audit.options if file else AuditOptions())
        options = options if draws is None else replace(options, draws=draws)
        references = References(reference, "auto" if controls is None else controls, surrogates)
        if file and reference is None and controls is None and not surrogates:
            references = file.references(self.network)
        study = request_study(self, model, unlearned, references, options)
        for text in study.live.all_warnings if study.live else ():
            warnings.warn(text, ResiduumWarning, stacklevel=2)
        folder = Path(out or (file.output.folder if file else "runs/request"))
        where: dict[str, Any] = {"store": Path(store or (file.output.store if file else STORE)), "resources": resources}
        return audited(study, folder, **where, gallery=options.gallery, progress=progress)

    def forgotten_with(self, unlearned: object) -> Request:
        """Return this request with the decoys that the unlearned models forgot; they must be the same for all."""
        listed = list(unlearned.values()) if isinstance(unlearned, Mapping) else unlearned
        models = listed if isinstance(listed, list | tuple) else [listed]
        noted = [one.decoys if isinstance(one, Unlearned) else None for one in models]
        ids = [tuple(name for name in self.source.samples.ids if of and name in of) for of in noted]
        if len(set(ids)) > 1:
            raise InputError("expected models that forgot the same decoys, got others; audit them one by one")
        return self.with_decoys(ids[0]) if ids and ids[0] else self

    def decoy_audit(self, unlearned: Unlearned, model: nn.Module | None = None, *, seed: int = 1) -> DecoyAudit:
        """Return whether a model that `unlearn(..., decoys=200)` made still recognizes its decoys.

        If unlearning is exact, decoys and held-out samples of the same population are exchangeable within classes, so
        that permuting them gives an exact p-value. No model is retrained. It tests the procedure on samples that were
        chosen at random, with the one model at hand. The audit is refused where training and held-out samples are told
        apart without a model, unless the request has the record of a `split`.

        Args:
            unlearned: What `unlearn` made, or what was saved of it.
            model: The model before unlearning; it tells whether the audit could have found anything. Default: that of
                the request file, if there is one.
            seed: Seed of the permutations, and of the held-out samples where there are more than four for each decoy.
        """
        if model is None and self.file is not None:
            model = self.model
        return decoy_audit(self, unlearned, model, seed=seed)


def _earlier_ids(earlier: Ids, samples: Samples, forget: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids of earlier requests; refuse one that this request names as well, and one that is not there."""
    try:
        ids = matched_ids(earlier, samples)
    except InputError as error:
        raise InputError(f"earlier: {str(error).removeprefix('forget: ')}") from None
    if both := next((name for name in ids if name in set(forget)), None):
        raise InputError(f"earlier: {both!r} is among the ids of this request as well; leave it out of one of the two")
    return ids
