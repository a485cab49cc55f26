"""A table of command lines that cannot be carried out: exit code, one line, nothing left behind, and at once."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from pathlib import Path
from pkgutil import resolve_name
from typing import get_type_hints

import numpy as np
import pytest
from safetensors.torch import save_file

from residuum.cli import COMMANDS, run_command
from residuum.cli.options import with_options
from residuum.core.files import LOCK
from residuum.models import build_model, save_weights
from residuum.record import Results, sealed

LONG = "n" * 300
PROGRESS = "residuum: planning: "  # printed on a slow machine, before the error
ALIASES = {"id_file": "ids"}
RUN = json.loads((Path(__file__).parents[1] / "golden" / "tiny.json").read_text())


def changed(*path, to):
    """Return the text of a run's record with one value replaced, or removed with `to=...`."""
    record = json.loads(json.dumps(RUN))
    *parents, last = path
    node = record
    for part in parents:
        node = node[part]
    if to is ...:
        del node[last]
    else:
        node[last] = to
    return json.dumps(record)


AUDIT = ("methods", "gd", "per_seed", "131", "audits", "gaussian")
RECORDS = {
    "empty": "",
    "list": "[]",
    "null": "null",
    "binary": "\x00\x01\x02",
    "deep": "[" * 100_000,
    "cut": json.dumps(RUN)[:1000],
    "no-schema": changed("schema", to=...),
    "newer": changed("schema", to="residuum.results/9"),
    "no-scenario": changed("scenario", to=...),
    "no-methods": changed("methods", to=...),
    "no-seeds": changed("seeds", to=...),
    "seeds-text": changed("seeds", to="one"),
    "no-rows": changed("methods", to={}),
    "methods-list": changed("methods", to=[]),
    "number-text": changed(*AUDIT, "residual_knowledge", "pooled", to=["a", "b", "c"]),
    "taus-none": changed(*AUDIT, "taus", to=None),
    "curve-short": changed(*AUDIT, "residual_knowledge", "pooled", to=[1.0]),
    "draws-list": changed(*AUDIT, "draws", to=[[]]),
    "form": changed("scenario", "form", to="neither"),
    "no-results": changed("methods", "gd", "per_seed", to={}),
    "metrics": changed("methods", "gd", "per_seed", "131", "metrics", to=3),
    "nan": json.dumps(RUN).replace('"passes": ', '"seconds": NaN, "passes": ', 1),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Files that are wrong in one way each; the command lines of the table are run beside them."""
    folder = tmp_path_factory.mktemp("home")
    for name, text in RECORDS.items():
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "results.json").write_text(text)
    (folder / "runs" / "good").mkdir()
    (folder / "runs" / "good" / "results.json").write_text(json.dumps(sealed(RUN)))
    (folder / "runs" / "requests" / "request-1").mkdir(parents=True)
    step = {"schema": Results.SCHEMA, "seeds": [], "sequence": {"number": 1, "of": 1}}
    (folder / "runs" / "requests" / "request-1" / "results.json").write_text(json.dumps(step))
    (folder / "folder").mkdir()
    (folder / "empty").write_text("")
    (folder / "large").write_text("id\n" * 400_000)
    (folder / "binary").write_bytes(b"\xff\xfe\x00\x80")
    (folder / "requests.txt").write_text("class=8\nclas=9\n")
    (folder / "text.npz").write_text("no zip")
    np.savez(folder / "odd.npz", z=np.zeros(3))
    np.savez(folder / "objects.npz", x=np.array([{}], dtype=object), y=np.zeros(1))
    save_weights(build_model("mlp", (4,), 3, seed=0), folder / "mlp.safetensors")
    save_file({}, folder / "nothing.safetensors")
    (folder / "manifest.json").write_text("[]")
    (folder / "ids.json").write_text('{"schema": "residuum.manifest/1", "seen_ids": 3}')
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / "pipe.toml")
    for name, mark in {"newer": '{"version": 99}', "marked": '{"version": "1"}', "truth": '{"version": true}'}.items():
        (folder / name / "train").mkdir(parents=True)
        (folder / name / "store.json").write_text(mark)
    (folder / "nested" / "store.json").mkdir(parents=True)
    return folder


GRID = "run tiny --methods gd"
LINES = """
# nothing of that name
digit: No such command
run digit: unknown scenario 'digit'; did you mean digits
run ../digits: unknown scenario
run /etc/passwd: unknown scenario
run '': unknown scenario
run tiny.toml: tiny.toml
run %(long)s: unknown scenario
run '[/b]': unknown scenario '[/b]'
run tiny --profile none: unknown profile of tiny
run tiny --methods rukr: did you mean rurk
run tiny --methods '': unknown method
run tiny --methods gd,,ga: unknown method
run tiny --methods original: original always runs
run tiny --methods control_9=gd: a row label other than original, retrain, control and control_...
run tiny --methods gd,gd: two rows are called 'gd'
run tiny --methods a/b=gd: a row label that can name a file
run tiny --methods .=gd: a row label that can name a file
run tiny --methods %(long)s=gd: a row label that can name a file
run tiny --methods '$(printf x)=gd:epochs': expected NAME:key=value
run tiny --methods gd:epochs: expected NAME:key=value
run tiny --methods gd:epochs=x: epochs
run tiny --methods gd:epochs=: epochs
run tiny --methods gd:epochs=-1: epochs
run tiny --methods gd:epochs=1e400: epochs
run tiny --methods gd:epochs=1:epochs=2: epochs
run tiny --methods gd:lr=nan: lr
run tiny --methods gd:lr=inf: lr
run tiny --methods gd:lr=[[[[: lr
run tiny --methods gd:batch_size=0: batch_size
run tiny --methods gd:lr=true: expected a number
run tiny --set train.lr=false: train.lr
run tiny --set audit.draws=true: draws
run tiny --methods gd:weight_decay=-1: expected 0 or more
run tiny --methods amun:weight_decay=nan: finite number
run tiny --methods ct:weight_decay=inf: finite number
run tiny --methods rurk:v=100000000000: expected 1000 or less
run tiny --methods rurk:v=1000000000: v
run tiny --methods gd:epochs=1,2: epochs
run tiny --methods gd,5: unknown method '5'
run tiny --methods ga:epochs=-1: epochs
run tiny --methods gd:__class__=1: unknown setting of gd
run tiny --methods gd --methods: requires an argument
# seeds
run tiny --seeds x: expected whole numbers
run tiny --seeds '': expected whole numbers
run tiny --seeds 1,,2: expected whole numbers
run tiny --seeds 1.5: expected whole numbers
run tiny --seeds=-1: seeds
run tiny --seeds 1,1: none twice
run tiny --seeds 99999999999999999999: seeds
run tiny --set seeds=-5: seeds
run tiny --seeds 1 --set seeds=2: expected --seeds or --set seeds=, got both
run tiny --draws 3 --set audit.draws=4: expected --draws or --set audit.draws=, got both
run tiny --perturbations gaussian --set audit.perturbations=fgsm: got both
run tiny --references 3 --set references=2: expected --references or --set references=, got both
tune tiny --method gd --set seeds=4: expected the seeds of tune in --seeds
run tiny --set data.split_seed=-1: split_seed
# settings
run tiny --set x: expected key=value
run tiny --set =3: expected key=value
run tiny --set x=3: unknown setting
run tiny --set train=3: train
run tiny --set train.=3: train
run tiny --set .=3: unknown setting
run tiny --set train.epochs=0: epochs
run tiny --set train.epochs=-1: epochs
run tiny --set train.epochs=many: epochs
run tiny --set train.epochs=1e12: epochs
run tiny --set train.epochs=%(deep)s: epochs
run tiny --set train.lr=inf: lr
run tiny --set train.lr=nan: lr
run tiny --set train.batch_size=0: batch_size
run tiny --set retrain_epochs=0: retrain_epochs
run tiny --set retrain_epochs=-1: retrain_epochs
run tiny --set relearn.epochs=-1: relearn
run tiny --set relearn=3: relearn
run tiny --set methods.gd=3: gd
run tiny --set methods=3: methods
run tiny --set rows=3: 3
run tiny --set name=../../x: name
run tiny --set name=: name
run tiny --set name=%(long)s: name
run tiny --set controls=0: controls
run tiny --set controls=100000: controls
run tiny --set threads=0: threads
run tiny --set threads=100000000: threads
run tiny --set threads=-1: threads
run tiny --set model.name=cnm: did you mean cnn
run tiny --set model.width=0: width
run tiny --set model.width=1000000: width
run tiny --set model.width=99999999999999999999: width
run tiny --set model.name=resnet18 --set model.width=100000: width
run tiny --set accept_reference=maybe: accept_reference
run tiny --set earlier=3: earlier
run tiny --set left_open=3: left_open
# data
run tiny --set data.name=cifar: did you mean cifar10
run tiny --set data.name=missing.npz: missing.npz
run tiny --set data.name=text.npz: text.npz
run tiny --set data.name=odd.npz: odd.npz
run tiny --set data.name=objects.npz: objects.npz
run tiny --set data.name=folder: folder
run tiny --set data.name=empty: empty
run tiny --set data.name=%(long)s: data
run tiny --set data.name=: no image
run tiny --set data.classes=: class
run tiny --set data.classes=1: class
run tiny --set data.classes=1,1: 1
run tiny --set data.classes=x,y: class
run tiny --set data.train_size=1: train_size
run tiny --set data.train_size=10000000: train
run tiny --set data.test_size=0: test_size
run tiny --set data.validation_size=-1: validation_size
run tiny --set data.train_ranks=5,1: ranks
run tiny --set data.train_ranks=5: ranks
run tiny --set data.size=0: size
run cifar10 --data-root nowhere: cifar-10-batches-py
run cifar10 --data-root binary: cifar
run cifar10 --download: expected --data-root
# what is forgotten
run tiny --set forget.forget_class=99: class
run tiny --set forget.forget_fraction=0: forget
run tiny --set forget.forget_fraction=2: forget
run tiny --set forget.forget_fraction=nan: forget
run tiny --set forget.forget_ids=nobody: forget
run tiny --request clas=8: did you mean class
run tiny --request '': expected a request
run tiny --request class=: expected a request
run tiny --request class=99: class
run tiny --request class=8,class=3: expected class= once
run tiny --request fraction=x: fraction
run tiny --request fraction=inf: fraction
run tiny --request fraction=-1: fraction
run tiny --request id=nobody: nobody
run tiny --request ids=missing.txt: missing.txt
run tiny --request ids=empty: no ids
run tiny --request ids=binary: UTF-8
run tiny --request ids=folder: folder
run tiny --request ids=/dev/zero: it is not a regular file
run tiny --request ids=/dev/urandom: it is not a regular file
run tiny --requests /dev/zero: it is not a regular file
run tiny --request ids=pipe: nothing came through this pipe for 0.2 s
run tiny --requests pipe: nothing came through this pipe
forget --ids /dev/zero --store folder: /dev/zero
run tiny --request ids=large: has more than 1 MiB; expected a list
run tiny --requests missing.txt: missing.txt
run tiny --requests empty: no requests
run tiny --requests binary: UTF-8
run tiny --requests folder: folder
run tiny --requests requests.txt: did you mean class
run tiny --request class=8 --set forget.forget_class=3: got both
run tiny --request class=8 --request class=8: request 2
# the audit
run tiny --perturbations gausian: did you mean gaussian
run tiny --perturbations '': perturbation
run tiny --perturbations gaussian:at=x: unknown layer for gaussian:at= 'x'
run tiny --perturbations substitution --set audit.taus.substitution=0.1: expected token ids
run tiny --perturbations gaussian,gaussian: gaussian
run tiny --perturbations pgd:steps=x: steps
run tiny --perturbations pgd:steps=-1: steps
run tiny --perturbations pgd:steps=1e9: steps
run tiny --perturbations pgd:step: expected NAME:key=value
run tiny --perturbations fgsm:target=nobody: target
run tiny --set audit.perturbations=pgd:steps=x: steps
run tiny --set audit.taus.gaussian=-1: taus
run tiny --set audit.taus.gaussian=1e39: taus
run tiny --set audit.taus.gaussian=nan: taus
run tiny --set audit.taus.gaussian=inf: taus
run tiny --set audit.taus.gaussian=0,x: taus
run tiny --set audit.taus.gaussian=: taus
run tiny --set audit.taus.nobody=0,0.1: unknown perturbation 'nobody'
run tiny --set audit.taus.gaussian=0.1,0.1: different finite radii
run tiny --set audit.taus=3: taus
run tiny --set audit.confidence=1: confidence
run tiny --set audit.confidence=nan: confidence
run tiny --draws 0: draws
run tiny --draws=-1: draws
run tiny --draws x: draws
run tiny --draws 2000000000 --set controls=100 --seeds 1,2,3,4: --yes
run tiny --draws 99999999999999999999: draws
run tiny --draws 10 --half-width 0.1: got both
run tiny --methods soft_reset:keep=2: 1 or less, got 2
run tiny --methods rurk:cap=x: 'classes' or 'validation' or a number
run tiny --half-width 0: half_width
run tiny --half-width inf: half_width
run tiny --half-width nan: half_width
run tiny --half-width=-1: half_width
run tiny --half-width 1e-9 --max-draws 2000000000 --set controls=100 --seeds 1,2,3,4: --yes
run tiny --max-draws 10: --half-width
run tiny --half-width 0.1 --max-draws 0: max_draws
run tiny --until never: until
run tiny --until verdict --half-width 0.1: got both
# places and processes
run tiny --out empty/run: cannot write
run tiny --out %(long)s: cannot write
run tiny --out %(folders)sx: cannot write
run tiny --store empty: cannot write to the store
run tiny --store empty/x: cannot write to the store
run tiny --store pipe: cannot write to the store
run tiny --store %(long)s: cannot write to the store
run tiny --store newer: update Residuum
run tiny --store marked: remove the file
run tiny --store truth: remove the file
run tiny --store nested: remove the file
run tiny --set references=1000000: references
forget a --store marked: remove the file
run tiny --out runs/requests: another kind of run
run tiny --init-from '': expected the path of a file or folder, got an empty text
run tiny --gallery --init-from=: expected the path of a file or folder, got an empty text
run tiny --init-from folder: folder
run tiny --init-from missing: missing
run tiny --init-from empty: empty
run tiny --init-from mlp.safetensors: another architecture
run tiny --init-from nothing.safetensors: weights
run tiny --init-from pipe: pipe
run tiny --manifest manifest.json: --init-from
run tiny --init-from mlp.safetensors --manifest pipe: regular file
run pipe.toml: regular file
verify pipe: regular file
run tiny --init-from mlp.safetensors --manifest missing.json: missing.json
run tiny --init-from mlp.safetensors --manifest manifest.json: manifest
run tiny --init-from mlp.safetensors --manifest ids.json: expected a list of ids
run tiny --init-from mlp.safetensors --manifest folder: folder
run tiny --init-from mlp.safetensors --manifest binary: binary
run tiny --workers 0: workers
run tiny --workers 1000000: workers
run tiny --devices 0: devices
run tiny --devices 100000: devices
run tiny --nodes 0: nodes
run tiny --precision 16: precision
run tiny --cluster tcp://nowhere --devices 1: got both
run tiny --cluster nonsense: scheduler
run tiny --nope: No such option
run tiny extra: unexpected extra argument
# grids
run tiny --grid lr=1: expected one method with --grid
run tiny --methods gd,ga --grid lr=1: expected one method with --grid
%(grid)s --grid lr: expected key=value
%(grid)s --grid lr=: expected field=value,value
%(grid)s --grid lr=0.1,,0.2: none of them empty
%(grid)s --grid lr=%(many)s --grid momentum=%(many)s: expected at most 1000 settings in a grid, got 25000000
%(grid)s --grid lrr=1: unknown setting of gd
%(grid)s --grid lr=1 --grid lr=2: each field once
%(grid)s --grid lr=x: lr
%(grid)s --grid lr=0.1,0.1: two rows are called
run tiny --methods gdd --grid lr=1: unknown method
# settings without a re-trained model
tune: Missing argument
tune tiny: Missing option
tune digit --method gd: unknown scenario
tune tiny --method gdd: expected --grid
tune tiny --method gdd --grid lr=1: unknown method
tune tiny --method gd --grid lr: expected key=value
tune tiny --method gd --grid lr=: expected field=value,value
tune tiny --method gd --grid lr=x: lr
tune tiny --method gd --budget x: budget
tune tiny --method gd --budget=-1: budget
tune tiny --method gd --budget nan%%: budget
tune tiny --method gd --points nan: points
tune tiny --method gd --points=-1: points
tune tiny --method gd --surrogate-models 0: surrogates
tune tiny --method gd --surrogate-models 1000000: surrogates
tune tiny --method gd --share 0: share
tune tiny --method gd --share 2: share
tune tiny --method gd --share nan: share
tune tiny --method gd --seeds x: expected whole numbers
tune tiny --method gd --seeds=-1: seeds
tune tiny --method gd --draws 0: draws
tune tiny --method gd --set x=1: unknown setting
# giving a run away
export tensorboard: Missing argument
export tensorboard missing: missing
export paper runs/good: No such command
export card missing: Missing argument
export card: Missing argument
export card missing gd --out out: missing
export card runs/good nobody --out out: nobody
export card runs/good gd --out empty: runs/good
# reports
report: Missing argument
report missing: missing
report folder: folder
report empty: empty
report runs/good runs/good: expected different runs
report runs/good --out empty: cannot write
report runs/good --fail-if 'nobody.r > 1': nobody
report runs/good --fail-if 'r > 1e999': finite
run tiny --fail-if 'r > 1e999': finite
report runs/requests: request-1/results.json
# checks, lists
check nobody: unknown method
check no.such:Method: cannot load
check os:path: --kind
check '': unknown method
check :: cannot load
list nothing: unknown list
store nothing: No such command
store ls --store missing: missing
"""


def table():
    words = {"long": LONG, "deep": "[" * 100_000, "grid": GRID, "folders": "d/" * 2500}
    words["many"] = ",".join(map(str, range(5000)))
    for line in LINES.strip().splitlines():
        if not line.startswith("#"):
            command, _, said = (line % words).rpartition(": ")
            yield command, said
    for name in RECORDS:
        yield f"report runs/{name}", f"runs/{name}"


TABLE = list(table())


def left(folder):
    return sorted(str(path) for path in folder.rglob("*") if path.name != LOCK)


def test_the_table_is_long_enough():
    assert len(TABLE) >= 150
    assert len(set(TABLE)) == len(TABLE)


@pytest.mark.parametrize(("command", "said"), TABLE, ids=[command[:60] for command, _ in TABLE])
def test_one_line_exit_code_2_nothing_left_behind(command, said, home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    monkeypatch.delenv("RESIDUUM_DATA", raising=False)
    for work in ("residuum.studies.execution.run_all", "residuum.tuning.run_stages"):
        monkeypatch.setattr(work, None)  # whoever gets that far was not refused
    monkeypatch.setattr("residuum.data.ids.SILENCE", 0.2)
    monkeypatch.setattr("residuum.data.ids.MOST_BYTES", 2**20)
    before, start = left(home), time.process_time()
    code = run_command(shlex.split(command))
    seconds = time.process_time() - start
    captured = capsys.readouterr()
    new = sorted(set(left(home)) - set(before))
    for path in new:
        shutil.rmtree(path) if Path(path).is_dir() else Path(path).unlink(missing_ok=True)
    assert (code, new, captured.out) == (2, [], "")
    lines = [line for line in captured.err.split("\n")[:-1] if not line.startswith(PROGRESS)]
    assert len(lines) == 1
    assert lines[0].startswith("residuum: error: ")
    assert said in lines[0]
    assert seconds < 10


def path_options():
    for words, function in COMMANDS.items():
        hints = get_type_hints(with_options(resolve_name(function)))
        for name, kind in hints.items():
            if "Path" in str(kind):
                yield words, name


@pytest.mark.parametrize(("words", "name"), [*path_options()])
def test_an_empty_path_is_refused(words, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = (
        [""]
        if name in ("run", "runs", "pack", "file", "data")
        else [f"--{ALIASES.get(name, name).replace('_', '-')}", ""]
    )
    assert run_command([*words.split(), *path]) == 2
    said = capsys.readouterr().err
    assert said.endswith("expected the path of a file or folder, got an empty text\n")
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_list_of_ids_comes_through_a_pipe(home, monkeypatch):
    from residuum.data.ids import read_ids

    reader, writer = os.pipe()
    os.write(writer, b"a\nb\n")
    os.close(writer)
    assert read_ids(Path(f"/dev/fd/{reader}")) == ("a", "b")
    os.close(reader)


def test_a_connection_time_that_is_no_number_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for text in ("abc", "nan", "-1", "inf"):
        monkeypatch.setenv("RESIDUUM_CONNECTION", text)
        assert run_command(["run", "tiny", "--devices", "2"]) == 2
        assert f"RESIDUUM_CONNECTION: expected seconds above 0, at most 86400, got '{text}'" in capsys.readouterr().err
