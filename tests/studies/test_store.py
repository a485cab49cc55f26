"""The store: what is finished stays finished, what is broken is noticed, what must go is found."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import subprocess
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch

from residuum.auditing.heldout import choose_heldout
from residuum.cli import run_command
from residuum.core import files
from residuum.core.errors import InputError, LostProcessError, ResiduumWarning
from residuum.models import build_model, save_weights
from residuum.studies import Study, artifacts, maintenance, plan, run_all
from residuum.studies.artifacts import _module, broken_artifacts, code_fingerprint, import_closure
from residuum.studies.stages import KINDS
from residuum.studies.store import Store
from residuum.training.checkpoint import Checkpoint


@pytest.fixture(autouse=True)
def fresh_fingerprints():
    yield
    forget_code()


def forget_code():
    code_fingerprint.cache_clear()
    _module.cache_clear()


def test_a_finished_stage_never_runs_again(toy):
    stage, store, log = toy
    assert not store.has(stage())
    first = store.compute(stage())
    assert store.has(stage())
    assert store.compute(stage()) == first
    assert log.read_text() == "1\n"


@pytest.mark.parametrize("mask", [0o002, 0o027])
def test_folders_and_files_of_a_store_follow_the_umask(mask, toy):
    stage, store, _ = toy
    before = os.umask(mask)
    try:
        store.compute(stage())
    finally:
        os.umask(before)
    made = [store.folder(stage()).parent, *store.folder(stage()).rglob("*"), *store.root.rglob("*")]
    assert store.folder(stage()) in made
    for path in made:
        usual = 0o777 if path.is_dir() else 0o666
        assert path.stat().st_mode & 0o777 == usual & ~mask, path


def test_another_setting_parent_or_code_is_another_key(toy, monkeypatch):
    stage, _, _ = toy
    keys = {stage().key, stage(seed=2).key, stage(extra=1).key, stage(parents={"original": stage(seed=2)}).key}
    assert len(keys) == 4
    before = stage().key
    monkeypatch.setattr("residuum.studies.artifacts.LIBRARIES", ("torch",))
    forget_code()
    assert stage().key != before


def test_a_method_s_own_file_counts_and_another_method_s_does_not():
    closure = import_closure(["residuum.unlearning.rurk"])
    assert "residuum.perturbations.gradient" in closure
    assert "residuum.unlearning.ga" not in closure
    assert "residuum.auditing" not in closure
    fingerprint = code_fingerprint(("residuum.unlearning.rurk",))
    assert fingerprint != code_fingerprint(("residuum.unlearning.ga",))


DECIDING = [
    "auditing.statistics", "studies.stages", "auditing.heldout", "auditing.probes.klom", "unlearning",
    "unlearning.guard", "metrics", "models.inference", "data.splits", "perturbations.base",
]  # fmt: skip


def test_all_code_that_decides_results_is_part_of_every_key(stage, monkeypatch):
    original = artifacts._module
    keys = {kind: stage(kind, "x").key for kind in KINDS}
    for name in DECIDING:
        changed = {f"residuum.{name}": ("another", original(f"residuum.{name}")[1])}
        monkeypatch.setattr(artifacts, "_module", lambda asked, changed=changed: changed.get(asked) or original(asked))
        code_fingerprint.cache_clear()
        assert [kind for kind in KINDS if stage(kind, "x").key == keys[kind]] == [], name


def test_what_only_shows_results_is_part_of_no_key():
    closure = import_closure(["residuum.studies.stages"])
    assert not [name for name in closure if name.startswith(("residuum.reporting", "residuum.cli", "residuum.pack"))]


SOURCE = '''"""A method."""
from residuum.core.errors import InputError

class Method:
    """Steps down."""

    def step(self, w):
        """Return the next weights."""
        return w - 0.1 * w  # towards zero
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("towards zero", "a decay", True),
        ("Return the next weights.", "Return weights nearer to zero.", True),
        ('    """Steps down."""\n\n', "", True),
        ('"""A method."""\n', "", True),
        ("0.1", "0.2", False),
        ("return w", "return 2 * w", False),
    ],
)
def test_a_reworded_comment_or_docstring_changes_no_fingerprint_and_a_constant_does(
    old, new, same, tmp_path, monkeypatch
):
    module = tmp_path / "my_method.py"
    monkeypatch.syspath_prepend(tmp_path)
    module.write_text(SOURCE)
    assert "residuum.core.errors" in import_closure(["my_method"])
    before = code_fingerprint(("my_method",))
    assert old in SOURCE
    module.write_text(SOURCE.replace(old, new))
    forget_code()
    assert (code_fingerprint(("my_method",)) == before) == same


@pytest.mark.parametrize("damage", ["flip", "remove", "add", "manifest"])
def test_a_damaged_artifact_is_reported_and_computed_again(toy, damage, capsys):
    stage, store, log = toy
    folder = store.compute(stage())
    target = folder / ("manifest.json" if damage == "manifest" else "value.txt")
    if damage == "remove":
        target.unlink()
    elif damage == "add":
        (folder / "stray.txt").write_text("?")
    else:
        content = bytearray(target.read_bytes())
        content[0] ^= 1
        target.write_bytes(content)
    assert broken_artifacts(folder)
    with pytest.warns(ResiduumWarning, match="is not what was written; the stage is computed again"):
        store.compute(stage())
    assert "is not what was written" in capsys.readouterr().err
    assert log.read_text() == "1\n1\n"
    assert broken_artifacts(folder) == []


def test_a_stage_that_fails_leaves_nothing(toy, monkeypatch):
    stage, store, _ = toy

    def failing(self, work):
        (work.folder / "half.txt").write_text("half")
        raise RuntimeError("stopped")

    monkeypatch.setattr(type(stage()), "compute", failing)
    with pytest.raises(RuntimeError, match="stopped"):
        store.compute(stage())
    assert list((store.root / "train").iterdir()) == []


def test_two_processes_do_every_stage_once_between_them(toy):
    stage, store, log = toy
    stages = [stage(seed=k) for k in range(6)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        list(pool.map(store.compute, stages + stages[::-1]))
    assert sorted(log.read_text().split()) == [str(k) for k in range(6)]


def test_who_waits_for_another_run_says_so(toy, monkeypatch, capfd):
    stage, store, log = toy
    store.prepare()
    monkeypatch.setattr(files, "SILENT", 0.05)
    lock = store.lock(stage().key)
    lock.acquire()
    process = multiprocessing.get_context("fork").Process(target=store.compute, args=(stage(),))
    process.start()
    process.join(0.5)
    assert not log.exists()
    lock.release()
    process.join()
    assert log.read_text() == "1\n"
    assert "waiting for another run that computes train toy (seed 1)" in capfd.readouterr().err


def test_nobody_is_waited_for_for_ever(toy, monkeypatch):
    stage, store, _ = toy
    store.prepare()
    monkeypatch.setattr(files, "SILENT", 0.01)
    monkeypatch.setattr(files, "PATIENCE", 0.05)
    with store.lock(stage().key), pytest.raises(LostProcessError, match="hours for another run that computes train"):
        Store(store.root).compute(stage())


def test_a_folder_that_is_no_store_is_left_as_it_is(tmp_path, capsys):
    for command in (["store", "gc"], ["forget", "a"]):
        assert run_command([*command, "--store", str(tmp_path)]) == 2
        assert "which holds no stages" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_a_newer_version_is_refused(toy):
    stage, store, _ = toy
    store.prepare()
    (store.root / "store.json").write_text(json.dumps({"version": 99}))
    with pytest.raises(InputError, match="has version 99, this Residuum knows 1; update Residuum"):
        store.compute(stage())


def test_a_store_that_cannot_be_written_gets_one_clear_line(toy, tmp_path):
    stage, _, _ = toy
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match=r"cannot write to the store .*file"):
        Store(tmp_path / "file").compute(stage())


def write_weights(folder, scratch):
    save_weights(build_model("cnn", (1, 8, 8), 10, width=64, seed=0), folder / "model.safetensors")


def write_checkpoint(folder, scratch):
    Checkpoint(scratch / "training.pt", every=0).save(torch.nn.Linear(1000, 300).state_dict)


def write_bytes(folder, scratch):
    (folder / "big.bin").write_bytes(b"0" * 2**20)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("greed", [write_bytes, write_weights, write_checkpoint])
def test_a_full_disk_gives_one_clear_line_and_leaves_the_store_sound(toy, greed, tmp_path, monkeypatch):
    stage, _, log = toy
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", mount], check=False).returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        store = Store(mount / "store")
        store.compute(stage())

        with monkeypatch.context() as patch:
            patch.setattr(type(stage()), "compute", lambda self, work: greed(work.folder, work.scratch))
            with pytest.raises(InputError, match="no space left for the store"):
                store.compute(stage(seed=2))
        assert maintenance.verify(store.root) == {}
        assert maintenance.leftovers(store.root) == []
        store.compute(stage(seed=3))
        assert log.read_text() == "1\n3\n"
    finally:
        subprocess.run(["umount", mount], check=True)


def test_half_written_folders_of_dead_runs_are_garbage_and_those_of_living_runs_are_not(toy):
    stage, store, _ = toy
    store.compute(stage())
    dead = store.root / "train" / ".writing-deadbeef-x"
    dead.mkdir()
    alive = store.root / "train" / ".writing-cafe-x"
    alive.mkdir()
    with store.lock("cafe"):
        assert maintenance.collect_garbage(store.root, dry_run=True) == ["half-written deadbeef"]
        assert dead.exists()
        maintenance.collect_garbage(store.root)
    assert not dead.exists()
    assert alive.exists()
    assert store.has(stage())


def test_a_finished_stage_is_kept_although_its_scratch_was_taken_away(toy, monkeypatch):
    stage, store, _ = toy
    compute = type(stage()).compute

    def robbed(self, work):
        compute(self, work)
        store.remove([work.scratch])  # by somebody who listed it before this stage began

    monkeypatch.setattr(type(stage()), "compute", robbed)
    store.compute(stage())
    assert store.has(stage())
    assert broken_artifacts(store.folder(stage())) == []


def test_garbage_is_not_collected_while_a_run_may_be_about_to_use_it(toy, capsys):
    stage, store, _ = toy
    store.compute(stage())
    checkpoint = store.root / "scratch" / stage(seed=2).key / "training.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"hours of training")
    with store.in_use():
        assert run_command(["store", "gc", "--store", str(store.root)]) == 2
        assert "a run is using the store" in capsys.readouterr().err
        assert run_command(["store", "gc", "--dry-run", "--store", str(store.root)]) == 0
        assert checkpoint.exists()
    assert run_command(["store", "gc", "--store", str(store.root)]) == 0
    assert not checkpoint.exists()
    assert store.has(stage())


def test_what_was_finished_since_it_was_listed_is_no_garbage(toy, monkeypatch):
    stage, store, _ = toy
    half, listed = store.folder(stage()), maintenance.leftovers
    half.mkdir(parents=True)

    def slow(root):
        found = listed(root)
        store.compute(stage())
        return found

    monkeypatch.setattr(maintenance, "leftovers", slow)
    assert maintenance.collect_garbage(store.root) == []
    assert store.has(stage())


def test_a_store_that_is_removed_while_a_stage_writes_is_one_clear_line(toy, monkeypatch):
    stage, store, _ = toy

    def writing(self, work):
        shutil.rmtree(store.root)
        (work.folder / "value.txt").write_text("1")

    monkeypatch.setattr(type(stage()), "compute", writing)
    with pytest.raises(InputError, match="was removed while it was in use; give the command again"):
        store.compute(stage())


def test_artifacts_of_other_code_are_garbage(toy, monkeypatch):
    stage, store, _ = toy
    store.compute(stage())
    assert maintenance.collect_garbage(store.root) == []
    monkeypatch.setattr("residuum.studies.artifacts.LIBRARIES", ())
    forget_code()
    assert maintenance.collect_garbage(store.root) == ["train toy (seed 1)"]
    assert maintenance.artifacts(store.root) == []


def test_real_stages_know_which_samples_they_read(finished, quick):
    _, folder, _ = finished
    splits, first = quick.splits(), plan(quick)[0]
    place = Store(folder / "store")

    def ids(stage):
        return set(maintenance.Artifact(place.folder(stage)).ids)

    assert ids(first.models["original"]) == set(splits.train.ids)
    assert ids(first.models["retrain"]) == set(splits.retain.ids)
    assert ids(first.models["gd"]) == set(splits.retain.ids)
    assert ids(first.models["loud"]) == {*splits.train.ids, *splits.validation.ids}  # its caps are validation losses
    shown = choose_heldout(splits.heldout, splits.forget)
    assert ids(first.audits["gaussian"]) == {*splits.forget.ids, *shown.ids}
    doomed = {artifact.key for artifact in maintenance.made_with(place.root, splits.forget.ids[:1]).artifacts}
    assert first.models["gd"].key in doomed  # made from the original, which saw the sample
    assert first.models["retrain"].key not in doomed


def test_the_command_line_lists_and_verifies(toy, capsys, tmp_path):
    stage, store, _ = toy
    folder = store.compute(stage(ids=["a"]))
    where = ["--store", str(store.root)]
    assert run_command(["store", "ls", *where]) == 0
    assert "train toy (seed 1)" in capsys.readouterr().out
    assert run_command(["store", "ls", "--json", *where]) == 0
    assert json.loads(capsys.readouterr().out)[0]["current"] is True
    assert run_command(["store", "verify", *where]) == 0
    assert "1 stage checked, 0 broken" in capsys.readouterr().out
    (folder / "value.txt").write_text("2")
    assert run_command(["store", "verify", *where]) == 1
    assert "value.txt" in capsys.readouterr().out
    assert run_command(["store", "gc", *where]) == 0
    assert "0 removed" in capsys.readouterr().out
    assert run_command(["store", "ls", "--store", str(tmp_path / "nowhere")]) == 2
    assert "which does not exist" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_a_changed_data_file_is_a_different_key(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 1, 8, 8)).astype(np.float32), np.arange(60) % 3
    sizes = {"data.train_size": 30, "data.validation_size": 10, "data.test_size": 15, "forget.forget_class": 1}
    overrides = {"data.name": str(tmp_path / "d.npz"), **sizes}
    keys = set()
    for pixel in (0.5, 0.25):
        x[0, 0, 0, 0] = pixel
        np.savez(tmp_path / "d.npz", x=x, y=y)
        keys.add(plan(Study.create("digits", seeds=[1], overrides=overrides))[0].models["original"].key)
    assert len(keys) == 2


def test_the_same_data_at_two_paths_share_their_artifacts(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 1, 8, 8)).astype(np.float32), np.arange(60) % 3
    sizes = {"data.train_size": 30, "data.validation_size": 10, "data.test_size": 15, "forget.forget_class": 1}
    quick = {**sizes, "train.epochs": 1, "relearn.epochs": 0, "audit.draws": 2, "audit.taus.gaussian": [0.0, 0.1]}
    results = []
    for folder in ("a", "b", "."):
        (tmp_path / folder).mkdir(exist_ok=True)
        np.savez(tmp_path / folder / "d.npz", x=x, y=y)
        name, root = (str(tmp_path / "d.npz"), None) if folder == "." else ("d.npz", tmp_path / folder)
        overrides = {**quick, "data.name": name}
        study = Study.create("tiny", methods="gd:epochs=1", seeds=[1], overrides=overrides, data_root=root)
        results.append(run_all([study], store=tmp_path / "store")[0])
        monkeypatch.setattr(Store, "_run", None)  # from here on, everything is there
    assert results[0] == results[1] == results[2]
