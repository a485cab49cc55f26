"""Shared by the tests of this folder: digits cut down to a few seconds, and stages that compute next to nothing."""

from __future__ import annotations

import pytest
from pydantic import Field

from residuum.studies import Stage, Study, run_all, write_run
from residuum.studies.settings import DataSettings, ForgetSettings, StageSettings
from residuum.studies.stages import STAGES
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


@pytest.fixture(scope="session")
def stage():
    """A function that returns a stage of some kind, whose settings say little."""

    def make(kind, name, **parents):
        own = type("Settings", (StageSettings,), {"kind": kind, "__module__": __name__})
        return Stage(own(name=name, subject=SUBJECT, seed=1), parents)

    return make


def counting_stage(settings, parents, folder):
    """Leave a line in a log outside, so that tests can count how often it ran."""
    with open(settings.log, "a", encoding="utf-8") as log:
        log.write(f"{settings.seed}\n")
    (folder / "value.txt").write_text(str(settings.seed))
    (folder / "ids.txt").write_text("\n".join(settings.ids))


class ToySettings(StageSettings):
    """Settings of a stage that computes next to nothing."""

    kind = "train"
    name: str = "toy"
    subject: NamedSubject = Field(default=SUBJECT, exclude=True)
    log: str
    ids: tuple[str, ...] = ()
    extra: int = 0


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.setitem(STAGES, "train", counting_stage)

    def stage(seed=1, parents=None, **settings):
        return Stage(ToySettings(seed=seed, log=str(tmp_path / "log"), **settings), parents or {})

    return stage, Store(tmp_path / "store"), tmp_path / "log"
