"""Every registered method keeps every promise, and every promise catches a method that breaks it (T1, T2)."""

from __future__ import annotations

import dataclasses
import random
import sys
from typing import ClassVar

import numpy as np
import pytest
import torch
from pydantic.dataclasses import dataclass
from torch import nn

from residuum import testing as checks
from residuum.cli.listing import check_target
from residuum.core.errors import InputError, MethodError
from residuum.models.weights import state_hash
from residuum.studies.study import parse_row
from residuum.testing import METHOD_PROMISES, BrokenPromise, Trial, check_plugin, check_promises
from residuum.training import STRICT
from residuum.unlearning import GD, METHODS, Method


@pytest.mark.parametrize("promise", METHOD_PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_keeps_every_promise(name, promise):
    promise(Trial.of(METHODS[name]))


VARIANTS = [
    "gd:keep=0.5",
    "rurk:penalty=capped:cap=validation",
    "scrub:keep=0.5",
    "salun:order=joint:keep=0.5",
    "soft_reset:fresh=initial",
]


@pytest.mark.parametrize("row", VARIANTS)
def test_promises_hold_beyond_the_defaults(row):
    assert {fault for fault in check_promises(parse_row(row).build()).values() if fault} == set()


class Stranger(Method):
    """A method that does nothing, so that each of its children can do one thing wrong."""

    name: ClassVar[str] = "stranger"
    title: ClassVar[str] = "Stranger"
    reads: ClassVar[frozenset[str]] = frozenset()

    def edit(self, model, splits, context):
        return model


class ChangesTheInput(Stranger):
    def edit(self, model, splits, context):
        SEEN[0].conv1.weight.data.add_(1)
        return model


class FlipsAFlag(Stranger):
    def edit(self, model, splits, context):
        SEEN[0].bn1.train()
        return model


class DrawsGlobally(Stranger):
    def edit(self, model, splits, context):
        model.fc.bias.data.add_(torch.rand(()))
        return model


class DrawsFromNumpy(Stranger):
    def edit(self, model, splits, context):
        np.random.rand()
        return model


class DrawsFromPython(Stranger):
    def edit(self, model, splits, context):
        random.random()
        return model


class ReadsForget(Stranger):
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    def edit(self, model, splits, context):
        model.fc.bias.data.add_(splits.forget.x.mean())
        return model


class ReadsForgetThroughTrain(Stranger):
    reads: ClassVar[frozenset[str]] = frozenset({"retain"})

    def edit(self, model, splits, context):
        model.fc.bias.data.add_(splits.train.x.mean())
        return model


class ReadsRetain(Stranger):
    reads: ClassVar[frozenset[str]] = frozenset({"forget"})

    def edit(self, model, splits, context):
        model.fc.bias.data.add_(splits.retain.x.mean())
        return model


class ReadsValidation(Stranger):
    def edit(self, model, splits, context):
        model.fc.bias.data.add_(splits.validation.x.mean())
        return model


class ChangesTheData(Stranger):
    def edit(self, model, splits, context):
        splits.retain.x.mul_(0.5)
        return model


class ChangesTheInitialWeights(Stranger):
    def edit(self, model, splits, context):
        context.origin.initial["fc.bias"].add_(1)
        return model


class ReturnsNan(Stranger):
    def edit(self, model, splits, context):
        model.fc.bias.data.fill_(float("nan"))
        return model


class SwitchesMode(Stranger):
    def edit(self, model, splits, context):
        return model.train(not model.training)


class LeavesGradients(Stranger):
    def edit(self, model, splits, context):
        model(splits.retain.x).sum().backward()
        return model


class AddsAModule(Stranger):
    def edit(self, model, splits, context):
        model.fc = nn.Sequential(model.fc, nn.Linear(3, 3))
        return model


class WorksOnce(Stranger):
    def edit(self, model, splits, context):
        if model.fc.bias.eq(7).all():
            raise InputError("stranger expected a model that it has not seen")
        model.fc.bias.data.fill_(7)
        return model


class CountsHalves(Stranger):
    def edit(self, model, splits, context):
        context.passes = 0.5
        return model


class NotesATensor(Stranger):
    def edit(self, model, splits, context):
        context.notes["norm"] = torch.zeros(())
        return model


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ForgetsItsSettings(Stranger):
    power: float = 1.0

    @classmethod
    def configured(cls, settings):
        return cls(power=2.0)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class HasOddSettings(Stranger):
    function: type = dataclasses.field(default=int)


class AcceptsAnything(Stranger):
    @classmethod
    def configured(cls, settings):
        return cls()


class CrashesOnClasses(Stranger):
    def edit(self, model, splits, context):
        if splits.form == "class":
            raise KeyError("no validation samples")
        return model


class ChangesTheDefaultType(Stranger):
    def edit(self, model, splits, context):
        torch.set_default_dtype(torch.float64)
        return model


class LeavesAHook(Stranger):
    def edit(self, model, splits, context):
        model.fc.register_forward_hook(lambda module, given, made: made + 1)
        return model


class EndsTheProgram(Stranger):
    def edit(self, model, splits, context):
        sys.exit()


class ReturnsNothing(Stranger):
    def edit(self, model, splits, context):
        pass


SEEN: list[nn.Module] = []

CASES = [
    (checks.keeps_the_input_model, ChangesTheInput, "weights or buffers changed"),
    (checks.keeps_the_input_model, FlipsAFlag, "flag of the input model changed"),
    (checks.repeats_itself, DrawsGlobally, "two runs with one seed differ"),
    (checks.leaves_global_generators_alone, DrawsGlobally, "global generator moved"),
    (checks.leaves_global_generators_alone, DrawsFromNumpy, "global generator moved"),
    (checks.leaves_global_generators_alone, DrawsFromPython, "global generator moved"),
    (checks.leaves_global_state_alone, ChangesTheDefaultType, "it changed torch's default dtype"),
    (checks.leaves_global_state_alone, LeavesAHook, "it left a hook on fc"),
    (checks.returns_a_usable_model, ReturnsNothing, "must return an nn.Module, got NoneType"),
    (checks.repeats_itself, EndsTheProgram, "stranger of .* tried to end the program"),
    (checks.reads_only_what_it_says, ReadsForget, "forget samples influence"),
    (checks.reads_only_what_it_says, ReadsForgetThroughTrain, "forget samples influence"),
    (checks.reads_only_what_it_says, ReadsRetain, "retain samples influence"),
    (checks.reads_only_what_it_says, ReadsValidation, "validation samples influence"),
    (checks.leaves_bystanders_alone, ChangesTheData, "the data changed"),
    (checks.leaves_bystanders_alone, ChangesTheInitialWeights, "the initial weights changed"),
    (checks.returns_a_usable_model, ReturnsNan, "NaN or infinite logits"),
    (checks.returns_a_usable_model, SwitchesMode, "train or eval mode"),
    (checks.returns_a_usable_model, LeavesGradients, "gradients are left"),
    (checks.survives_saving, AddsAModule, "weights"),
    (checks.goes_on_from_its_result, WorksOnce, "expected a model that it has not seen"),
    (checks.accounts_for_itself, CountsHalves, "context.passes is 0.5"),
    (checks.accounts_for_itself, NotesATensor, "not JSON values"),
    (checks.settings_go_round, ForgetsItsSettings, "the configuration differs"),
    (checks.settings_go_round, HasOddSettings, "settings are not JSON values"),
    (checks.refuses_unknown_settings, AcceptsAnything, "no_such_setting=1 was accepted"),
    (checks.forgets_a_class_or_says_no, CrashesOnClasses, "no validation samples"),
]


@pytest.mark.parametrize(("promise", "method", "fault"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_every_promise_can_be_broken(promise, method, fault):
    trial = Trial.of(method)
    SEEN[:] = [trial.original]
    with torch.random.fork_rng(), pytest.raises((BrokenPromise, InputError, MethodError), match=fault):
        promise(trial)


def test_every_promise_is_broken_by_some_case():
    assert {promise for promise, _, _ in CASES} == set(METHOD_PROMISES)


def test_a_method_that_does_nothing_keeps_all_promises():
    assert set(check_promises(Stranger).values()) == {None}
    assert "stranger" not in METHODS


def test_faults_of_any_kind_are_reported():
    faults = check_promises(CrashesOnClasses)
    assert faults.pop("forgets_a_class_or_says_no") == "KeyError: 'no validation samples'"
    assert set(faults.values()) == {None}
    assert all(
        fault and "SystemExit" in fault
        for name, fault in check_promises(EndsTheProgram).items()
        if "settings" not in name
    )


def test_hash_sees_names_shapes_types_and_bits():
    states = [
        {"w": torch.zeros(4)},
        {"v": torch.zeros(4)},
        {"w": torch.zeros(2, 2)},
        {"w": torch.zeros(4, dtype=torch.int32)},
    ]
    states.append({"w": torch.tensor([0.0, 0.0, 0.0, -0.0])})
    assert len({state_hash(state) for state in states}) == len(states)
    assert state_hash({"w": torch.zeros(2, 2).T}) == state_hash({"w": torch.zeros(2, 2)})


def test_a_taken_name_is_refused():
    class Other(Stranger):
        name: ClassVar[str] = "gd"

    with pytest.raises(InputError, match="'gd' is taken"), METHODS.having("gd", Other):
        pass
    assert METHODS["gd"] is GD


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_package:Thing", "cannot load 'no_such_package:Thing'"),
        ("residuum.unlearning:unlearn", "cannot tell what kind of plug-in residuum.unlearning:unlearn is; give --kind"),
        ("residuum.unlearning:Nothing", "unknown name in residuum.unlearning 'Nothing'"),
        ("rukr", "did you mean rurk"),
    ],
)
def test_targets_that_are_no_methods_are_refused(target, message):
    with pytest.raises(InputError, match=message):
        check_plugin(target)


def test_command_prints_promises_and_exits_with_1_on_a_broken_one(tmp_path, monkeypatch, capsys):
    import typer

    (tmp_path / "my_own_method.py").write_text(
        "from residuum.unlearning import Method\n"
        "class Mine(Method):\n"
        "    name, title, reads = 'mine', 'Mine', frozenset()\n"
        "    def edit(self, model, splits, context):\n"
        "        splits.train.x.zero_()\n"
        "        return model\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(typer.Exit) as stop:
        check_target("my_own_method:Mine")
    assert stop.value.exit_code == 1
    printed = capsys.readouterr()
    assert "BROKEN  Data, initial weights and a retrained reference keep their hash. (the data changed)" in printed.out
    assert printed.out.count("\n") == len(METHOD_PROMISES)
    assert "1 of 13 promises broken" in printed.err
    check_target("gd", as_json=True)
    assert '"repeats_itself": null' in capsys.readouterr().out
    del METHODS["mine"], METHODS.sources["mine"]
