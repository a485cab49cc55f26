"""Shared by the tests of this folder: digits cut down to a few seconds, and stages that compute next to nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from residuum.core.devices import Compute
from residuum.studies import Stage, Study, run_all, write_run
from residuum.studies.settings import DataSettings, ForgetSettings
from residuum.studies.stages import Setup
from residuum.studies.store import Store
from residuum.studies.subjects import NamedSubject

SUBJECT = NamedSubject(data=DataSettings(), fingerprint="", requests=(ForgetSettings(),))

QUICK = {
    "data.train_size": 200,
    "data.validation_size": 60,
    "data.test_size": 120,
    "train.epochs": 15,
    "relearn.epochs": 2,
    "audit.taus.gaussian": [0.0, 0.1, 0.2],
    "audit.draws": 5,
    "gd.epochs": 1,
    "rurk.epochs": 1,
}


@pytest.fixture(scope="session")
def quick():
    return Study.create("digits", methods="gd,loud=rurk:lambda_a=0.5", seeds=[1, 2], overrides=QUICK)


@pytest.fixture(scope="session")
def finished(quick, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    results = run_all([quick], store=folder / "store")[0]
    return write_run(quick, results, folder / "out").as_dict(), folder, results


SETUP = Setup(SUBJECT, seed=1, threads=1, compute=Compute())


@pytest.fixture(scope="session")
def stage():
    """A function that returns a stage of some kind, whose settings say little."""

    def make(kind, name, **parents):
        return type("Small", (Toy,), {"kind": kind})(setup=SETUP, name=name, parents=parents)

    return make


@dataclass(frozen=True, kw_only=True, eq=False)
class Toy(Stage):
    """A stage that computes next to nothing."""

    kind = "train"
    log: str = ""
    ids: tuple[str, ...] = ()
    extra: int = 0

    def compute(self, work):
        """Leave a line in a log outside, so that tests can count how often it ran."""
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"{self.setup.seed}\n")
        (work.folder / "value.txt").write_text(str(self.setup.seed))
        (work.folder / "ids.txt").write_text("\n".join(self.ids))


@pytest.fixture
def toy(tmp_path):
    def stage(seed=1, name="toy", **settings):
        return Toy(setup=replace(SETUP, seed=seed), name=name, log=str(tmp_path / "log"), **settings)

    return stage, Store(tmp_path / "store"), tmp_path / "log"
