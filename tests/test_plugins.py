"""Plug-ins of every kind, by file and by entry point: named, checked, run, recorded and shown like ours."""

from __future__ import annotations

import csv
import json
import pickle
import re
import shlex
import subprocess
import sys
import textwrap
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from residuum import Run
from residuum.auditing import Counts
from residuum.auditing.measures import OWN_MEASURES
from residuum.cli import run_command
from residuum.core.components import BUILT_IN_MEASURES
from residuum.core.errors import InputError
from residuum.core.registry import REGISTRIES, Registry, load_plugin
from residuum.data import DATASETS, load_dataset
from residuum.models import MODELS, load_weights
from residuum.perturbations import PERTURBATIONS
from residuum.reporting import to_frame
from residuum.reporting.glossary import MEASURES
from residuum.studies import SCENARIOS, Study, load_scenario, plan
from residuum.studies.store import Store
from residuum.testing import check_plugin

GUIDE = (Path(__file__).parents[1] / "docs" / "guides" / "plug-ins.md").read_text(encoding="utf-8")
LEAD = """

def lead(counts, heldout):
    "Lead: mean excess over re-train, with a made-up interval."
    value = ((counts.method_right - counts.reference_right) / counts.draws).mean(axis=0)
    return value, value - 1, value + 1
"""


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.M | re.S)
    return found


OWN, SCENARIO = block("python") + LEAD, block("toml")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "stripes.toml").write_text(SCENARIO)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for table in REGISTRIES.values():
        for name in list(table.sources):
            del table[name], table.sources[name]


def test_the_guides_commands(folder, capsys):
    commands = [line for line in GUIDE.replace("\\\n", " ").splitlines() if line.startswith("residuum ")]
    assert len(commands) == 5
    for line in commands:
        quick = ["--store", "store", "--workers", "1"] if " run " in line else []
        assert run_command([*shlex.split(line)[1:], *quick]) == 0, line
    printed = capsys.readouterr().out
    assert "BROKEN" not in printed
    assert "Best known sample" in (folder / "runs" / "stripes" / "report.html").read_text()


def run_it(*more: str) -> int:
    quick = ["--store", "store", "--out", "run", "--workers", "1"]
    return run_command(["run", "stripes.toml", *quick, *more])


def test_a_run_of_nothing_but_plug_ins(folder):
    assert run_it("--methods", "own.py:Gentle,gd", "--measures", "own.py:best_known,own.py:lead") == 0
    run = Run.load("run")
    assert list(run.rows) == ["original", "retrain", "control", "gentle", "gd"]
    assert run.record.scenario.name == "stripes"
    assert run.record.scenario.settings.data.name == "stripes"
    assert run.record.scenario.public_data is False
    audit = run.rows["gentle"].per_seed["1"].audits["shade"]
    counts = Counts.load(run.folder / audit.counts)
    expected = [max(counts.method_right[i, k] / counts.draws[i, k] for i in range(len(counts))) for k in range(3)]
    assert audit.measures["best_known"].value == expected
    assert audit.measures["best_known"].low == []
    value = audit.measures["lead"].value
    assert audit.measures["lead"].high == [one + 1 for one in value]
    assert np.allclose(value, audit.difference.value)
    page = (run.folder / "report.html").read_text()
    assert page.count("<figcaption>Best known sample<") == 1
    lines = csv.DictReader((run.folder / "table.csv").read_text().splitlines())
    (line,) = [line for line in lines if line["model"] == "gentle"]
    assert float(line["best_known_shade"]) == pytest.approx(np.mean(expected[1:]))
    assert "best_known" in to_frame(run, "audits").columns
    kept = json.loads((run.folder / "results.json").read_text())["scenario"]["plugins"]
    assert set(kept) == {"method", "perturbation", "data set", "model", "measure"}
    assert kept["model"]["flat"]["file"] == "own.py"
    assert str(folder) not in (run.folder / "results.json").read_text()


def test_a_worker_process_knows_the_plug_ins(folder):
    (own,) = plan(Study.create("stripes.toml"))
    (folder / "stage.pickle").write_bytes(pickle.dumps((Store(folder / "store"), own.models["original"])))
    text = "import pickle; store, stage = pickle.load(open('stage.pickle', 'rb')); print(store.compute(stage))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, check=True)
    assert load_weights(f"{done.stdout.strip()}/model.safetensors").architecture["name"] == "flat"


def test_stages_are_computed_again_when_the_file_changes(folder):
    def key() -> str:
        (own,) = plan(Study.create("stripes.toml"))
        return own.audits["shade"].key

    first = key()
    assert key() == first
    (folder / "own.py").write_text((folder / "own.py").read_text().replace("1 - tau *", "1 - 0.5 * tau *"))
    assert key() != first


@pytest.mark.parametrize("name", [*PERTURBATIONS.built_in, *MODELS.built_in, "digits", "iris"])
def test_ours_keep_the_promises_of_their_kind(name):
    small = {"airbench", "resnet18", "resnet50", "vgg11"}  # too large for images of 8 pixels or for a quick test
    kind = "dataset" if name in DATASETS else None
    faults = {} if name in small else check_plugin(name, kind)
    assert {promise.__name__: fault for promise, fault in faults.items() if fault} == {}


BROKEN = """
    import numpy as np
    import torch
    from torch import nn
    from residuum.data import Dataset
    from residuum.models import Classifier

    def leaves(model, x, y, generator, tau):
        return x + tau
    def drifts(model, x, y, generator, tau):
        return (x + 0.01).clamp(0, 1)
    def global_noise(model, x, y, generator, tau):
        return (x + tau * torch.rand(x.shape)).clamp(0, 1)
    def spoils(model, x, y, generator, tau):
        x.mul_(1 - tau)
        return x.clone()
    def twins(root=None):
        return Dataset.from_arrays(np.random.rand(20, 4), np.arange(20) % 2)
    def nothing(root=None):
        return None
    class Bare(Classifier):
        name = "bare"
        def __init__(self, shape, classes, width, normalize):
            super().__init__(normalize)
            self.fc = nn.Linear(64, classes)
        def forward(self, x):
            return self.fc(x.flatten(1))
    class Social(Bare):
        name = "social"
        def forward(self, x):
            x = self.normalize(x)
            return self.fc((x - x.mean(0)).flatten(1))
"""


@pytest.mark.parametrize(
    ("target", "kind", "promise"),
    [
        ("leaves", "perturbation", "moves_inputs_within_bounds"),
        ("drifts", "perturbation", "moves_nothing_at_radius_0"),
        ("global_noise", "perturbation", "draws_from_its_generator_only"),
        ("spoils", "perturbation", "leaves_model_and_inputs_alone"),
        ("twins", "dataset", "loads_the_same_again"),
        ("nothing", "dataset", "loads_a_dataset"),
        ("Bare", "model", "normalizes_its_inputs"),
        ("Social", "model", "judges_each_input_alone"),
    ],
)
def test_a_broken_promise_is_found(folder, target, kind, promise):
    (folder / "broken.py").write_text(textwrap.dedent(BROKEN))
    faults = {kept.__name__: fault for kept, fault in check_plugin(f"broken.py:{target}", kind).items()}
    assert faults[promise] is not None


def test_a_scenario_is_checked_by_a_dry_run(folder):
    with pytest.raises(InputError, match=r"residuum run stripes.toml --dry-run checks it"):
        check_plugin("stripes.toml")


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Have entry points of every kind, and a broken one."""
    (tmp_path / "installed_plugins.py").write_text(
        OWN + "\nfrom pathlib import Path\nSCENARIO = Path(__file__).with_name('faraway.toml')\n"
    )
    (tmp_path / "faraway.toml").write_text('based_on = "tiny"\n[forget]\nforget_fraction = 0.2\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    values = {
        "residuum.perturbations": {"shade": "installed_plugins:shade"},
        "residuum.datasets": {"stripes": "installed_plugins:load_stripes", "lost": "no_such_package:load"},
        "residuum.models": {"flat": "installed_plugins:Flat"},
        "residuum.measures": {"lead": "installed_plugins:lead", "memory": "installed_plugins:shade"},
        "residuum.scenarios": {"faraway": "installed_plugins:SCENARIO"},
        "residuum.methods": {"gentle": "installed_plugins:Gentle"},
    }

    def found(group):
        return [EntryPoint(name, value, group) for name, value in values.get(group, {}).items()]

    monkeypatch.setattr("residuum.core.registry.entry_points", found)
    for table in REGISTRIES.values():
        table.__dict__.pop("data", None)
    yield
    monkeypatch.undo()
    for table in REGISTRIES.values():
        table.__dict__.pop("data", None)
        table.broken.clear()


@pytest.mark.usefixtures("installed")
def test_entry_points_of_every_kind(capsys):
    assert run_command(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert list(listed["datasets"])[-1] == "stripes"
    assert listed["measures"]["lead"] == "Lead: mean excess over re-train, with a made-up interval."
    assert listed["models"]["flat"] == "One linear layer on all pixels."
    assert "shade" in listed["perturbations"]
    assert "gentle" in listed["methods"]
    assert list(SCENARIOS)[-1] == "faraway"
    assert load_scenario("faraway").forget.forget_fraction == 0.2
    assert len(load_dataset("stripes").train) == 200


@pytest.mark.usefixtures("installed")
def test_a_broken_package_hurts_nobody_but_who_asks_for_it():
    assert len(load_dataset("iris").train) == 150
    with pytest.raises(InputError, match=r"data set 'lost' is installed, but cannot load 'no_such_package:load'"):
        DATASETS.find("lost")
    with pytest.raises(InputError, match="the name 'memory' of installed_plugins:shade is taken"):
        OWN_MEASURES.find("memory")


def test_a_name_that_is_taken_is_refused(folder):
    (folder / "thief.py").write_text("def gaussian(model, x, y, generator, tau):\n    return x\n")
    with pytest.raises(InputError, match=r"perturbation 'gaussian' of thief.py:gaussian is taken"):
        PERTURBATIONS.add("thief.py:gaussian")
    (folder / "one.py").write_text("def f(counts, heldout):\n    return counts.draws[0]\n")
    (folder / "two.py").write_text("def f(counts, heldout):\n    return counts.draws[0]\n")
    assert OWN_MEASURES.add("one.py:f") == OWN_MEASURES.add("one.py:f") == "f"
    with pytest.raises(InputError, match="taken"):
        OWN_MEASURES.add("two.py:f")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.py:f", "cannot load 'missing.py:f'"),
        ("raises.py:f", "cannot load 'raises.py:f' .ZeroDivisionError"),
        ("leaves.py:f", "cannot load 'leaves.py:f' .SystemExit"),
        ("syntax.py:f", "SyntaxError"),
        ("fine.py:g", "unknown name in fine.py 'g'"),
    ],
)
def test_files_that_cannot_be_loaded_are_named(folder, source, message):
    texts = {"raises": "1/0", "leaves": "import sys; sys.exit(3)", "syntax": "def f(:", "fine": "f = 1"}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    with pytest.raises(InputError, match=message):
        load_plugin(source)


@pytest.mark.parametrize(("table", "text"), [(MODELS, "one"), (PERTURBATIONS, "one"), (OWN_MEASURES, "one")])
def test_what_is_none_of_its_kind_is_refused(folder, table: Registry, text):
    (folder / "numbers.py").write_text("one = 1\n")
    with pytest.raises(InputError, match="expected"):
        table.add(f"numbers.py:{text}")


def test_command_line_names_what_is_wrong(folder, capsys):
    assert run_it("--measures", "own.py:nothing") == 2
    assert "unknown name in own.py 'nothing'" in capsys.readouterr().err
    assert run_command(["run", "missing.toml"]) == 2
    assert "cannot read missing.toml" in capsys.readouterr().err
    (folder / "bad.toml").write_text("rows = [")
    assert run_command(["run", "bad.toml"]) == 2
    assert "expected a scenario in TOML" in capsys.readouterr().err


def test_names_of_our_measures_are_reserved():
    assert set(BUILT_IN_MEASURES) == {measure.key for measure in MEASURES}
